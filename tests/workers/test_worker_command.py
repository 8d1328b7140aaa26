"""`specchat worker` and what the doctor says of workers."""

from __future__ import annotations

import json
import os
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress

import pytest

from specchat import __version__
from specchat.cli import doctor, main
from specchat.doctor import backend, worker_checks
from specchat.doctor.worker_checks import check_worker
from specchat.llama import worker_server
from specchat.llama.child_process import BuildReport, ChildResult, ProbeReport
from specchat.llama.library import version
from specchat.llama.rpc_library import find_rpc
from specchat.options.worker_address import WorkerAddress
from specchat.workers import health_server, worker_probe
from specchat.workers.health import (
    HealthReport,
    NetworkTransfer,
    OfferedDevice,
    ask_for_id,
    ask_for_report,
    measure_transfer,
)
from specchat.workers.rpc_protocol import SPOKEN, rpc_connection
from tables import table
from worker_process import WorkerEnded, WorkerProcess, free_ports

needs_rpc = pytest.mark.skipif(
    find_rpc() is None, reason="this llama.cpp was built without its RPC backend"
)
BUILD = ChildResult(BuildReport(version(), "", can_offload=False, backends=("CPU",), devices=()))


def wait_until(is_true: Callable[[], bool]) -> None:
    """Wait for something that another process does."""
    deadline = time.monotonic() + 60
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@needs_rpc
def test_a_worker_says_what_it_lends_and_who_comes_and_goes() -> None:
    """A client that only looks is not reported; Ctrl+C ends it with 130 while one is served."""
    with WorkerProcess() as worker:
        address = worker.address
        assert worker.printed[0].startswith("lending ")
        assert "(CPU, " in worker.printed[0]
        assert worker.printed[1].startswith(
            f"listening on {address}, health on port {address.health_port}; Ctrl+C"
        )
        with rpc_connection(address.host, address.port, 5, 5) as short:
            assert short.hello() == SPOKEN
        with rpc_connection(address.host, address.port, 5, 5) as long:
            assert long.hello() == SPOKEN
            wait_until(lambda: worker.printed[2:] == ["127.0.0.1 connected\n"])
            assert ask_for_report(address, 5).clients == ("127.0.0.1",)
        wait_until(lambda: len(worker.printed) == 4)
        assert worker.printed[3].startswith("127.0.0.1 disconnected after ")
        with rpc_connection(address.host, address.port, 5, 5) as last:
            assert last.hello() == SPOKEN
            assert worker.end() == 130
    assert not any("Traceback" in line or "warning" in line for line in worker.printed)


@needs_rpc
def test_health_is_small_and_takes_no_orders() -> None:
    """Other paths do not exist, many who say nothing do not keep it from answering."""
    with WorkerProcess() as worker:
        address = worker.address
        report = ask_for_report(address, 5)
        assert (report.specchat, report.rpc) == (__version__, SPOKEN)
        assert report.llama.startswith(f"{version()}: ")
        assert [each.kind for each in report.devices] == ["cpu"]
        assert 0 < report.devices[0].free <= report.devices[0].total
        assert report.id == ask_for_id(address, 5)
        assert measure_transfer(address, 1 << 20, 5).num_bytes >= 1 << 20
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{address.health_port}/etc")
        silent = [socket.create_connection((address.host, address.health_port)) for _ in range(40)]
        assert ask_for_id(address, 5) == report.id
        for each in silent:
            each.close()


def test_a_request_has_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then does not keep it open."""
    monkeypatch.setattr(health_server, "REQUEST_SECONDS", 0.3)
    port = free_ports()
    server = health_server.HealthServer(socket.AF_INET, ("127.0.0.1", port), HealthReport)
    server.start()
    with socket.create_connection(("127.0.0.1", port)) as slow:
        slow.sendall(b"GET /alive HTTP/1.0\r\nX: ")
        slow.settimeout(0.05)

        def is_closed() -> bool:
            with suppress(TimeoutError):
                slow.sendall(b"a")
                return slow.recv(1) == b""
            return False

        wait_until(is_closed)
    assert ask_for_id(WorkerAddress("127.0.0.1", port - 1), 5) == server.id
    server.shutdown()
    server.server_close()


def test_without_a_list_of_descriptors_clients_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows, or where a sandbox hides it."""

    def missing(path: str) -> list[str]:
        raise FileNotFoundError(2, "No such file or directory", path)

    monkeypatch.setattr(os, "listdir", missing)
    assert list(worker_server._connections(1)) == []


@pytest.mark.slow
@needs_rpc
@table(
    ("words", "code", "said"),
    [
        (("--port", "{taken}"), 1, "port {taken} is in use by another program"),
        (("--port", "{before}"), 1, "port {taken} is in use by another program"),
        (("--host", "198.51.100.7"), 1, "this machine does not have the address of --host"),
        (("--devices", "CUDA9"), 2, "--devices CUDA9: unknown device; this machine has CPU"),
        (("--port", "65535"), 2, "--port must be a whole number from 1 to 65534"),
    ],
)
def test_what_goes_wrong_is_one_line(words: tuple[str, ...], code: int, said: str) -> None:
    """It ends before any client could come."""
    before = free_ports()
    with socket.create_server(("127.0.0.1", before + 1)):
        ports = {"taken": before + 1, "before": before}
        given = [word.format(**ports) for word in words]
        with pytest.raises(WorkerEnded) as raised:
            WorkerProcess(given, port=free_ports())
    assert raised.value.args[0] == code
    (line,) = raised.value.args[1].splitlines()
    assert line.startswith("specchat: ")
    assert said.format(**ports) in line


