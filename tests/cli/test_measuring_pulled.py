"""What passes cost is measured once a model is pulled or tuned, and that never fails a command."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import WriteModel
from hub_server import HubServer
from specchat.catalogue.known_speed import KnownSpeed, known_speed
from specchat.catalogue.pairs import file_of
from specchat.cli import main, pass_measuring
from specchat.engine.local_engine import LocalEngine
from specchat.errors import ModelWontLoad
from specchat.gguf.reader import read_header
from specchat.passes import pass_measurement
from specchat.planning.device import Machine
from specchat.settings.sources import settings_path
from specchat.sharing import process_engine

NAME = "org/model/model-Q8_0.gguf"
READY = f"ready: specchat ask --target {NAME}"


@pytest.fixture(autouse=True)
def _on_the_hub(
    hub: HubServer,
    tiny: WriteModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    engines_here: None,
) -> None:
    """A model to pull, on a machine that is never too busy."""
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setattr(pass_measurement, "STEADY", 1000.0)
    hub.put("org/model", "model-Q8_0.gguf", tiny("llama").read_bytes())


@pytest.fixture
def pulled(capsys: pytest.CaptureFixture[str]) -> Callable[[], list[str]]:
    """Return a function that pulls the model and returns what is said."""

    def pull() -> list[str]:
        assert main(["pull", NAME]) == 0
        said = capsys.readouterr()
        assert Path(said.out.strip()) == file_of(NAME)
        return said.err.splitlines()

    return pull


def known() -> KnownSpeed:
    """Return what is known of the pulled model."""
    return known_speed(Machine(2**40, ()), read_header(file_of(NAME)))


def fail_with(error: BaseException) -> Callable[..., LocalEngine]:
    """Return an engine that cannot be loaded."""

    def load(*_: object) -> LocalEngine:
        raise error

    return load


def test_a_pulled_model_is_measured(
    pulled: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what its passes cost is said; pulled again, it is not loaded again."""
    *_, measured, ready = pulled()
    assert known().is_measured
    assert measured == f"measured here: passes over {known().stair_text}; {known().speed_text}"
    assert ready == READY

    monkeypatch.setattr(process_engine, "ProcessEngine", fail_with(AssertionError("is loaded")))
    assert pulled() == [f"{NAME} is already installed", READY]


def test_the_settings_of_answers_are_used(pulled: Callable[[], list[str]]) -> None:
    """Their threads, for one: what passes cost is kept for these."""
    settings_path().parent.mkdir(parents=True, exist_ok=True)
    settings_path().write_text("[model]\nthreads = 1\n")
    assert "(1 thread)" in pulled()[-2]
    assert known().way == "1 thread"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (KeyboardInterrupt(), "the chat measures it when idle"),
        (ModelWontLoad("it is broken"), "it is broken"),
        (OSError("no process"), "no process"),
    ],
)
def test_what_cannot_be_measured_is_pulled_all_the_same(
    error: BaseException,
    reason: str,
    pulled: Callable[[], list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The reason is one line."""
    monkeypatch.setattr(process_engine, "ProcessEngine", fail_with(error))
    *_, why, ready = pulled()
    assert (why, ready) == (f"what its passes cost is not measured: {reason}", READY)
    assert not known().is_measured


def test_a_busy_machine_is_named(
    pulled: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is kept from it."""
    monkeypatch.setattr("specchat.engine.pair_pacing.measure_passes", lambda *_: False)
    *_, why, ready = pulled()
    assert why == "what its passes cost is not measured: the chat measures it when idle"
    assert ready == READY


def test_ctrl_c_while_it_measures_ends_that_alone(
    pulled: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files are there, and the command is done."""

    def interrupted(*_: object) -> bool:
        signal.raise_signal(signal.SIGINT)
        return False

    monkeypatch.setattr("specchat.engine.pair_pacing.measure_passes", interrupted)
    *_, why, ready = pulled()
    assert why == "what its passes cost is not measured: the chat measures it when idle"
    assert ready == READY


def test_nothing_is_loaded_where_nothing_is_kept(
    pulled: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is a setting."""
    monkeypatch.setattr(process_engine, "ProcessEngine", fail_with(AssertionError("is loaded")))
    settings_path().parent.mkdir(parents=True, exist_ok=True)
    settings_path().write_text("[model]\nlearn = false\n")
    assert pulled()[-1] == READY


def test_a_model_that_does_not_fit_is_not_loaded(
    pulled: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be read from the disk for each pass."""
    monkeypatch.setattr(process_engine, "ProcessEngine", fail_with(AssertionError("is loaded")))
    monkeypatch.setattr(pass_measuring, "find_machine", lambda *_: Machine(1000, ()))
    assert pulled()[-1] == READY
