"""Every place that names the machine's GPU names the device."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from device_options import EXACT, WritePair
from specchat.cli.arguments import parse
from specchat.cli.offers import find_offers, foresee_offer
from specchat.cli.option_arguments import complete
from specchat.engine.api import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.planning.device import Device, keep_gpus
from specchat.tui.texts.cards import figure_texts
from specchat.tui.texts.figures import Figures

LENGTHS = ("--max-tokens", "16", "--draft-length", "3")
"""Fixed: on a busy machine, pacing may measure that drafts do not pay."""
NO_FLASH = ("--flash-attention", "off")
"""See device_options."""
ROOT = Path(__file__).parents[2]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a user who has not used specchat yet and is offline."""
    for name in ("XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "HF_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return tmp_path


def specchat(*words: str) -> str:
    """Run specchat and return what it prints."""
    command = [sys.executable, "-m", "specchat", *words]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=ROOT, env={**os.environ}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.usefixtures("home")
def test_doctor_list_and_show_name_the_device(device: Device) -> None:
    """Before doctor was run, the list says that the GPU is unknown."""
    assert "GPU unknown (run `specchat doctor`)" in specchat("list")
    result = json.loads(specchat("doctor", "--json"))
    findings = {each["name"]: each for each in result["findings"]}

    assert device.label in findings["GPU"]["detail"]
    assert f"decodes on {device.label} ({device.name}, " in findings["GPU offload"]["detail"]
    assert f"GPU: {device.label} (" in specchat("list")
    (shown,) = json.loads(specchat("list", "--json"))["machine"]["gpus"]
    assert (shown["name"], shown["total"]) == (device.label, device.total)
    assert all(row["fit"] for row in json.loads(specchat("show", "demo", "--json"))["memory"])


@pytest.mark.usefixtures("home")
def test_an_answer_on_the_device_is_the_same_with_drafts(device: Device) -> None:
    """The demo pair, all layers offloaded, at temperature 0."""
    words = ("ask", "--pair", "demo", "Who are you?", "--temperature", "0", "--json", *NO_FLASH)
    speculative, plain = (
        json.loads(specchat(*words, *LENGTHS, "--drafter", drafter))
        for drafter in ("model", "none")
    )
    assert speculative["text"] == plain["text"]
    assert speculative["stats"]["accepted"] > 0
    assert plain["stats"]["accepted"] == 0


@pytest.mark.usefixtures("home")
def test_bench_the_panel_and_the_models_name_the_device(device: Device, pair: WritePair) -> None:
    """Bench in its record and heading, the panel below the weights, F8 by what fits it."""
    files = pair("llama")
    words = ("--target", str(files[0]), "--draft", str(files[1]), *NO_FLASH, "--ctx", "256")
    lengths = ("--rounds", "1", "--max-tokens", "4", "--task", "chat")
    measured = json.loads(specchat("bench", "--json", *words, *lengths))
    assert measured["machine"]["gpu"] == device.label

    with LocalEngine(Loading(*files, **EXACT)) as engine:
        figures = figure_texts(Figures(), engine.facts, 60)
    assert f"on {device.label}" in str(figures["weights"])

    keep_gpus([device])
    arguments = parse(["chat"])
    complete(arguments)
    (demo,) = [each for each in find_offers(arguments) if each.name == "demo"]
    assert "GPU memory" in foresee_offer(demo, 0).memory
