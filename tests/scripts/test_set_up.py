"""The set-up of a clone, from outside: what it runs, prints and leaves, and how it ends."""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from scripts.support.processes import is_running
from set_up_clone import SIGILL, Clone

pytestmark = pytest.mark.slow

if sys.platform == "win32":
    pytest.skip("its stand-ins are scripts of a shell", allow_module_level=True)

AMX_FLAGS = "-mno-amx-tile -mno-amx-int8 -mno-amx-bf16"
WHEEL = "llama_cpp_python-0.3.36-py3-none-any.whl"
CRASH: dict[str, Any] = {"code": SIGILL}

ALWAYS = "-DLLAVA_BUILD=OFF -DGGML_RPC=ON -DGGML_RPC_RDMA=OFF"
"""The options of every build of llama.cpp."""


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    """Return a clone that was never set up."""
    return Clone(tmp_path)


def ready(clone: Clone) -> Clone:
    """Set a clone up."""
    done = clone.call()
    assert done.returncode == 0, done.stderr
    return clone


# --- the first call -----------------------------------------------------------------------------


def test_the_first_call_sets_up_and_then_runs_specchat(clone: Clone) -> None:
    """Packages, specchat and llama.cpp are installed in turn; stdout is specchat's alone.

    pip installs into the environment, whatever its settings say. TinyBLAS begins at a variable.
    """
    clone.plan("specchat", {"code": 7})
    done = clone.call("ask", "two words", "--json", PIP_USER="1")

    assert done.returncode == 7
    wanted = ["-P", "-m", "specchat", "ask", "two words", "--json"]
    assert done.stdout.splitlines() == wanted
    kinds = [call.kind for call in clone.calls()]
    assert kinds == [
        *("pip install", "pip install", "pip download", "pip wheel", "pip install"),
        *("probe", "specchat"),
    ]
    packages, own = clone.calls("pip install")[:2]
    assert not [word for word in packages.words if word.startswith("llama-cpp-python")]
    assert own.words[-1] == str(clone.root)
    assert {call.environment["PIP_USER"] for call in clone.calls()[:5]} == {"0"}
    assert {call.environment["PYTHONPATH"] for call in clone.calls()[:5]} == {None}
    assert "if (n < specchat_min_columns)" in clone.built()
    assert clone.built().count("int specchat_min_columns = 2;") == 1
    assert f"creating a Python {sys.version.split()[0]} environment" in done.stderr
    assert "building llama.cpp for this CPU (about " in done.stderr


def test_a_later_call_runs_specchat_alone(clone: Clone) -> None:
    """Arguments, exit code and streams are specchat's; it takes 0.2 s of a processor at most."""
    ready(clone)
    python = clone.venv / "bin" / "python"
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\nexit 7\n')

    def seconds() -> float:
        begun = sum(os.times()[2:4])  # of processes that have ended
        done = clone.call("list", "--json")
        assert (done.returncode, done.stderr) == (7, "")
        assert done.stdout.splitlines() == ["-P", "-m", "specchat", "list", "--json"]
        return sum(os.times()[2:4]) - begun

    assert min(seconds() for _ in range(5)) < 0.2


@pytest.mark.parametrize(
    ("changed", "again"),
    [
        ("pyproject.toml", ["pip install"]),
        ("scripts/requirements.txt", ["pip install"]),
        ("scripts/setup_env/recipes.py", ["pip install", "probe"]),
        ("README.md", []),
    ],
)
def test_what_a_pull_changes_is_done_again(clone: Clone, changed: str, again: list[str]) -> None:
    """And nothing else; the wheel comes from the cache."""
    ready(clone)
    before = len(clone.calls())
    with (clone.root / changed).open("a") as file:
        file.write("\n# changed\n")
    assert clone.call().returncode == 0
    assert [call.kind for call in clone.calls()[before:]] == [*again, "specchat"]


