"""The commands that rebuild llama.cpp for this machine, and reinstall specchat."""

import importlib.metadata
import importlib.util
import shlex
import shutil
import sys
from collections.abc import Mapping

from specchat.doctor import toolchains
from specchat.system.clone import ROOT, is_clone

LLAMA = "llama-cpp-python"
WITHOUT_AMX = {name: " ".join(toolchains.WITHOUT_AMX) for name in ("CFLAGS", "CXXFLAGS")}
"""Variables that disable instructions which some virtual machines report but do not support."""
LIBRARIES = {
    "libgomp.so.1": {
        "debian": "sudo apt install libgomp1",
        "fedora": "sudo dnf install libgomp",
        "suse": "sudo zypper install libgomp1",
        "arch": "sudo pacman -S gcc-libs",
    },
    "libvulkan.so.1": {
        "debian": "sudo apt install libvulkan1 mesa-vulkan-drivers",
        "fedora": "sudo dnf install vulkan-loader mesa-vulkan-drivers",
        "arch": "sudo pacman -S vulkan-icd-loader",
    },
}
"""The commands that install libraries which prebuilt wheels need, by family of distributions."""


def rebuild(backend: str = "", environment: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the commands that rebuild llama.cpp for a backend, or for the CPU alone."""
    before = tuple(filter(None, [toolkit_command(backend)]))
    if is_clone():  # the set-up script detects the right CPU instructions itself
        return (*before, *_rerun_set_up({"SPECCHAT_BACKEND": backend.lower()} if backend else {}))
    of_backend = [toolchains.DEFINITIONS[backend]] if backend else []
    definitions = {"CMAKE_ARGS": " ".join([*of_backend, *toolchains.WORKERS])}
    if backend == "Vulkan":
        definitions["CPLUS_INCLUDE_PATH"] = str(toolchains.HEADERS)
    chosen = {**(environment or {}), **_compiler_variables(backend), **definitions}
    version = wanted_version()
    has_needs = importlib.util.find_spec("llama_cpp") is not None
    package = f"{LLAMA}=={version}" if version else LLAMA
    command = _install_command(package, *["--no-deps"] * has_needs, "--no-binary", LLAMA)
    return (*before, _with_environment(chosen, command))


def reinstall() -> tuple[str, ...]:
    """Return the command that restores specchat's own files."""
    if is_clone():
        return (f"git -C {quoted(str(ROOT))} checkout -- specchat",)
    return (_install_command("specchat", "--no-deps"),)


def library_commands(reason: str) -> tuple[str, ...]:
    """Return the command that installs the library that a reason says is missing, if known."""
    for name, commands in LIBRARIES.items():
        if name in reason and "cannot open shared object file" in reason:
            command = toolchains.command_for(toolchains.distribution(), commands)
            return (command or f"# install {name}",)
    return ()


def restore(package: str) -> tuple[str, ...]:
    """Return the commands that bring a missing package back."""
    if is_clone():  # without the stamp, the set-up script makes its environment again
        return _rerun_set_up({}, "venv")
    return (_install_command(package),)


def toolkit_command(backend: str) -> str:
    """Return the command that installs a backend's compiler; empty if it is already installed."""
    compiler = toolchains.COMPILERS.get(backend)
    if compiler is None or shutil.which(compiler) or _compiler_variables(backend):
        return ""
    commands = toolchains.TOOLKITS.get(backend, {})
    command = toolchains.command_for(toolchains.distribution(), commands)
    return command or f"# install the compiler for {backend} ({compiler})"


def wanted_version() -> str:
    """Return the version of llama-cpp-python that specchat needs; empty if unknown."""
    try:
        required = importlib.metadata.requires("specchat") or []
    except importlib.metadata.PackageNotFoundError:
        return ""
    requirement = next((entry for entry in required if entry.startswith(LLAMA)), "")
    return requirement.partition(">=")[2].partition(",")[0]


def _rerun_set_up(environment: Mapping[str, str], stage: str = "llama") -> tuple[str, ...]:
    """Return the commands that make a clone's set-up script repeat a stage, such as the build."""
    stamps = [str(ROOT / ".venv" / "setup" / name) for name in ("ready", stage)]
    doctor = [str(ROOT / "scripts" / "specchat"), "doctor"]
    if sys.platform == "win32":
        forget = f"Remove-Item {', '.join(map(quoted, stamps))}"
        return forget, _with_environment(environment, f"python {' '.join(map(quoted, doctor))}")
    return f"rm -f {shlex.join(stamps)}", _with_environment(environment, shlex.join(doctor))


def _install_command(package: str, *options: str) -> str:
    """Return the command that reinstalls a package, with pip or uv."""
    python = sys.executable
    command = [python, "-m", "pip", "install", "--force-reinstall", "--no-cache-dir"]
    if importlib.util.find_spec("pip") is None:
        command = ["uv", "pip", "install", "--python", python, "--reinstall", "--no-cache"]
    call = "& " if sys.platform == "win32" else ""
    return call + " ".join(map(quoted, [*command, *options, package]))


def _with_environment(environment: Mapping[str, str], command: str) -> str:
    """Prefix a command with environment variables, in the syntax of the system's shell."""
    pattern = '$env:{}="{}"; ' if sys.platform == "win32" else '{}="{}" '
    return "".join(pattern.format(name, value) for name, value in environment.items()) + command


def quoted(word: str) -> str:
    """Return a word as the system's shell takes it."""
    if sys.platform == "win32":
        return f'"{word}"' if " " in word else word
    return shlex.quote(word)


def _compiler_variables(backend: str) -> Mapping[str, str]:
    """Return the variable that points to CUDA's compiler, if that is not on the PATH."""
    if backend != "CUDA" or shutil.which("nvcc"):
        return {}
    compiler = toolchains.find_nvcc()
    return {"CUDACXX": compiler} if compiler else {}
