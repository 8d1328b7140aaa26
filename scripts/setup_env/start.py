"""What `scripts/specchat` and `scripts/test` run: the set-up if it is not up to date, then Python.

It runs on any Python 3, as `fast` does; what needs a newer one is imported where it is needed.
"""

import os
import sys

from scripts.setup_env import fast
from scripts.setup_env.interpreter import require_new_python


def run_specchat(arguments: "list[str]") -> int:
    """Run specchat in the environment with these arguments, after any set-up needed."""
    command = ["-P", "-m", "specchat"] + arguments
    if fast.is_ready("ready"):
        status = _replace_process(command)
        if status is not None:
            return status
    status = _set_up(with_dev=False) or _replace_process(command)
    if status is None:
        print(
            "specchat: cannot start " + fast.venv_python() + "; remove .venv and try again",
            file=sys.stderr,
        )
    return 1 if status is None else status


def run_checks(arguments: "list[str]") -> int:
    """Run the checks, after any set-up they need."""
    if not fast.is_ready("ready-dev"):
        status = _set_up(with_dev=True)
        if status:
            return status
    require_new_python()
    from scripts.setup_env.checks import check_everything

    return check_everything(arguments)


def _set_up(*, with_dev: bool) -> int:
    """Update the set-up; return 0 or the exit code of its failure."""
    require_new_python()
    from scripts.setup_env.stages import run_set_up

    return run_set_up(with_dev=with_dev)


def _replace_process(arguments: "list[str]") -> "int | None":
    """Replace this process by the environment's Python; return None if it cannot be started.

    On Windows, where exec would lose the console, run a child and return its exit code.
    """
    command = [fast.venv_python()] + arguments
    sys.stdout.flush()
    try:
        if sys.platform != "win32":
            os.execv(command[0], command)
        return _wait_for(command)
    except OSError:
        return None


def _wait_for(command: "list[str]") -> int:
    """Run a command to its end and return its exit code; it handles Ctrl+C itself."""
    import subprocess

    with subprocess.Popen(command) as child:
        while True:
            try:
                return child.wait()
            except KeyboardInterrupt:
                continue
