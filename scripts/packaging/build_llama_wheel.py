"""Build a wheel of llama-cpp-python for any x86-64 CPU, for users without a compiler.

Run in a manylinux container, as .github/workflows/wheels.yml does, the wheel runs on the systems
that the container stands for; elsewhere, on systems with this C library or a newer one. The wheel
takes nothing from the machine but its C library and, for a GPU, the driver's libraries. It needs
the packages of scripts/requirements-build.txt, and auditwheel with patchelf on Linux.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

from scripts.setup_env.archives import extract
from scripts.setup_env.portable import (
    ANY_CPU,
    BACKENDS,
    SYSTEM_LIBRARIES,
    keep_package_only,
    libraries_of,
    prepare,
)
from scripts.setup_env.recipes import LLAMA, build_environment
from scripts.setup_env.running import SetUpFailed
from scripts.setup_env.stages import llama_version
from specchat.doctor.toolchains import HEADERS


def main() -> int:
    """Build the wheel and print its path and its libraries; return the exit code."""
    options = parse_arguments()
    try:
        source = unpacked_source(options.source, options.work)
        built = build(source, options.backend, options.jobs, options.work)
        smaller = keep_package_only(built, options.work / "smaller")
        wheel = smaller if options.no_repair else repair(smaller, options.backend, options.out)
        if options.no_repair:
            wheel = Path(shutil.copy(smaller, options.out))
    except (SetUpFailed, OSError) as failure:
        print(f"{Path(__file__).name}: {failure}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as failure:
        return int(failure.returncode) or 1
    print(wheel)
    print(f"{wheel.stat().st_size / 1e6:.1f} MB: {', '.join(libraries_of(wheel))}")
    return 0


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--backend", choices=sorted(BACKENDS), default="cpu")
    parser.add_argument("--source", type=Path, help="an sdist (default: from the package index)")
    parser.add_argument("--work", type=Path, default=Path("build", "llama"), metavar="FOLDER")
    parser.add_argument("--out", type=Path, default=Path("dist", "llama"), metavar="FOLDER")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--no-repair", action="store_true", help="skip auditwheel: for this machine alone"
    )
    options = parser.parse_args()
    options.work, options.out = options.work.resolve(), options.out.resolve()
    for folder in (options.work, options.out):
        folder.mkdir(parents=True, exist_ok=True)
    return options


def unpacked_source(sdist: Path | None, work: Path) -> Path:
    """Return the unpacked and changed source; an earlier call's is used again."""
    place = work / f"{LLAMA.replace('-', '_')}-{llama_version()}"
    if place.exists():
        return place
    if sdist is None:
        options = ("--no-deps", "--no-build-isolation", "--no-binary", LLAMA, "--dest", str(work))
        pip("download", *options, f"{LLAMA}=={llama_version()}")
        sdist = work / f"{place.name}.tar.gz"
    half = work / "half-unpacked"
    shutil.rmtree(half, ignore_errors=True)
    with tarfile.open(sdist) as archive:
        extract(archive, half)
    prepare(half / place.name)
    (half / place.name).replace(place)
    return place


def build(source: Path, backend: str, jobs: int, work: Path) -> Path:
    """Build the wheel, continuing an interrupted build."""
    environment = build_environment(ANY_CPU, BACKENDS[backend], jobs, os.environ)
    if backend == "vulkan":
        known = filter(None, (str(HEADERS), environment.get("CPLUS_INCLUDE_PATH")))
        environment["CPLUS_INCLUDE_PATH"] = os.pathsep.join(known)
    shutil.rmtree(source / "llama_cpp" / "lib", ignore_errors=True)  # of another backend
    place = work / backend
    options = ("--verbose", "--no-cache-dir", "--no-deps", "--no-build-isolation")
    folders = (
        "--wheel-dir",
        str(place),
        "--config-settings",
        f"build-dir={place / 'objects'}",
        str(source),
    )
    pip("wheel", *options, *folders, environment=environment)
    return newest(place)


def repair(wheel: Path, backend: str, out: Path) -> Path:
    """Bring in libraries that a system may lack, and name the oldest systems that it runs on."""
    excluded = [f"--exclude={name}" for name in SYSTEM_LIBRARIES[backend]]
    command = [sys.executable, "-m", "auditwheel", "repair", *excluded, "-w", str(out), str(wheel)]
    scripts = str(Path(sys.executable).parent)  # patchelf's
    path = os.pathsep.join([scripts, os.environ.get("PATH", "")])
    subprocess.run(command, check=True, env={**os.environ, "PATH": path})
    return newest(out)


def newest(folder: Path) -> Path:
    """Return the newest wheel of a folder."""
    return max(folder.glob("*.whl"), key=lambda path: path.stat().st_mtime_ns)


def pip(*words: str, environment: dict[str, str] | None = None) -> None:
    """Run pip with this Python; raises CalledProcessError."""
    command: Sequence[str] = (sys.executable, "-m", "pip", "--disable-pip-version-check", *words)
    subprocess.run(command, check=True, env=environment)


if __name__ == "__main__":
    sys.exit(main())
