"""Parts of the set-up that a run on this machine cannot show: other machines, headers and pins."""

import ast
import errno
import io
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from contextlib import nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from scripts.setup_env import (
    backends,
    clients,
    devices,
    exact_kernels,
    fast,
    hints,
    preflight,
    running,
    stages,
    wheels,
)
from scripts.setup_env import machine as machine_facts
from scripts.setup_env.archives import extract
from scripts.setup_env.recipes import NATIVE, PORTABLE, WITHOUT_AMX, Backend, recipes_for
from scripts.setup_env.running import SetUpFailed
from specchat.doctor import toolchains
from specchat.system import control_groups
from tables import table

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
CPU = Backend("CPU")
NEW_SYNTAX = (ast.AnnAssign, ast.JoinedStr, ast.NamedExpr, ast.Nonlocal, ast.Starred)
"""What Python 2 cannot read, besides annotations and arguments by name alone."""


def old_pythons() -> list[Path]:
    """Return the Pythons of this machine that are older than 3.11, on the PATH or pyenv's."""
    names = ("python2", "python2.7", "python3.6", "python3.8", "python3.9", "python3.10")
    on_path = [Path(path) for path in map(shutil.which, names) if path and "shims" not in path]
    versions = Path.home() / ".pyenv" / "versions"
    patterns = ("2.*/bin/python", "3.[0-9].*/bin/python", "3.10.*/bin/python")
    return [*on_path, *(path for pattern in patterns for path in sorted(versions.glob(pattern)))]


OLD_PYTHONS = old_pythons()
VERSION = "0.3.36"


# --- other machines -----------------------------------------------------------------------------


def test_recipes_fit_the_machine() -> None:
    """AMX can only be left out on x86, by compilers with GCC's flags."""
    assert recipes_for("x86_64", "linux") == (NATIVE, WITHOUT_AMX, PORTABLE)
    assert recipes_for("AMD64", "win32") == (NATIVE, PORTABLE)
    assert recipes_for("arm64", "darwin") == (NATIVE, PORTABLE)


def test_metal_needs_no_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    """On macOS llama-cpp-python enables Metal itself."""
    monkeypatch.delenv("SPECCHAT_BACKEND", raising=False)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert backends.backends_to_try() == [Backend("Metal"), Backend("CPU", ("-DGGML_METAL=OFF",))]


class Machine:
    """The files and tools by which a Linux machine's GPU, driver and headers are found."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Begin with a machine that has none of them."""
        self.folder = folder
        self.tools = {"nvidia-smi": ""}
        monkeypatch.setattr(sys, "platform", "linux")
        monkeypatch.setattr(backends, "RENDER_NODES", folder)
        monkeypatch.setattr(backends, "DRIVER_FOLDERS", (folder / "icd.d",))
        monkeypatch.setattr(backends, "SYSTEM_INCLUDES", (folder / "include",))
        monkeypatch.setattr(shutil, "which", lambda name, **_: self.tools.get(name))
        monkeypatch.setattr(backends, "has_nvidia_gpu", lambda: bool(self.tools["nvidia-smi"]))
        release = {"ID": "linuxmint", "ID_LIKE": "ubuntu debian"}
        monkeypatch.setattr(platform, "freedesktop_os_release", lambda: release)
        monkeypatch.setattr(os, "geteuid", lambda: 1000, raising=False)
        for name in ("VULKAN_SDK", "CMAKE_ARGS", "SPECCHAT_BACKEND"):
            monkeypatch.delenv(name, raising=False)

    def file(self, name: str, text: str = "") -> None:
        """Write a file."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Return a machine without a GPU."""
    return Machine(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("maker", "vendor", "driver"),
    [
        ("AMD", "0x1002", "radeon_icd.x86_64.json"),
        ("Intel", "0x8086", "intel_icd.x86_64.json"),
        ("NVIDIA", "", "nvidia_icd.json"),
    ],
)
def test_any_gpu_is_used_through_vulkan(
    machine: Machine, maker: str, vendor: str, driver: str
) -> None:
    """With its driver, the shader compiler and both headers; without one of them it is the CPU.

    Until then one command is named that installs them and sets specchat up again.
    """
    assert backends.how_to_use_the_gpu() == ""
    machine.file("renderD128/device/vendor", f"{vendor or '0x1af4'}\n")
    machine.tools["nvidia-smi"] = "" if vendor else "GPU 0"
    advice = backends.how_to_use_the_gpu()
    assert advice.startswith(
        f"found an {maker} GPU without Vulkan's build tools: sudo apt install "
    )
    assert "glslc spirv-headers mesa-vulkan-drivers && SPECCHAT_BACKEND=vulkan " in advice
    assert advice.endswith(f"scripts{os.sep}specchat")
    machine.file("icd.d/lvp_icd.x86_64.json")
    machine.tools["glslc"] = "glslc"
    for name in (f"icd.d/{driver}", *(f"include/{each}" for each in backends.VULKAN_HEADERS)):
        assert backends.find_backend().name == "CPU"
        machine.file(name)
    backend = backends.find_backend()
    assert (backend.name, backend.definitions) == ("Vulkan", ("-DGGML_VULKAN=on",))
    machine.tools["glslc"] = ""
    del machine.tools["glslc"]
    assert backends.find_backend().name == "CPU"


