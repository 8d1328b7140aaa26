"""What is known of a model's passes and speed before it is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import WriteModel
from specchat.catalogue.known_speed import known_speed
from specchat.gguf.reader import read_header
from specchat.passes.learned_cache import LearnedCache, LearnedPair, file_key
from specchat.passes.pass_costs import PLAIN
from specchat.planning.device import Device, Machine
from tables import table

SECONDS = {PLAIN: 0.010, 1: 0.010, 2: 0.016, 3: 0.022, 4: 0.017, 5: 0.023, 8: 0.029, 16: 0.042}
STAIR = {1: 1.0, 2: 1.6, 3: 2.2, 4: 1.7, 5: 2.3, 8: 2.9, 16: 4.2}
CPU = Machine(2**40, ())
GPU = Machine(2**40, (Device("CUDA0", "GPU", "gpu", 2**40, 2**40),))


@pytest.fixture
def target(tiny: WriteModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a model that nothing is known of."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tiny("llama")


def learned(draft: Path | None = None, num_drafts: int = 0, way: str = "2 threads") -> LearnedPair:
    """Return what a measurement found, and drafts whose tokens are accepted at 90 %."""
    return LearnedPair(
        [(0, count, seconds) for count, seconds in SECONDS.items()],
        {"draft": [(0, 1, 0.0005)]},
        {"draft sampled": [[[0.9] * 3, [0.9] * 3]] * num_drafts},
        draft=file_key(draft),
        draft_kind="model" if draft else "",
        way=way,
    )


def keep(target: Path, *pairs: LearnedPair) -> None:
    """Save these in this order."""
    for number, pair in enumerate(pairs):
        LearnedCache(target, "a build").keep_pair({"number": number}, pair)


@table(
    ("machine", "costs"),
    [(CPU, "1.2, 1.4, 1.6, 1.7, 2.1, 2.9"), (GPU, "1.1, 1.2, 1.4, 1.6, 2.0, 2.5")],
)
def test_what_is_usual_is_not_called_measured(machine: Machine, costs: str, target: Path) -> None:
    """It depends on the kind of file and on where it runs; no speed follows from it."""
    speed = known_speed(machine, read_header(target))
    assert speed.stair_text == (
        f"2, 3, 4, 5, 8, 16 tokens usually cost {costs} times one token; not measured yet"
    )
    assert (speed.is_measured, speed.plain_rate, speed.speed_text) == (False, 0.0, "")


def test_measured_passes_predict_the_speed(target: Path, tiny: WriteModel) -> None:
    """With drafts only where enough of them are known."""
    draft = tiny("llama", num_layers=2)
    keep(target, learned(draft, num_drafts=2))
    speed = known_speed(CPU, read_header(target), draft)
    assert speed.stair == pytest.approx(STAIR)
    assert speed.stair_text == (
        "2, 3, 4, 5, 8, 16 tokens cost 1.6, 2.2, 1.7, 2.3, 2.9, 4.2 times one token (2 threads)"
    )
    assert speed.speed_text == "predicted 100.0 tokens/s"

    keep(target, learned(draft, num_drafts=40))
    speed = known_speed(CPU, read_header(target), draft)
    best = (1 + 0.9 + 0.81 + 0.729) / (0.017 + 3 * 0.0005)
    assert speed.drafted_rate == pytest.approx(best, rel=0.05)
    assert speed.speed_text == (
        f"predicted 100.0 tokens/s, {speed.drafted_rate:.1f} tokens/s with drafts"
    )


def test_drafts_that_do_not_pay_are_named(target: Path, tiny: WriteModel) -> None:
    """Plain decoding is predicted then: pacing decodes without them."""
    draft = tiny("llama", num_layers=2)
    pair = learned(draft)
    pair.recent = {"draft greedy": [[[0.9] * 3, [0.1] * 3]] * 40}
    keep(target, pair)
    speed = known_speed(CPU, read_header(target), draft)
    assert speed.drafted_rate == speed.plain_rate
    assert speed.speed_text == "predicted 100.0 tokens/s; drafts do not pay"


def test_another_draft_predicts_nothing(target: Path, tiny: WriteModel) -> None:
    """But passes of the target cost the same; where no draft is named, the last one counts."""
    own, other = tiny("llama", num_layers=2), tiny("llama", num_layers=3)
    keep(target, learned(own, num_drafts=40, way="own"), learned(other, way="other"))
    assert known_speed(CPU, read_header(target), own).way == "own"
    assert known_speed(CPU, read_header(target), other).drafted_rate == 0.0
    assert known_speed(CPU, read_header(target)).drafted_rate > 100.0
    named = known_speed(CPU, read_header(target), tiny("llama", num_layers=1))
    assert (named.is_measured, named.way, named.drafted_rate) == (True, "other", 0.0)


def test_what_answers_taught_is_not_a_measurement(target: Path) -> None:
    """Nor is what cannot be."""
    of_answers, wrong = learned(), learned()
    of_answers.target, wrong.target = [], [(0, 1, -1.0)]
    keep(target, of_answers, wrong)
    assert not known_speed(CPU, read_header(target)).is_measured
