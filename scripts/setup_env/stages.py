"""The set-up's stages. Each ends with a stamp, so that the next call continues after it."""

from __future__ import annotations

import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from scripts.setup_env import fast, wheels
from scripts.setup_env.backends import backends_to_try, how_to_use_the_gpu
from scripts.setup_env.hints import failure_of_command, failure_of_system, reason
from scripts.setup_env.preflight import require_home, require_machine
from scripts.setup_env.probe import TARGET, Verdict, probe
from scripts.setup_env.recipes import LLAMA, Backend, Recipe, recipes_for, user_choices
from scripts.setup_env.running import LOG, CommandFailed, SetUpFailed, only_one, run, run_pip, say
from scripts.setup_env.templates import keep_templates

ROOT = Path(fast.ROOT)
VENV = Path(fast.VENV)
RECORDS = Path(fast.RECORDS)
RUNTIME = ROOT / "scripts" / "requirements.txt"
BUILDING = ROOT / "scripts" / "requirements-build.txt"
TESTING = ROOT / "scripts" / "requirements-dev.txt"
BUILT_BY = [ROOT / name for name in fast.INPUTS if name.endswith(".py")]
"""The files that say how llama.cpp is built."""
FAILED, INTERRUPTED, TERMINATED = 1, 130, 143
IS_OURS = "import os, pip, sys; sys.exit(not os.path.samefile(sys.prefix, sys.argv[1]))"
"""Exits with 0 in an environment that lies in a folder and has pip."""
BUILD_INSTEAD = "name another wheel, or set SPECCHAT_LLAMA_WHEEL= to build one"

Build = Callable[[str, Backend, Recipe], Path]
Install = Callable[[Path], None]
Probe = Callable[[Backend], tuple[Verdict, list[str]]]


def run_set_up(*, with_dev: bool) -> int:
    """Update the set-up; report a failure in one line and return the exit code."""
    try:
        _exit_on_signals()
        require_home()
        with only_one():
            _set_up(with_dev=with_dev)
    except SetUpFailed as failure:
        say(str(failure))
        return FAILED
    except CommandFailed as failure:
        say(f"set-up failed: {failure_of_command(failure.output, _folders())} (log: {LOG})")
        return FAILED
    except OSError as failure:
        say(f"set-up failed: {failure_of_system(failure, _folders())}")
        return FAILED
    except KeyboardInterrupt:
        say("interrupted; the next call continues from here")
        return INTERRUPTED
    except SystemExit:  # SIGTERM or SIGHUP
        with suppress(OSError):  # the terminal may be gone
            say("terminated; the next call continues from here")
        return TERMINATED
    except Exception as failure:  # noqa: BLE001  # a user gets a line, not a traceback
        with suppress(OSError), LOG.open("a", encoding="utf-8", errors="replace") as log:
            log.writelines(traceback.format_exception(failure))
        summary = f"{type(failure).__name__}: {failure}".splitlines()[0]
        say(f"set-up failed: internal error (please report): {summary} (log: {LOG})")
        return FAILED
    return 0


def _folders() -> list[Path]:
    """Return the folders that the set-up writes to, which may be on different disks."""
    return [RECORDS, wheels.cache_folder(), Path(tempfile.gettempdir())]


def _exit_on_signals() -> None:
    """Turn SIGTERM and SIGHUP into an exception, so that the running command is stopped too."""

    def leave(*_: object) -> None:
        raise SystemExit(TERMINATED)

    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), leave)


def _set_up(*, with_dev: bool) -> None:
    stamp = "ready-dev" if with_dev else "ready"
    has_venv = _has_venv()
    if has_venv and fast.is_ready(stamp):  # by another call in the meantime
        return
    require_machine(has_environment=has_venv, builds=_will_build())
    if not has_venv:
        _make_venv()
    wanted = fast.wanted_state()
    write_stamp("choices", fast.choices())
    _stage("packages", _text(RUNTIME, BUILDING), _install_packages)
    _stage("specchat", _text(ROOT / "pyproject.toml") + str(ROOT), _install_specchat)
    _stage("llama", _llama_key(), _install_llama)
    if with_dev:
        _stage("dev", _text(TESTING), _install_dev_packages)
    write_stamp(stamp, wanted)


