"""`specchat --version`: the versions and the build, found without loading llama.cpp."""

import platform
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

import specchat
from specchat.doctor.install_method import find_installation
from specchat.llama.build_facts import ask, library_folder, names_in

LABELS = {"cuda": "CUDA", "vulkan": "Vulkan", "metal": "Metal", "hip": "ROCm", "sycl": "SYCL"}
"""Our names for backends, by those of their libraries."""
NOT_BACKENDS = ("base", "cpu", "rpc")


def version_lines() -> Iterator[str]:
    """Yield the lines: specchat, Python, llama.cpp, and how specchat was installed."""
    yield f"specchat {specchat.__version__}"
    system = f"{platform.system()} {platform.machine()}"
    yield f"Python {platform.python_version()}, {system}: {sys.executable}"
    yield from _llama_lines()
    yield f"installed from {find_installation()}"


def _llama_lines() -> Iterator[str]:
    try:
        package = f"llama-cpp-python {version('llama-cpp-python')}"
    except PackageNotFoundError:
        package = "llama-cpp-python not installed"
    folder = library_folder()
    if folder is None or not folder.is_dir():
        yield f"{package}; `specchat doctor` says what to do"
        return
    names, facts = names_in(folder), ask(folder)
    build = f", ggml {facts['version']} ({facts['commit']})" if facts else ""
    yield f"{package}{build}: {folder}"
    gpus = [LABELS.get(name, name) for name in names if not name.startswith(NOT_BACKENDS)]
    yield f"backends: {', '.join(['CPU', *gpus])}"
    variants = [name.removeprefix("cpu-") for name in names if name.startswith("cpu-")]
    if variants:
        yield f"instruction sets: chosen at the start of {', '.join(variants)}"
    elif facts:
        yield f"instruction sets: {facts.get('instructions') or 'none beyond the basic ones'}"
    else:
        yield "instruction sets: llama.cpp cannot be loaded; `specchat doctor` says what to do"
