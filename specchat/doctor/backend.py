"""llama.cpp: what it was built for, and whether it really decodes, on the CPU and on the GPU."""

from __future__ import annotations

import platform
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specchat.doctor.finding import Finding, State
from specchat.doctor.repairs import WITHOUT_AMX, build_again, reinstall, wanted_version
from specchat.doctor.system_gpus import Graphics, has_driverless_nvidia
from specchat.hub.cache import size_in_words
from specchat.llama.child_process import Answer, try_decoding

__all__ = ["check_build", "check_cpu", "check_graphics", "check_offload"]

TELLING = ("AVX", "AVX2", "AVX512", "AMX_INT8", "NEON", "DOTPROD", "SVE")
"""Of the instructions a build uses, those that make a difference one notices."""

MODEL = Path(__file__).resolve().parents[1] / "catalogue" / "demo" / "target.gguf"
BAD_INSTRUCTIONS = {"SIGILL", "SIGSEGV", "SIGBUS", "an illegal instruction", "an access violation"}
"""What a build dies of that uses instructions the CPU does not have."""

GPU_BACKENDS = {
    "CUDA": "CUDA", "Metal": "Metal", "MTL": "Metal", "ROCm": "ROCm", "HIP": "ROCm",
    "Vulkan": "Vulkan",
}  # fmt: skip
"""Those that llama.cpp may name, by our names."""

DRIVERS = {"ubuntu": "sudo ubuntu-drivers install", "debian": "sudo apt install nvidia-driver"}
ON_CPU = "specchat --gpu-layers 0"


def check_build(answer: Answer) -> Finding:
    """Say which llama.cpp this is, and whether it can be loaded at all."""
    name = "llama.cpp"
    if not answer.report:
        how = f"dies of {answer.death}" if answer.death else answer.error
        told = f"llama-cpp-python cannot be loaded: {how}"
        return Finding(name, "problem", told, build_again(environment=_cure(answer)))
    version, wanted = answer.report["version"], wanted_version()
    if wanted and not re.match(rf"{re.escape(wanted)}(?!\d)", version):
        told = f"llama-cpp-python {version} is not the {wanted} that specchat is written for"
        return Finding(name, "problem", told, build_again(_backend_of(answer.report)))
    backends = " and ".join(answer.report["backends"])
    used = [each for each in TELLING if f" {each} = 1" in answer.report["system"]]
    using = f" ({', '.join(used)})" if used else ""
    return Finding(name, "ok", f"llama-cpp-python {version}, built for {backends}{using}")


def check_cpu(model: Path = MODEL) -> Finding:
    """Decode on the CPU in a process of its own, and say whether that works."""
    if not model.is_file():
        told = f"nothing to decode with: {model}, which comes with specchat, is not there"
        return Finding("CPU", "problem", told, reinstall())
    answer = try_decoding(model, on_gpu=False)
    if answer.report:
        return Finding("CPU", "ok", f"decodes: {answer.report['batches']} batches of a real model")
    if not answer.death:
        return Finding("CPU", "problem", f"does not decode: {answer.error}", build_again())
    told = f"decoding dies of {answer.death}"
    if answer.death in BAD_INSTRUCTIONS:
        told += ": this build uses instructions that the CPU does not really have"
    return Finding("CPU", "problem", told, build_again(environment=_cure(answer)))


def check_graphics(found: Sequence[Graphics]) -> Finding:
    """Say which GPUs the system knows."""
    if found:
        return Finding("GPU", "ok", ", ".join(map(str, found)))
    if has_driverless_nvidia():
        told = "an NVIDIA GPU is here, but no driver of NVIDIA's"
        return Finding("GPU", "warning", told, (_driver_command(),))
    return Finding("GPU", "ok", "none found: the CPU does all the work")


def check_offload(build: Answer, found: Sequence[Graphics], model: Path = MODEL) -> Finding:
    """Say whether llama.cpp computes on the GPU: compiled in, with a device, really decoding."""
    name = "GPU offload"
    if not build.report:
        return Finding(name, "problem", "unknown: llama.cpp cannot be asked", build_again())
    if not build.report["can_offload"]:
        return _not_compiled_in(name, found)
    devices = [each for each in build.report["devices"] if "gpu" in each["kind"]]
    if not devices:
        return _without_device(name, build.report, found)
    answer = try_decoding(model, on_gpu=True)
    if not answer.report:
        how = f"dies of {answer.death}" if answer.death else f"fails: {answer.error}"
        told = f"decoding on {devices[0]['description']} {how}"
        return Finding(name, "problem", told, (*build_again(_backend_of(build.report)), ON_CPU))
    return Finding(name, "ok", f"decodes on {', '.join(map(_device, devices))}")


def _not_compiled_in(name: str, found: Sequence[Graphics]) -> Finding:
    if not found:
        return Finding(name, "ok", "not compiled in, and no GPU to need it")
    gpu = found[0]
    told = f"not compiled in: {gpu.name} is here, and llama.cpp was built without {gpu.backend}"
    state: State = "warning" if all(each.is_integrated for each in found) else "problem"
    return Finding(name, state, told, build_again(gpu.backend))


def _without_device(name: str, report: dict[str, Any], found: Sequence[Graphics]) -> Finding:
    """Tell of a build for a GPU that finds none: a driver's fault, where the system has one."""
    backend = _backend_of(report)
    if not found:
        return Finding(name, "warning", f"compiled in ({backend}), but there is no GPU to use it")
    if found[0].backend != backend:
        told = f"built for {backend}, which does not know {found[0].name}"
        return Finding(name, "problem", told, build_again(found[0].backend))
    told = f"built for {backend}, which finds no device though {found[0]} is here"
    return Finding(name, "problem", told, build_again(backend))


def _device(device: dict[str, Any]) -> str:
    free, total = (size_in_words(device[f"memory_{which}"]) for which in ("free", "total"))
    room = f", {free} of {total} free" if device["memory_total"] else ""
    return f"{device['description']} ({device['name']}{room})"


def _backend_of(report: dict[str, Any]) -> str:
    """Return the backend for GPUs that a build has."""
    return next((GPU_BACKENDS[each] for each in report["backends"] if each in GPU_BACKENDS), "")


def _cure(answer: Answer) -> dict[str, str]:
    return WITHOUT_AMX if answer.death in BAD_INSTRUCTIONS else {}


def _driver_command() -> str:
    try:
        system = platform.freedesktop_os_release().get("ID", "")
    except OSError:
        system = ""
    return DRIVERS.get(system, "# install NVIDIA's driver for this GPU, then restart")