def test_the_users_build_settings_come_after_ours(clone: Clone) -> None:
    """CMake takes the last definition; they make another wheel, which is cached beside ours."""
    ready(clone)
    (clone.records / "llama").unlink()
    (clone.records / "ready").unlink()
    user = {"CMAKE_ARGS": "-DGGML_NATIVE=OFF", "CFLAGS": "-O2", "CMAKE_BUILD_PARALLEL_LEVEL": "1"}
    assert clone.call(**user).returncode == 0

    first, second = (call.environment for call in clone.calls("pip wheel"))
    assert first["CMAKE_ARGS"] == f"{ALWAYS} -DGGML_NATIVE=ON"
    assert second["CMAKE_ARGS"] == f"{first['CMAKE_ARGS']} -DGGML_NATIVE=OFF"
    assert (second["CFLAGS"], second["CMAKE_BUILD_PARALLEL_LEVEL"]) == ("-O2", "1")
    assert len(clone.wheels()) == 2


# --- instructions that a CPU announces but lacks ------------------------------------------------


def test_a_build_that_crashes_is_built_again_without_amx(clone: Clone) -> None:
    """Both messages say so; the next set-up starts with the build that runs."""
    clone.plan("probe", CRASH)
    done = clone.call()

    assert done.returncode == 0
    assert "the native build crashes" in done.stderr
    assert "building llama.cpp for this CPU, without AMX (about" in done.stderr
    first, second = (call.environment for call in clone.calls("pip wheel"))
    assert first["CFLAGS"] is None
    assert second["CFLAGS"] == second["CXXFLAGS"] == AMX_FLAGS
    other = ready(clone.another())
    assert len(clone.wheels()) == 1
    assert other.calls("pip wheel") == []


def test_a_wheel_that_runs_is_cached_for_the_next_clone(clone: Clone) -> None:
    """A second clone of the same user builds and downloads nothing of llama.cpp."""
    ready(clone)
    other = ready(clone.another())
    assert [call.kind for call in other.calls()] == [*["pip install"] * 3, "probe", "specchat"]


def test_a_wheel_that_the_cache_cannot_keep_is_installed_all_the_same(clone: Clone) -> None:
    """After minutes of building; one line says so."""
    wheels = clone.folder / "cache" / "specchat" / "wheels"
    clone.plan("pip wheel", {"occupies": str(wheels)})
    done = clone.call()

    assert done.returncode == 0
    assert f"specchat: {wheels}/0.3.36-cpu-native-" in done.stderr
    assert "cannot keep what was built (Not a directory)\n" in done.stderr
    assert clone.calls("pip install")[-1].words[-1].startswith(str(clone.records / "build"))


# --- choosing a backend or a wheel --------------------------------------------------------------


@pytest.mark.parametrize(
    ("choice", "definition"),
    [("vulkan", "-DGGML_VULKAN=on"), ("ROCm", "-DGGML_HIP=on"), ("cuda", "-DGGML_CUDA=on")],
)
def test_a_backend_can_be_forced(clone: Clone, choice: str, definition: str) -> None:
    """Whatever is found here; what is built for it is probed on the CPU and then on the GPU."""
    assert clone.call(SPECCHAT_BACKEND=choice).returncode == 0

    (build,) = clone.calls("pip wheel")
    assert definition in str(build.environment["CMAKE_ARGS"]).split()
    assert [call.kind for call in clone.calls()][-3:] == ["probe", "gpu probe", "specchat"]


def test_a_choice_holds_until_it_is_made_again(clone: Clone) -> None:
    """A call without the variable keeps what was set up; another value builds again."""
    assert clone.call(SPECCHAT_BACKEND="vulkan").returncode == 0
    environment = clone.environment()
    del environment["SPECCHAT_BACKEND"]
    clone.environment = lambda **_: environment  # type: ignore[method-assign]
    before = len(clone.calls())
    assert clone.call().returncode == 0
    assert [call.kind for call in clone.calls()[before:]] == ["specchat"]
    environment["SPECCHAT_BACKEND"] = "cpu"
    assert clone.call().returncode == 0
    assert len(clone.calls("pip wheel")) == 2


@pytest.mark.parametrize(
    ("kind", "step"),
    [
        ("pip wheel", {"code": 1, "output": "x.cpp:1: fatal error: no header"}),
        ("gpu probe", {"code": 1, "output": "error: no header"}),
        ("gpu probe", {"code": SIGILL, "output": "error: no header"}),
    ],
)
def test_a_backend_that_fails_gives_way_to_the_cpu(
    clone: Clone, kind: str, step: dict[str, Any]
) -> None:
    """The message has the reason, and the command that tries again."""
    clone.plan(kind, step)
    done = clone.call(SPECCHAT_BACKEND="vulkan")

    assert done.returncode == 0
    assert "no header" in done.stderr
    assert "building for CPU instead" in done.stderr
    assert f"to try again: rm {clone.records / 'ready'}" in done.stderr
    first, second = (str(call.environment["CMAKE_ARGS"]) for call in clone.calls("pip wheel"))
    assert "VULKAN" in first
    assert "VULKAN" not in second