def _will_build() -> bool:
    """Return True if this set-up will compile llama.cpp: no wheel of it is here."""
    if fast.choice("SPECCHAT_LLAMA_WHEEL") or fast.read(str(RECORDS / "llama")) == _llama_key():
        return False
    backend = backends_to_try()[0]
    return wheels.needs_build(llama_version(), backend, recipes_for(*_machine()))


def _machine() -> tuple[str, str]:
    return platform.machine(), sys.platform


def _stage(name: str, wanted: str, work: Callable[[], None]) -> None:
    """Run a stage unless its stamp holds what is wanted now."""
    if fast.read(str(RECORDS / name)) != wanted:
        work()
        write_stamp(name, wanted)


def write_stamp(name: str, text: str) -> None:
    """Write a stamp in one step."""
    half = RECORDS / f"{name}.half"
    half.write_text(text, encoding="utf-8")
    half.replace(RECORDS / name)


def _text(*paths: Path) -> str:
    return "\n".join(fast.read(str(path)) for path in paths)


def _has_venv() -> bool:
    """Return True if the environment was completed for this folder and still runs."""
    if fast.read(str(RECORDS / "venv")) != fast.ROOT:
        return False
    try:
        done = subprocess.run(
            [fast.venv_python(), "-c", IS_OURS, fast.VENV], capture_output=True, check=False
        )
    except OSError:
        return False
    return done.returncode == 0


def _make_venv() -> None:
    """Create the environment; an incomplete or moved one is removed first."""
    if VENV.is_symlink():
        raise SetUpFailed(f"{VENV} links to another folder's environment: remove the link")
    LOG.unlink(missing_ok=True)
    for old in VENV.iterdir():
        if old != RECORDS:
            _remove(old)
    for old in RECORDS.iterdir():
        if old.is_file() and old.name not in {"lock", "owner", "choices"}:
            old.unlink()
    version = platform.python_version()
    say(f"creating a Python {version} environment in {VENV} (once)")
    run([sys.executable, "-m", "venv", str(VENV)])
    write_stamp("venv", fast.ROOT)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _install_packages() -> None:
    say("installing packages (about a minute)")
    pinned = [line for line in requirements(RUNTIME) if not line.startswith(LLAMA)]
    run_pip("install", *pinned, *requirements(BUILDING))


