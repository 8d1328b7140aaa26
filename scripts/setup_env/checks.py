"""The checks of `scripts/test`: all of them run, the tests last."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from scripts.setup_env import fast, image_library
from scripts.setup_env.backends import MAKERS
from scripts.setup_env.clients import install_clients
from scripts.setup_env.devices import (
    IF_POSSIBLE,
    OPTION,
    TESTS_FOLDER,
    arguments_of,
    device_environment,
    install_packages,
    provide_build,
)
from scripts.setup_env.hints import CHECK_NETWORK, next_step, reason
from scripts.setup_env.running import CommandFailed, SetUpFailed, only_one, run, say
from scripts.setup_env.stages import llama_version
from scripts.setup_env.templates import fetch_templates

CHECKS = {
    "format": ("-m", "ruff", "format", "--check", "."),
    "lint": ("-m", "ruff", "check", "."),
    "types": ("-m", "mypy"),
    "types of scripts/specchat": ("-m", "mypy", "scripts/specchat"),
    "types of scripts/test": ("-m", "mypy", "scripts/test"),
    "layers": ("-c", "from importlinter.cli import lint_imports_command as run; run()"),
}
TESTS = ("-m", "pytest")
ALL = "--all"
QUICK = "--quick"
"""pytest's option that tests/suite.py adds: it leaves out what is marked slow."""
COMPILE = (*TESTS, "--collect-only", "-qq")
"""Keeps the byte code of the tests, whose assertions each worker would rewrite in a new clone."""
PATIENT = "--timeout=900"
"""A test on a device may be the first to compile its kernels."""
DECODE = ("-m", "specchat.llama.probe", fast.DEMO_TARGET, "gpu")
SIDE_BY_SIDE = ("--numprocesses", str(min(12, 2 * (os.cpu_count() or 1))), "--dist", "loadfile")
"""Twice as many workers as cores, because tests of the chat and of processes wait half the time. A
file stays in one worker and in its order: it shares engines, and runs the same way every time."""
WAITING = {"OMP_WAIT_POLICY": "passive"}
"""Waiting threads of llama.cpp must not hold cores that other tests need."""
REAL_MODEL = "smollm2-135m"
MODEL_FOLDER = Path(fast.RECORDS, "hub")
"""The cache of models that the tests find the real one in; tests/conftest.py looks there."""
MEMORY_DISK, ROOM = Path("/dev/shm"), 8 << 30  # noqa: S108  # a private folder is made in it
"""Where the tests write if it has this many bytes of room: they write thousands of small files and
histories, which a disk would sync one by one."""
DROPPED_VARIABLES = {"PYTHONDONTWRITEBYTECODE", "CI", "BUILD_NUMBER"}
"""Hundreds of tests start Python, and without byte code each would compile all its imports. With CI
set, pytest's summary repeats texts of any length, and the names of failed tests are lost above."""


