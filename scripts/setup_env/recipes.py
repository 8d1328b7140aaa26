"""The ways to build llama.cpp for one machine, best first, and the environment each is built in.

A native build uses every instruction the CPU announces. A virtual machine may announce AMX without
really having it, and then every quantised batch of four or more tokens dies; so the recipes after
the first leave such instructions out, and the set-up takes the first one that survives its probe.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

LLAMA = "llama-cpp-python"
X86 = frozenset({"x86_64", "amd64", "i386", "i686"})


@dataclass(frozen=True, slots=True)
class Recipe:
    """One way to build for the CPU."""

    name: str
    compiler_flags: tuple[str, ...] = ()
    definitions: tuple[str, ...] = ()


NATIVE = Recipe("native", definitions=("-DGGML_NATIVE=ON",))
WITHOUT_AMX = Recipe(
    "without AMX",
    # cmake's GGML_AMX_* options only count in builds that are not native
    compiler_flags=("-mno-amx-tile", "-mno-amx-int8", "-mno-amx-bf16"),
    definitions=("-DGGML_NATIVE=ON",),
)
PORTABLE = Recipe("portable", definitions=("-DGGML_NATIVE=OFF",))


@dataclass(frozen=True, slots=True)
class Backend:
    """What llama.cpp computes on, and about how long one core takes to build it."""

    name: str
    definitions: tuple[str, ...] = ()
    core_minutes: int = 7
    toolkit: str = ""
    """The version of the toolkit it is linked with; a wheel does not outlive its toolkit."""
    compiler: str = ""
    """The toolkit's compiler, where it is not on the PATH."""


def recipes_for(machine: str, platform: str) -> tuple[Recipe, ...]:
    """Return the recipes to try on this kind of machine, best first."""
    has_amx_flags = machine.lower() in X86 and platform != "win32"  # Microsoft's compiler has none
    return (NATIVE, WITHOUT_AMX, PORTABLE) if has_amx_flags else (NATIVE, PORTABLE)


def build_environment(
    recipe: Recipe, backend: Backend, jobs: int, environ: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment to build in; what the user set comes last, so it wins."""
    definitions = ("-DLLAVA_BUILD=OFF", *backend.definitions, *recipe.definitions)
    environment = {"CMAKE_BUILD_PARALLEL_LEVEL": str(jobs)}
    if backend.compiler:
        environment["CUDACXX"] = backend.compiler
    environment |= environ
    environment["CMAKE_ARGS"] = _join(*definitions, environ.get("CMAKE_ARGS", ""))
    for name in ("CFLAGS", "CXXFLAGS"):
        if recipe.compiler_flags:
            environment[name] = _join(environ.get(name, ""), *recipe.compiler_flags)
    return environment


def user_choices(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the user's own build settings, which make another wheel."""
    names = ("CMAKE_ARGS", "CC", "CXX", "CFLAGS", "CXXFLAGS")
    return tuple(f"{name}={environ[name]}" for name in names if environ.get(name))


def _join(*words: str) -> str:
    return " ".join(word for word in words if word)
