"""Checks of workers: whether they can be used, how far away they are, and what they lend."""

from collections.abc import Iterator

from specchat.doctor import Finding
from specchat.doctor.repairs import rebuild
from specchat.engine.worker_access import require_allowed
from specchat.errors import WorkerUnavailable
from specchat.llama.child_process import BuildReport, ChildResult
from specchat.options.worker_address import WorkerAddress
from specchat.planning.device import as_devices
from specchat.wording import size_text
from specchat.workers.health import NetworkTransfer, measure_transfer
from specchat.workers.worker_probe import WorkerReport, probe_worker

NAME = "worker"
NUM_ROUND_TRIPS = 20
TRANSFER_BYTES, TRANSFER_SECONDS = 32 << 20, 2.0
LEAST_BYTES = 1 << 20
"""The rate is only meaningful for at least this many bytes."""
SLOW_SECONDS = 2e-3
SLOW_TRANSFER = 100e6
"""Bytes per second: at this rate 10 GB of weights take 100 s."""
MILLISECONDS = 1e3


def check_worker(address: WorkerAddress, build: ChildResult[BuildReport], version: str) -> Finding:
    """Check that a worker can be used by this `version` of specchat, and measure the network."""
    if build.report and not build.report.can_use_workers:
        detail = f"{address} cannot be used: llama.cpp was built here without its RPC backend"
        return Finding(NAME, "problem", detail, rebuild())
    try:
        require_allowed([address])
        report = probe_worker(address, NUM_ROUND_TRIPS, patience=0.0)
    except WorkerUnavailable as error:
        return Finding(NAME, "problem", str(error))
    moved = NetworkTransfer()
    if report.has_health:
        try:
            moved = measure_transfer(address, TRANSFER_BYTES, TRANSFER_SECONDS)
        except OSError:
            moved = NetworkTransfer()
    devices = ", ".join(
        f"{device.label} ({size_text(device.free)} of {size_text(device.total)} free)"
        for device in as_devices(report)
    )
    latency = f"a request takes {MILLISECONDS * report.round_trip:.2g} ms"
    moved = moved if moved.num_bytes >= LEAST_BYTES else NetworkTransfer()
    rate = f", {size_text(moved.per_second)}/s" if moved.num_bytes else ""
    warnings = list(_warnings(report, moved, build, version))
    detail = "; ".join(filter(None, (devices, f"{latency}{rate}", *warnings)))
    return Finding(NAME, "warning" if warnings else "ok", detail)


def _warnings(
    report: WorkerReport, moved: NetworkTransfer, build: ChildResult[BuildReport], version: str
) -> Iterator[str]:
    """Yield warnings about a worker that can be used."""
    health = report.health
    if not report.has_health:
        yield (
            "it has no health port, so nothing notices when it hangs: run `specchat worker` there,"
            f" and forward port {report.address.health_port} too"
        )
    elif health.specchat != version:
        yield f"it runs specchat {health.specchat}, this machine {version}: install the same one"
    llama_version = health.llama.partition(":")[0]
    if build.report and llama_version and llama_version != build.report.version:
        yield f"its llama.cpp is another one ({llama_version}): answers may differ in the last bits"
    if report.round_trip > SLOW_SECONDS:
        yield "the network is slow to answer, and each pass waits for it: use a cable, not Wi-Fi"
    if moved.num_bytes and moved.per_second < SLOW_TRANSFER:
        yield "weights take long to send: use a faster network, a gigabit cable at least"