def test_cuda_is_taken_where_its_compiler_and_a_gpu_are(clone: Clone) -> None:
    """With nvcc alone the build is for the CPU; beside the PATH, CMake is told where it is."""
    home = clone.folder / "cuda"
    clone.tool("nvcc", "release 12.4")
    (home / "bin").mkdir(parents=True)
    (clone.tools / "nvcc").rename(home / "bin" / "nvcc")
    assert clone.call(SPECCHAT_BACKEND="auto", CUDA_HOME=str(home)).returncode == 0
    clone.tool("nvidia-smi", "GPU 0: some GPU")
    (clone.records / "llama").unlink()
    (clone.records / "ready").unlink()
    assert clone.call(SPECCHAT_BACKEND="auto", CUDA_HOME=str(home)).returncode == 0

    for_cpu, for_gpu = (call.environment for call in clone.calls("pip wheel"))
    assert "CUDA" not in str(for_cpu["CMAKE_ARGS"])
    assert "-DGGML_CUDA=on" in str(for_gpu["CMAKE_ARGS"]).split()
    assert for_gpu["CUDACXX"] == str(home / "bin" / "nvcc")


@pytest.mark.parametrize("definition", ["CUDA=OFF", "VULKAN=ON", "HIP=ON"])
def test_the_users_choice_about_backends_is_respected(clone: Clone, definition: str) -> None:
    """If CMAKE_ARGS mention one, the set-up does not decide about it."""
    for name in ("nvidia-smi", "nvcc"):
        clone.tool(name, "GPU 0: some GPU")
    own = f"-DGGML_{definition}"
    assert clone.call(SPECCHAT_BACKEND="auto", CMAKE_ARGS=own).returncode == 0
    (build,) = clone.calls("pip wheel")
    assert build.environment["CMAKE_ARGS"] == f"{ALWAYS} -DGGML_NATIVE=ON {own}"


def test_vulkans_own_header_is_completed(clone: Clone) -> None:
    """The header of the same name is found first, and the user's own folders stay."""
    mine = {"SPECCHAT_BACKEND": "vulkan", "CPLUS_INCLUDE_PATH": "/mine"}
    assert clone.call(**mine).returncode == 0
    (build,) = clone.calls("pip wheel")
    first, rest = str(build.environment["CPLUS_INCLUDE_PATH"]).split(os.pathsep)
    assert rest == "/mine"
    header = Path(first) / "vulkan" / "vulkan.hpp"
    assert header.is_relative_to(clone.root)
    assert "#include_next <vulkan/vulkan.hpp>" in header.read_text()


@pytest.mark.parametrize(
    ("given", "installed"),
    [
        (WHEEL, "{folder}/" + WHEEL),
        (f"https://example.org/{WHEEL}", f"https://example.org/{WHEEL}"),
        ("llama_cpp_python-0.3.36+cu124-py3-none-win_amd64.whl", None),
    ],
)
def test_a_prebuilt_wheel_is_installed_and_probed(
    clone: Clone, given: str, installed: str | None
) -> None:
    """From a file, which may be relative, or a URL; nothing is built."""
    assert clone.call(SPECCHAT_LLAMA_WHEEL=given).returncode == 0
    wanted = (installed or "{folder}/" + given).format(folder=clone.folder)
    assert clone.calls("pip install")[-1].words[-3:] == ["--no-deps", "--force-reinstall", wanted]
    assert clone.calls("pip wheel") == []
    assert len(clone.calls("probe")) == 1


# --- continuing where a set-up ended ------------------------------------------------------------


