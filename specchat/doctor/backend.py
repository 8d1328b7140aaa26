"""Checks of llama.cpp: how it was built, and whether it decodes on the CPU and the GPU."""

import re
from collections.abc import Sequence
from pathlib import Path

from specchat.doctor import Finding
from specchat.doctor.repairs import (
    WITHOUT_AMX,
    library_commands,
    rebuild,
    reinstall,
    restore,
    wanted_version,
)
from specchat.doctor.system_gpus import has_driverless_nvidia
from specchat.doctor.toolchains import distribution
from specchat.images.picture import INSTALL_PILLOW
from specchat.llama.child_process import BuildReport, ChildResult, ProbeReport, try_decoding
from specchat.planning.device import Device, gpus_of
from specchat.wording import size_text

NOTABLE_INSTRUCTIONS = ("AVX", "AVX2", "AVX512", "AMX_INT8", "NEON", "DOTPROD", "SVE")
"""CPU instruction sets that make a build noticeably faster."""

NO_MODULE = re.compile(r"No module named '(\w+)")
"""The error of a package that is missing from the environment."""

MODEL = Path(__file__).resolve().parents[1] / "catalogue" / "demo" / "target.gguf"
BAD_INSTRUCTIONS = {"SIGILL", "SIGSEGV", "SIGBUS", "an illegal instruction", "an access violation"}
"""How a build crashes if it uses instructions that the CPU lacks."""

GPU_BACKENDS = {
    "CUDA": "CUDA", "Metal": "Metal", "MTL": "Metal", "ROCm": "ROCm", "HIP": "ROCm",
    "Vulkan": "Vulkan",
}  # fmt: skip
"""Our names for llama.cpp's backends."""

DRIVERS = {"ubuntu": "sudo ubuntu-drivers install", "debian": "sudo apt install nvidia-driver"}
ON_CPU = "specchat --gpu-layers 0"
OFFLOAD = "GPU offload"


def check_build(answer: ChildResult[BuildReport]) -> Finding:
    """Check that llama.cpp loads, and that its version is the one specchat needs."""
    name = "llama.cpp"
    if not answer.report:
        how = f"it crashes ({answer.death})" if answer.death else _reason(answer)
        detail = how if "llama" in how else f"llama-cpp-python cannot be loaded: {how}"
        missing = NO_MODULE.search(answer.error)
        if missing and missing[1] != "llama_cpp":
            return Finding(name, "problem", detail, restore(missing[1]))
        fix = library_commands(how) or rebuild(environment=_flags(answer))
        return Finding(name, "problem", detail, fix)
    version, wanted = answer.report.version, wanted_version()
    if wanted and not re.match(rf"{re.escape(wanted)}(?!\d)", version):
        detail = f"llama-cpp-python {version} is installed, specchat needs {wanted}"
        return Finding(name, "problem", detail, rebuild(_backend_of(answer.report)))
    backends = " and ".join(answer.report.backends)
    used = [
        instruction
        for instruction in NOTABLE_INSTRUCTIONS
        if f" {instruction} = 1" in answer.report.system
    ]
    using = f" ({', '.join(used)})" if used else ""
    chosen = f", its CPU library {answer.report.variant}" if answer.report.variant else ""
    detail = f"llama-cpp-python {version}, built for {backends}{chosen}{using}"
    if not answer.report.can_run_heads:
        fix = rebuild(_backend_of(answer.report))
        return Finding(name, "warning", f"{detail}; it cannot run prediction heads", fix)
    return Finding(name, "ok", detail)


def check_cpu(model: Path = MODEL) -> Finding:
    """Check that llama.cpp decodes on the CPU."""
    if not model.is_file():
        detail = f"not tested: {model}, which is part of specchat, is missing"
        return Finding("CPU", "problem", detail, reinstall())
    answer = try_decoding(model, on_gpu=False)
    if answer.report:
        decoded = f"decodes: {answer.report.batches} batches of a real model"
        return Finding("CPU", "ok", f"{decoded}; {_exactness(answer.report)}")
    detail = f"decoding {_failure(answer)}"
    if answer.death in BAD_INSTRUCTIONS:
        detail += ": this build uses instructions that the CPU lacks"
    return Finding("CPU", "problem", detail, rebuild(environment=_flags(answer)))


def check_gpus(gpus: Sequence[Device]) -> Finding:
    """List the GPUs that the system reports."""
    if gpus:
        return Finding("GPU", "ok", ", ".join(map(_with_driver, gpus)))
    if has_driverless_nvidia():
        detail = "an NVIDIA GPU without NVIDIA's driver"
        drivers = (DRIVERS[name] for name in distribution() if name in DRIVERS)
        driver = next(drivers, "# install NVIDIA's driver for this GPU, then restart")
        return Finding("GPU", "warning", detail, (driver,))
    return Finding("GPU", "ok", "none found: models run on the CPU")


