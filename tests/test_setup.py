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

from scripts.setup_env import (
    backends,
    checks,
    devices,
    exact_kernels,
    fast,
    hints,
    machine,
    running,
    stages,
    wheels,
)
from scripts.setup_env.probe import Verdict
from scripts.setup_env.recipes import (
    NATIVE,
    PORTABLE,
    WITHOUT_AMX,
    Backend,
    Recipe,
    build_environment,
    recipes_for,
)
from scripts.setup_env.running import CommandFailed, SetUpFailed
from specchat.doctor.repairs import TOOLKITS

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
    variables = ("CMAKE_ARGS", "CC", "CXX", "CFLAGS", "CXXFLAGS", "CMAKE_BUILD_PARALLEL_LEVEL")
    for name in (*variables, *fast.CHOICES, "VULKAN_SDK", "CPLUS_INCLUDE_PATH"):
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
    monkeypatch.setattr(wheels, "source", lambda _version: tmp_path / "source")
    monkeypatch.setattr(wheels, "has_compiler", lambda: True)
    return made


def probes(*verdicts: Verdict) -> stages.Probe:
    """Return a probe with these verdicts, one after the other."""
    answers = iter(verdicts)
    return lambda _backend: (next(answers), ["error: that is why"])


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
    has(monkeypatch, nvcc="nvcc")
    assert backends.find_backend().name == "CPU"
    has(monkeypatch, maker="NVIDIA", nvcc="nvcc", vulkan=True)
    assert backends.find_backend().definitions == ("-DGGML_CUDA=ON",)


def has(
    monkeypatch: pytest.MonkeyPatch,
    maker: str = "",
    nvcc: str = "",
    *,
    vulkan: bool = False,
    driver: bool = False,
) -> None:
    """Have a GPU of this maker, CUDA's compiler, what Vulkan is built with, and its driver."""
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(backends, "find_nvcc", lambda: nvcc)
    monkeypatch.setattr(backends, "has_nvidia_gpu", lambda: maker == "NVIDIA")
    monkeypatch.setattr(backends, "vulkan_gpu", lambda: maker)
    monkeypatch.setattr(backends, "can_build_vulkan", lambda: vulkan)
    monkeypatch.setattr(backends, "has_vulkan_driver", lambda _maker: driver)


@pytest.mark.parametrize("maker", ["NVIDIA", "AMD", "Intel"])
def test_any_gpu_is_used_through_vulkan(monkeypatch: pytest.MonkeyPatch, maker: str) -> None:
    """With a driver, the shader compiler and the headers; without one of them it is the CPU."""
    has(monkeypatch, maker, vulkan=True, driver=True)
    backend = backends.find_backend()
    assert (backend.name, backend.definitions) == ("Vulkan", ("-DGGML_VULKAN=ON",))
    for vulkan in (True, False):
        has(monkeypatch, maker, vulkan=vulkan, driver=not vulkan)
        assert backends.find_backend().name == "CPU"


def test_vulkans_own_header_is_completed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The header of the same name is found first, and the user's own folders stay."""
    monkeypatch.setenv("CPLUS_INCLUDE_PATH", "/mine")
    made = build_environment(NATIVE, backends.MAKERS["vulkan"](), 1, os.environ)
    first, rest = made["CPLUS_INCLUDE_PATH"].split(os.pathsep)
    assert rest == "/mine"
    header = ROOT / Path(first).relative_to(folder) / "vulkan" / "vulkan.hpp"
    assert "#include_next <vulkan/vulkan.hpp>" in header.read_text()


@posix_only
@pytest.mark.skipif(
    not shutil.which("c++"), reason="the header is compiled, which takes a C++ compiler"
)
@pytest.mark.parametrize("is_complete", [True, False])
def test_the_header_compiles_with_old_and_new_ones(tmp_path: Path, is_complete: bool) -> None:
    """It adds what ggml names where Vulkan's header lacks it, and nothing where it does not."""
    system = tmp_path / "system"
    (system / "vulkan").mkdir(parents=True)
    own = (ROOT / backends.INCLUDE / "vulkan" / "vulkan.hpp").read_text().partition("namespace")[2]
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
    paths = {"CPLUS_INCLUDE_PATH": f"{ROOT / backends.INCLUDE}:{system}"}
    command = ["c++", "-std=c++17", "-fsyntax-only", str(source)]
    subprocess.run(command, env={**os.environ, **paths}, check=True)