@pytest.mark.parametrize("kind", ["pip install", "pip wheel", "probe"])
def test_the_next_call_continues_after_a_failure(clone: Clone, kind: str) -> None:
    """What was done is not done again."""
    clone.plan(kind, {"code": 1, "output": "error: that is why"})
    assert clone.call().returncode == 1
    before = [call.kind for call in clone.calls()]
    assert clone.call().returncode == 0
    after = [call.kind for call in clone.calls()][len(before) :]
    assert after[0] == ("pip install" if kind == "probe" else kind)  # a cached wheel is installed
    done = before[:-1] if kind != "probe" else before[:-2]
    assert len(done) + len(after) == 7


@pytest.mark.parametrize("left", [b"PK\x05\x06" + bytes(18), b"PK\x05"])
def test_a_wheel_that_was_finished_is_not_built_again(clone: Clone, left: bytes) -> None:
    """If killed after the build but before caching; a part of a wheel is no wheel."""
    (clone.records / "build" / "cpu-native").mkdir(parents=True)
    (clone.records / "build" / "cpu-native" / WHEEL).write_bytes(left)
    ready(clone)
    assert len(clone.calls("pip wheel")) == int(len(left) < 20)
    assert len(clone.wheels()) == 1
    assert not (clone.records / "build").exists()


@pytest.mark.parametrize("stamp", [None, "/somewhere/else"])
def test_an_environment_that_is_incomplete_or_was_moved_is_made_again(
    clone: Clone, stamp: str | None
) -> None:
    """Its scripts name the folder it was made for; everything in it is removed."""
    ready(clone)
    stale = clone.venv / "lib" / "stale"
    stale.parent.mkdir()
    stale.touch()
    (clone.records / "venv").unlink()
    if stamp:
        (clone.records / "venv").write_text(stamp)
    (clone.root / "pyproject.toml").write_text("changed")
    done = clone.call()

    assert done.returncode == 0
    assert "creating a Python" in done.stderr
    assert not stale.exists()
    assert len(clone.calls("pip install")) == 6


def test_the_environment_of_another_folder_is_left_alone(clone: Clone) -> None:
    """A link to it is not followed."""
    other = ready(clone.another())
    clone.venv.symlink_to(other.venv)
    done = clone.call()

    assert done.returncode == 1
    assert done.stderr.endswith("links to another folder's environment: remove the link\n")
    assert (other.venv / "bin" / "python").is_file()
    assert other.call().stderr == ""


def test_two_set_ups_at_once_wait_for_each_other(clone: Clone) -> None:
    """The second one reports that it waits, and finds everything done."""
    clone.plan("pip install", {"seconds": 2})
    with clone.start() as first:
        wait_for(clone, "pip install")
        second = clone.call()
        _, errors = first.communicate()

    assert (first.returncode, second.returncode) == (0, 0), errors
    assert "waiting for another set-up of this folder to finish" in second.stderr
    assert len(clone.calls("pip install")) == 3


