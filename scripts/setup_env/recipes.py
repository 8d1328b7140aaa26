"""The ways to build llama.cpp for a machine, best first, and their build environments.

A native build uses every instruction the CPU announces. A virtual machine may announce AMX without
having it, and then every quantized batch of four or more tokens crashes. So the later recipes leave
such instructions out, and the set-up takes the first recipe that passes the probe.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from specchat.doctor import toolchains

LLAMA = "llama-cpp-python"
X86 = frozenset({"x86_64", "amd64", "i386", "i686"})
DEFINITIONS = ("-DLLAVA_BUILD=OFF", *toolchains.WORKERS)
"""What all builds have in common."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """One way to build for the CPU."""

    name: str
    compiler_flags: tuple[str, ...] = ()
    definitions: tuple[str, ...] = ()


NATIVE = Recipe("native", definitions=("-DGGML_NATIVE=ON",))
WITHOUT_AMX = Recipe(
    "without AMX",
    # CMake's GGML_AMX_* options have no effect in native builds
    compiler_flags=toolchains.WITHOUT_AMX,
    definitions=("-DGGML_NATIVE=ON",),
)
PORTABLE = Recipe("portable", definitions=("-DGGML_NATIVE=OFF",))


@dataclass(frozen=True, slots=True)
class Backend:
    """What llama.cpp computes on, and roughly how long one core takes to build it."""

    name: str
    definitions: tuple[str, ...] = ()
    core_minutes: int = 3
    toolkit: str = ""
    """The version of the toolkit it is linked with: another version needs another wheel."""
    compiler: str = ""
    """The toolkit's compiler if it is not on the PATH."""
    include: str = ""
    """A folder of headers that come before the system's."""


def recipes_for(machine: str, platform: str) -> tuple[Recipe, ...]:
    """Return the recipes to try on a kind of machine, best first."""
    has_amx_flags = machine.lower() in X86 and platform != "win32"  # Microsoft's compiler has none
    return (NATIVE, WITHOUT_AMX, PORTABLE) if has_amx_flags else (NATIVE, PORTABLE)


def build_environment(
    recipe: Recipe, backend: Backend, jobs: int, environ: Mapping[str, str]
) -> dict[str, str]:
    """Return the build environment; the user's settings come last and win."""
    definitions = (*DEFINITIONS, *backend.definitions, *recipe.definitions)
    environment = {"CMAKE_BUILD_PARALLEL_LEVEL": str(jobs)}
    if backend.compiler:
        environment["CUDACXX"] = backend.compiler
    environment |= environ
    if backend.include:
        folders = (backend.include, environ.get("CPLUS_INCLUDE_PATH"))
        environment["CPLUS_INCLUDE_PATH"] = os.pathsep.join(filter(None, folders))
    environment["CMAKE_ARGS"] = _join(*definitions, environ.get("CMAKE_ARGS", ""))
    for name in ("CFLAGS", "CXXFLAGS"):
        if recipe.compiler_flags:
            environment[name] = _join(environ.get(name, ""), *recipe.compiler_flags)
    return environment


def user_choices(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the user's own build settings, which lead to a different wheel."""
    names = ("CMAKE_ARGS", "CC", "CXX", "CFLAGS", "CXXFLAGS")
    return tuple(f"{name}={environ[name]}" for name in names if environ.get(name))


def _join(*words: str) -> str:
    return " ".join(word for word in words if word)
