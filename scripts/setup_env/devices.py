"""The tests of tests/device, run with llama.cpp built for a GPU's backend.

That build lies beside the environment's own and goes before it on the path. Without a GPU, Mesa's
software renderer (llvmpipe) is Vulkan's device: a real one to llama.cpp, with memory of its own.
The shaders that it compiles are cached for the user beside the wheels: without them, the tests take
several times as long.

That renderer takes and frees blocks of over 128 KiB for every dispatch of a kernel. Unless a
program has freed a larger one before, glibc gives each back to the system at once: llama-server
had, specchat's engine had not, and spent a fifth of its CPU time on 3,500 page faults per pass.
Larger limits treat all alike.
"""

import os
import platform
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from scripts.setup_env import fast, stages, wheels
from scripts.setup_env.backends import (
    DRIVER_FOLDERS,
    MAKERS,
    can_build_vulkan,
    has_vulkan_driver,
    vulkan_gpu,
)
from scripts.setup_env.hints import reason
from scripts.setup_env.recipes import recipes_for
from scripts.setup_env.running import CommandFailed, SetUpFailed, only_one, run, run_pip, say
from specchat.doctor.toolchains import TOOLKITS, command_for, distribution

OPTION = "--device"
IF_POSSIBLE = "--if-possible"
"""After the backend's name: installs missing packages, and skips the tests if that fails."""
VARIABLE = "TEST_DEVICE"
"""Names the backend whose device the tests are to run on; without it they are skipped."""
TESTS_FOLDER = Path("tests", "device")
SOFTWARE_DRIVER = "lvp_icd*.json"
KEPT_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(64 << 20)}
"""The limits that glibc goes up to by itself after blocks of 32 MiB."""
APT = (
    *("apt-get", "--yes", "--quiet", "--no-install-recommends"),
    *(
        "-o",
        "Acquire::Retries=1",
        "-o",
        "Acquire::http::Timeout=30",
        "-o",
        "DPkg::Lock::Timeout=60",
    ),
)


def install_packages(name: str) -> None:
    """Install Debian's packages for a Vulkan build if they are missing and this user may."""
    packages = TOOLKITS["Vulkan"]["debian"].partition("install ")[2].split()
    has_driver = has_vulkan_driver(vulkan_gpu()) or _software_drivers()
    if name != "vulkan" or (can_build_vulkan() and has_driver):
        return
    if sys.platform != "linux" or os.geteuid() != 0 or not shutil.which(APT[0]):
        return  # `provide_build` names what is missing
    say(f"installing {' '.join(packages)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with suppress(CommandFailed):  # what is listed already may do
        run([*APT, "update"], environment)
    try:
        run([*APT, "install", *packages], environment)
    except CommandFailed as failure:
        raise SetUpFailed(f"apt-get cannot install them: {reason(failure.output)}") from None


def provide_build(name: str) -> Path:
    """Build llama.cpp for a backend, once, and return the folder it is installed in."""
    if name not in MAKERS:
        raise SetUpFailed(f"{OPTION} {name} is unknown: use {', '.join(MAKERS)}")
    if name == "vulkan" and not can_build_vulkan():
        packages = (
            command_for(distribution(), TOOLKITS["Vulkan"]) or "install glslc and the headers"
        )
        raise SetUpFailed(f"the device tests need a build for Vulkan: {packages}")
    version, backend = stages.llama_version(), MAKERS[name]()
    recipe = recipes_for(platform.machine(), sys.platform)[0]
    entry = wheels.entry_for(version, backend, recipe)
    folder = Path(fast.RECORDS) / "devices" / entry.folder.name
    with only_one():
        if not folder.exists():
            wheel = entry.wheel or entry.keep(wheels.build(version, backend, recipe))
            wheels.forget_build()
            half = folder.with_name(f"{folder.name}.half")
            shutil.rmtree(half, ignore_errors=True)
            run_pip("install", "--no-deps", "--target", str(half), str(wheel))
            half.replace(folder)
    return folder


def device_environment(name: str, build: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the tests; the user's own settings win."""
    path = os.pathsep.join(filter(None, [str(build), environ.get("PYTHONPATH")]))
    chosen = {VARIABLE: name}
    if name == "vulkan" and not has_vulkan_driver(vulkan_gpu()):
        chosen |= _software_renderer()
    return {**chosen, **environ, "PYTHONPATH": path}


def arguments_of(arguments: Sequence[str]) -> list[str]:
    """Return pytest's arguments: the tests named, or all that need a device."""
    names_tests = any(Path(each.partition("::")[0]).exists() for each in arguments)
    return list(arguments) if names_tests else [str(TESTS_FOLDER), *arguments]


def _software_renderer() -> dict[str, str]:
    """Return the variables that make Mesa's software renderer the device that llama.cpp uses."""
    drivers = _software_drivers()
    if not drivers:
        raise SetUpFailed("no GPU and no software renderer: sudo apt install mesa-vulkan-drivers")
    return {
        "VK_ICD_FILENAMES": str(drivers[0]),
        "GGML_VK_VISIBLE_DEVICES": "0",
        "MESA_SHADER_CACHE_DIR": str(wheels.cache_folder().with_name("shaders")),
        **KEPT_MEMORY,
    }


def _software_drivers() -> list[Path]:
    return [path for folder in DRIVER_FOLDERS for path in Path(folder).glob(SOFTWARE_DRIVER)]
