"""The set-up's stages. Each ends with a stamp, so that the next call goes on where one ended."""

from __future__ import annotations

import platform
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from setup_env import fast, wheels
from setup_env.hints import next_step, reason
from setup_env.machine import find_backend, has_nvidia_gpu
from setup_env.probe import TARGET, Verdict, probe
from setup_env.recipes import LLAMA, Backend, Recipe, recipes_for, user_choices
from setup_env.running import LOG, CommandFailed, SetUpFailed, only_one, run, run_pip, say

ROOT = Path(fast.ROOT)
VENV = Path(fast.VENV)
RECORDS = Path(fast.RECORDS)
RUNTIME = ROOT / "scripts" / "requirements.txt"
BUILDING = ROOT / "scripts" / "requirements-build.txt"
TESTING = ROOT / "scripts" / "requirements-dev.txt"
FAILED, INTERRUPTED, TERMINATED = 1, 130, 143

Build = Callable[[str, Backend, Recipe], Path]
Install = Callable[[Path], None]
Probe = Callable[[], tuple[Verdict, list[str]]]


def set_up_or_say_why(*, with_dev: bool) -> int:
    """Bring the set-up up to date; on failure say why in one line and return the exit code."""
    try:
        _end_children_when_ended()
        with only_one():
            _set_up(with_dev=with_dev)
    except SetUpFailed as failure:
        say(str(failure))
        return FAILED
    except CommandFailed as failure:
        why, step = reason(failure.output), next_step(failure.output)
        say(f"the set-up failed: {why}; {step} (everything it printed: {LOG})")
        return FAILED
    except OSError as failure:
        say(f"the set-up failed: {failure}; run this again to go on from here")
        return FAILED
    except KeyboardInterrupt:
        say("interrupted; the next call goes on from here")
        return INTERRUPTED
    return 0


def _end_children_when_ended() -> None:
    """Turn a polite end of this process into an exception, so that its children are ended too."""

    def leave(*_: object) -> None:
        raise SystemExit(TERMINATED)

    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), leave)


def _set_up(*, with_dev: bool) -> None:
    stamp = "ready-dev" if with_dev else "ready"
    has_venv = _has_venv()
    if has_venv and fast.is_ready(stamp):  # another call has done it in the meantime
        return
    wanted = fast.wanted_state()
    if not has_venv:
        _make_venv()
    _stage("packages", _text(RUNTIME, BUILDING), _install_packages)
    _stage("specchat", _text(ROOT / "pyproject.toml") + str(ROOT), _install_specchat)
    _stage("llama", _llama_key(), _install_llama)
    if with_dev:
        _stage("dev", _text(TESTING), _install_dev_packages)
    write_stamp(stamp, wanted)


def _stage(name: str, wanted: str, work: Callable[[], None]) -> None:
    """Do a stage's work unless its stamp says that it was done for what is wanted."""
    if fast.read(str(RECORDS / name)) != wanted:
        work()
        write_stamp(name, wanted)


def write_stamp(name: str, text: str) -> None:
    """Write a stamp, whole or not at all."""
    half = RECORDS / f"{name}.half"
    half.write_text(text, encoding="utf-8")
    half.replace(RECORDS / name)


def _text(*paths: Path) -> str:
    return "\n".join(fast.read(str(path)) for path in paths)


def _has_venv() -> bool:
    """Say whether the environment was made completely, for this folder, and still runs."""
    if fast.read(str(RECORDS / "venv")) != fast.ROOT:
        return False
    try:
        done = subprocess.run(
            [fast.venv_python(), "-c", "import pip"], capture_output=True, check=False
        )
    except OSError:
        return False
    return done.returncode == 0


def _make_venv() -> None:
    """Make the environment from nothing; a half-made or moved one is removed first."""
    LOG.unlink(missing_ok=True)
    for old in VENV.iterdir():
        if old != RECORDS:
            _remove(old)
    for old in RECORDS.iterdir():
        if old.is_file() and old.name != "lock":
            old.unlink()
    version = platform.python_version()
    say(f"making an environment for Python {version} in {VENV}, once")
    run([sys.executable, "-m", "venv", str(VENV)])
    write_stamp("venv", fast.ROOT)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _install_packages() -> None:
    say("installing the packages specchat needs: about a minute")
    pinned = [line for line in requirements(RUNTIME) if not line.startswith(LLAMA)]
    run_pip("install", *pinned, *requirements(BUILDING))


def _install_specchat() -> None:
    run_pip("install", "--no-deps", "--no-build-isolation", "--editable", str(ROOT))


def _install_dev_packages() -> None:
    say("installing what the tests need: about a minute")
    run_pip("install", *requirements(TESTING))


def requirements(path: Path) -> list[str]:
    """Return the requirements a file lists, without its comments."""
    lines = (line.partition("#")[0].strip() for line in path.read_text("utf-8").splitlines())
    return [line for line in lines if line]


def _llama_version() -> str:
    pin = next(line for line in requirements(RUNTIME) if line.startswith(LLAMA))
    return pin.partition("==")[2]


def _llama_key() -> str:
    """Return what the installed llama.cpp depends on, less the user's own settings."""
    recipe = fast.read(str(ROOT / "scripts" / "setup_env" / "recipes.py"))
    return "\n".join([_llama_version(), fast.cpu(), str(TARGET.exists()), recipe])


def _install_llama() -> None:
    backend = find_backend()
    if backend.name == "CPU" and not user_choices() and has_nvidia_gpu():
        say("an NVIDIA GPU is here but not CUDA's toolkit (nvcc): building for the CPU")
    recipes = recipes_for(platform.machine(), sys.platform)
    install_first_that_lives(_llama_version(), backend, recipes)
    wheels.forget_build()


def install_first_that_lives(
    version: str,
    backend: Backend,
    recipes: Sequence[Recipe],
    build: Build = wheels.build,
    install: Install | None = None,
    probe: Probe | None = None,
) -> Recipe:
    """Install the wheel of the first recipe whose probe does not die, building what is not kept."""
    for recipe in recipes:
        entry = wheels.entry_for(version, backend, recipe)
        if entry.has_died:
            continue
        wheel = entry.wheel or entry.keep(build(version, backend, recipe))
        (install or _install_wheel)(wheel)
        if _survives(probe or _probe):
            return recipe
        entry.mark_died()
        say(f"the {recipe.name} build dies here: this machine lacks an instruction it announces")
    raise SetUpFailed(
        f"llama.cpp dies here however it is built; remove {wheels.cache_folder()} to try again, "
        f"and please report it with {LOG}"
    )


def _survives(probe: Probe) -> bool:
    verdict, output = probe()
    if verdict is Verdict.FAILED:
        raise SetUpFailed(f"llama.cpp was built but does not run: {reason(output)} (log: {LOG})")
    return verdict is Verdict.PASSED


def _probe() -> tuple[Verdict, list[str]]:
    """Probe with the demo pair; without it there is nothing to probe with."""
    return probe() if TARGET.exists() else (Verdict.PASSED, [])


def _install_wheel(wheel: Path) -> None:
    run_pip("install", "--no-deps", "--force-reinstall", str(wheel))
