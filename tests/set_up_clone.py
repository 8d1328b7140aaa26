"""A clone whose set-up runs for real, with stand-ins for pip, the probe and the tools on the PATH.

The set-up makes its environment with `python -m venv` and then runs that environment's Python. Here
both are stand-ins: they note each call, do what it would leave behind, and answer as planned.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parents[1]
COPIED = (
    "pyproject.toml",
    "specchat/__init__.py",
    "specchat/system/control_groups.py",
    "specchat/system/installation.py",
    "specchat/doctor",
    "scripts",
)
NOTED = (
    *("CMAKE_ARGS", "CFLAGS", "CXXFLAGS", "CMAKE_BUILD_PARALLEL_LEVEL", "CUDACXX"),
    *("CPLUS_INCLUDE_PATH", "PIP_USER", "PYTHONPATH", "HF_HUB_CACHE"),
)
UNSET = "(unset)"
SIGILL = -4
SHELL = """#!/bin/sh
case "$*" in
  "-c "*) kind=checked ;;
  *specchat.llama.probe*" gpu") kind="gpu probe" ;;
  *specchat.llama.probe*) kind=probe ;;
  "-m pip "*) kind="pip $4" ;;
  *) kind="$3" ;;
esac
line=$(printf '%s\\t' "$kind" NOTED "$@")
printf '%s\\n' "$line" >> "FOLDER/calls"
case "$kind $*" in
  "pip wheel"*|"pip download"*|*--target*) exec PYTHON -SE "FOLDER/python.py" "$kind" "$@" ;;
esac
[ -e "FOLDER/plan $kind" ] && exec PYTHON -SE "FOLDER/python.py" "$kind" "$@"
[ "$kind" = specchat ] && printf '%s\\n' "$@"
exit 0
"""
"""Stands in for the environment's Python; a shell starts much faster than a Python does.

A call is noted in one write, as another one may be noted at the same time.
"""
PLANNED = r"""
import io, json, os, shutil, sys, tarfile, time, zipfile

HERE = "FOLDER"
kind, *words = sys.argv[1:]

def folder(option):
    path = words[words.index(option) + 1]
    os.makedirs(path, exist_ok=True)
    return path

def leave():
    "Leave what the real command would."
    if kind == "pip wheel":
        with zipfile.ZipFile(folder("--wheel-dir") + "/llama_cpp_python-1-py3-none-any.whl", "w"):
            pass
        kernels = words[-1] + "/vendor/llama.cpp/ggml/src/ggml-cpu/llamafile/sgemm.cpp"
        shutil.copy(kernels, HERE + "/built.cpp")
    elif kind == "pip download":
        release = words[-1].replace("-", "_").replace("==", "-")
        inside = release + "/vendor/llama.cpp/"
        files = {
            "ggml/src/ggml-cpu/llamafile/sgemm.cpp": SGEMM,
            "models/templates/a.jinja": b"{{ messages }}",
        }
        with tarfile.open(folder("--dest") + "/" + release + ".tar.gz", "w:gz") as tar:
            for name, content in files.items():
                member = tarfile.TarInfo(inside + name)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    elif "--target" in words:
        folder("--target")

SGEMM = b"// kernels\nbool llamafile_sgemm(int n) {\n    if (n < 2)\n        return 0;\n"
plan = HERE + "/plan " + kind
steps = json.load(open(plan)) if os.path.exists(plan) else []
step = steps.pop(0) if steps else {}
if os.path.exists(plan):
    json.dump(steps, open(plan, "w"))
if not step.get("code"):
    leave()
if "occupies" in step:
    shutil.rmtree(step["occupies"])
    open(step["occupies"], "w").close()
if "output" in step:
    print(step["output"], flush=True)
elif kind == "specchat":
    print("\n".join(words), flush=True)
time.sleep(step.get("seconds", 0))
if step.get("code", 0) < 0:
    os.kill(os.getpid(), -step["code"])
sys.exit(step.get("code", 0))
"""
"""Does what a command would leave behind, and answers as planned."""
VENV = """
import os, shutil, sys
if os.path.exists("FOLDER/plan venv"):
    sys.exit(open("FOLDER/plan venv").read())
if "--clear" in sys.argv:
    shutil.rmtree(sys.argv[-1], ignore_errors=True)