def check_offload(
    build: ChildResult[BuildReport], gpus: Sequence[Device], model: Path = MODEL
) -> Finding:
    """Check that llama.cpp has GPU support, finds a device, and decodes on it."""
    report = build.report
    if not report:
        return Finding(OFFLOAD, "problem", "not tested: llama.cpp cannot be loaded", rebuild())
    if not report.can_offload and report.not_loaded and gpus:
        return _not_loaded(report, gpus[0])
    if not report.can_offload:
        return _not_compiled_in(gpus)
    usable = gpus_of(report.devices)
    if not usable:
        return _without_device(report, gpus)
    answer = try_decoding(model, on_gpu=True)
    if not answer.report:
        detail = f"decoding on {usable[0].label} {_failure(answer)}"
        return Finding(OFFLOAD, "problem", detail, (*rebuild(_backend_of(report)), ON_CPU))
    detail = f"decodes on {', '.join(map(_with_memory, usable))}; {_exactness(answer.report)}"
    return Finding(OFFLOAD, "ok", detail)


def check_images(build: ChildResult[BuildReport]) -> Finding:
    """Check that what reads images is here: llama.cpp's library for them, and Pillow."""
    name, report = "images", build.report
    if not report:
        return Finding(name, "problem", "not tested: llama.cpp cannot be loaded", rebuild())
    if reason := report.images_off_reason:
        lack, _, _ = reason.partition(":")  # then comes advice that knows nothing of backends
        needs_pillow = INSTALL_PILLOW in reason
        fix = (INSTALL_PILLOW,) if needs_pillow else rebuild(_backend_of(report))
        return Finding(name, "warning", lack, fix)
    if report.image_library:
        return Finding(name, "ok", f"read by {report.image_library}")
    return Finding(name, "ok", "llama.cpp's library for them is built when the first one comes")


def _exactness(report: ProbeReport) -> str:
    """Return up to which draft length --exact on is bit-exact."""
    if not report.exact_draft and not report.is_measured:
        return "too busy to measure which drafts --exact on verifies"
    if not report.exact_draft:
        return "no draft is verified with the bits of plain decoding"
    return f"--exact on verifies drafts up to {report.exact_draft} with the bits of plain decoding"


def _not_loaded(report: BuildReport, gpu: Device) -> Finding:
    """Explain why the backends that come with llama.cpp are not used."""
    reasons = "; ".join(
        f"{_own_name(name)} cannot be loaded: {why}" for name, why in report.not_loaded.items()
    )
    if gpu.backend not in map(_own_name, report.not_loaded):
        reasons += f"; {gpu.label} needs {gpu.backend}"
    fix = library_commands(reasons) or rebuild(gpu.backend)
    return Finding(OFFLOAD, "problem", reasons, fix)


def _own_name(backend: str) -> str:
    """Return our name for the backend of a library."""
    names = {library.lower(): name for library, name in GPU_BACKENDS.items()}
    return names.get(backend.lower(), backend)


def _not_compiled_in(gpus: Sequence[Device]) -> Finding:
    if not gpus:
        return Finding(OFFLOAD, "ok", "not compiled in; not needed without a GPU")
    gpu = gpus[0]
    detail = f"not compiled in: llama.cpp was built without {gpu.backend}, which {gpu.label} needs"
    is_slow = all(gpu.kind == "integrated" and gpu.backend == "Vulkan" for gpu in gpus)
    return Finding(OFFLOAD, "warning" if is_slow else "problem", detail, rebuild(gpu.backend))


def _without_device(report: BuildReport, gpus: Sequence[Device]) -> Finding:
    backend = _backend_of(report)
    if not gpus:
        return Finding(OFFLOAD, "warning", f"llama.cpp is built for {backend}, but has no GPU")
    gpu = gpus[0]
    if gpu.backend != backend:
        detail = f"llama.cpp is built for {backend}, but {gpu.label} needs {gpu.backend}"
        return Finding(OFFLOAD, "problem", detail, rebuild(gpu.backend))
    detail = f"llama.cpp is built for {backend}, but does not find {_with_driver(gpu)}"
    return Finding(OFFLOAD, "problem", detail, rebuild(backend))


def _with_driver(gpu: Device) -> str:
    return f"{gpu.label} (driver {gpu.driver})" if gpu.driver else gpu.label


def _with_memory(gpu: Device) -> str:
    room = f", {size_text(gpu.free)} of {size_text(gpu.total)} free" if gpu.total else ""
    return f"{gpu.label} ({gpu.name}{room})"


def _backend_of(report: BuildReport) -> str:
    return next(
        (GPU_BACKENDS[backend] for backend in report.backends if backend in GPU_BACKENDS), ""
    )


def _failure(answer: ChildResult[ProbeReport]) -> str:
    return f"crashes ({answer.death})" if answer.death else f"fails: {_reason(answer)}"


def _reason(answer: ChildResult[BuildReport] | ChildResult[ProbeReport]) -> str:
    """Return an error without the advice to run the command that is running."""
    return answer.error.partition(": `specchat doctor`")[0]


def _flags(answer: ChildResult[BuildReport] | ChildResult[ProbeReport]) -> dict[str, str]:
    """Return the compiler flags that avoid the crash, if it was an illegal instruction."""
    return WITHOUT_AMX if answer.death in BAD_INSTRUCTIONS else {}