@needs_rpc
def test_an_open_worker_warns() -> None:
    """Anyone who reaches it can use it."""
    with WorkerProcess(("--host", "0.0.0.0")) as worker:  # noqa: S104  # on purpose
        wait_until(lambda: len(worker.printed) > 2)
        assert worker.printed[2].startswith("warning: anyone who can reach 0.0.0.0:")
        assert "no password and no encryption. Use ssh or WireGuard" in worker.printed[2]


@needs_rpc
@pytest.mark.skipif(not socket.has_ipv6, reason="there is no IPv6")
def test_a_worker_can_listen_with_ipv6() -> None:
    """llama.cpp cannot: what comes is passed on, and who it is from is known."""
    with WorkerProcess(("--host", "::1")) as worker:
        with rpc_connection("::1", worker.address.port, 5, 5) as client:
            assert client.hello() == SPOKEN
            assert client.count_devices() == 1
            address = WorkerAddress("::1", worker.address.port)
            assert ask_for_report(address, 5).clients == ("::1",)
            wait_until(lambda: "::1 connected\n" in worker.printed)
        finding = check_worker(WorkerAddress("::1", worker.address.port), BUILD, __version__)
        assert finding.state == "ok"
        assert f"on [::1]:{worker.address.port}" in finding.detail


@needs_rpc
def test_the_doctor_checks_workers() -> None:
    """Devices and the network of one that can be used, the reason for one that cannot."""
    with WorkerProcess() as worker:
        found = check_worker(worker.address, BUILD, __version__)
        assert (found.name, found.state) == ("worker", "ok")
        assert f"on {worker.address} (" in found.detail
        assert "; a request takes " in found.detail
        assert found.detail.endswith("/s")
        other = check_worker(worker.address, BUILD, "9.9")
        assert other.state == "warning"
        assert f"it runs specchat {__version__}, this machine 9.9" in other.detail
    gone = check_worker(worker.address, BUILD, __version__)
    assert gone.state == "problem"
    assert "is not reachable (connection refused): start `specchat worker` there" in gone.detail


def test_the_doctor_asks_no_other_machine_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Addresses of this machine are always asked."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(socket, "create_connection", pytest.fail)
    found = check_worker(WorkerAddress("192.0.2.7", 50052), BUILD, __version__)
    assert found.state == "problem"
    assert "the worker 192.0.2.7:50052 is on the network, and specchat is offline" in found.detail
    here = ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "localhost", "a.localhost.")
    assert all(WorkerAddress(each, 1).is_here for each in here)
    away = ("10.0.0.1", "0.0.0.0", "fd00::1", "localhost.org", "worker")  # noqa: S104  # a text
    assert not any(WorkerAddress(each, 1).is_here for each in away)


@needs_rpc
def test_the_doctor_shows_one_harmless_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a worker says of itself, and no rate of a few bytes."""
    hostile = HealthReport(
        id="a", specchat="\x1b[31m9" * 99, llama="\x1b[2J\nfoo: bar",
        devices=(OfferedDevice("N\n\u202e", "\x1b]52;c;AAAA\x07", "gpu", 2**80, 2**80),),
        clients=("\x1b[31m",),
    )  # fmt: skip
    monkeypatch.setattr(worker_probe, "ask_for_report", lambda *_: hostile)
    monkeypatch.setattr(worker_checks, "measure_transfer", lambda *_: NetworkTransfer(39, 1e-3))
    with WorkerProcess() as worker:
        found = check_worker(worker.address, BUILD, __version__)
    assert found.state == "warning"
    assert found.detail.isprintable()
    assert len(found.detail) < 700
    assert "B/s" not in found.detail
    assert "weights take long" not in found.detail


def test_a_build_without_rpc_is_named_with_the_next_step(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wherever a worker is asked for."""
    monkeypatch.setattr("specchat.llama.rpc_library.find_rpc", lambda: None)
    ended: list[int] = []

    def leave(code: int) -> None:
        ended.append(code)
        raise SystemExit(code)

    monkeypatch.setattr(os, "_exit", leave)
    with pytest.raises(SystemExit):
        main(["worker"])
    assert ended == [1]
    assert "built without its RPC backend, which workers need: `specchat doctor`" in (
        capsys.readouterr().err
    )
    assert BUILD.report
    report = BuildReport(
        version(), "", can_offload=False, backends=(), devices=(), can_use_workers=False
    )
    found = check_worker(WorkerAddress("127.0.0.1", 1), ChildResult(report), __version__)
    assert found.state == "problem"
    assert found.fix


@pytest.mark.slow
@needs_rpc
def test_the_doctor_command_takes_workers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that are named, or else those of the settings."""
    monkeypatch.setattr(doctor, "ask_for_build", lambda: BUILD)
    monkeypatch.setattr(backend, "try_decoding", lambda *_, **__: ChildResult(ProbeReport(1, 1)))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    gone = f"127.0.0.1:{free_ports()}"
    monkeypatch.setenv("SPECCHAT_WORKERS", gone)
    with WorkerProcess() as worker:
        for words, states in (
            (["--worker", str(worker.address), "--worker", gone], ["ok", "problem"]),
            ([], ["problem"]),
        ):
            assert main(["doctor", "--json", *words]) == 1
            found = json.loads(capsys.readouterr().out)["findings"]
            assert [each["state"] for each in found if each["name"] == "worker"] == states