os.makedirs(sys.argv[-1] + "/bin")
shutil.copy("FOLDER/python", sys.argv[-1] + "/bin/python")
"""
"""Stands in for the module venv."""


@dataclass(frozen=True)
class Call:
    """A call of the environment's Python."""

    kind: str
    """pip and its command, probe, gpu probe, checked (whether it runs), or the module."""
    words: list[str]
    environment: dict[str, str | None]

    @classmethod
    def read(cls, line: str) -> Self:
        """Read a line that the stand-in wrote."""
        kind, *values = line.split("\t")[:-1]
        noted, words = values[: len(NOTED)], values[len(NOTED) :]
        pairs = zip(NOTED, noted, strict=True)
        return cls(kind, words, {name: None if text == UNSET else text for name, text in pairs})


class Clone:
    """A clone of the repository, as far as the set-up needs it."""

    def __init__(self, folder: Path) -> None:
        """Copy the files, and write the stand-ins; `folder` also has the user's cache."""
        self.folder, self.root = folder, folder / "a clone"
        for name in COPIED:
            source, place = ROOT / name, self.root / name
            place.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                ignored = shutil.ignore_patterns(
                    "__pycache__", "measure", "check", "lab", "support"
                )
                shutil.copytree(source, place, ignore=ignored)
            else:
                shutil.copy(source, place)
        self.target = self.root / "specchat" / "catalogue" / "demo" / "target.gguf"
        self.target.parent.mkdir(parents=True)
        self.target.touch()
        self.tools = folder / "bin"
        for each in (self.tools, folder / "modules"):
            each.mkdir()
        noted = " ".join(f'"${{{name}-{UNSET}}}"' for name in NOTED)
        shell = SHELL.replace("PYTHON", f'"{sys.executable}"').replace("NOTED", noted)
        self._write(folder / "python", shell)
        self._write(folder / "python.py", PLANNED)
        self._write(folder / "modules" / "venv.py", VENV)
        for compiler in ("cc", "c++"):
            self.tool(compiler)

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text.replace("FOLDER", str(self.folder)), "utf-8")
        path.chmod(0o755)

    @property
    def venv(self) -> Path:
        """The environment."""
        return self.root / ".venv"

    @property
    def records(self) -> Path:
        """The set-up's stamps, lock and log."""
        return self.venv / "setup"

    def tool(self, name: str, output: str = "") -> None:
        """Put a program on the PATH that prints something and notes its arguments."""
        script = f'#!/bin/sh\necho "{name} $*" >> "{self.folder}/tools"\necho "{output}"\n'
        self._write(self.tools / name, script)

    def plan(self, kind: str, *steps: dict[str, Any]) -> None:
        """Say how the next calls of a kind go: their exit `code`, `output` and `seconds`.

        A step that `occupies` a folder puts a file in its place.
        """
        (self.folder / f"plan {kind}").write_text(json.dumps(steps))

    def environment(self, **variables: str) -> dict[str, str]:
        """Return the environment of a call: for the CPU unless `variables` say otherwise."""
        return {
            "PATH": str(self.tools),
            "PYTHONPATH": str(self.folder / "modules"),
            "HOME": str(self.folder),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "SPECCHAT_BACKEND": "cpu",
        } | variables

    def start(
        self, *arguments: str, script: str = "specchat", **variables: str
    ) -> subprocess.Popen[str]:
        """Start a script of the clone."""
        return subprocess.Popen(
            [sys.executable, str(self.root / "scripts" / script), *arguments],
            env=self.environment(**variables),
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def call(
        self, *arguments: str, script: str = "specchat", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Call a script of the clone, and wait for its end."""
        child = self.start(*arguments, script=script, **variables)
        output, errors = child.communicate(timeout=120)
        return subprocess.CompletedProcess(child.args, child.returncode, output, errors)

    def calls(self, kind: str = "") -> list[Call]:
        """Return the calls of a kind so far, or all but those that only look at what is there."""
        path = self.folder / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        found = [Call.read(line) for line in lines]
        return [each for each in found if each.kind == (kind or each.kind) != "checked"]

    def tools_used(self) -> Sequence[str]:
        """Return the calls of programs on the PATH, with their arguments."""
        path = self.folder / "tools"
        return path.read_text().splitlines() if path.exists() else []

    def built(self) -> str:
        """Return the source of the kernels that llama.cpp was built from."""
        return (self.folder / "built.cpp").read_text()

    def wheels(self) -> list[Path]:
        """Return the wheels in the user's cache."""
        return sorted((self.folder / "cache" / "specchat" / "wheels").rglob("*.whl"))

    def another(self) -> "Clone":
        """Return another clone of the same user."""
        folder = self.folder / "another"
        folder.mkdir()
        other = Clone(folder)
        cache = self.folder / "cache"
        cache.mkdir(exist_ok=True)
        (folder / "cache").symlink_to(cache)
        return other
