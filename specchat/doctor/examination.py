"""All checks, in the order they are shown."""

from collections.abc import Callable, Iterator

from specchat.doctor import backend, host, network
from specchat.doctor.finding import Finding
from specchat.doctor.system_gpus import find_system_gpus
from specchat.llama.child_process import ask_for_build
from specchat.planning.device import gpus_of, keep_gpus


def examine(on_progress: Callable[[str], None] = lambda _: None) -> Iterator[Finding]:
    """Yield the finding of every check; `on_progress` gets the name of each slow step."""
    yield host.check_specchat()
    on_progress("loading llama.cpp")
    build = ask_for_build()
    if build.report:
        keep_gpus(gpus_of(build.report.devices))
    yield backend.check_build(build)
    on_progress("decoding on the CPU")
    yield backend.check_cpu()
    on_progress("looking for GPUs")
    gpus = find_system_gpus()
    yield backend.check_gpus(gpus)
    on_progress("decoding on the GPU")
    yield backend.check_offload(build, gpus)
    yield host.check_memory()
    yield host.check_disk()
    yield from host.check_folders()
    yield host.check_saved_files()
    yield host.check_settings()
    yield host.check_catalogue()
    on_progress("contacting the hub")
    yield network.check_network()
