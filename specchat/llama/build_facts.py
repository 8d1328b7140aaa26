"""What a build of llama.cpp says of itself, read without llama_cpp, which takes far longer.

`ask` runs this file in a child process, for a build may use instructions that this machine lacks.
"""

import ctypes
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

INSTRUCTIONS = (
    *("sse3", "ssse3", "avx", "avx_vnni", "avx2", "f16c", "fma", "bmi2", "avx512", "avx512_vbmi"),
    *("avx512_vnni", "avx512_bf16", "amx_int8", "neon", "arm_fma", "fp16_va", "dotprod"),
    *("matmul_int8", "sve", "sme", "riscv_v", "vsx", "vxe", "llamafile"),
)
"""The endings of ggml's functions that return whether a CPU backend was built for a set."""
ENDINGS = {"win32": ".dll", "darwin": ".dylib"}
MOST_SECONDS = 10


def library_folder() -> Path | None:
    """Return the folder of llama.cpp's libraries, None if it is not installed."""
    spec = find_spec("llama_cpp")
    return Path(spec.origin).parent / "lib" if spec and spec.origin else None


def names_in(folder: Path) -> tuple[str, ...]:
    """Return the names of ggml's libraries in a folder: "cpu-haswell" of libggml-cpu-haswell.so."""
    ending = ENDINGS.get(sys.platform, ".so")
    names = (path.name.removesuffix(ending).removeprefix("lib") for path in folder.iterdir()
             if path.name.endswith(ending))  # fmt: skip
    return tuple(sorted(name.removeprefix("ggml-") for name in names if name.startswith("ggml-")))


def ask(folder: Path) -> dict[str, str]:
    """Return ggml's version, its commit, and the CPU's instruction sets; empty if it fails."""
    command = [sys.executable, "-I", "-S", __file__, str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=MOST_SECONDS, check=True)
        facts = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return {}
    return facts if isinstance(facts, dict) else {}


def _library(folder: Path, name: str) -> ctypes.CDLL:
    start = "" if sys.platform == "win32" else "lib"
    return ctypes.CDLL(str(folder / f"{start}ggml-{name}{ENDINGS.get(sys.platform, '.so')}"))


def _text(library: ctypes.CDLL, name: str) -> str:
    function = getattr(library, name)
    function.restype = ctypes.c_char_p
    return (function() or b"").decode("ascii", "replace")


def _facts(folder: Path) -> dict[str, str]:
    base = _library(folder, "base")
    facts = {"version": _text(base, "ggml_version"), "commit": _text(base, "ggml_commit")}
    if "cpu" in names_in(folder):  # otherwise one of several is chosen when it starts
        cpu = _library(folder, "cpu")
        has = (name for name in INSTRUCTIONS if getattr(cpu, f"ggml_cpu_has_{name}", int)())
        facts["instructions"] = " ".join(has)
    return facts


if __name__ == "__main__":
    print(json.dumps(_facts(Path(sys.argv[1]))))
