"""What every call of `scripts/specchat` runs before specchat itself: is the set-up still good?

Written for a few milliseconds and for any Python 3: only `os` and `sys` are imported, and newer
syntax stays out, so that an old interpreter gets as far as looking for a newer one.
"""

import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
VENV = os.path.join(ROOT, ".venv")
RECORDS = os.path.join(VENV, "setup")
"""Where the set-up keeps its stamps, its lock, its log and a half-done build."""

INPUTS = (
    "pyproject.toml",
    "scripts/requirements.txt",
    "scripts/requirements-build.txt",
    "scripts/requirements-dev.txt",
    "scripts/setup_env/recipes.py",
)
"""A change in one of these files makes the next call bring the set-up up to date."""

DEMO_TARGET = "specchat/catalogue/demo/target.gguf"
CPU_FACTS = ("vendor_id", "model name", "flags", "CPU implementer", "CPU part", "Features")
COMPILED_FOR = ("avx", "amx", "sse", "ssse", "fma", "f16c", "bmi", "gfni", "asimd", "sve", "i8mm")
"""How the names begin of the CPU flags a compiler cares about; a new kernel lists more others."""


def run_specchat(arguments: "list[str]") -> int:
    """Run specchat with these arguments in the environment, setting it up if need be."""
    command = ["-P", "-m", "specchat"] + arguments
    if is_ready("ready"):
        status = replace_process(command)
        if status is not None:
            return status
    status = set_up(with_dev=False) or replace_process(command)
    if status is None:
        print(
            "specchat: " + venv_python() + " does not start; remove .venv and try again",
            file=sys.stderr,
        )
    return 1 if status is None else status


def run_checks(arguments: "list[str]") -> int:
    """Run the checks, setting everything up that they need."""
    if not is_ready("ready-dev"):
        status = set_up(with_dev=True)
        if status:
            return status
    require_new_python()
    from setup_env.checks import check_everything

    return check_everything(arguments)


def is_ready(stamp: str) -> bool:
    """Say whether the set-up that this stamp stands for was finished with what is wanted now."""
    return read(os.path.join(RECORDS, stamp)) == wanted_state()


def wanted_state() -> str:
    """Return everything the set-up depends on, as one text."""
    parts = [read(os.path.join(ROOT, name)) for name in INPUTS]
    has_demo = os.path.exists(os.path.join(ROOT, DEMO_TARGET))
    return "\n".join([ROOT, cpu(), str(has_demo)] + parts)


def cpu() -> str:
    """Return what tells this CPU from another one that runs other instructions."""
    if sys.platform == "win32":
        return os.environ.get("PROCESSOR_IDENTIFIER", "unknown")
    facts = [os.uname().machine, os.uname().version.rpartition("RELEASE_")[2]]
    if sys.platform != "linux":
        return " ".join(facts)
    return " ".join([facts[0]] + cpu_facts(read("/proc/cpuinfo", 8192)))


def cpu_facts(cpuinfo: str) -> "list[str]":
    """Return the lines of the first processor in /proc/cpuinfo that tell what it runs."""
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
    """Return the beginning of a text file; nothing where there is none."""
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


def replace_process(arguments: "list[str]") -> "int | None":
    """Become the environment's Python with these arguments; None where that cannot be started.

    Windows has no exec that keeps the console, so there a child runs and its exit code comes back.
    """
    command = [venv_python()] + arguments
    sys.stdout.flush()
    try:
        if sys.platform != "win32":
            os.execv(command[0], command)
        return wait_for(command)
    except OSError:
        return None


def wait_for(command: "list[str]") -> int:
    """Run a command to its end; Ctrl+C is its business."""
    import subprocess

    with subprocess.Popen(command) as child:
        while True:
            try:
                return child.wait()
            except KeyboardInterrupt:
                continue


def set_up(*, with_dev: bool) -> int:
    """Bring the set-up up to date; return the exit code of a failure, or 0."""
    require_new_python()
    from setup_env.stages import set_up_or_say_why

    return set_up_or_say_why(with_dev=with_dev)


def require_new_python() -> None:
    """Go on under Python 3.11 or newer: this one, or one found on the PATH."""
    if sys.version_info >= (3, 11):
        return
    import subprocess

    for name in ("python3.14", "python3.13", "python3.12", "python3.11"):
        try:
            subprocess.check_output([name, "-c", "import venv"], stderr=subprocess.DEVNULL)
        except (OSError, subprocess.CalledProcessError):
            continue
        os.execvp(name, [name] + sys.argv)
    sys.exit(
        "specchat: Python 3.11 or newer is needed and none was found; install it and try again"
    )