def check_everything(arguments: Sequence[str]) -> int:
    """Run every check and the tests that a change needs; with arguments only pytest with these.

    With `--all`, run the slow tests, too. With `--device NAME [--if-possible]`, run the tests that
    need a device on this backend's.
    """
    if arguments[:1] == [OPTION]:
        return check_device(arguments[1] if len(arguments) > 1 else "", arguments[2:])
    is_whole = list(arguments) == [ALL]
    tier = () if is_whole else (QUICK,)
    failed = list[str]()
    if is_whole or not arguments:
        arguments = (*SIDE_BY_SIDE, *tier)
        with ThreadPoolExecutor(1) as beside:  # the checks need one core
            beside.submit(_python, *COMPILE, *tier, output=subprocess.PIPE)
            failed = [name for name, command in CHECKS.items() if not passes(name, command)]
    _provide("what reads images", image_library.provide)
    _provide("the set of llama.cpp's chat templates", lambda: fetch_templates(llama_version()))
    if QUICK not in arguments:
        _provide("the real model", pull_model)
        _provide("the environment of the server's clients", install_clients)
    with _quick_folder() as environment:
        done = _python(*TESTS, *arguments, environment=environment)
    if done.returncode != 0:
        failed.append("tests")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def check_device(name: str, arguments: Sequence[str]) -> int:
    """Run the tests that need a device, with a build for it.

    With `--if-possible`, skip a device that is not available, but not a build that fails.
    """
    is_optional = name in MAKERS and IF_POSSIBLE in arguments
    arguments = [each for each in arguments if each != IF_POSSIBLE]
    try:
        if is_optional:
            install_packages(name)
        environment = device_environment(name, provide_build(name), os.environ)
    except SetUpFailed as failure:
        return _without_device(str(failure), is_skipped=is_optional)
    except CommandFailed as failure:
        step = next_step(failure.output)
        why = f"{reason(failure.output)}; {step}"
        return _without_device(why, is_skipped=is_optional and step == CHECK_NETWORK)
    print(
        "compiling the kernels of the demo pair for the device, unless they are cached", flush=True
    )
    tried = _python(*DECODE, output=subprocess.PIPE, environment=environment)
    if tried.returncode:
        print(f"failed: llama.cpp does not decode on the device: {tried.stdout}", file=sys.stderr)
        return 1
    done = _python(*TESTS, PATIENT, *arguments_of(arguments), environment=environment)
    return 1 if done.returncode else 0


def _without_device(why: str, *, is_skipped: bool) -> int:
    """Print why the tests on a device are not run; return the exit code."""
    if not is_skipped:
        print(f"failed: {why}", file=sys.stderr)
        return 1
    print(f"the tests on a device ({TESTS_FOLDER}) are skipped: {why}", flush=True)
    return _python(*TESTS, "-rN", str(TESTS_FOLDER)).returncode  # it counts what is skipped


def passes(name: str, command: Sequence[str]) -> bool:
    """Run one check; print its name, verdict and duration, and its output if it failed."""
    begun = time.monotonic()
    done = _python(*command, output=subprocess.PIPE)
    verdict = "ok" if done.returncode == 0 else "FAILED"
    print(f"{name:28}{verdict:8}{time.monotonic() - begun:6.1f} s", flush=True)
    if done.returncode != 0:
        print(done.stdout, flush=True)
    return done.returncode == 0


def pull_model() -> None:
    """Pull the real model of the tests as users do, unless the environment names another copy."""
    if os.environ.get("SMOLLM2"):
        return
    if not MODEL_FOLDER.exists():
        say("downloading a small model for the tests (94 MB, once)")
    command = [fast.venv_python(), "-P", "-m", "specchat", "pull", REAL_MODEL]
    with only_one():
        run(command, {**os.environ, "HF_HUB_CACHE": str(MODEL_FOLDER)})


@contextmanager
def _quick_folder() -> Iterator[Mapping[str, str]]:
    """Yield an environment whose temporary files lie in memory, where there is room for them."""
    if not MEMORY_DISK.is_dir() or shutil.disk_usage(MEMORY_DISK).free < ROOM:
        yield os.environ
        return
    with tempfile.TemporaryDirectory(dir=MEMORY_DISK, ignore_cleanup_errors=True) as folder:
        yield {**os.environ, "TMPDIR": folder}


def _provide(what: str, fetch: Callable[[], object]) -> None:
    """Fetch something; if that fails, print why, and the tests that want it are skipped."""
    try:
        fetch()
    except CommandFailed as failure:
        why = reason(failure.output)
    except (SetUpFailed, OSError) as failure:
        why = str(failure)
    else:
        return
    print(f"{what} is not available, so its tests are skipped: {why}", flush=True)


def _python(
    *arguments: str, output: int | None = None, environment: Mapping[str, str] = os.environ
) -> subprocess.CompletedProcess[str]:
    inherited = {
        name: value for name, value in environment.items() if name not in DROPPED_VARIABLES
    }
    return subprocess.run(
        [fast.venv_python(), "-P", *arguments],
        cwd=Path(fast.ROOT),
        env={**WAITING, **inherited},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT if output else None,
        text=True,
        check=False,
    )
