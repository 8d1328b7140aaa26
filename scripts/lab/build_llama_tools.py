"""Build llama.cpp's own tools from the source inside llama-cpp-python's source distribution.

`compare_grid.py` compares specchat with `llama-speculative-simple`. For a fair comparison both
must run the same machine code, so this script configures the wheel's own CMake project with the
wheel's settings (Release, native CPU; CMAKE_ARGS, CFLAGS and CXXFLAGS from the environment) and
adds the examples as targets.
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from platformdirs import user_cache_path

from scripts.setup_env.archives import extract
from scripts.setup_env.recipes import DEFINITIONS
from scripts.support.llama_tools import PACKAGE, find_tool, installed_version
from specchat.doctor.toolchains import WITHOUT_AMX

TOOLS = ("llama-speculative-simple", "llama-bench")


def main() -> int:
    """Download the source, build the tools and print their paths."""
    options = parse_arguments()
    require("cmake")
    wanted = options.version or installed_version()
    out: Path = options.out or user_cache_path("specchat") / "llama-tools" / wanted
    out.mkdir(parents=True, exist_ok=True)
    source = project_root(options.source) if options.source else None
    if source is None or source.is_file():
        source = unpack(source or download(wanted, out), out / "source")
    environment = build_environment(without_amx=options.no_amx)
    configure(source, out / "build", environment)
    compile_tools(out / "build", options.tools, options.jobs, environment)
    for tool in options.tools:
        print(find_tool(out / "build", tool))
    return 0


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--source",
        type=Path,
        help="an sdist, or its unpacked folder (or vendor/llama.cpp in it)",
    )
    parser.add_argument("--version", help="release to download (default: the installed one)")
    parser.add_argument("--out", type=Path, help="folder to build in (default: user cache)")
    parser.add_argument("--tools", nargs="+", default=list(TOOLS), metavar="TARGET")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--no-amx",
        action="store_true",
        help="leave AMX out: some virtual machines announce it without having it",
    )
    return parser.parse_args()


def require(program: str) -> None:
    """Exit with one line if a program is not installed."""
    if shutil.which(program) is None:
        sys.exit(f"{program} is not on the PATH: install it (pip install {program}) and try again")


def download(release: str, out: Path) -> Path:
    """Download a release's source distribution and return its path."""
    folder = out / "sdist"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-build-isolation"]
    run([*command, "--no-binary", ":all:", "--dest", str(folder), f"{PACKAGE}=={release}"])
    return next(folder.glob("*.tar.gz"))


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack an sdist once, in one step, and return the folder inside."""
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            with tarfile.open(archive) as tar:
                extract(tar, Path(scratch))
            Path(scratch).replace(folder)
            Path(scratch).mkdir()  # for the context manager to remove
    return project_root(next(folder.iterdir()))


def project_root(path: Path) -> Path:
    """Return the sdist's root, given the root, its vendored llama.cpp or an archive."""
    if path.is_file() or (path / "vendor" / "llama.cpp" / "CMakeLists.txt").is_file():
        return path.resolve()
    root = path.resolve().parent.parent
    if path.name == "llama.cpp" and (root / "CMakeLists.txt").is_file():
        return root
    sys.exit(f"{path} is not an unpacked source distribution of {PACKAGE}")


def build_environment(*, without_amx: bool) -> dict[str, str]:
    """Return the build environment; flags against AMX are added to the user's own."""
    environment = dict(os.environ)
    if without_amx:
        for name in ("CFLAGS", "CXXFLAGS"):
            environment[name] = f"{environment.get(name, '')} {' '.join(WITHOUT_AMX)}".strip()
    return environment


def configure(source: Path, build: Path, environment: dict[str, str]) -> None:
    """Configure the wheel's own project with llama.cpp's examples and tools as extra targets."""
    command = ["cmake", "-S", str(source), "-B", str(build), "-DCMAKE_BUILD_TYPE=Release"]
    if shutil.which("ninja"):
        command += ["-G", "Ninja"]
    command += [*DEFINITIONS, "-DLLAMA_BUILD_EXAMPLES=ON", "-DLLAMA_BUILD_TOOLS=ON"]
    command += ["-DLLAMA_BUILD_SERVER=ON", "-DLLAMA_USE_PREBUILT_UI=OFF"]  # a server without pages
    command += ["-DSKBUILD_PLATLIB_DIR=install"]  # required by the project; nothing is installed
    run([*command, *shlex.split(environment.get("CMAKE_ARGS", ""))], environment)


def compile_tools(build: Path, tools: list[str], jobs: int, environment: dict[str, str]) -> None:
    """Compile the tools."""
    command = ["cmake", "--build", str(build), "--config", "Release", "--parallel", str(jobs)]
    run([*command, "--target", *tools], environment)


def run(command: Sequence[str], environment: dict[str, str] | None = None) -> None:
    """Run a command with its output on stderr; exit if it fails."""
    print("+", shlex.join(command), file=sys.stderr, flush=True)
    done = subprocess.run(command, env=environment, stdout=sys.stderr, check=False)
    if done.returncode != 0:
        sys.exit(f"{command[0]} failed with exit code {done.returncode}")


if __name__ == "__main__":
    sys.exit(main())
