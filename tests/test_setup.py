"""The set-up on the first call: what is built where, what is cached, and how failures read."""

from __future__ import annotations

import ast
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import tomllib
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from setup_env import exact_kernels, fast, hints, machine, running, stages, wheels
from setup_env.probe import Verdict
from setup_env.recipes import (
    NATIVE,
    PORTABLE,
    WITHOUT_AMX,
    Backend,
    Recipe,
    build_environment,
    recipes_for,
)
from setup_env.running import CommandFailed, SetUpFailed

ROOT = Path(__file__).parents[1]
CPU = Backend("CPU")
VERSION = "0.3.36"
AMX_FLAGS = "-mno-amx-tile -mno-amx-int8 -mno-amx-bf16"
posix_only = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signals")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give every test its own clone: its environment, records and cache."""
    records = tmp_path / ".venv" / "setup"
    records.mkdir(parents=True)
    monkeypatch.setattr(fast, "ROOT", str(tmp_path))
    monkeypatch.setattr(fast, "RECORDS", str(records))
    monkeypatch.setattr(stages, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(stages, "RECORDS", records)
    monkeypatch.setattr(wheels, "BUILD", records / "build")
    monkeypatch.setattr(wheels, "cache_folder", lambda: tmp_path / "cache")
    for module in (running, stages):
        monkeypatch.setattr(module, "LOG", records / "setup.log")
    monkeypatch.setattr(running, "LOCK", records / "lock")
    for name in ("CMAKE_ARGS", "CC", "CXX", "CFLAGS", "CXXFLAGS", "CMAKE_BUILD_PARALLEL_LEVEL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


class Builds:
    """Stands in for pip: records each build's environment and writes a wheel."""

    def __init__(self) -> None:
        self.environments: list[dict[str, str]] = []

    def __call__(self, *command: str, environment: Mapping[str, str] | None = None) -> None:
        """Write a wheel."""
        self.environments.append(dict(environment or {}))
        place = Path(command[command.index("--wheel-dir") + 1])
        place.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(place / "llama.whl", "w") as archive:
            archive.writestr("made", str(len(self.environments)))


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Builds:
    """Replace building by writing an empty wheel."""
    made = Builds()
    monkeypatch.setattr(wheels, "run_pip", made)
    monkeypatch.setattr(wheels, "_source", lambda _version: tmp_path / "source")
    monkeypatch.setattr(wheels, "has_compiler", lambda: True)
    return made


def probes(*verdicts: Verdict) -> Callable[[], tuple[Verdict, list[str]]]:
    """Return a probe with these verdicts, one after the other."""
    answers = iter(verdicts)
    return lambda: (next(answers), ["error: that is why"])


def set_up_llama(*verdicts: Verdict, recipes: Sequence[Recipe] = (NATIVE, WITHOUT_AMX)) -> Recipe:
    """Build, install and probe as the set-up does, with these verdicts of the probe."""
    return stages.install_first_that_runs(
        VERSION, CPU, recipes, install=lambda _wheel: None, probe=probes(*verdicts)
    )


# --- instructions that a CPU announces but lacks ------------------------------------------------


def test_a_build_that_crashes_is_built_again_without_amx(
    builds: Builds, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second build has flags that leave AMX out, and both messages say so."""
    assert set_up_llama(Verdict.CRASHED, Verdict.PASSED) is WITHOUT_AMX
    first, second = builds.environments
    assert "CFLAGS" not in first
    assert second["CFLAGS"] == second["CXXFLAGS"] == AMX_FLAGS
    messages = capsys.readouterr().err
    assert "the native build crashes" in messages
    assert "building llama.cpp for this CPU, without AMX (about" in messages


def test_a_build_that_crashed_is_not_tried_again(builds: Builds) -> None:
    """The next set-up on this machine starts with the build that runs, and builds nothing."""
    set_up_llama(Verdict.CRASHED, Verdict.PASSED)
    assert set_up_llama(Verdict.PASSED) is WITHOUT_AMX
    assert len(builds.environments) == 2


def test_a_wheel_that_runs_is_cached_for_the_next_clone(builds: Builds) -> None:
    """A second set-up takes the wheel from the cache."""
    set_up_llama(Verdict.PASSED)
    assert set_up_llama(Verdict.PASSED) is NATIVE
    assert len(builds.environments) == 1


def test_a_probe_that_fails_for_another_reason_stops_the_set_up(builds: Builds) -> None:
    """If a wheel cannot be loaded, no instruction is missing: the error names the reason."""
    with pytest.raises(SetUpFailed, match="cannot run: error: that is why"):
        set_up_llama(Verdict.FAILED)
    assert len(builds.environments) == 1


@pytest.mark.usefixtures("builds")
def test_a_machine_where_every_build_crashes_is_reported() -> None:
    """After the last recipe the set-up fails."""
    with pytest.raises(SetUpFailed, match="however it is built"):
        set_up_llama(Verdict.CRASHED, Verdict.CRASHED)


# --- builds for different machines --------------------------------------------------------------


def test_recipes_fit_the_machine() -> None:
    """AMX can only be left out on x86, by compilers with GCC's flags."""
    assert recipes_for("x86_64", "linux") == (NATIVE, WITHOUT_AMX, PORTABLE)
    assert recipes_for("AMD64", "win32") == (NATIVE, PORTABLE)
    assert recipes_for("arm64", "darwin") == (NATIVE, PORTABLE)


def test_the_users_settings_come_after_ours() -> None:
    """CMake takes the last definition, and compilers the last flag."""
    user = {"CMAKE_ARGS": "-DGGML_NATIVE=OFF", "CFLAGS": "-O2", "CMAKE_BUILD_PARALLEL_LEVEL": "1"}
    made = build_environment(WITHOUT_AMX, CPU, 8, user)
    assert made["CMAKE_ARGS"].endswith("-DGGML_NATIVE=ON -DGGML_NATIVE=OFF")
    assert made["CFLAGS"] == f"-O2 {AMX_FLAGS}"
    assert made["CMAKE_BUILD_PARALLEL_LEVEL"] == "1"


def test_cuda_needs_a_toolkit_and_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """With nvcc alone the build is for the CPU; with a GPU too it is for CUDA."""
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(machine, "_find_nvcc", lambda: "nvcc")
    monkeypatch.setattr(machine, "output_of", lambda *_: "")
    assert machine.find_backend().name == "CPU"
    monkeypatch.setattr(machine, "output_of", lambda *_: "GPU 0: a card\n")
    assert machine.find_backend().definitions == ("-DGGML_CUDA=ON",)


def test_metal_needs_no_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    """On macOS llama-cpp-python enables Metal itself."""
    monkeypatch.setattr(sys, "platform", "darwin")
    assert machine.find_backend() == Backend("Metal")


def test_the_users_choice_about_cuda_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    """If CMAKE_ARGS mention CUDA, the set-up does not decide about it."""
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(machine, "output_of", lambda *_: "GPU 0: a card\n")
    monkeypatch.setattr(machine, "_find_nvcc", lambda: "nvcc")
    monkeypatch.setenv("CMAKE_ARGS", "-DGGML_CUDA=OFF")
    assert machine.find_backend() == CPU


def test_another_cpu_gets_another_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Machines that share a home folder do not share a wheel."""
    here = wheels.entry_for(VERSION, CPU, NATIVE)
    monkeypatch.setattr(fast, "cpu", lambda: "another one")
    assert wheels.entry_for(VERSION, CPU, NATIVE) != here


def test_build_settings_of_the_user_make_another_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel built with the user's flags is cached beside the one without."""
    here = wheels.entry_for(VERSION, CPU, NATIVE)
    monkeypatch.setattr(wheels, "user_choices", lambda: ("CMAKE_ARGS=-DGGML_VULKAN=ON",))
    assert wheels.entry_for(VERSION, CPU, NATIVE) != here


def test_only_compiler_flags_distinguish_cpus() -> None:
    """The clock and the kernel's own flags, which change between boots, are ignored."""
    first = "model name\t: X\nflags\t: fpu avx2 amx_tile new_mitigation\ncpu MHz\t: 1\n\nother: Y"
    again = "model name\t: X\nflags\t\t: amx_tile avx2\ncpu MHz\t: 2\n\n"
    assert fast.cpu_facts(first) == fast.cpu_facts(again) == ["X", "amx_tile avx2"]


# --- continuing an interrupted set-up -----------------------------------------------------------


def test_a_finished_wheel_is_not_built_again(builds: Builds) -> None:
    """If killed after the build but before caching, the set-up continues with the wheel."""
    built = wheels.build(VERSION, CPU, NATIVE)
    assert wheels.build(VERSION, CPU, NATIVE) == built
    assert len(builds.environments) == 1


def test_the_source_gets_the_switch_of_exact_kernels(tmp_path: Path) -> None:
    """TinyBLAS begins at a variable; a source where it does not fit is left as it is."""
    source = tmp_path / "source" / exact_kernels.SOURCE
    source.parent.mkdir(parents=True)
    source.write_text(
        "// kernels\nbool llamafile_sgemm(int n) {\n    if (n < 2)\n        return 0;\n"
    )

    assert exact_kernels.add_switch(tmp_path / "source")
    assert "if (n < specchat_min_columns)" in source.read_text()
    assert source.read_text().count("int specchat_min_columns = 2;") == 1
    assert not exact_kernels.add_switch(tmp_path / "source")
    assert not exact_kernels.add_switch(tmp_path)


def test_another_switch_makes_another_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cached wheel was built from the same changed source."""
    here = wheels.entry_for(VERSION, CPU, NATIVE)
    monkeypatch.setattr(wheels, "CHANGES", ())
    assert wheels.entry_for(VERSION, CPU, NATIVE) != here


def test_a_partial_wheel_is_not_used(builds: Builds) -> None:
    """A zip file without its end is built again."""
    built = wheels.build(VERSION, CPU, NATIVE)
    built.write_bytes(built.read_bytes()[:20])
    assert zipfile.is_zipfile(wheels.build(VERSION, CPU, NATIVE))
    assert len(builds.environments) == 2


def test_a_stage_runs_once_for_what_is_wanted() -> None:
    """A stamp ends a stage; a change runs it again; a failure leaves no stamp."""
    done: list[str] = []
    for wanted in ("a", "a", "b"):
        stages._stage("packages", wanted, lambda: done.append("again"))
    assert len(done) == 2

    def fail() -> None:
        raise CommandFailed([])

    with pytest.raises(CommandFailed):
        stages._stage("packages", "c", fail)
    assert fast.read(str(stages.RECORDS / "packages")) == "b"


def test_an_incomplete_environment_is_made_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the stamp of a complete environment everything except the lock is removed."""
    venv = folder / ".venv"
    (venv / "bin").mkdir()
    (venv / "bin" / "python").write_text("half")
    stages.write_stamp("packages", "old")
    running.LOCK.touch()
    commands: list[Sequence[str]] = []
    monkeypatch.setattr(stages, "run", commands.append)
    assert not stages._has_venv()
    stages._make_venv()
    assert not (venv / "bin").exists()
    assert sorted(path.name for path in stages.RECORDS.iterdir()) == ["lock", "venv"]
    assert commands == [[sys.executable, "-m", "venv", str(venv)]]


def test_an_environment_of_another_folder_is_not_used() -> None:
    """Its scripts name the folder it was made for, so a moved clone makes a new one."""
    stages.write_stamp("venv", "/somewhere/else")
    assert not stages._has_venv()


def test_pip_installs_into_the_environment_whatever_the_user_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`user = true` in pip's settings and PYTHONPATH have no effect."""
    seen: list[Mapping[str, str]] = []
    monkeypatch.setattr(running, "run", lambda _command, environment: seen.append(environment))
    running.run_pip("list", environment={"PIP_USER": "1", "PYTHONPATH": "x", "PIP_CERT": "mine"})
    assert seen == [{"PIP_USER": "0", "PIP_CERT": "mine"}]


def test_two_set_ups_at_once_wait_for_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    """The second set-up reports that it waits, and continues when the first has ended."""
    order: list[str] = []

    def second() -> None:
        with running.only_one():
            order.append("second")

    with running.only_one():
        other = threading.Thread(target=second)
        other.start()
        time.sleep(0.5)
        order.append("first")
    other.join(10)
    assert order == ["first", "second"]
    assert "waiting for another set-up" in capsys.readouterr().err


@posix_only
def test_an_interrupted_command_leaves_nothing_running(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl+C stops the command and everything it started."""

    def interrupt(*_: object) -> None:
        while not (folder / "pid").exists():
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "_wait_with_progress", interrupt)
    with pytest.raises(KeyboardInterrupt):
        running.run(
            [
                "sh",
                "-c",
                f"sleep 60 & echo $! > '{folder}/half' && mv '{folder}/half' '{folder}/pid'; wait",
            ]
        )
    pid = int((folder / "pid").read_text())
    deadline = time.monotonic() + 5
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not is_alive(pid)


def is_alive(pid: int) -> bool:
    """Return True if a process runs; a zombie does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not (state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z")


# --- messages to the user -----------------------------------------------------------------------


def failing(error: BaseException) -> Callable[..., None]:
    """Return a set-up that fails with this error."""

    def fail(**_: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "exit_code", "says"),
    [
        (KeyboardInterrupt(), 130, "the next call continues from here"),
        (CommandFailed(["x.cpp:1:2: fatal error: no such file"]), 1, "fatal error: no such file"),
        (CommandFailed(["OSError: No space left on device"]), 1, "free some disk space"),
        (SetUpFailed("no compiler: get one"), 1, "no compiler: get one"),
        (PermissionError(13, "Permission denied", ".venv"), 1, "Permission denied"),
    ],
)
def test_a_failure_is_one_line_with_the_next_step(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    exit_code: int,
    says: str,
) -> None:
    """The user sees no traceback, nothing on stdout and the right exit code."""
    monkeypatch.setattr(stages, "_set_up", failing(error))
    monkeypatch.setattr(stages, "_exit_on_signals", lambda: None)
    assert stages.run_set_up(with_dev=False) == exit_code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert says in shown.err


def test_a_failed_command_names_the_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message names the log, which has the whole output."""
    monkeypatch.setattr(stages, "_set_up", failing(CommandFailed(["error: no"])))
    monkeypatch.setattr(stages, "_exit_on_signals", lambda: None)
    stages.run_set_up(with_dev=False)
    assert str(running.LOG) in capsys.readouterr().err


def test_a_command_that_fails_carries_its_last_lines() -> None:
    """The output goes to the log, and the error has its last lines."""
    code = "import sys; print('error: first'); print('that is all'); sys.exit(3)"
    with pytest.raises(CommandFailed) as failure:
        running.run([sys.executable, "-c", code])
    assert failure.value.output == ["error: first", "that is all"]
    assert "error: first" in running.LOG.read_text()


@pytest.mark.parametrize(
    ("output", "why"),
    [
        (
            ["a.cpp:3: error: no type", "ninja: build stopped", "ERROR: Failed building wheel"],
            "a.cpp:3: error: no type",
        ),
        (
            ["  ╰─> error: in a frame", "note: This error originates from a subprocess"],
            "error: in a frame",
        ),
        ([], "no output"),
    ],
)
def test_the_reason_is_the_last_line_that_names_one(output: list[str], why: str) -> None:
    """Lines that pip prints around the real error are ignored."""
    assert hints.reason(output) == why


@pytest.mark.parametrize(
    ("output", "step"),
    [
        ("CMake Error: CMAKE_CXX_COMPILER not set", "install a C++ compiler"),
        ("ensurepip is not available", "python3-venv"),
        ("fatal error: Killed signal terminated program cc1plus", "CMAKE_BUILD_PARALLEL_LEVEL=1"),
        ("nvcc fatal : unsupported architecture", "-DGGML_CUDA=OFF"),
        ("ERROR: No matching distribution found for numpy", "network"),
        ("something else", "run this again"),
    ],
)
def test_known_failures_come_with_advice(output: str, step: str) -> None:
    """For each common failure the message says what to do."""
    assert step in hints.next_step([output])


def test_a_missing_compiler_is_reported_before_any_download(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A build that cannot start is refused at once."""
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(machine, "_distribution", lambda: ["ubuntu", "debian"])
    with pytest.raises(SetUpFailed, match=r"needs a C\+\+ compiler: sudo apt install g\+\+"):
        wheels.build(VERSION, CPU, NATIVE)


@pytest.mark.parametrize(
    ("jobs", "text"), [(1, "this CPU (about 7 minutes, once)"), (16, "(about 1 minute, once)")]
)
def test_the_build_says_how_long_it_takes(jobs: int, text: str) -> None:
    """The message before the build names the device and the minutes it takes on these cores."""
    assert text in wheels._announcement(CPU, NATIVE, jobs)


def test_progress_is_read_from_the_log() -> None:
    """The build's own counter is shown as a percentage."""
    running.LOG.write_text("[1/80] first\n[20/80] second\n")
    assert running._progress(83, 0) == "1:23 elapsed, 25 %"
    running.LOG.write_text("nothing yet")
    assert running._progress(5, 0) == "0:05 elapsed"


# --- later calls --------------------------------------------------------------------------------


def clone(place: Path) -> Path:
    """Copy what a call needs, with an interpreter that prints its arguments."""
    (place / "scripts").mkdir(parents=True)
    shutil.copytree(ROOT / "scripts" / "setup_env", place / "scripts" / "setup_env")
    shutil.copy(ROOT / "scripts" / "specchat", place / "scripts")
    shutil.copy(ROOT / "pyproject.toml", place)
    python = place / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\nexit 7\n')
    python.chmod(0o755)
    return place


def make_ready(place: Path) -> None:
    """Write the stamp of a finished set-up."""
    code = (
        f"import sys; sys.path.insert(0, {str(place / 'scripts')!r})\n"
        "from setup_env import fast\n"
        "import os; os.makedirs(fast.RECORDS)\n"
        "open(os.path.join(fast.RECORDS, 'ready'), 'w').write(fast.wanted_state())"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def call(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Call the script as a user does."""
    return subprocess.run(
        [sys.executable, place / "scripts" / "specchat", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


@posix_only
def test_a_later_call_passes_its_arguments_on(tmp_path: Path) -> None:
    """Arguments, exit code and streams are specchat's own, even in a path with spaces."""
    place = clone(tmp_path / "a clone")
    make_ready(place)
    done = call(place, "ask", "two words", "--json")
    assert done.stdout.splitlines() == ["-P", "-m", "specchat", "ask", "two words", "--json"]
    assert done.returncode == 7
    assert done.stderr == ""


@posix_only
def test_a_later_call_adds_less_than_a_fifth_of_a_second(tmp_path: Path) -> None:
    """The best of five calls takes less than 0.2 s."""
    place = clone(tmp_path / "clone")
    make_ready(place)

    def seconds() -> float:
        begun = time.perf_counter()
        call(place)
        return time.perf_counter() - begun

    assert min(seconds() for _ in range(5)) < 0.2


@posix_only
def test_changed_requirements_update_the_set_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a pull that changes an input the set-up counts as out of date."""
    place = clone(tmp_path / "clone")
    monkeypatch.setattr(fast, "ROOT", str(place))
    monkeypatch.setattr(fast, "RECORDS", str(place / ".venv" / "setup"))
    make_ready(place)
    assert fast.is_ready("ready")
    (place / "pyproject.toml").write_text("changed")
    assert not fast.is_ready("ready")


def test_an_old_python_can_run_the_first_files() -> None:
    """The files that run before the version check use old syntax and only os and sys."""
    for name in ("scripts/specchat", "scripts/test", "scripts/setup_env/fast.py"):
        tree = ast.parse((ROOT / name).read_text("utf-8"), feature_version=(3, 7))
        imported = {
            alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names
        }
        assert imported == {"os", "sys"}


# --- pinned packages ----------------------------------------------------------------------------


def test_every_requirement_is_an_exact_version() -> None:
    """Requirements have names, versions and markers, but no index, host or path."""
    pin = re.compile(r"[a-z0-9-]+==[0-9][0-9.]*( ; [a-z_]+ (==|in) \"[A-Za-z0-9_ ]+\")?")
    for path in sorted((ROOT / "scripts").glob("requirements*.txt")):
        for line in stages.requirements(path):
            assert pin.fullmatch(line), f"{path.name}: {line}"


def test_no_package_is_pinned_twice() -> None:
    """All files go into one environment, so each package is in one file."""
    paths = (ROOT / "scripts").glob("requirements*.txt")
    names = [line.partition("==")[0] for path in paths for line in stages.requirements(path)]
    assert len(names) == len(set(names))


def test_everything_specchat_depends_on_is_pinned() -> None:
    """The set-up installs pinned packages only, so each dependency must be pinned."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = {re.split(r"[<>=]", line)[0] for line in project["dependencies"]}
    pinned = {
        line.partition("==")[0] for line in stages.requirements(ROOT / "scripts/requirements.txt")
    }
    assert wanted <= pinned
    assert f"llama-cpp-python>={VERSION},<0.3.37" in project["dependencies"]


@posix_only
def test_a_terminated_set_up_stops_its_command() -> None:
    """SIGTERM becomes an exception, which stops the running command."""
    previous = {name: signal.getsignal(name) for name in (signal.SIGTERM, signal.SIGHUP)}
    try:
        stages._exit_on_signals()
        with pytest.raises(SystemExit) as ended:
            os.kill(os.getpid(), signal.SIGTERM)
        assert ended.value.code == 143
    finally:
        for name, handler in previous.items():
            signal.signal(name, handler)
