"""How to build a wheel of llama.cpp that others install: for any CPU of one architecture.

Each backend is a library of its own, and the CPU's come in several, one for each generation of
instruction sets. specchat loads what fits the machine it runs on
(`specchat.llama.native_libraries`). The variant with AMX is not built: some virtual machines report
these instructions but do not support them, and the variant below it has all others.
"""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path

from scripts.setup_env.exact_kernels import add_switch
from scripts.setup_env.recipes import Backend, Recipe
from scripts.setup_env.running import SetUpFailed
from scripts.setup_env.unused_parts import leave_out
from specchat.doctor.toolchains import DEFINITIONS

ANY_CPU = Recipe(
    "any CPU",
    definitions=(
        "-DLLAVA_BUILD=ON",  # a clone builds it when it is needed, other installations cannot
        "-DMTMD_VIDEO=OFF",
        "-DGGML_NATIVE=OFF",
        "-DGGML_BACKEND_DL=ON",
        "-DGGML_CPU_ALL_VARIANTS=ON",
        # where llama-cpp-python looks for its libraries; it does not install those of variants
        "-DCMAKE_INSTALL_BINDIR=llama_cpp/lib",
        # a library needs no version in a folder of its own; wheels hold links as whole copies
        "-DCMAKE_PLATFORM_NO_VERSIONED_SONAME=ON",
    ),
)
NEIGHBOURS = "'-DCMAKE_INSTALL_RPATH=$ORIGIN'"
"""Libraries find those beside them; in quotes, because CMAKE_ARGS is split as a shell would."""
OF_PACKAGES = (
    "'-DCMAKE_INSTALL_RPATH=$ORIGIN;$ORIGIN/../../nvidia/cuda_runtime/lib;"
    "$ORIGIN/../../nvidia/cublas/lib'"
)
"""The same, and CUDA's libraries if they come as Python packages."""
BACKENDS = {
    "cpu": Backend("CPU", (NEIGHBOURS,), core_minutes=13),
    "vulkan": Backend("Vulkan", (NEIGHBOURS, DEFINITIONS["Vulkan"]), core_minutes=45),
    "cuda": Backend("CUDA", (OF_PACKAGES, DEFINITIONS["CUDA"]), core_minutes=240),
}
SYSTEM_LIBRARIES = {
    "cpu": (),
    "vulkan": ("libvulkan.so.1",),
    "cuda": ("libcuda.so.1", "libcudart.so.12", "libcublas.so.12", "libcublasLt.so.12"),
}
"""What a wheel takes from the machine, which has it if it has the device: drivers and their kin."""

VARIANTS = Path("vendor", "llama.cpp", "ggml", "src", "CMakeLists.txt")
WITH_AMX = "            ggml_add_cpu_backend_variant(sapphirerapids "
PACKAGE = ("llama_cpp/", "llama_cpp_python-")
"""The folders of a wheel that belong to the package."""


def prepare(source: Path) -> None:
    """Change an unpacked source of llama-cpp-python; raises SetUpFailed where it does not fit."""
    variants = source / VARIANTS
    lines = variants.read_text("utf-8").splitlines(keepends=True)
    kept = [line for line in lines if not line.startswith(WITH_AMX)]
    if len(lines) - len(kept) != 1 or not leave_out(source) or not add_switch(source):
        raise SetUpFailed(f"{source} is a release that these changes are not written for")
    variants.write_text("".join(kept), "utf-8")


def keep_package_only(wheel: Path, out: Path) -> Path:
    """Write a copy of a wheel without what CMake installs beside the package; return its path.

    Headers and copies of libraries would lie in the user's environment, and be loaded by nothing.
    """
    target = out / wheel.name
    out.mkdir(parents=True, exist_ok=True)
    with (
        zipfile.ZipFile(wheel) as archive,
        zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as smaller,
    ):
        infos = [each for each in archive.infolist() if each.filename.startswith(PACKAGE)]
        (record,) = (each for each in infos if each.filename.endswith(".dist-info/RECORD"))
        lines = []
        for info in infos:
            if info is not record:
                data = archive.read(info)
                smaller.writestr(info, data, zipfile.ZIP_DEFLATED)
                lines.append(_record(info.filename, data))
        lines.append(f"{record.filename},,")
        smaller.writestr(record, "\n".join(lines) + "\n", zipfile.ZIP_DEFLATED)
    return target


def _record(name: str, data: bytes) -> str:
    """Return a file's line in RECORD: its name, hash and size."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
    return f"{name},sha256={digest},{len(data)}"


def libraries_of(wheel: Path) -> list[str]:
    """Return the names of the libraries in a wheel, without folder and suffix."""
    with zipfile.ZipFile(wheel) as archive:
        paths = map(Path, archive.namelist())
        return sorted(path.stem.removeprefix("lib") for path in paths if path.suffix == ".so")