def wait_for(clone: Clone, kind: str) -> None:
    """Wait until a command of this kind runs."""
    deadline = time.monotonic() + 60
    while not clone.calls(kind):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def processes_of(clone: Clone) -> list[int]:
    """Return the processes that run in the clone's environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            if str(clone.venv).encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return [number for number in found if is_running(number)]


@pytest.mark.parametrize(
    ("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)]
)
def test_an_interrupted_set_up_leaves_nothing_running(
    clone: Clone, number: signal.Signals, exit_code: int
) -> None:
    """Ctrl+C and a closed terminal stop the command, and the next call continues."""
    clone.plan("pip wheel", {"seconds": 60})
    with clone.start() as child:
        wait_for(clone, "pip wheel")
        child.send_signal(number)
        _, errors = child.communicate(timeout=30)

    assert child.returncode == exit_code
    assert "Traceback" not in errors
    deadline = time.monotonic() + 30  # a killed process may take a moment to be gone
    while left := processes_of(clone):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
    said = "interrupted" if number is signal.SIGINT else "terminated"
    assert errors.endswith(f"specchat: {said}; the next call continues from here\n")
    assert clone.call().returncode == 0
    assert len(clone.calls("pip download")) == 1


def test_what_a_killed_set_up_left_running_is_ended(clone: Clone) -> None:
    """It would hold the lock to its own end; the next call says so, ends it and goes on."""
    clone.plan("pip wheel", {"seconds": 600})
    with clone.start() as child:
        wait_for(clone, "pip wheel")
        child.kill()
        child.communicate()
    (left,) = processes_of(clone)
    done = clone.call()

    assert done.returncode == 0, done.stderr
    said = "stopping what a set-up that was killed left running"
    assert f"specchat: {said}\n" in done.stderr
    assert not is_running(left)
    assert [call.kind for call in clone.calls()].count("pip download") == 1


def test_a_set_up_that_waits_goes_on_when_the_other_one_is_killed(clone: Clone) -> None:
    """It waited for the process, and then ends what that has left."""
    clone.plan("pip wheel", {"seconds": 600})
    with clone.start() as first:
        wait_for(clone, "pip wheel")
        with clone.start() as second:
            for line in second.stderr or []:
                if "waiting for another set-up" in line:
                    break
            first.kill()
            _, errors = second.communicate(timeout=60)
    assert second.returncode == 0, errors
    assert "stopping what a set-up that was killed left running" in errors


@pytest.mark.parametrize("change", ["upgraded", "removed"])
def test_an_interpreter_that_is_not_the_same_any_more_makes_another_environment(
    clone: Clone, change: str
) -> None:
    """After an upgrade of the system its packages are in a folder of another version."""
    ready(clone)
    python = clone.venv / "bin" / "python"
    moved = clone.folder / "python3.old"
    python.rename(moved)
    python.symlink_to(moved)
    assert clone.call().returncode == 0  # another path alone changes nothing
    before = len(clone.calls("pip install"))
    assert before == 3
    moved.unlink()
    if change == "upgraded":
        newer = clone.folder / "python3.new"
        newer.write_text('#!/bin/sh\necho "No module named specchat" >&2\nexit 1\n')
        newer.chmod(0o755)
        python.unlink()
        python.symlink_to(newer)
    done = clone.call()

    assert done.returncode == 0
    assert "creating a Python" in done.stderr
    assert len(clone.calls("pip install")) == 6


# --- messages to the user -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "output", "says"),
    [
        ("pip wheel", "x.cpp:1:2: fatal error: no such file", "fatal error: no such file"),
        ("pip wheel", "  ╰─> error: in pip's frame", "set-up failed: error: in pip's frame"),
        ("pip wheel", "CMake Error: CMAKE_CXX_COMPILER not set", "install a C++ compiler"),
        ("pip wheel", "fatal error: Killed signal terminated program cc1plus", "PARALLEL_LEVEL=1"),
        ("pip wheel", "nvcc fatal : unsupported architecture", "SPECCHAT_BACKEND=cpu"),
        ("pip install", "OSError: No space left on device", "free some disk space"),
        ("pip install", "ERROR: No matching distribution found for numpy", "check the network"),
        ("pip install", "something else", "something else; run this again to continue from here"),
        ("pip install", "", "no output; run this again"),
        ("probe", "error: libgomp.so is missing", "cannot run: error: libgomp.so is missing"),
    ],
)
def test_a_command_that_fails_is_one_line_with_the_next_step(
    clone: Clone, kind: str, output: str, says: str
) -> None:
    """It has the reason, what to do and the log; no traceback, and nothing on stdout."""
    around = "\nninja: build stopped\nERROR: Failed building wheel" if "wheel" in kind else ""
    clone.plan(kind, {"code": 3, "output": f"{output}{around}"})
    done = clone.call()

    assert (done.returncode, done.stdout) == (1, "")
    failure = done.stderr.splitlines()[-1]
    assert failure.startswith("specchat: ")
    assert says in failure
    assert failure.endswith(f"(log: {clone.records / 'setup.log'})")
    assert output in (clone.records / "setup.log").read_text()
    assert len(clone.calls(kind)) == 1
    assert "Traceback" not in done.stderr


WITHOUT_RELEASE = """
def freedesktop_os_release():
    raise OSError

def machine():
    return "x86_64"

def python_version():
    return "3.11"
