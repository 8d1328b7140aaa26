"""Single checks, on machines that a test can make."""

from __future__ import annotations

import os
import socket
import sys
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from conftest import WriteModel
from hub_server import HubServer
from local_folders import put_in_hub
from specchat.catalogue.catalogue_file import own_catalogue_path
from specchat.catalogue.pairs import save_pair
from specchat.doctor import backend as llama
from specchat.doctor import host as machine
from specchat.doctor import repairs
from specchat.llama import child_process, mtmd_library
from specchat.llama.child_process import BuildReport, ChildResult, ProbeReport, ask_for_build
from specchat.planning.device import Device
from specchat.system import control_groups
from tables import table

CUDA = Device("", "RTX 4090", "gpu", driver="550", backend="CUDA")
IRIS = Device("", "Iris", "integrated", backend="Vulkan")
NO_OPENMP = "libgomp.so.1: cannot open shared object file: No such file or directory"
NO_VULKAN = "libvulkan.so.1: cannot open shared object file: No such file or directory"
DEVICE = Device("CUDA0", "RTX 4090", "gpu", 23 * 10**9, 24 * 10**9)


def build(**facts: Any) -> ChildResult[BuildReport]:
    """Return the answer of a build for CUDA."""
    report = BuildReport(
        "0.3.36", "", can_offload=True, backends=("CUDA", "CPU"), devices=(DEVICE,)
    )
    return ChildResult(replace(report, **facts))


def test_a_build_that_cannot_run_heads_is_a_warning() -> None:
    """It exports too little; everything else works."""
    found = llama.check_build(build(can_run_heads=False))

    assert found.state == "warning"
    assert found.detail.endswith("; it cannot run prediction heads")
    assert found.fix


def test_the_build_describes_itself() -> None:
    """Its backends, and the devices with their memory, the CPU among them."""
    report = ask_for_build().report

    assert report
    assert report.can_run_heads
    assert "CPU" in report.backends
    (cpu,) = [each for each in report.devices if each.kind == "cpu"]
    assert cpu.total > 0