@pytest.mark.skipif(
    sys.platform == "win32" or not shutil.which("c++"), reason="it takes a C++ compiler"
)
@pytest.mark.parametrize("is_complete", [True, False])
def test_the_header_compiles_with_old_and_new_ones(tmp_path: Path, is_complete: bool) -> None:
    """It adds what ggml names where Vulkan's header lacks it, and nothing where it does not."""
    system = tmp_path / "system"
    (system / "vulkan").mkdir(parents=True)
    completed = toolchains.HEADERS / "vulkan" / "vulkan.hpp"
    own = completed.read_text().partition("namespace")[2]
    types = "namespace" + own.partition("#endif")[0]
    extension = f"#define VK_EXT_layer_settings 1\n{types}" if is_complete else ""
    old = "#include <cstdint>\n#define VULKAN_HPP_NAMESPACE vk\nusing VkStructureType = int;\n"
    (system / "vulkan" / "vulkan.hpp").write_text(f"#pragma once\n{old}{extension}")
    source = tmp_path / "ggml.cpp"
    source.write_text(
        "#include <vulkan/vulkan.hpp>\n#include <vector>\nint main() { unsigned yes = 1;\n"
        "std::vector<vk::LayerSettingEXT> settings = {\n"
        '{ "layer", "setting", vk::LayerSettingTypeEXT::eBool32, 1, &yes } };\n'
        "vk::LayerSettingsCreateInfoEXT info(settings); return info.next != nullptr; }\n"
    )
    paths = {"CPLUS_INCLUDE_PATH": f"{toolchains.HEADERS}:{system}"}
    command = ["c++", "-std=c++17", "-fsyntax-only", str(source)]
    subprocess.run(command, env={**os.environ, **paths}, check=True)


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [
        (fast, "cpu", lambda: "another one"),
        (wheels, "user_choices", lambda: ("CMAKE_ARGS=-DGGML_VULKAN=ON",)),
        (wheels, "CHANGES", ()),
    ],
)
def test_what_a_wheel_depends_on_makes_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, module: object, name: str, value: object
) -> None:
    """Machines that share a home folder share no wheel, nor do builds of different source."""
    monkeypatch.setattr(wheels, "cache_folder", lambda: tmp_path)
    here = wheels.entry_for(VERSION, CPU, NATIVE)
    monkeypatch.setattr(module, name, value)
    assert wheels.entry_for(VERSION, CPU, NATIVE) != here


def test_only_compiler_flags_distinguish_cpus() -> None:
    """The clock and the kernel's own flags, which change between boots, are ignored."""
    first = "model name\t: X\nflags\t: fpu avx2 amx_tile new_mitigation\ncpu MHz\t: 1\n\nother: Y"
    again = "model name\t: X\nflags\t\t: amx_tile avx2\ncpu MHz\t: 2\n\n"
    assert fast.cpu_facts(first) == fast.cpu_facts(again) == ["X", "amx_tile avx2"]


def test_a_source_without_a_place_for_the_switch_is_left_as_it_is(tmp_path: Path) -> None:
    """One that has it already, and one of another shape."""
    source = tmp_path / exact_kernels.SOURCE
    source.parent.mkdir(parents=True)
    text = "// kernels\nbool llamafile_sgemm(int n) {\n    if (n < 2)\n        return 0;\n"
    source.write_text(text)
    assert exact_kernels.add_switch(tmp_path)
    changed = source.read_text()
    assert not exact_kernels.add_switch(tmp_path)
    assert source.read_text() == changed
    assert not exact_kernels.add_switch(tmp_path / "elsewhere")


