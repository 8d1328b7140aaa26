"""The commands that fix things: right for the way specchat is installed, and valid shell."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from specchat.doctor import repairs as mending
from specchat.doctor.repairs import (
    WITHOUT_AMX,
    rebuild,
    reinstall,
    toolkit_command,
    wanted_version,
)

RPC = "-DGGML_RPC=ON -DGGML_RPC_RDMA=OFF"
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="PowerShell has words of its own")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Be specchat as pip installed it, with CUDA's compiler on the PATH."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    (tmp_path / "nvcc").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_an_installation_builds_for_the_gpu_with_pip(installed: Path) -> None:
    """With this very Python, from source, the version that specchat is written for."""
    (command,) = rebuild("CUDA")

    assert command == (
        f'CMAKE_ARGS="-DGGML_CUDA=on {RPC}" {sys.executable} -m pip install --force-reinstall'
        " --no-cache-dir --no-deps --no-binary llama-cpp-python"
        f" llama-cpp-python=={wanted_version()}"
    )


def test_an_environment_without_pip_is_fixed_with_uv(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`uv tool install` creates such environments."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (command,) = rebuild()

    assert command.startswith(f'CMAKE_ARGS="{RPC}" uv pip install --python {sys.executable} ')
    assert command.endswith(f" llama-cpp-python=={wanted_version()}")


def test_a_build_without_amx_has_its_flags(installed: Path) -> None:
    """The flags are set for both compilers, C and C++."""
    (command,) = rebuild(environment=WITHOUT_AMX)

    assert command.startswith('CFLAGS="-mno-amx-tile -mno-amx-int8 -mno-amx-bf16" CXXFLAGS="-mno')


def test_a_clone_is_set_up_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its set-up gets the backend as a variable, and keeps to it."""
    monkeypatch.setattr(mending, "is_clone", lambda: True)
    for program in ("nvcc", "glslc"):
        (tmp_path / program).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    forget, again = rebuild("CUDA")

    assert forget.startswith("rm -f ")
    assert [Path(word).name for word in forget.split()[2:]] == ["ready", "llama"]
    assert again.endswith("scripts/specchat doctor")
    assert again.startswith('SPECCHAT_BACKEND="cuda" ')
    assert rebuild("Vulkan")[-1].startswith('SPECCHAT_BACKEND="vulkan" ')
    assert not rebuild()[-1].startswith("SPECCHAT_BACKEND")


def test_an_installation_for_vulkan_completes_old_headers(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the headers of Debian 12 alone, the build that is recommended would fail."""
    (installed / "glslc").touch(mode=0o755)
    (command,) = rebuild("Vulkan")
    folder = Path(mending.__file__).parent / "include"

    assert command.startswith(f'CMAKE_ARGS="-DGGML_VULKAN=on {RPC}" CPLUS_INCLUDE_PATH="{folder}" ')
    assert (folder / "vulkan" / "vulkan.hpp").is_file()


def test_files_of_its_own_come_back(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files are restored from the package, or from the clone's history."""
    assert reinstall()[0].endswith("--force-reinstall --no-cache-dir --no-deps specchat")
    monkeypatch.setattr(mending, "is_clone", lambda: True)
    assert reinstall()[0].startswith("git -C ")


def test_a_toolkit_that_is_missing_comes_first(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The distribution's own command installs it, where there is one."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    release = {"ID": "ubuntu", "ID_LIKE": "debian"}
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: release)

    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert toolkit_command("CUDA") == "sudo apt install nvidia-cuda-toolkit"
    assert rebuild("CUDA")[0] == "sudo apt install nvidia-cuda-toolkit"
    monkeypatch.setattr(os, "geteuid", lambda: 0)  # root of a container without sudo
    assert toolkit_command("CUDA") == "apt install nvidia-cuda-toolkit"
    monkeypatch.setattr(shutil, "which", lambda name, **_: name if name == "sudo" else None)
    assert toolkit_command("CUDA") == "sudo apt install nvidia-cuda-toolkit"
    release.update(ID="void", ID_LIKE="")
    assert toolkit_command("CUDA") == "# install the compiler for CUDA (nvcc)"


def test_a_compiler_beside_the_path_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: Path
) -> None:
    """NVIDIA's own packages leave the PATH alone."""
    (tmp_path / "cuda" / "bin").mkdir(parents=True)
    (tmp_path / "nvcc").rename(tmp_path / "cuda" / "bin" / "nvcc")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))

    (command,) = rebuild("CUDA")
    assert command.startswith(f'CUDACXX="{tmp_path}/cuda/bin/nvcc" CMAKE_ARGS=')


@pytest.mark.parametrize("backend", ["", "CUDA", "Metal", "ROCm", "Vulkan"])
@pytest.mark.parametrize("is_clone", [True, False])
def test_every_command_is_good_shell(
    backend: str, is_clone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shell reads it without complaint."""
    monkeypatch.setattr(mending, "is_clone", lambda: is_clone)
    for command in rebuild(backend, WITHOUT_AMX):
        done = subprocess.run(["/bin/sh", "-n", "-c", command], capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("name", ["libgomp.so.1", "libvulkan.so.1"])
def test_a_missing_library_is_installed_with_the_system(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the package of its distribution; an unknown one gets the library's name."""
    reason = f"{name}: cannot open shared object file: No such file or directory"
    monkeypatch.setattr("specchat.doctor.toolchains.distribution", lambda: ["ubuntu", "debian"])
    (command,) = mending.library_commands(reason)
    assert command.removeprefix("sudo ").startswith(f"apt install {name.partition('.')[0]}")

    monkeypatch.setattr("specchat.doctor.toolchains.distribution", lambda: ["plan9"])
    assert mending.library_commands(reason) == (f"# install {name}",)
    assert mending.library_commands("libcublas.so.12: cannot open shared object file") == ()
    assert mending.library_commands(f"{name}: version `GOMP_6' not found") == ()