def test_a_gpu_that_is_not_used_comes_with_one_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command installs what is missing and sets specchat up again; without a GPU: nothing."""
    monkeypatch.setattr(backends, "distribution", lambda: ["debian"])
    has(monkeypatch)
    assert backends.how_to_use_the_gpu() == ""
    has(monkeypatch, "AMD")
    advice = backends.how_to_use_the_gpu()
    assert advice.startswith("found an AMD GPU without what Vulkan's backend is built with: sudo ")
    assert advice.endswith(f"scripts{os.sep}specchat")
    assert "glslc spirv-headers mesa-vulkan-drivers && SPECCHAT_BACKEND=vulkan " in advice


def test_doctor_and_the_set_up_recommend_the_same_packages() -> None:
    """One list for the two, which import nothing from each other."""
    of_doctor = {key[1]: command for key, command in TOOLKITS.items() if key[0] == "Vulkan"}
    assert of_doctor == backends.VULKAN_PACKAGES


def test_gpus_and_their_drivers_are_found_in_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the vendor of a render node, and by the file that announces a driver to Vulkan."""
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(backends, "has_nvidia_gpu", lambda: False)
    monkeypatch.setattr(backends, "RENDER_NODES", tmp_path)
    monkeypatch.setattr(backends, "DRIVER_FOLDERS", (tmp_path / "icd.d",))
    vendor = tmp_path / "renderD128" / "device" / "vendor"
    vendor.parent.mkdir(parents=True)
    vendor.write_text("0x1af4\n")
    assert backends.vulkan_gpu() == ""
    vendor.write_text("0x1002\n")
    assert backends.vulkan_gpu() == "AMD"
    (tmp_path / "icd.d").mkdir()
    for name in ("lvp_icd.x86_64.json", "intel_icd.x86_64.json"):
        (tmp_path / "icd.d" / name).touch()
    assert not backends.has_vulkan_driver("AMD")
    (tmp_path / "icd.d" / "radeon_icd.x86_64.json").touch()
    assert backends.has_vulkan_driver("AMD")


def test_vulkan_is_built_only_with_compiler_and_headers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All three: glslc, Vulkan's C++ header and SPIR-V's."""
    monkeypatch.setattr(backends, "SYSTEM_INCLUDES", (tmp_path,))
    monkeypatch.setattr(shutil, "which", lambda name: name)
    for name in backends.VULKAN_HEADERS:
        assert not backends.can_build_vulkan()
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    assert backends.can_build_vulkan()
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert not backends.can_build_vulkan()


# --- choosing a backend or a wheel --------------------------------------------------------------


def test_a_backend_can_be_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is found here; what is not known is refused with what is."""
    has(monkeypatch, "NVIDIA", nvcc="nvcc")
    names = {}
    for choice in ("", "auto", "cpu", "vulkan", "ROCm", "metal"):
        monkeypatch.setenv("SPECCHAT_BACKEND", choice)
        names[choice] = [backend.name for backend in backends.backends_to_try()]
    assert names == {
        "": ["CUDA", "CPU"],
        "auto": ["CUDA", "CPU"],
        "cpu": ["CPU"],
        "vulkan": ["Vulkan", "CPU"],
        "ROCm": ["ROCm", "CPU"],
        "metal": ["Metal", "CPU"],
    }
    monkeypatch.setenv("SPECCHAT_BACKEND", "opencl")
    with pytest.raises(SetUpFailed, match="unknown: use auto, cpu, cuda, vulkan, rocm, metal"):
        backends.backends_to_try()