# --- texts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("jobs", "share_left", "text"),
    [
        (1, 1.0, "building llama.cpp for this CPU (about 7 minutes on one free core, once)"),
        (2, 1.0, "building llama.cpp for this CPU (about 4 minutes on 2 free cores, once)"),
        (16, 1.0, "(about 1 minute on 16 free cores, for lack of memory, once)"),
        (2, 0.32, "continuing at 68 % to build llama.cpp for this CPU (about 1 minute on 2 free"),
    ],
)
def test_the_build_says_how_long_it_takes(
    monkeypatch: pytest.MonkeyPatch, jobs: int, share_left: float, text: str
) -> None:
    """Before it begins: the device, the cores, and the minutes for what is left to do."""
    monkeypatch.setattr(wheels, "num_cores", lambda: 32 if jobs == 16 else jobs)
    backend = Backend("CPU", core_minutes=7)
    assert text in wheels._announcement(backend, NATIVE, jobs, share_left)


def test_progress_continues_where_a_build_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ninja counts what is left; the percentage is of all steps, the time of this run's pace."""
    monkeypatch.setattr(running, "LOG", tmp_path / "setup.log")
    assert running._progress(5, 0, None) == "0:05 elapsed"
    first = running.BuildSteps(tmp_path / "build" / "steps")
    running.LOG.write_text("nothing yet")
    assert running._progress(5, 0, first) == "0:05 elapsed"
    running.LOG.write_text("[1/140] first\n[95/140] second\n[2/2] of a build inside it\n")
    assert running._progress(183, 0, first) == "3:03 elapsed, 67 %, about 1 min left"

    again = running.BuildSteps(tmp_path / "build" / "steps")
    assert again.share_left == pytest.approx(45 / 140)
    running.LOG.write_text("[1/45] third\n")
    assert running._progress(83, 0, again) == "1:23 elapsed, 68 %"
    running.LOG.write_text("[15/45] fourth\n")
    assert running._progress(240, 0, again) == "4:00 elapsed, 78 %, about 8 min left"
    running.LOG.write_text("[1/150] another release\n")
    assert running._progress(83, 0, again) == "1:23 elapsed, 0 %"


@pytest.mark.parametrize("damage", ["", "no numbers", "0 0", "-3 5", "1", "\0"])
def test_a_damaged_count_of_steps_is_ignored(tmp_path: Path, damage: str) -> None:
    """The build counts from the beginning."""
    path = tmp_path / "steps"
    path.write_text(damage)
    assert running.BuildSteps(path).share_left == 1


FULL = OSError(errno.ENOSPC, "No space left on device", "/x")


