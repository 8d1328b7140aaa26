"""Every check, in the order of a reader's interest."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from specchat.doctor.backend import check_build, check_cpu, check_graphics, check_offload
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
from specchat.doctor.system_gpus import find_graphics
from specchat.llama.child_process import ask_for_build
from specchat.planning.machine import gpus_among, keep_gpus

__all__ = ["examine"]


def examine(tell: Callable[[str], None] = lambda _: None) -> Iterator[Finding]:
    """Check everything and yield what is found; `tell` hears what is being looked at."""
    yield check_specchat()
    tell("asking llama.cpp what it was built for")
    build = ask_for_build()
    if build.report:
        keep_gpus(gpus_among(build.report["devices"]))
    yield check_build(build)
    tell("decoding on the CPU")
    yield check_cpu()
    tell("looking for GPUs")
    found = find_graphics()
    yield check_graphics(found)
    tell("trying the GPU")
    yield check_offload(build, found)
    yield check_memory()
    yield check_disk()
    yield from check_folders()
    yield check_saved_files()
    yield check_settings()
    yield check_catalogue()
    tell("asking the hub")
    yield check_network()
