"""`specchat doctor` for people and scripts, on machines with various faults.

Decoding takes seconds of a processor, so tests that are not about it share one real result.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from conftest import WriteModel
from local_folders import put_in_hub
from scripts.support.tiny_gguf import Shape, write_hollow
from specchat.cli import doctor, main
from specchat.doctor import backend
from specchat.llama.child_process import (
    BuildReport,
    ChildResult,
    ProbeReport,
    ask_for_build,
    try_decoding,
)
from specchat.passes.learned_cache import LearnedCache, LearnedPair
from specchat.planning.device import Device, find_machine
from specchat.settings.sources import settings_path

ROOT = Path(__file__).parents[2]
Examined: TypeAlias = tuple[int, dict[str, Any], dict[str, dict[str, Any]]]
posix_only = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signals")


@pytest.fixture(autouse=True)
def _own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user of its own, who is offline, and a PATH without any program that knows a GPU."""
    for name in ("XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "HF_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    (tmp_path / "programs").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "programs"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="module")
def of_children() -> tuple[ChildResult[BuildReport], ChildResult[ProbeReport]]:
    """Return what llama.cpp was built for, and what was decoded, as other processes report it."""
    return ask_for_build(), try_decoding(backend.MODEL, on_gpu=False)


@pytest.fixture
def known_build(
    of_children: tuple[ChildResult[BuildReport], ChildResult[ProbeReport]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Use the results of these processes, which do not depend on a test's environment."""
    build, decoded = of_children
    assert decoded.report
    monkeypatch.setattr(doctor, "ask_for_build", lambda: build)
    monkeypatch.setattr(backend, "try_decoding", lambda *_, **__: decoded)


@pytest.fixture
def examine_here(known_build: None, capsys: pytest.CaptureFixture[str]) -> Callable[[], Examined]:
    """Return a function that runs it in this process."""

    def run() -> Examined:
        code = main(["doctor", "--json"])
        said = capsys.readouterr()
        assert said.err == ""
        return code, *read(said.out)

    return run


def read(printed: str) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return the object that was printed, and the findings by name."""
    result = json.loads(printed)
    return result, {each["name"]: each for each in result["findings"]}


def examine(**environment: str) -> Examined:
    """Run it as a script does; return the exit code, the object, and the findings by name."""
    done = subprocess.run(
        [sys.executable, "-m", "specchat", "doctor", "--json"],
        capture_output=True, text=True, check=False, cwd=ROOT, env={**os.environ, **environment},
    )  # fmt: skip
    assert done.stderr == ""
    return done.returncode, *read(done.stdout)


def put_llama(folder: Path, code: str) -> str:
    """Write a llama_cpp that does something else, and return the PYTHONPATH that leads to it."""
    (folder / "llama_cpp").mkdir()
    (folder / "llama_cpp" / "__init__.py").write_text(code)
    return str(folder)


def put_program(folder: Path, name: str, says: str) -> None:
    """Write a program that prints something."""
    program = folder / "programs" / name
    program.write_text(f"#!/bin/sh\n/bin/cat <<'END'\n{says}\nEND\n")
    program.chmod(0o755)


@pytest.mark.slow
def test_a_machine_where_all_works_is_well() -> None:
    """llama.cpp reports its build and decodes; there is no request in offline mode."""
    code, result, findings = examine()

    assert (code, result["well"], result["offline"]) == (0, True, True)
    assert findings["llama.cpp"]["detail"].startswith("llama-cpp-python 0.")
    assert findings["CPU"]["detail"].startswith("decodes: 16 batches of a real model; ")
    assert "with the bits of plain decoding" in findings["CPU"]["detail"]
    assert findings["GPU offload"]["detail"] == "not compiled in; not needed without a GPU"
    assert find_machine().gpus == ()
    assert "offline mode" in findings["network"]["detail"]
    assert {"memory", "disk", "model cache", "config folder", "settings", "catalogue"} <= {
        *findings
    }


@posix_only
def test_a_build_that_crashes_is_a_finding(tmp_path: Path) -> None:
    """The signal is named, and the command builds without the instructions that are not there."""
    dying = put_llama(tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    code, result, findings = examine(PYTHONPATH=dying)

    assert (code, result["well"]) == (1, False)
    assert "crashes (SIGILL)" in findings["llama.cpp"]["detail"]
    assert "crashes (SIGILL)" in findings["CPU"]["detail"]
    assert findings["CPU"]["fix"]


def test_a_build_that_cannot_be_loaded_is_a_finding(tmp_path: Path) -> None:
    """The reason is the last line of Python's error."""
    broken = put_llama(tmp_path, "raise RuntimeError('libcudart.so.12: cannot open')")
    code, _, findings = examine(PYTHONPATH=broken)

    assert code == 1
    assert findings["llama.cpp"]["detail"] == (
        "llama.cpp cannot be loaded (libcudart.so.12: cannot open)"
    )
    assert findings["GPU offload"]["state"] == "problem"


@pytest.mark.slow
@posix_only
def test_a_gpu_that_llama_cpp_was_not_built_for_is_a_problem(
    tmp_path: Path, examine_here: Callable[[], Examined]
) -> None:
    """The system's tool names GPU and driver; the commands build for it."""
    put_program(tmp_path, "nvidia-smi", "NVIDIA GeForce RTX 4090, 550.54.14")
    code, _, findings = examine_here()

    assert code == 1
    assert findings["GPU"]["detail"] == "NVIDIA GeForce RTX 4090 (driver 550.54.14)"
    assert findings["GPU offload"]["detail"] == (
        "not compiled in: llama.cpp was built without CUDA, which NVIDIA GeForce RTX 4090 needs"
    )
    assert findings["GPU offload"]["fix"]


@pytest.mark.slow
def test_wrong_settings_are_a_finding_like_any_other(
    examine_here: Callable[[], Examined],
) -> None:
    """Every other command stops at them; this one reports them."""
    settings_path().parent.mkdir(parents=True)
    settings_path().write_text("[sampling]\n\ntop_k = -1\n")
    code, _, findings = examine_here()

    assert code == 1
    assert "line 3: sampling.top_k must be" in findings["settings"]["detail"]
    assert findings["settings"]["fix"] == ["specchat config edit"]


@pytest.mark.parametrize("by", ["nothing", "a variable", "the settings"])
def test_offline_by_the_settings_is_offline(
    by: str, monkeypatch: pytest.MonkeyPatch, examine_here: Callable[[], Examined]
) -> None:
    """The settings count like the command line and the environment."""
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    if by == "a variable":
        monkeypatch.setenv("SPECCHAT_OFFLINE", "1")
    elif by == "the settings":
        settings_path().parent.mkdir(parents=True)
        settings_path().write_text("[network]\noffline = true\n")
    _, result, findings = examine_here()

    assert result["offline"] is (by != "nothing")
    assert findings["network"]["state"] == ("warning" if by == "nothing" else "ok")


@pytest.mark.usefixtures("known_build")
def test_it_is_plain_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """A row for each finding, no colour, and a summary at the end."""
    assert main(["doctor", "--offline"]) == 0
    out, result = capsys.readouterr()

    assert result == ""
    assert "\x1b" not in out
    assert out.splitlines()[1].startswith("ok       llama.cpp     llama-cpp-python")
    assert out.splitlines()[-1] in {"no problems found", "1 warning", "2 warnings"}


@pytest.mark.usefixtures("known_build")
def test_commands_are_whole_below_their_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a terminal text is wrapped and coloured, but commands are never broken."""
    put_program(tmp_path, "nvidia-smi", "NVIDIA GeForce RTX 4090, 550.54.14")
    monkeypatch.setenv("COLUMNS", "72")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)

    assert main(["doctor"]) == 1
    coloured = capsys.readouterr().out
    monkeypatch.setenv("NO_COLOR", "1")
    assert main(["doctor"]) == 1
    plain = capsys.readouterr().out
    assert "\x1b[31mproblem  \x1b[0mGPU offload   not compiled in" in coloured
    assert "\x1b" not in plain
    commands = [line for line in plain.splitlines() if line.startswith("         fix ")]
    assert commands
    assert any(len(line) > 72 for line in commands)
    words = [line for line in plain.splitlines() if line not in commands]
    assert all(len(line) <= 72 for line in words if " " in line[23:])  # a path is left whole
    assert plain.splitlines()[-1].startswith("1 problem")


@pytest.mark.usefixtures("known_build")
def test_a_gpu_that_only_llama_cpp_finds_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Vulkan runs on devices that no program of the system lists."""
    found = Device("Vulkan0", "llvmpipe", "gpu", 2**31, 2**31)
    build = BuildReport("0.3.36", "", can_offload=True, backends=("Vulkan",), devices=(found,))
    monkeypatch.setattr(doctor, "ask_for_build", lambda: ChildResult(build))
    monkeypatch.setattr(doctor, "find_system_gpus", list)
    main(["doctor", "--json"])
    findings = json.loads(capsys.readouterr().out)["findings"]

    assert {"llvmpipe"} == {each["detail"] for each in findings if each["name"] == "GPU"}
    assert find_machine().gpus == (replace(found, free=0),)


def test_a_model_that_does_not_fit_into_memory_is_named(
    tmp_path: Path,
    tiny: WriteModel,
    examine_here: Callable[[], Examined],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With what it needs and what is free; of those that fit, the largest.

    Without mapping, or with locked memory, it cannot be read from the disk again and again.
    """
    hub = tmp_path / "hf_home" / "hub"
    small = [
        put_in_hub(hub, "org/model", f"{name}.gguf", tiny("llama", num_layers=layers).read_bytes())
        for layers, name in enumerate(("a", "b"), 1)
    ]
    _, _, findings = examine_here()
    assert findings["RAM"]["state"] == "ok"
    assert findings["RAM"]["detail"].startswith("2 models fit; org/model/b.gguf takes the most: ")

    shape = Shape(32_000, num_layers=160, width=2048, feed_forward=2**18, head_width=128)
    write_hollow(small[0].resolve(), "llama", shape)
    _, _, findings = examine_here()
    line, rest = findings["RAM"]["detail"].splitlines()
    assert findings["RAM"]["state"] == "warning"
    assert re.fullmatch(
        r"org/model/a\.gguf does not fit: it needs [\d.]+ GiB of the [\d.]+ that are free; its"
        r" weights are read from the disk for each token",
        line,
    )
    assert rest.startswith("1 model fits; org/model/b.gguf takes the most: ")
    models = {each["name"]: each for each in findings["RAM"]["figures"]["models"]}
    assert not models["org/model/a.gguf"]["fits"]
    assert models["org/model/a.gguf"]["needed"] > 5 * 10**11

    for option, value, reason in (("mmap", "0", "mmap is off"), ("mlock", "1", "mlock is on")):
        with monkeypatch.context() as patch:
            patch.setenv(f"SPECCHAT_{option.upper()}", value)
            line = examine_here()[2]["RAM"]["detail"].splitlines()[0]
        assert line.endswith(f" that are free; it will not load while {reason}")


def test_passes_of_each_installed_model_are_named(
    tmp_path: Path,
    tiny: WriteModel,
    examine_here: Callable[[], Examined],
) -> None:
    """Measured ones with the speed, the others together with what is usual."""
    hub = tmp_path / "hf_home" / "hub"
    paths = [
        put_in_hub(hub, "org/model", f"{name}.gguf", tiny("llama", num_layers=layers).read_bytes())
        for layers, name in enumerate(("a", "b", "c"), 1)
    ]
    rows = [(0, count, 0.01 * (1 + 0.1 * (count - 1))) for count in range(1, 17)]
    measured = LearnedPair(rows, way="3 threads")
    LearnedCache(paths[1], "a build").keep_pair({}, measured)
    _, _, findings = examine_here()

    measured_line, usual_line = findings["passes"]["detail"].splitlines()
    assert measured_line == (
        "org/model/b.gguf: 2, 3, 4, 5, 8, 16 tokens cost 1.1, 1.2, 1.3, 1.4, 1.7, 2.5 times one"
        " token (3 threads); predicted 100.0 tokens/s"
    )
    assert usual_line == (
        "org/model/a.gguf, org/model/c.gguf: 2, 3, 4, 5, 8, 16 tokens usually cost 1.2, 1.4, 1.6,"
        " 1.7, 2.1, 2.9 times one token; not measured yet"
    )
    models = {each["name"]: each for each in findings["passes"]["figures"]["models"]}
    assert models["org/model/b.gguf"]["stair"]["4"] == 1.3
    assert models["org/model/b.gguf"]["path"] == str(paths[1])
    assert not models["org/model/a.gguf"]["is_measured"]