def test_a_full_disk_is_named_with_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the command says so, as pip does, or not, as `venv` does not."""
    rooms = {tmp_path: 700 << 20, tmp_path / "small": 3 << 20}
    (tmp_path / "small").mkdir()
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=rooms[path]))
    said = f"no space left on the disk (3 MB free in {tmp_path / 'small'}); free some disk space"
    silent = ["Error: Command 'ensurepip' returned non-zero exit status 1."]
    assert hints.failure_of_command(silent, rooms).startswith(said)
    assert hints.failure_of_system(FULL, rooms).startswith(said)
    not_made_yet = [tmp_path / "small" / "none"]
    assert "3 MB free in" in hints.failure_of_system(FULL, not_made_yet)
    assert "exit status 1.; run this again" in hints.failure_of_command(silent, [tmp_path])
    told = ["OSError: [Errno 28] No space left on device"]
    assert hints.failure_of_command(told, [tmp_path]).startswith(
        "no space left on the disk (700 MB"
    )


@table(
    ("output", "step"),
    [
        ("certificate verify failed: certificate is not yet valid", "set this machine's date"),
        ("ValueError: ZIP does not support timestamps before 1980", "set this machine's date"),
        ("certificate verify failed: unable to get local issuer", "run this again"),
    ],
)
def test_a_wrong_clock_is_named(output: str, step: str) -> None:
    """A certificate that is not valid yet, or not any more, comes from one."""
    assert hints.next_step([f"ERROR: Could not fetch URL: {output}"]).startswith(
        step if "date" in step else "check the network"
    )


def test_what_a_machine_lacks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Room on its disk, the right to run programs there, a folder for temporary files."""
    monkeypatch.setattr(fast, "RECORDS", str(tmp_path))
    monkeypatch.setattr(preflight, "lack_of_compilers", lambda _: "no compiler")
    usage = SimpleNamespace(free=400 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    preflight.require_machine(has_environment=False, builds=False)
    with pytest.raises(SetUpFailed, match="about 750 MB needed, 400 MB free; free some, then run"):
        preflight.require_machine(has_environment=False, builds=True)
    usage.free = 10**10
    with pytest.raises(SetUpFailed, match="no compiler, then run this again"):
        preflight.require_machine(has_environment=True, builds=True)

    def nowhere() -> str:
        raise FileNotFoundError

    with monkeypatch.context() as odd:
        odd.setattr(fast, "ROOT", "/f\udcf6lder")
        with pytest.raises(SetUpFailed, match="a byte in its name that is not UTF-8: rename"):
            preflight.require_machine(has_environment=True, builds=False)
    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    with pytest.raises(SetUpFailed, match="set TMPDIR to one that you can write to"):
        preflight.require_machine(has_environment=True, builds=False)
    if sys.platform == "linux":
        monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=os.ST_NOEXEC))
        with pytest.raises(SetUpFailed, match="mounted noexec, so programs cannot run there: move"):
            preflight.require_machine(has_environment=True, builds=False)


def test_the_way_to_the_package_has_no_accents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With LC_ALL=C, Python 3.11 does not start where a .pth file has one."""
    root = tmp_path / "Bücher"
    packages = root / ".venv" / "lib" / "python3.11" / "site-packages"
    packages.mkdir(parents=True)
    link, other = packages / "_editable_impl_specchat.pth", packages / "other.pth"
    other.write_text(str(root))
    monkeypatch.setattr(stages, "ROOT", root)
    monkeypatch.setattr(stages, "VENV", root / ".venv")
    monkeypatch.setattr(stages, "run_pip", lambda *_: link.write_text(str(root)))
    stages._install_specchat()
    assert (packages / link.read_text("ascii").strip()).resolve() == root
    assert other.read_text() == str(root)


def test_an_environment_of_another_place_is_not_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its Python runs and has pip, but would install elsewhere."""
    monkeypatch.setattr(stages, "RECORDS", tmp_path)
    (tmp_path / "venv").write_text(fast.ROOT)
    monkeypatch.setattr(fast, "venv_python", lambda: sys.executable)
    monkeypatch.setattr(fast, "VENV", sys.prefix)
    assert stages._has_venv()
    monkeypatch.setattr(fast, "VENV", str(tmp_path))
    assert not stages._has_venv()