"""
"""A module `platform` of a system that does not name itself."""
SYSTEM_PYTHON = shutil.which("python3", path="/usr/local/bin:/usr/bin") or sys.executable
"""A Python that other users can run."""
LLAMA = "/x/llama_cpp_python"
OTHER_RELEASE = "is not a wheel of llama-cpp-python 0.3.36: name another wheel"


@pytest.mark.parametrize(
    ("variables", "probes", "says"),
    [
        ({}, [CRASH] * 3, "llama.cpp crashes however it is built: please report this"),
        (
            {"SPECCHAT_BACKEND": "opencl"},
            [],
            "SPECCHAT_BACKEND=opencl is unknown: use auto, cpu, cuda, vulkan, rocm, metal",
        ),
        (
            {"SPECCHAT_LLAMA_WHEEL": WHEEL},
            [CRASH | {"output": "error: that is why"}],
            f"{WHEEL} does not run here: error: that is why; name another wheel",
        ),
        ({"SPECCHAT_LLAMA_WHEEL": f"{LLAMA}-0.3.35-py3-none-any.whl"}, [], OTHER_RELEASE),
        ({"SPECCHAT_LLAMA_WHEEL": f"{LLAMA}-0.3.360-py3-none-any.whl"}, [], OTHER_RELEASE),
        ({"SPECCHAT_LLAMA_WHEEL": f"{LLAMA}-0.3.36rc1-py3-none-any.whl"}, [], OTHER_RELEASE),
    ],
)
def test_a_set_up_that_cannot_go_on_says_why(
    clone: Clone, variables: dict[str, str], probes: list[dict[str, Any]], says: str
) -> None:
    """In one line, with what else can be done."""
    clone.plan("probe", *probes)
    done = clone.call(**variables)
    assert (done.returncode, done.stdout) == (1, "")
    assert says in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("lacking", "says"),
    [
        ("cc", "building llama.cpp needs a C compiler: {command}, then run this again"),
        ("c++", "building llama.cpp needs a C++ compiler: {command}, then run this again"),
        ("headers", "c++ cannot compile C++ programs (tried.cpp:2: fatal error: thread: No such"),
    ],
)
@pytest.mark.parametrize(("manager", "command"), [("apk", "apk add g++"), ("dnf", "gcc-c++")])
def test_what_a_build_needs_is_named_first(
    clone: Clone, lacking: str, says: str, manager: str, command: str
) -> None:
    """Before anything is made or fetched, with the command of the system's package manager."""
    clone.tool(manager)
    if lacking == "headers":
        (clone.tools / "c++").write_text(
            '#!/bin/sh\necho "tried.cpp:2: fatal error: thread: No such file" >&2\nexit 1'
        )
    else:
        (clone.tools / lacking).unlink()
    release = clone.folder / "modules" / "platform.py"
    release.write_text(WITHOUT_RELEASE)
    done = clone.call()
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert says.partition("{")[0] in line
    assert command in line
    assert clone.calls() == []
    assert not (clone.venv / "bin").exists()
    clone.tool("c++" if lacking == "headers" else lacking)
    assert clone.call().returncode == 0


def test_a_cached_wheel_needs_no_compiler(clone: Clone) -> None:
    """Nor does one that is named, or a compiler's own variable that is wrong."""
    ready(clone)
    other = clone.another()
    for name in ("cc", "c++"):
        (other.tools / name).unlink()
    ready(other)
    named = clone.call(CXX="/no/compiler", SPECCHAT_BACKEND="vulkan")
    assert named.returncode == 1
    assert "CXX names /no/compiler, which is not installed: correct or unset it" in named.stderr


def test_a_missing_venv_module_is_named_before_any_download(clone: Clone) -> None:
    """Debian has it in a package of its own."""
    (clone.folder / "plan venv").write_text("Error: ensurepip is not available")
    done = clone.call()
    assert done.returncode == 1
    assert "venv module (Debian, Ubuntu: " in done.stderr
    assert clone.calls("pip download") == []


@pytest.mark.parametrize("home", ["", "relative/folder"])
def test_without_a_home_folder_nothing_is_begun(clone: Clone, home: str) -> None:
    """Specchat keeps its files there; with one the next call goes on."""
    done = clone.call(HOME=home)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "no home folder: set HOME to a folder that you can write to" in done.stderr
    assert clone.calls() == []
    assert clone.call().returncode == 0


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can be another user")
def test_a_user_whom_the_system_does_not_know_needs_home(clone: Clone) -> None:
    """As in a container that runs as any number; a traceback came from the search for a home."""
    open_for_others(clone.folder)
    environment = clone.environment()
    del environment["HOME"]
    done = call_as_other(clone, environment)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("specchat: no home folder: set HOME")
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can be another user")
def test_a_folder_that_cannot_be_written_is_named(clone: Clone) -> None:
    """With what to do about it."""
    open_for_others(clone.folder)
    done = call_as_other(clone, clone.environment())
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        f"set-up failed: {clone.venv}: Permission denied; make {clone.root} writable" in done.stderr
    )
    assert done.stderr.count("\n") == 1


