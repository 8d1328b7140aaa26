"""What reads images, made the first time one is shown: Pillow, and llama.cpp's library (libmtmd).

The library takes as long as a fifth of llama.cpp, which a first answer to a text should not wait
for. One for a release of llama.cpp serves all its builds on this kind of machine.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from scripts.setup_env import fast, wheels
from scripts.setup_env.hints import failure_of_command
from scripts.setup_env.machine import lack_of_compilers, num_jobs
from scripts.setup_env.recipes import Backend
from scripts.setup_env.running import (
    BuildSteps,
    CommandFailed,
    SetUpFailed,
    only_one,
    run,
    run_pip,
    say,
)
from scripts.setup_env.stages import TESTING, llama_version, requirements, write_stamp

IMAGES = "images"
"""The stamp of what is made here."""
PROJECT = Path(__file__).parent / "images"
INSIDE = Path("vendor", "llama.cpp")
CPU = Backend("CPU", core_minutes=2)
PATTERN = "*mtmd*"


def provide() -> None:
    """Make what is missing. Raises SetUpFailed, CommandFailed and OSError."""
    if fast.is_ready(IMAGES) and _is_here():
        return
    with only_one():
        run_pip("install", *(pin for pin in requirements(TESTING) if pin.startswith("pillow")))
        if not _is_here():
            _build(wheels.BUILD / "images")
        write_stamp(IMAGES, fast.wanted_state())


def folder() -> Path:
    """Return where the library is kept for this release of llama.cpp."""
    return wheels.cache_folder().parent / "mtmd" / llama_version()


def _is_here() -> bool:
    return any(any(place.glob(PATTERN)) for place in (_libraries(), folder()))


def _libraries() -> Path:
    """Return the folder of the installed llama.cpp's libraries. Raises SetUpFailed without any."""
    found = next(Path(fast.VENV).rglob("site-packages/llama_cpp/lib"), None)
    if found is None:
        raise SetUpFailed("llama.cpp is not installed: run scripts/specchat first")
    return found


def _build(place: Path) -> None:
    place.mkdir(parents=True, exist_ok=True)
    if lack := lack_of_compilers(place):
        raise SetUpFailed(f"{lack}, then run this again")
    jobs = num_jobs(CPU)
    say(f"building what reads images (about {max(1, round(CPU.core_minutes / jobs))} min, once)")
    source = wheels.source(llama_version())
    objects = place / "objects"
    steps = BuildSteps(place / "steps")
    for command in commands(source / INSIDE, _libraries(), objects, jobs):
        run(command, steps=steps)
    keep(objects / "out", folder())
    wheels.forget_build()


def commands(source: Path, libraries: Path, objects: Path, jobs: int) -> Sequence[Sequence[str]]:
    """Return the commands that build the library from llama.cpp's source into `objects`/out."""
    tools = Path(fast.venv_python()).parent
    suffix = ".exe" if sys.platform == "win32" else ""
    cmake, ninja = (str(tools / f"{name}{suffix}") for name in ("cmake", "ninja"))
    about = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}", "-DCMAKE_BUILD_TYPE=Release"]
    places = [f"-DSOURCE={source}", f"-DLIBRARIES={libraries}"]
    return (
        [cmake, "-S", str(PROJECT), "-B", str(objects), *about, *places],
        [cmake, "--build", str(objects), "--target", "mtmd", "--parallel", str(jobs)],
    )


def keep(built: Path, place: Path) -> None:
    """Copy the library to its place in one step, under the name that it is loaded by."""
    library = next(path for path in built.glob(PATTERN) if path.suffix in {".so", ".dylib", ".dll"})
    place.mkdir(parents=True, exist_ok=True)
    half = place / "half-copied"
    try:
        shutil.copyfile(library, half)
        half.replace(place / library.name)
    finally:
        half.unlink(missing_ok=True)


def main() -> int:
    """Make what is missing; say why not, if it cannot be made."""
    try:
        provide()
    except (SetUpFailed, OSError) as failure:
        say(f"images cannot be read: {failure}")
    except CommandFailed as failure:
        say(f"images cannot be read: {failure_of_command(failure.output, [wheels.BUILD])}")
    else:
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
