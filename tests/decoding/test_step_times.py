"""What is said of speculation is what happened, also on a machine that runs other things.

`loaded_starts.json` holds the recorded steps of first answers while other programs came and went:
drafted and emitted tokens, and in units of 10 microseconds what the step took, what it took without
drafting, and what a plain pass was believed to take.
"""

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from specchat.decoding import step_times as gains
from specchat.decoding.step_times import Gain, StepTimes, compared, judged
from tables import table

UNIT = 1e-5
STARTS = json.loads(Path(__file__).with_name("loaded_starts.json").read_text())


def times_of(steps: Sequence[Sequence[int]]) -> StepTimes:
    """Return the times of recorded steps."""
    times = StepTimes()
    for drafted, emitted, seconds, verified, single in steps:
        times.add(drafted, emitted, seconds * UNIT, verified * UNIT, single * UNIT)
    return times


def loaded_starts(number: int) -> list[StepTimes]:
    """Return starts made of the recorded ones: parts of them, each from another step on."""
    chance = random.Random(40)
    starts = []
    for place in range(number):
        steps = STARTS[place % len(STARTS)]
        length = chance.randint(30, len(steps)) if len(steps) > 30 else len(steps)
        begin = chance.randint(0, len(steps) - length)
        starts.append(times_of(steps[begin : begin + length]))
    return starts


def test_no_loaded_start_is_called_slower() -> None:
    """In 200 of them; what is called faster is no wild guess."""
    found = [start.gain() for start in loaded_starts(200)]

    assert [gain for gain in found if gain.kind == "slower"] == []
    assert sum(gain.kind == "faster" for gain in found) > 10
    assert max(gain.speedup for gain in found if gain.kind == "faster") < 2.5


def of_all_seconds(times: StepTimes) -> str:
    """Return what the sums of all times would say, disturbed ones too."""
    return judged(times.gain().plain_s / times.seconds, 0.0) if times.gain().speedup else "plain"


def test_sums_of_times_would_call_loaded_starts_slower() -> None:
    """So the recorded starts are loaded indeed."""
    assert sum(of_all_seconds(start) == "slower" for start in loaded_starts(200)) > 50


MUTANTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "no error": lambda patch: patch.setattr(gains, "NUM_ERRORS", 0.0),
    "any disturbance": lambda patch: patch.setattr(gains, "BUSY", 1e9),
}


def test_the_error_and_the_disturbances_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without either, some of these starts are called slower."""
    for mutate in MUTANTS.values():
        mutate(monkeypatch)
    assert [start for start in loaded_starts(200) if start.gain().kind == "slower"]


def steady(
    speedup: float, *, seconds: float = 4.0, noise: float = 0.0, seed: int = 0, num_steps: int = 50
) -> StepTimes:
    """Return the times of an answer with a speedup, with some noise in each step."""
    chance = random.Random(seed)
    times, step = StepTimes(), seconds / num_steps
    for _ in range(num_steps):
        took = step * chance.lognormvariate(0, noise)
        times.add(7, 8, took, took, speedup * step / 8)
    return times


@table(("speedup", "kind"), [(2.0, "faster"), (1.2, "faster"), (1.0, "same"), (0.8, "slower")])
def test_a_quiet_machine_gets_a_verdict(speedup: float, kind: str) -> None:
    """The speedup, and the seconds saved or lost."""
    gain = steady(speedup).gain()

    assert gain.kind == kind
    assert gain.speedup == pytest.approx(speedup, rel=0.03)
    assert gain.saved_s == pytest.approx(4.0 * (speedup - 1), abs=0.13)


def test_a_short_answer_and_one_with_few_drafts_get_none() -> None:
    """Nor does one whose passes differ more than the speedup."""
    assert steady(0.5, seconds=0.9).gain().kind == "measuring"
    assert steady(0.5, num_steps=7).gain().kind == "measuring"
    assert all(steady(0.9, noise=0.5, seed=seed).gain().kind != "slower" for seed in range(30))
    assert steady(0.9, seconds=0.9).gain().saved_s == 0.0


def test_a_pass_that_was_held_up_changes_nothing() -> None:
    """Neither one of a usual length nor the only one of its length, shorter or longer."""
    for drafted in (7, 3, 15):
        times = steady(1.5)
        times.add(drafted, 8, 1.5, 1.5, 0.015)
        gain = times.gain()
        assert gain.kind == "faster"
        assert gain.speedup == pytest.approx(1.5, rel=0.05)


def test_a_machine_that_is_busy_all_the_time_gets_none() -> None:
    """Where half of the time goes to other programs, nothing is known."""
    times = steady(0.5)
    for _ in range(12):
        times.add(7, 8, 1.0, 1.0, 0.01)
    assert times.gain().kind == "measuring"


def test_without_drafts_it_is_plain_speed() -> None:
    """There is nothing to compare, and nothing saved."""
    times = StepTimes()
    for _ in range(50):
        times.add(0, 1, 0.1, 0.1, 0.1)
    assert times.gain() == Gain()
    assert not times.gain().is_sound


def test_steps_without_drafts_count_for_what_is_unknown() -> None:
    """Where no pass was measured before, they say what a plain one takes."""
    times = StepTimes()
    for _ in range(20):
        times.add(7, 8, 0.1, 0.1, 0.0)
    assert times.gain().kind == "measuring"
    for _ in range(20):
        times.add(0, 1, 0.05, 0.05, 0.0)
    assert times.gain().speedup == pytest.approx((20 * 8 * 0.05 + 1) / 3, rel=0.03)


def test_a_plain_pass_takes_no_longer_than_one_over_more_tokens() -> None:
    """What was measured on a slower machine is not believed."""
    times = StepTimes()
    for _ in range(50):
        times.add(7, 2, 0.1, 0.08, 5.0)
    assert times.gain().speedup == pytest.approx(1.6, rel=0.03)


def plainly(seconds: float, noise: float = 0.0, seed: int = 1) -> StepTimes:
    """Return the times of 400 plain steps."""
    chance, times = random.Random(seed), StepTimes()
    for _ in range(400):
        took = seconds / 400 * chance.lognormvariate(0, noise)
        times.add(0, 1, took, took, 0.0)
    return times


def test_two_answers_are_compared_by_the_token() -> None:
    """One may have fewer tokens, and a pass that was held up counts in neither."""
    own = steady(1.0)  # 400 tokens in 4 s
    assert compared(plainly(6.0), own, 400, 400).speedup == pytest.approx(1.5, rel=0.04)
    assert compared(plainly(6.0), own, 800, 400).speedup == pytest.approx(0.75, rel=0.04)
    held_up = plainly(6.0)
    held_up.add(0, 1, 2.0, 2.0, 0.0)
    assert compared(held_up, own, 401, 400).kind == "faster"
    assert compared(plainly(3.0), own, 400, 400).kind == "slower"
    assert compared(plainly(0.5), own, 400, 400).kind == "measuring"
    assert compared(plainly(6.0), plainly(4.0), 400, 400) == Gain()