def _install_specchat() -> None:
    run_pip("install", "--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    for path in VENV.rglob("site-packages/*_specchat.pth"):
        # with LC_ALL=C, Python does not start if a path in it has an accent
        path.write_text(f"{os.path.relpath(ROOT, path.parent)}\n", "ascii")


def _install_dev_packages() -> None:
    say("installing packages for the tests (about a minute)")
    run_pip("install", *requirements(TESTING))


def requirements(path: Path) -> list[str]:
    """Return the requirements listed in a file, without comments."""
    lines = (line.partition("#")[0].strip() for line in path.read_text("utf-8").splitlines())
    return [line for line in lines if line]


def llama_version() -> str:
    """Return the release of llama-cpp-python that is pinned."""
    pin = next(line for line in requirements(RUNTIME) if line.startswith(LLAMA))
    return pin.partition("==")[2]


def _llama_key() -> str:
    """Return what the installed llama.cpp depends on, except the user's own settings."""
    facts = [llama_version(), fast.cpu(), str(TARGET.exists()), fast.choices()]
    return "\n".join([*facts, _text(*BUILT_BY)])


def _install_llama() -> None:
    if prebuilt := fast.choice("SPECCHAT_LLAMA_WHEEL"):
        install_prebuilt(llama_version(), prebuilt)
        return
    backends = backends_to_try()
    is_by_itself = not (user_choices() or fast.choice("SPECCHAT_BACKEND"))
    if backends[0].name == "CPU" and is_by_itself and (advice := how_to_use_the_gpu()):
        say(f"{advice} (building for the CPU until then)")
    install_first_backend(backends)
    if (source := wheels.unpacked(llama_version())).exists():  # not if the wheel was in the cache
        keep_templates(llama_version(), source)
    wheels.forget_build()


def install_prebuilt(version: str, wheel: str, probe: Probe | None = None) -> None:
    """Install a wheel of the pinned release, from a file or a URL, if it decodes here."""
    name = wheel.replace("\\", "/").rpartition("/")[2]
    if not re.match(rf"llama_cpp_python-{re.escape(version)}[-+%]", name):
        raise SetUpFailed(f"{name} is not a wheel of {LLAMA} {version}: {BUILD_INSTEAD}")
    say(f"installing {name}")
    run_pip("install", "--no-deps", "--force-reinstall", wheel)
    verdict, output = (probe or _probe)(Backend("prebuilt"))
    if verdict is not Verdict.PASSED:
        raise SetUpFailed(f"{name} does not run here: {reason(output)}; {BUILD_INSTEAD}")


def install_first_backend(
    backends: Sequence[Backend], install: Callable[[Backend], None] | None = None
) -> Backend:
    """Install the first backend that builds and decodes; explain each that does not."""
    for backend, after in pairwise(backends):
        try:
            (install or _install_backend)(backend)
        except CommandFailed as failure:
            why = f"building for {backend.name} failed: {reason(failure.output)}"
        except SetUpFailed as failure:
            why = f"{backend.name} cannot be used: {failure}"
        else:
            return backend
        again = f"rm {RECORDS / 'ready'} {RECORDS / 'llama'}"
        say(f"{why}; building for {after.name} instead (log: {LOG}; to try again: {again})")
    (install or _install_backend)(backends[-1])
    return backends[-1]


def _install_backend(backend: Backend) -> None:
    recipes = recipes_for(*_machine())
    install_first_that_runs(llama_version(), backend, recipes)


def install_first_that_runs(
    version: str,
    backend: Backend,
    recipes: Sequence[Recipe],
    build: Build = wheels.build,
    install: Install | None = None,
    probe: Probe | None = None,
) -> Recipe:
    """Install the wheel of the first recipe that passes the probe, building it if not cached."""
    for recipe in recipes:
        entry = wheels.entry_for(version, backend, recipe)
        if entry.has_crashed:
            continue
        wheel = entry.wheel or _kept(entry, build(version, backend, recipe))
        (install or _install_wheel)(wheel)
        if _passes(probe or _probe, backend):
            return recipe
        entry.mark_crashed()
        say(f"the {recipe.name} build crashes: the CPU lacks an instruction it announces")
    raise SetUpFailed(
        f"llama.cpp crashes however it is built: please report this with {LOG};"
        f" remove {wheels.cache_folder()} to try again"
    )


def _kept(entry: wheels.Entry, wheel: Path) -> Path:
    """Return the wheel in the cache, or where it was built if the cache has no room for it."""
    try:
        return entry.keep(wheel)
    except OSError as failure:
        say(f"{entry.folder} cannot keep what was built ({failure.strerror})")
        return wheel


def _passes(probe: Probe, backend: Backend) -> bool:
    verdict, output = probe(backend)
    if verdict is Verdict.FAILED:
        raise SetUpFailed(f"llama.cpp was built but cannot run: {reason(output)} (log: {LOG})")
    return verdict is Verdict.PASSED


def _probe(backend: Backend) -> tuple[Verdict, list[str]]:
    """Probe with the demo pair, on the CPU and then on the GPU; pass without it."""
    if not TARGET.exists():
        return Verdict.PASSED, []
    verdict, output = probe()
    if verdict is not Verdict.PASSED or backend.name == "CPU":
        return verdict, output
    on_gpu, output = probe("gpu")  # a GPU's crash does not blame the CPU's instructions
    return (Verdict.PASSED if on_gpu is Verdict.PASSED else Verdict.FAILED), output


def _install_wheel(wheel: Path) -> None:
    run_pip("install", "--no-deps", "--force-reinstall", str(wheel))