def test_a_choice_holds_until_it_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call without the variable keeps what was set up; an empty one goes back to automatic."""
    state = fast.wanted_state()
    monkeypatch.setenv("SPECCHAT_BACKEND", "vulkan")
    assert fast.wanted_state() != state
    stages.write_stamp("choices", fast.choices())
    chosen = fast.wanted_state()
    monkeypatch.delenv("SPECCHAT_BACKEND")
    assert fast.wanted_state() == chosen
    monkeypatch.setenv("SPECCHAT_BACKEND", "")
    assert fast.wanted_state() == state


@pytest.mark.parametrize(
    "failure", [CommandFailed(["x.cpp:1: fatal error: no header"]), SetUpFailed("no header")]
)
def test_a_backend_that_fails_gives_way_to_the_cpu(
    failure: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message has the reason and the command that tries again; the CPU's failure is final."""
    installed: list[str] = []

    def install(backend: Backend) -> None:
        installed.append(backend.name)
        if backend is not CPU:
            raise failure

    vulkan = backends.MAKERS["vulkan"]()
    assert stages.install_first_backend([vulkan, CPU], install) is CPU
    assert installed == ["Vulkan", "CPU"]
    shown = capsys.readouterr().err
    assert "Vulkan" in shown
    assert "no header; building for CPU instead" in shown
    assert f"to try again: rm {stages.RECORDS / 'ready'}" in shown
    with pytest.raises(type(failure)):
        stages.install_first_backend([vulkan], install)


def test_a_build_for_a_gpu_is_probed_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash on the GPU is a failure of its backend, not of an instruction of the CPU."""
    asked: list[tuple[str, ...]] = []

    def probe(*words: str) -> tuple[Verdict, list[str]]:
        asked.append(words)
        return (Verdict.CRASHED if words else Verdict.PASSED), []

    monkeypatch.setattr(stages, "TARGET", ROOT / "README.md")
    monkeypatch.setattr(stages, "probe", probe)
    assert stages._probe(CPU)[0] is Verdict.PASSED
    assert stages._probe(Backend("Vulkan"))[0] is Verdict.FAILED
    assert asked == [(), (), ("gpu",)]


@pytest.mark.parametrize(
    "name",
    [
        f"llama_cpp_python-{VERSION}-py3-none-linux_x86_64.whl",
        f"llama_cpp_python-{VERSION}+cu124-py3-none-win_amd64.whl",
    ],
)
def test_a_prebuilt_wheel_is_installed_and_probed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a file or a URL, of the pinned release, and only if it decodes here."""
    commands: list[tuple[str, ...]] = []
    monkeypatch.setattr(stages, "run_pip", lambda *command: commands.append(command))
    for place in (f"/wheels/{name}", f"https://example.org/{name}"):
        stages.install_prebuilt(VERSION, place, probes(Verdict.PASSED))
        assert commands.pop() == ("install", "--no-deps", "--force-reinstall", place)
    with pytest.raises(SetUpFailed, match="does not run here: error: that is why; name another"):
        stages.install_prebuilt(VERSION, f"/wheels/{name}", probes(Verdict.CRASHED))


@pytest.mark.parametrize("version", ["0.3.35", "0.3.360", "0.3.36rc1"])
def test_a_wheel_of_another_release_is_refused(version: str) -> None:
    """The layouts of llama.cpp's structures differ between releases."""
    with pytest.raises(SetUpFailed, match=r"is not a wheel of llama-cpp-python 0\.3\.36"):
        stages.install_prebuilt(VERSION, f"/x/llama_cpp_python-{version}-py3-none-any.whl")


def test_the_file_of_a_wheel_may_be_relative(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is recorded with its whole path; a URL stays as it is."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPECCHAT_LLAMA_WHEEL", "a.whl")
    assert fast.choice("SPECCHAT_LLAMA_WHEEL") == str(tmp_path / "a.whl")
    monkeypatch.setenv("SPECCHAT_LLAMA_WHEEL", "https://example.org/a.whl")
    assert fast.choice("SPECCHAT_LLAMA_WHEEL") == "https://example.org/a.whl"


def test_each_backend_is_built_in_its_own_folder(builds: Builds) -> None:
    """What was built for another backend is never taken for the CPU's."""
    vulkan = wheels.build(VERSION, backends.MAKERS["vulkan"](), NATIVE)
    assert wheels.build(VERSION, CPU, NATIVE) != vulkan
    assert len(builds.environments) == 2


def test_metal_needs_no_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    """On macOS llama-cpp-python enables Metal itself."""
    monkeypatch.setattr(sys, "platform", "darwin")
    assert backends.backends_to_try() == [Backend("Metal"), Backend("CPU", ("-DGGML_METAL=OFF",))]