def test_a_busy_machine_is_not_taken_for_an_inexact_build(
    tiny: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the time to compare passes, nothing is known of them."""
    for is_measured, wanted in ((False, "too busy to measure"), (True, "no draft is verified")):
        report = ProbeReport(16, 136, 0, is_measured)
        monkeypatch.setattr(llama, "try_decoding", lambda *_, on_gpu, it=report: ChildResult(it))
        assert wanted in llama.check_cpu(tiny("llama")).detail


def test_a_build_for_any_cpu_names_the_library_it_uses() -> None:
    """Which of several was chosen decides the speed."""
    found = llama.check_build(build(variant="zen4", backends=("CPU",)))

    assert found.state == "ok"
    assert ", built for CPU, its CPU library zen4" in found.detail


@pytest.mark.parametrize(
    ("error", "detail", "fix"),
    [
        (
            "llama-cpp-python is not installed: `specchat doctor` prints how to install it",
            "llama-cpp-python is not installed",
            "llama-cpp-python",
        ),
        (
            f"llama.cpp cannot be loaded ({NO_OPENMP}): `specchat doctor` prints how to repair it",
            f"llama.cpp cannot be loaded ({NO_OPENMP})",
            "libgomp",
        ),
    ],
)
def test_a_llama_cpp_that_cannot_be_loaded_has_a_fix(
    error: str, detail: str, fix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command installs what is missing, and the advice to call the doctor is left out."""
    monkeypatch.setattr(repairs, "is_clone", lambda: False)
    found = llama.check_build(ChildResult(error=error))

    assert (found.state, found.detail) == ("problem", detail)
    assert any(fix in command for command in found.fix)


@pytest.mark.parametrize(
    ("gpu", "wanted", "fix"),
    [
        (IRIS, f"Vulkan cannot be loaded: {NO_VULKAN}", "libvulkan"),
        (CUDA, f"Vulkan cannot be loaded: {NO_VULKAN}; RTX 4090 needs CUDA", "libvulkan"),
    ],
)
def test_a_backend_that_cannot_be_loaded_is_explained(gpu: Device, wanted: str, fix: str) -> None:
    """It comes with the wheel, and what it needs of the system is missing."""
    answer = build(can_offload=False, not_loaded={"vulkan": NO_VULKAN})
    found = llama.check_offload(answer, [gpu])

    assert (found.state, found.detail) == ("problem", wanted)
    assert fix in found.fix[0]
    without = llama.check_offload(answer, [])
    assert without.state == "ok"


@pytest.mark.parametrize(
    ("library", "has_pillow", "is_clone", "state", "fix"),
    [
        ("/lib/libmtmd.so", True, False, "ok", ""),
        ("", True, True, "ok", ""),
        ("", False, True, "ok", ""),
        ("", True, False, "warning", "llama-cpp-python"),
        ("/lib/libmtmd.so", False, False, "warning", "pillow"),
        ("", False, False, "warning", "pillow"),
    ],
)
def test_what_reads_images_is_named(
    library: str,
    has_pillow: bool,
    is_clone: bool,
    state: str,
    fix: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A clone builds it when it is needed; others get the command that does."""
    monkeypatch.setattr("specchat.images.picture.find_spec", lambda _: has_pillow or None)
    monkeypatch.setattr(mtmd_library, "path", lambda: library or None)
    for module in (mtmd_library, repairs):
        monkeypatch.setattr(module, "is_clone", lambda: is_clone)
    reason = mtmd_library.why_not.__wrapped__()
    found = llama.check_images(build(image_library=library, images_off_reason=reason))
    assert found.state == state
    assert bool(found.fix) == bool(fix)
    assert not fix or fix in found.fix[-1]
    assert library in found.detail or state == "warning"
    assert "run" not in found.detail.split()


def test_another_release_of_llama_cpp_is_a_problem() -> None:
    """The layouts of its structures change from one to the next."""
    assert llama.check_build(build()).state == "ok"
    assert llama.check_build(build(version="0.3.36+cu124")).state == "ok"
    finding = llama.check_build(build(version="0.3.360"))
    assert (finding.state, "0.3.360 is installed, specchat needs 0.3.36" in finding.detail) == (
        "problem",
        True,
    )


def test_a_missing_model_is_not_blamed_on_llama_cpp(tmp_path: Path) -> None:
    """The model is part of specchat, which must be reinstalled."""
    finding = llama.check_cpu(tmp_path / "none.gguf")

    assert (finding.state, "not tested: " in finding.detail) == ("problem", True)
    assert "specchat" in finding.fix[0]


@pytest.mark.slow
def test_offload_that_decodes_names_its_device(tiny: WriteModel) -> None:
    """The memory of the GPU too; here all layers stay on the CPU, which is as real a decode."""
    finding = llama.check_offload(build(), [CUDA], tiny("llama"))

    assert finding.state == "ok"
    assert finding.detail.startswith("decodes on RTX 4090 (CUDA0, 23.0 GB of 24.0 GB free); ")


def test_a_gpu_has_more_time_to_decode_than_the_cpu(
    tiny: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its driver compiles kernels first, which on some takes minutes."""
    monkeypatch.setattr(child_process, "TIMEOUT_SECONDS", 0.01)

    assert llama.check_offload(build(), [CUDA], tiny("llama")).state == "ok"
    finding = llama.check_cpu(tiny("llama"))
    assert finding.detail == "decoding fails: no answer within 0.01 s"
    monkeypatch.setattr(child_process, "ON_GPU_SECONDS", 0.02)
    finding = llama.check_offload(build(), [CUDA], tiny("llama"))
    assert finding.detail == "decoding on RTX 4090 fails: no answer within 0.02 s"


def test_offload_that_does_not_decode_is_a_problem(tmp_path: Path) -> None:
    """The finding has the reason, and the command that does without a GPU."""
    (tmp_path / "bad.gguf").write_bytes(b"GGUF and nothing more")
    finding = llama.check_offload(build(), [CUDA], tmp_path / "bad.gguf")

    assert finding.state == "problem"
    assert f"decoding on RTX 4090 fails: {tmp_path}/bad.gguf is damaged" in finding.detail
    assert finding.fix[-1] == "specchat --gpu-layers 0"


@table(
    ("facts", "found", "state", "message"),
    [
        ({"can_offload": False}, [], "ok", "not needed without a GPU"),
        ({"can_offload": False}, [CUDA], "problem", "built without CUDA"),
        (
            {"can_offload": False},
            [IRIS],
            "warning",
            "built without Vulkan",
        ),
        ({"devices": ()}, [], "warning", "but has no GPU"),
        ({"devices": ()}, [CUDA], "problem", "does not find RTX 4090 (driver 550)"),
        (
            {"devices": (), "backends": ("Vulkan", "CPU")},
            [CUDA],
            "problem",
            "built for Vulkan, but RTX 4090 needs CUDA",
        ),
    ],
)
def test_offload_is_judged_by_what_is_here(
    facts: dict[str, Any], found: list[Device], state: str, message: str
) -> None:
    """Compiled in or not, with a device or not, with a GPU or not."""
    finding = llama.check_offload(build(**facts), found)

    assert (finding.state, message in finding.detail) == (state, True)
    assert bool(finding.fix) == (state == "problem" or bool(found))


def test_the_memory_of_a_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What its limit leaves, with the file cache that can be reclaimed."""
    (tmp_path / "cgroup").write_text("0::/\n")
    monkeypatch.setattr(control_groups, "MEMBERSHIP", tmp_path / "cgroup")
    monkeypatch.setattr(control_groups, "CGROUPS", tmp_path)
    (tmp_path / "memory.max").write_text(f"{10**9}\n")
    (tmp_path / "memory.current").write_text(f"{6 * 10**8}\n")
    (tmp_path / "memory.stat").write_text(f"anon 1\ninactive_file {10**8}\n")

    finding = machine.check_memory()
    assert (finding.state, bool(finding.fix)) == ("warning", True)
    assert finding.detail.startswith("500 MB free")
    (tmp_path / "memory.max").write_text("max\n")
    assert not machine.check_memory().detail.startswith("500 MB free")


def test_folders_that_others_can_read_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Conversations are private; the shared cache is not."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    (tmp_path / "hub").mkdir(mode=0o755)
    (tmp_path / "specchat").mkdir(mode=0o755)
    found = {each.name: each for each in machine.check_folders()}

    assert found["model cache"].state == "ok"
    assert found["data folder"].fix == (f"chmod go-rwx {tmp_path / 'specchat'}",)
    (tmp_path / "specchat").chmod(0o700)
    assert {each.name: each.state for each in machine.check_folders()}["data folder"] == "ok"


def test_folders_that_cannot_be_used_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file in the way, or no permission to write."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "a file"))
    (tmp_path / "a file").touch()
    found = {each.name: each for each in machine.check_folders()}
    assert found["model cache"].fix == (f"mv '{tmp_path}/a file' '{tmp_path}/a file'.old",)
    monkeypatch.setattr(os, "access", lambda *_: False)
    found = {each.name: each for each in machine.check_folders()}

    assert found["data folder"].fix == (f"chmod u+rwx {tmp_path}",)


def test_files_that_were_set_aside_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The finding has the command that removes them."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert machine.check_saved_files().state == "ok"
    (tmp_path / "specchat").mkdir()
    path = tmp_path / "specchat" / "pins.json.damaged-1"
    path.touch()
    found = machine.check_saved_files()

    assert found.state == "warning"
    assert str(path) in found.detail
    assert found.fix[0].startswith(f"rm {path}")


def test_a_catalogue_that_cannot_be_read_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's own, as a rule."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert machine.check_catalogue().state == "ok"
    own_catalogue_path().parent.mkdir(parents=True)
    own = own_catalogue_path()
    own.write_text("[pair.x]\nno = 1\ntarget = 3\n")
    monkeypatch.setenv("VISUAL", "nano")
    finding = machine.check_catalogue()

    assert (finding.state, len(finding.detail.splitlines())) == ("problem", 3)
    assert finding.fix == (f"nano {own}", f"mv {own} {own}.old  # or go without it")


def test_models_outside_the_catalogue_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny: WriteModel
) -> None:
    """Those pulled by name, and other programs'; a pair's own files are not counted twice."""
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "HF_HUB_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / name))
    assert machine.check_catalogue().detail.startswith("only the demo pair is installed")
    cache = tmp_path / "HF_HUB_CACHE"
    first = put_in_hub(cache, "org/one", "one.gguf", tiny("llama").read_bytes())
    assert machine.check_catalogue().detail == "installed: 1 model of no pair"
    put_in_hub(cache, "org/two", "two.gguf", tiny("llama").read_bytes())
    save_pair("mine", first, None)
    assert machine.check_catalogue().detail == "installed: mine and 1 model of no pair"


def test_a_hub_that_answers_is_reached(hub: HubServer) -> None:
    """The check sends one request."""
    finding = machine.check_network()

    assert (finding.state, [seen.method for seen in hub.seen]) == ("ok", ["HEAD"])
    assert finding.detail.startswith(f"{hub.address} answers within ")


def test_a_hub_that_does_not_answer_is_reported_in_time(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused connection, and one without an answer."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert "refused" in machine.check_network().detail
    monkeypatch.setattr(machine, "TIMEOUT_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        finding = machine.check_network()

    assert (finding.state, finding.fix) == ("warning", ("export SPECCHAT_OFFLINE=1",))


class Answering(BaseHTTPRequestHandler):
    """Answers every HEAD with one status, sending on to an address where there is one."""

    status, address = 200, ""

    def do_HEAD(self) -> None:
        """Answer."""
        self.send_response(self.status)
        if self.address:
            self.send_header("Location", self.address)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.mark.parametrize(
    ("status", "address", "state", "message"),
    [
        (200, "", "ok", "answers within"),
        (301, "/home", "ok", "answers within"),
        (404, "", "ok", "answers within"),
        (302, "//[", "warning", "cannot be reached"),
        (302, "http://login.example/", "warning", "302, redirected to login.example: log in"),
        (403, "", "warning", "status 403, refused"),
        (407, "", "warning", "status 407, the proxy requires a login"),
        (429, "", "warning", "429, too many requests"),
        (503, "", "warning", "503, server error: try again later"),
    ],
)
def test_an_answer_is_judged_by_its_status(
    monkeypatch: pytest.MonkeyPatch, status: int, address: str, state: str, message: str
) -> None:
    """Some responses come from a proxy, or from a hub that is failing."""
    handler = type("Handler", (Answering,), {"status": status, "address": address})
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        answering = threading.Thread(target=server.handle_request)
        answering.start()
        finding = machine.check_network()
        answering.join()

    assert (finding.state, message in finding.detail, bool(finding.fix)) == (
        state,
        True,
        state == "warning",
    )


@pytest.mark.parametrize("word", ["1", "true", "ON", "yes"])
def test_offline_mode_makes_no_request(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    """Every value that huggingface_hub accepts turns offline mode on."""
    monkeypatch.setenv("HF_HUB_OFFLINE", word)

    assert "not checked in offline mode" in machine.check_network().detail
    assert hub.seen == []


if sys.platform == "win32":
    pytestmark = pytest.mark.skip("folders and their rights are POSIX's here")


def test_folders_whose_state_cannot_be_read_are_not_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As in a folder that must not be entered; a name that is too long gives an error, too."""
    monkeypatch.setenv("HF_HOME", f"{tmp_path}/{'x' * 300}")
    assert machine.check_disk().name == "disk"
    monkeypatch.setenv("HF_HOME", "~missing-user/cache")
    assert machine.check_disk().name == "disk"
