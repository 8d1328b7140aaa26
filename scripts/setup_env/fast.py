"""Where the set-up is, what it depends on, and whether it is up to date.

Every call of `scripts/specchat` asks that first. It takes a few milliseconds and runs on any Python
3: it imports only `os` and `sys` and uses no new syntax, so that an old interpreter can start an
environment that is ready, or look for a newer one to make it.
"""

import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
VENV = os.path.join(ROOT, ".venv")
RECORDS = os.path.join(VENV, "setup")
"""The set-up's stamps, lock, log and unfinished build."""

INPUTS = (
    "pyproject.toml",
    "scripts/requirements.txt",
    "scripts/requirements-build.txt",
    "scripts/requirements-dev.txt",
    "scripts/setup_env/recipes.py",
    "scripts/setup_env/exact_kernels.py",
    "specchat/doctor/toolchains.py",
)
"""If one of these files changes, the next call updates the set-up."""

CHOICES = ("SPECCHAT_BACKEND", "SPECCHAT_LLAMA_WHEEL")
"""The set-up's own variables; what was chosen holds until they are set again."""

DEMO_TARGET = "specchat/catalogue/demo/target.gguf"
CPU_FACTS = ("vendor_id", "model name", "flags", "CPU implementer", "CPU part", "Features")
COMPILED_FOR = ("avx", "amx", "sse", "ssse", "fma", "f16c", "bmi", "gfni", "asimd", "sve", "i8mm")
"""Prefixes of the CPU flags that matter to a compiler; kernels list others, which change."""


def is_ready(stamp: str) -> bool:
    """Return True if this stamp was written for the current inputs."""
    return read(os.path.join(RECORDS, stamp)) == wanted_state()


def wanted_state() -> str:
    """Return everything the set-up depends on as one text."""
    parts = [read(os.path.join(ROOT, name)) for name in INPUTS]
    has_demo = os.path.exists(os.path.join(ROOT, DEMO_TARGET))
    python = os.path.realpath(venv_python())  # another one after an upgrade of the system
    return "\n".join([ROOT, python, cpu(), str(has_demo), choices()] + parts)


def choices() -> str:
    """Return the user's choices, a line each."""
    return "\n".join(name + "=" + choice(name) for name in CHOICES)


def choice(name: str) -> str:
    """Return a variable's value, or the one of the last set-up if it is not set."""
    value = os.environ.get(name)
    if value is not None:
        is_file = name == CHOICES[1] and value and "://" not in value
        return os.path.abspath(value) if is_file else value.strip()
    for line in read(os.path.join(RECORDS, "choices")).splitlines():
        if line.startswith(name + "="):
            return line.partition("=")[2]
    return ""


def cpu() -> str:
    """Return a text that differs between CPUs with different instructions."""
    if sys.platform == "win32":
        return os.environ.get("PROCESSOR_IDENTIFIER", "unknown")
    facts = [os.uname().machine, os.uname().version.rpartition("RELEASE_")[2]]
    if sys.platform != "linux":
        return " ".join(facts)
    return " ".join([facts[0]] + cpu_facts(read("/proc/cpuinfo", 8192)))


def cpu_facts(cpuinfo: str) -> "list[str]":
    """Return the facts in /proc/cpuinfo that say which instructions the first processor has."""
    facts = []
    for line in cpuinfo.partition("\n\n")[0].splitlines():
        name, _, value = line.partition(":")
        words = value.split()
        if name.strip() in ("flags", "Features"):
            words = sorted(word for word in words if word.startswith(COMPILED_FOR))
        if name.strip() in CPU_FACTS:
            facts.append(" ".join(words))
    return facts


def read(path: str, length: int = -1) -> str:
    """Return the beginning of a text file; "" if there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(length)
    except OSError:
        return ""


def venv_python() -> str:
    """Return the path of the environment's interpreter."""
    if sys.platform == "win32":
        return os.path.join(VENV, "Scripts", "python.exe")
    return os.path.join(VENV, "bin", "python")