@pytest.mark.parametrize("definition", ["CUDA=OFF", "VULKAN=ON", "HIP=ON"])
def test_the_users_choice_about_backends_is_respected(
    monkeypatch: pytest.MonkeyPatch, definition: str
) -> None:
    """If CMAKE_ARGS mention one, the set-up does not decide about it."""
    has(monkeypatch, "NVIDIA", nvcc="nvcc")
    monkeypatch.setenv("CMAKE_ARGS", f"-DGGML_{definition}")
    assert backends.find_backend() == CPU


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
        ("nvcc fatal : unsupported architecture", "SPECCHAT_BACKEND=cpu"),
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
    monkeypatch.setattr(machine, "distribution", lambda: ["ubuntu", "debian"])
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
    for name in ("__init__.py", "specchat"):
        shutil.copy(ROOT / "scripts" / name, place / "scripts")
    shutil.copy(ROOT / "pyproject.toml", place)
    python = place / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\nexit 7\n')
    python.chmod(0o755)
    return place


def make_ready(place: Path) -> None:
    """Write the stamp of a finished set-up."""
    code = (
        f"import sys; sys.path.insert(0, {str(place)!r})\n"
        "from scripts.setup_env import fast\n"
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


# --- tests on a device --------------------------------------------------------------------------


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


def test_device_tests_without_what_they_are_built_with_name_the_packages(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, and the exit code of a failure; so for a backend that is unknown."""
    monkeypatch.setattr(devices, "can_build_vulkan", lambda: False)
    monkeypatch.setattr(devices, "distribution", lambda: ["debian"])
    assert checks.check_everything(["--device", "vulkan"]) == 1
    assert "a build for Vulkan: sudo apt install libvulkan-dev" in capsys.readouterr().err
    assert checks.check_everything(["--device"]) == 1
    assert "use cpu, cuda, vulkan, rocm, metal" in capsys.readouterr().err


def test_the_build_for_device_tests_is_made_once(
    builds: Builds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is installed beside the environment's own llama.cpp, from the cache of wheels."""
    installed: list[Path] = []

    def install(*words: str) -> None:
        installed.append(Path(words[words.index("--target") + 1]))
        installed[-1].mkdir(parents=True)

    monkeypatch.setattr(devices, "can_build_vulkan", lambda: True)
    monkeypatch.setattr(devices, "run_pip", install)
    monkeypatch.setattr(stages, "RUNTIME", ROOT / "scripts" / "requirements.txt")
    folder = devices.provide_build("vulkan")
    assert devices.provide_build("vulkan") == folder
    assert folder.is_dir()
    assert (len(builds.environments), len(installed)) == (1, 1)
    assert "-DGGML_VULKAN=ON" in builds.environments[0]["CMAKE_ARGS"]


def test_tests_are_compiled_once_beside_the_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the workers begin, which would each rewrite them all; not for a choice of tests."""
    begun, ended = list[tuple[str, ...]](), list[tuple[str, ...]]()

    def run(*words: str, **_: object) -> object:
        begun.append(words)
        time.sleep(0.05 * (words == checks.COMPILE))
        ended.append(words)
        return subprocess.CompletedProcess(words, 0, "")

    monkeypatch.setattr(checks, "_python", run)
    monkeypatch.setattr(checks, "fetch_model", lambda: None)
    assert checks.check_everything([]) == 0
    assert ended.index(checks.COMPILE) < ended.index((*checks.TESTS, *checks.SIDE_BY_SIDE))
    begun.clear()
    assert checks.check_everything(["-k", "cache"]) == 0
    assert begun == [(*checks.TESTS, "-k", "cache")]


@pytest.mark.parametrize("decodes", [True, False])
def test_device_tests_begin_with_a_decoding_that_has_time_to_compile(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, decodes: bool
) -> None:
    """Where it fails, its reason is printed and no test is run."""
    ran: list[tuple[str, ...]] = []

    def run(*words: str, environment: dict[str, str], **_: object) -> object:
        assert environment == {"TEST_DEVICE": "vulkan"}
        ran.append(words)
        return subprocess.CompletedProcess(words, 0 if decodes else 1, "error: no device")

    monkeypatch.setattr(checks, "provide_build", lambda _name: Path("build"))
    monkeypatch.setattr(checks, "device_environment", lambda *_: {"TEST_DEVICE": "vulkan"})
    monkeypatch.setattr(checks, "_python", run)
    assert checks.check_everything(["--device", "vulkan", "-k", "cache"]) == int(not decodes)
    assert ran[0][-1] == "gpu"
    if decodes:
        assert ran[1:] == [("-m", "pytest", "--timeout=900", "tests/device", "-k", "cache")]
    else:
        assert len(ran) == 1
        assert "does not decode on the device: error: no device" in capsys.readouterr().err


@pytest.fixture
def debian(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Be root on a Debian without what Vulkan is built with; return the list of apt's commands."""
    commands: list[str] = []
    monkeypatch.setattr(devices, "can_build_vulkan", lambda: False)
    monkeypatch.setattr(devices, "distribution", lambda: ["debian"])
    monkeypatch.setattr(shutil, "which", lambda _name: "/usr/bin/apt-get")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(devices, "run", lambda command, _: commands.append(" ".join(command)))
    return commands


@pytest.fixture
def tests_run(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Return the list of what is run in place of tests."""
    ran: list[tuple[str, ...]] = []

    def run(*words: str, **_: object) -> object:
        ran.append(words)
        return subprocess.CompletedProcess(words, 0, "")

    monkeypatch.setattr(checks, "_python", run)
    return ran


IF_POSSIBLE = ["--device", "vulkan", "--if-possible"]
COUNT_SKIPPED = ("-m", "pytest", "-rN", "tests/device")


def test_the_packages_for_device_tests_are_installed_where_that_is_asked_for(
    debian: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All in one command, for root alone, and only if one lacks."""
    devices.install_packages("cuda")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    devices.install_packages("vulkan")
    assert debian == []
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    devices.install_packages("vulkan")
    update, install = debian
    assert update.endswith(" update")
    assert install.endswith(" install libvulkan-dev glslc spirv-headers mesa-vulkan-drivers")
    monkeypatch.setattr(devices, "can_build_vulkan", lambda: True)
    monkeypatch.setattr(devices, "_software_drivers", lambda: [Path("lvp_icd.json")])
    devices.install_packages("vulkan")
    assert len(debian) == 2


@pytest.mark.usefixtures("debian")
def test_device_tests_are_skipped_by_one_line_where_packages_cannot_be_had(
    tests_run: list[tuple[str, ...]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without the network, and without root; pytest's closing line then counts what is skipped."""

    def fail(*_: object) -> None:
        raise CommandFailed(["E: Unable to locate package glslc"])

    monkeypatch.setattr(devices, "run", fail)
    assert checks.check_everything(IF_POSSIBLE) == 0
    said = capsys.readouterr().out
    assert said == (
        "the tests on a device (tests/device) are skipped: apt-get cannot install them:"
        " E: Unable to locate package glslc\n"
    )
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert checks.check_everything(IF_POSSIBLE) == 0
    assert "skipped: the device tests need a build for Vulkan: sudo apt" in capsys.readouterr().out
    assert tests_run == [COUNT_SKIPPED, COUNT_SKIPPED]


@pytest.mark.parametrize(
    ("line", "exit_code"),
    [("error: Could not fetch URL", 0), ("ggml-vulkan.cpp:1: error: no member named x", 1)],
)
def test_a_build_for_device_tests_that_fails_is_a_failure_unless_it_is_the_network(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tests_run: list[tuple[str, ...]],
    line: str,
    exit_code: int,
) -> None:
    """Where the device is wanted only if possible."""

    def fail(_name: str) -> Path:
        raise CommandFailed([line])

    monkeypatch.setattr(checks, "install_packages", lambda _name: None)
    monkeypatch.setattr(checks, "provide_build", fail)
    assert checks.check_everything(IF_POSSIBLE) == exit_code
    said = capsys.readouterr()
    assert line in (said.err if exit_code else said.out)
    assert tests_run == ([] if exit_code else [COUNT_SKIPPED])


def test_a_backend_that_is_unknown_is_never_skipped() -> None:
    """A name that is spelt wrong must not pass for a device that cannot be had."""
    assert checks.check_everything(["--device", "vulcan", "--if-possible"]) == 1


@posix_only
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
    wanted = ["scripts/test", "scripts/test --device vulkan --if-possible"]
    assert log.read_text().splitlines() == wanted[: 2 - plain]


def test_arguments_choose_among_the_device_tests() -> None:
    """Without a file, options narrow the tests of the folder."""
    assert devices.arguments_of([]) == ["tests/device"]
    assert devices.arguments_of(["-k", "cache"]) == ["tests/device", "-k", "cache"]
    assert devices.arguments_of([f"{__file__}::x"]) == [f"{__file__}::x"]
