"""All checks, in the order they are shown."""

from collections.abc import Callable, Iterator

from specchat.doctor.backend import check_build, check_cpu, check_gpus, check_offload
from specchat.doctor.finding import Finding
from specchat.doctor.host import (
    check_catalogue,
    check_disk,
    check_folders,
    check_memory,
    check_saved_files,
    check_settings,
    check_specchat,
)
from specchat.doctor.network import check_network
from specchat.doctor.system_gpus import find_system_gpus
from specchat.llama.child_process import ask_for_build
from specchat.planning.device import gpus_of, keep_gpus


def examine(on_progress: Callable[[str], None] = lambda _: None) -> Iterator[Finding]:
    """Yield the finding of every check; `on_progress` gets the name of each slow step."""
    yield check_specchat()
    on_progress("loading llama.cpp")
    build = ask_for_build()
    if build.report:
        keep_gpus(gpus_of(build.report.devices))
    yield check_build(build)
    on_progress("decoding on the CPU")
    yield check_cpu()
    on_progress("looking for GPUs")
    gpus = find_system_gpus()
    yield check_gpus(gpus)
    on_progress("decoding on the GPU")
    yield check_offload(build, gpus)
    yield check_memory()
    yield check_disk()
    yield from check_folders()
    yield check_saved_files()
    yield check_settings()
    yield check_catalogue()
    on_progress("contacting the hub")
    yield check_network()