def test_an_error_of_the_set_ups_own_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its traceback is in the log."""

    def wrong(**_: bool) -> None:
        raise TypeError("of our own\nmaking")

    log = tmp_path / "setup.log"
    monkeypatch.setattr(stages, "LOG", log)
    monkeypatch.setattr(stages, "_exit_on_signals", lambda: None)
    monkeypatch.setattr(stages, "only_one", nullcontext)
    monkeypatch.setattr(stages, "_set_up", wrong)
    assert stages.run_set_up(with_dev=False) == 1
    said = "specchat: set-up failed: internal error (please report): TypeError: of our own"
    assert capsys.readouterr().err == f"{said} (log: {log})\n"
    assert "Traceback" in log.read_text()


# --- cores and memory ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("available_gib", "limit_gib", "quota", "jobs", "cuda_jobs"),
    [
        (64, "max", "max", 8, 8),
        (7, "max", "max", 7, 2),
        (64, "2", "max", 2, 1),
        (64, "max", "2.5", 3, 3),
    ],
)
def test_as_many_files_are_compiled_at_once_as_cores_and_memory_allow(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    available_gib: int,
    limit_gib: str,
    quota: str,
    jobs: int,
    cuda_jobs: int,
) -> None:
    """A compiler takes a gigabyte for the largest files; the limits of a container count."""
    limit = limit_gib if limit_gib == "max" else str(int(limit_gib) << 30)
    share = quota if quota == "max" else str(int(float(quota) * 100_000))
    for name, text in {
        "meminfo": f"MemTotal: 1 kB\nMemAvailable:  {available_gib << 20} kB\n",
        "membership": "0::/box\n",
        "box/memory.max": limit,
        "box/memory.current": "0",
        "box/cpu.max": f"{share} 100000",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(control_groups, "CGROUPS", tmp_path)
    monkeypatch.setattr(control_groups, "MEMBERSHIP", tmp_path / "membership")
    monkeypatch.setattr(machine_facts, "MEMORY_FILE", str(tmp_path / "meminfo"))
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.delenv("CMAKE_BUILD_PARALLEL_LEVEL", raising=False)
    assert machine_facts.num_jobs(CPU) == jobs
    assert machine_facts.num_jobs(Backend("CUDA")) == cuda_jobs
    monkeypatch.setenv("CMAKE_BUILD_PARALLEL_LEVEL", "5")
    assert machine_facts.num_jobs(CPU) == 5


# --- what the set-up runs on, and what it installs ----------------------------------------------


def test_an_old_python_can_run_the_first_files() -> None:
    """The files that run before the version check use old syntax and only os and sys."""
    first = ("scripts/specchat", "scripts/test", "scripts/setup_env/interpreter.py")
    for name in (*first, "scripts/setup_env/fast.py", "scripts/setup_env/start.py"):
        tree = ast.parse((ROOT / name).read_text("utf-8"), feature_version=(3, 7))
        imported = {
            alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names
        }
        assert imported == {"os", "sys"}
    for name in first:  # these are for Python 2 as well
        tree = ast.parse((ROOT / name).read_text("ascii"))
        assert not any(isinstance(node, NEW_SYNTAX) for node in ast.walk(tree))
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        for each in functions:
            assert each.returns is None
            assert not each.args.kwonlyargs
            assert not any(argument.annotation for argument in each.args.args)


@pytest.mark.skipif(not OLD_PYTHONS, reason="there is no old Python here")
@pytest.mark.parametrize("script", ["specchat", "test"])
@pytest.mark.parametrize("old", OLD_PYTHONS, ids=str)
def test_an_old_python_names_the_next_step_or_goes_on_with_a_newer_one(
    tmp_path: Path, old: Path, script: str
) -> None:
    """In one line, with the package manager's command; a Python that is new enough takes over."""
    command = [str(old), str(ROOT / "scripts" / script), "--version"]
    environment = {"PATH": str(tmp_path), "HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    manager, new = tmp_path / "pacman", tmp_path / "python3.13"
    manager.touch(0o755)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(
        r"specchat: Python 3\.11 or newer was not found \(this is [23]\.\d+\.\d+\): "
        r"sudo pacman -S python, then run this again\n",
        done.stderr,
    )

    new.write_text('#!/bin/sh\n[ "$1" = -c ] || echo "goes on with $*"\n')
    new.chmod(0o755)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"goes on with {command[1]} --version\n"


def test_the_set_up_runs_before_any_package_is_installed() -> None:
    """What it shares with the package, too, needs the standard library only."""
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import scripts.setup_env.checks"
    subprocess.run([sys.executable, "-SE", "-c", code], check=True)


def test_every_requirement_is_an_exact_version() -> None:
    """Requirements have names, versions and markers, but no index, host or path."""
    pin = re.compile(
        r"[a-z0-9-]+==[0-9][0-9.]*(\.post[0-9]+)?( ; [a-z_]+ (==|in) \"[A-Za-z0-9_ ]+\")?"
    )
    for path in sorted((ROOT / "scripts").glob("requirements*.txt")):
        for line in stages.requirements(path):
            assert pin.fullmatch(line), f"{path.name}: {line}"


def test_no_package_is_pinned_twice() -> None:
    """All files but the clients' go into one environment, so each package is in one file."""
    apart = [clients.file_of(name) for name in clients.ENVIRONMENTS]
    paths = {*(ROOT / "scripts").glob("requirements*.txt")} - {*apart}
    for together in (paths, *([path] for path in apart)):
        names = [line.partition("==")[0] for path in together for line in stages.requirements(path)]
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


# --- tests on a device, and CI ------------------------------------------------------------------


def test_the_software_renderer_stands_in_for_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its driver and llama.cpp's consent are set where there is no GPU; the user's choice wins."""
    monkeypatch.setattr(devices, "DRIVER_FOLDERS", (tmp_path,))
    monkeypatch.setattr(devices, "has_vulkan_driver", lambda _maker: False)
    with pytest.raises(SetUpFailed, match="mesa-vulkan-drivers"):
        devices.device_environment("vulkan", tmp_path, {})
    driver = tmp_path / "lvp_icd.x86_64.json"
    driver.touch()
    made = devices.device_environment("vulkan", tmp_path, {"PYTHONPATH": "mine"})
    assert made == {
        "TEST_DEVICE": "vulkan",
        "VK_ICD_FILENAMES": str(driver),
        "GGML_VK_VISIBLE_DEVICES": "0",
        "MESA_SHADER_CACHE_DIR": str(wheels.cache_folder().with_name("shaders")),
        "MALLOC_MMAP_THRESHOLD_": "33554432",
        "MALLOC_TRIM_THRESHOLD_": "67108864",
        "PYTHONPATH": f"{tmp_path}{os.pathsep}mine",
    }
    own = devices.device_environment("vulkan", tmp_path, {"GGML_VK_VISIBLE_DEVICES": "1"})
    assert own["GGML_VK_VISIBLE_DEVICES"] == "1"
    monkeypatch.setattr(devices, "has_vulkan_driver", lambda _maker: True)
    assert "VK_ICD_FILENAMES" not in devices.device_environment("vulkan", tmp_path, {})


def test_arguments_choose_among_the_device_tests() -> None:
    """Without a file, options narrow the tests of the folder."""
    assert devices.arguments_of([]) == ["tests/device"]
    assert devices.arguments_of(["-k", "cache"]) == ["tests/device", "-k", "cache"]
    assert devices.arguments_of([f"{__file__}::x"]) == [f"{__file__}::x"]


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in is a script of a shell")
@pytest.mark.parametrize(("plain", "device"), [(0, 0), (1, 0), (0, 1)])
def test_ci_runs_the_plain_tests_and_then_those_on_a_device(
    tmp_path: Path, plain: int, device: int
) -> None:
    """The failure of either fails it."""
    python, log = tmp_path / "python3", tmp_path / "log"
    python.write_text(
        f'#!/bin/sh\necho "$*" >> {log}\ncase "$*" in *--device*) exit {device};; esac\n'
        f"exit {plain}\n"
    )
    python.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run([ROOT / ".ci" / "run"], env={**os.environ, "PATH": path}, check=False)
    assert done.returncode == plain + device
    wanted = ["scripts/test --all", "scripts/test --device vulkan --if-possible"]
    assert log.read_text().splitlines() == wanted[: 2 - plain]


@pytest.mark.parametrize("has_filter", [True, False])
@pytest.mark.parametrize("kind", ["file", "above", "absolute", "link"])
def test_the_source_is_extracted_by_any_python(
    has_filter: bool, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian 12's has no filters of members; what leads out of the folder is refused."""
    if not has_filter:
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
        whole = tarfile.TarFile.extractall

        def plain(archive: tarfile.TarFile, folder: Path) -> None:
            whole(archive, folder)

        monkeypatch.setattr(tarfile.TarFile, "extractall", plain)
    elif not hasattr(tarfile, "data_filter"):
        pytest.skip("this Python has no filters")
    name = {"above": "a/../../x", "absolute": "/x"}.get(kind, "a/x")
    member = tarfile.TarInfo(name)
    member.size = 0 if kind == "link" else 4
    member.type, member.linkname = (
        (tarfile.SYMTYPE, "/etc/passwd") if kind == "link" else (b"0", "")
    )
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        archive.addfile(member, io.BytesIO(b"text"))
    with tarfile.open(tmp_path / "a.tar") as archive:
        if kind == "file":
            extract(archive, tmp_path / "out")
            assert (tmp_path / "out/a/x").read_text() == "text"
        else:
            with suppress(SetUpFailed, tarfile.TarError):
                extract(archive, tmp_path / "out")
                assert kind == "absolute"  # a filter takes the slash away
                assert has_filter
            assert not (tmp_path.parent / "x").exists()
            assert not Path("/x").exists()
            assert not (tmp_path / "out/a/x").is_symlink()