def call_as_other(clone: Clone, environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    """Call the script as a user whom the system does not know."""
    return subprocess.run(
        [SYSTEM_PYTHON, str(clone.root / "scripts" / "specchat")],
        env=environment,
        user=12345,
        group=12345,
        capture_output=True,
        text=True,
        check=False,
    )


def open_for_others(folder: Path) -> None:
    """Let other users read a folder of a test, and enter those above it."""
    for each in folder.parents:
        mode = each.stat().st_mode
        if not mode & 0o001:  # `scripts/test` keeps temporary files in a private folder
            each.chmod(mode | 0o055)
    folder.chmod(0o755)


def test_an_error_of_the_system_is_one_line(clone: Clone) -> None:
    """The system's own reason; here a file lies where the environment would be."""
    clone.venv.touch()
    done = clone.call()
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "Not a directory; remove " in done.stderr


# --- the checks ---------------------------------------------------------------------------------


def test_the_checks_run_before_the_tests_and_all_of_them(clone: Clone) -> None:
    """A check that fails is printed and named at the end; the tests run all the same."""
    clone.plan("mypy", {"code": 1, "output": "a.py:1: error: wrong"})
    done = clone.call("--all", script="test")

    assert done.returncode == 1
    assert done.stderr.endswith("failed: types\n")
    assert "a.py:1: error: wrong" in done.stdout
    calls = clone.calls()
    kinds = [call.kind for call in calls]
    assert kinds[-1] == "pytest"
    assert {"ruff", "mypy", "specchat"} < set(kinds)
    (pull,) = clone.calls("specchat")
    assert pull.words[-2:] == ["pull", "smollm2-135m"]
    assert pull.environment["HF_HUB_CACHE"] == str(clone.records / "hub")
    compiling, testing = clone.calls("pytest")  # once for all workers, beside the checks
    assert "--collect-only" in compiling.words
    assert {"--numprocesses", "--dist"} < set(testing.words)


def test_without_arguments_the_tests_of_a_change_run(clone: Clone) -> None:
    """All checks and the quick tests, which need no real model."""
    assert clone.call(script="test").returncode == 0
    assert {"ruff", "mypy"} < {call.kind for call in clone.calls()}
    assert clone.calls("specchat") == []
    assert all("--quick" in call.words for call in clone.calls("pytest"))


def test_with_arguments_only_pytest_runs(clone: Clone) -> None:
    """No model is pulled where the environment names a copy."""
    assert clone.call("-k", "cache", script="test", SMOLLM2="/a/copy").returncode == 0
    (tests,) = clone.calls("pytest")
    assert tests.words[-3:] == ["pytest", "-k", "cache"]
    assert clone.calls("ruff") == clone.calls("mypy") == clone.calls("specchat") == []


def test_the_tests_run_without_the_real_model_where_it_is_not_available(clone: Clone) -> None:
    """One line says so, and why."""
    why = "specchat: smollm2-135m: the hub cannot be reached"
    clone.plan("specchat", {"code": 1, "output": why})
    done = clone.call("-k", "cache", script="test")
    assert done.returncode == 0
    said = f"the real model is not available, so its tests are skipped: {why}"
    assert said in done.stdout.splitlines()
    assert len(clone.calls("pytest")) == 1


def test_clients_of_the_server_have_environments_of_their_own(clone: Clone) -> None:
    """They are made once, and anew with other requirements; without one a line says so."""
    clone.plan("pip install", *[{}] * 5, {"code": 1, "output": "error: no such package"})
    stamp, python = clone.records / "clients", clone.venv / "clients" / "bin" / "python"
    said = "the environment of the server's clients is not available, so its tests are skipped: "
    failed = clone.call("-k", "cache", script="test")
    assert (failed.returncode, stamp.exists()) == (0, False)
    assert f"{said}error: no such package" in failed.stdout.splitlines()

    for _ in range(2):
        assert clone.call("-k", "cache", script="test").returncode == 0
    calls = [call for call in clone.calls("pip install") if not call.words[-1].startswith("pillow")]
    *_, of_clients, of_litellm = calls
    assert len(calls) == 7
    assert python.exists()
    assert any(word.startswith("anthropic==") for word in of_clients.words)
    assert any(word.startswith("litellm==") for word in of_litellm.words)
    requirements = clone.root / "scripts" / "requirements-clients.txt"
    requirements.write_text("openai==0.1\n")
    assert clone.call("-k", "cache", script="test").returncode == 0
    assert clone.calls("pip install")[-1].words[-1] == "openai==0.1"
    assert stamp.read_text() == "openai==0.1\n"


# --- tests on a device --------------------------------------------------------------------------


def test_device_tests_without_what_they_are_built_with_name_the_packages(clone: Clone) -> None:
    """One line, and the exit code of a failure; so for a backend that is unknown."""
    done = clone.call("--device", "vulkan", script="test")
    assert done.returncode == 1
    assert "failed: the device tests need a build for Vulkan: " in done.stderr
    for words in (["--device"], ["--device", "vulcan", "--if-possible"]):
        done = clone.call(*words, script="test")
        assert done.returncode == 1
        assert "use cpu, cuda, vulkan, rocm, metal" in done.stderr
    assert clone.calls("pytest") == []


def test_packages_for_device_tests_are_installed_where_that_is_asked_for(clone: Clone) -> None:
    """By root alone, all in one command; what is not available is skipped with one line."""
    clone.tool("apt-get")
    done = clone.call("--device", "vulkan", "--if-possible", script="test")

    assert done.returncode == 0
    assert "the tests on a device (tests/device) are skipped: the device tests need" in done.stdout
    used = [call.split() for call in clone.tools_used() if call.startswith("apt-get")]
    packages = ["libvulkan-dev", "glslc", "spirv-headers", "mesa-vulkan-drivers"]
    if os.geteuid() == 0:
        update, install = used
        assert update[-1] == "update"
        assert install[-5:] == ["install", *packages]
    else:
        assert used == []
    (counting,) = clone.calls("pytest")
    assert counting.words[-2:] == ["-rN", "tests/device"]


@pytest.mark.parametrize(
    ("line", "exit_code"),
    [("error: Could not fetch URL", 0), ("ggml-vulkan.cpp:1: error: no member named x", 1)],
)
def test_a_build_for_device_tests_that_fails_is_a_failure_unless_it_is_the_network(
    clone: Clone, line: str, exit_code: int
) -> None:
    """Where the device is wanted only if possible."""
    ready_for_devices(clone)
    clone.plan("pip wheel", {"code": 1, "output": line})
    done = clone.call("--device", "cuda", "--if-possible", script="test")
    assert done.returncode == exit_code
    assert line in (done.stderr if exit_code else done.stdout)
    assert len(clone.calls("pytest")) == 1 - exit_code


def ready_for_devices(clone: Clone) -> None:
    """Set up with the packages for tests."""
    assert clone.call("--version", script="test").returncode == 0
    (clone.folder / "calls").unlink()


def test_device_tests_begin_with_a_decoding_that_has_time_to_compile(clone: Clone) -> None:
    """The build is made once, installed beside the environment's own and first on the path."""
    ready_for_devices(clone)
    for _ in range(2):
        assert clone.call("--device", "cuda", "-k", "memory", script="test").returncode == 0

    assert [call.kind for call in clone.calls()] == [
        *("pip download", "pip wheel", "pip install"),
        *["gpu probe", "pytest"] * 2,
    ]
    (install,) = clone.calls("pip install")
    folder = install.words[install.words.index("--target") + 1].removesuffix(".half")
    tests = clone.calls("pytest")[0]
    assert str(tests.environment["PYTHONPATH"]).split(os.pathsep)[0] == folder
    assert tests.words[-4:] == ["--timeout=900", "tests/device", "-k", "memory"]


def test_a_device_that_does_not_decode_runs_no_test(clone: Clone) -> None:
    """Its reason is printed."""
    ready_for_devices(clone)
    clone.plan("gpu probe", {"code": 1, "output": "error: no device"})
    done = clone.call("--device", "cuda", script="test")
    assert done.returncode == 1
    assert "does not decode on the device: error: no device" in done.stderr
    assert clone.calls("pytest") == []
