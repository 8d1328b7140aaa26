"""What is said of speculation is what happened, also on a machine that runs other things.

`loaded_starts.json` holds the recorded steps of first answers while other programs came and went:
drafted and emitted tokens, and in units of 10 microseconds what the step took, what it took without
drafting, and what a plain pass was believed to take.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import log
from pathlib import Path

import pytest

from decoding.simulated_answers import (
    Machine,
    answer,
    interrupted,
    loaded,
    quiet,
    race,
    unsteady,
)
from specchat.decoding import step_times as gains
from specchat.decoding.step_times import Gain, StepTimes, compared
from specchat.wording import NUM_ERRORS
from tables import table
from timed_steps import timed

UNIT = 1e-5
STARTS = json.loads(Path(__file__).with_name("loaded_starts.json").read_text())
NUM_ANSWERS = 300

MakeMachine = Callable[[random.Random], Machine]


def errors_of(machine: MakeMachine) -> list[float]:
    """Return by how many standard errors the gains of answers are off, where they have one."""
    found = []
    for seed in range(NUM_ANSWERS):
        chance = random.Random(seed)
        times, speedup = answer(chance, machine(chance))
        gain = times.gain()
        if gain.is_sound:
            found.append(log(gain.speedup / speedup) / gain.error)
    return found


def is_honest(found: Sequence[float]) -> bool:
    """Return whether at most 1 in 20 is off by more than two, and they are not all off one way."""
    num_beyond = sum(abs(each) > NUM_ERRORS for each in found)
    return num_beyond <= 0.05 * len(found) and abs(sum(found)) < 0.5 * len(found)


@table(("machine", "least"), [(quiet, 0.9), (loaded, 0.2), (unsteady, 0.3), (interrupted, 0.55)])
def test_the_error_is_honest(machine: MakeMachine, least: float) -> None:
    """Most answers have a gain on a quiet machine, and on a busy one those whose gain is clear."""
    found = errors_of(machine)

    assert len(found) >= least * NUM_ANSWERS
    assert is_honest(found)


def race_errors_of(machine: MakeMachine) -> list[float]:
    """Return by how many standard errors the gains of races are off, where they have one."""
    found = []
    for seed in range(NUM_ANSWERS):
        chance = random.Random(seed)
        plain, own, speedup = race(chance, machine(chance))
        gain = compared(plain, own)
        if gain.is_sound:
            found.append(log(gain.speedup / speedup) / gain.error)
    return found


@table("machine", [quiet, loaded, interrupted])
def test_the_error_of_a_race_is_honest(machine: MakeMachine) -> None:
    """Nearly all races have a gain, those of a busy machine a wider one."""
    found = race_errors_of(machine)

    assert len(found) > 0.9 * NUM_ANSWERS
    assert is_honest(found)


@table(("num_plain", "num_drafted"), [(4, 40), (40, 4), (2, 3)])
def test_a_race_of_a_few_steps_says_nothing(num_plain: int, num_drafted: int) -> None:
    """They may all have been held up."""
    plain = steps(num_plain, 0, 1, 0.9, StepTimes())
    assert compared(plain, steps(num_drafted, 3, 4, 1.5, StepTimes())).kind == "measuring"


def test_plain_steps_of_either_lane_are_the_same() -> None:
    """A race in which next to nothing was drafted is not won or lost by where the stalls were."""
    chance = random.Random(7)
    for seed in range(100):
        machine = loaded(random.Random(seed))
        plain, own = StepTimes(), StepTimes()
        for _ in range(7):
            for lane in (plain, own):
                for _ in range(32):
                    lane.add(0, 1, machine.take(0.012))
        steps(2, chance.randint(1, 3), 2, 0.03, own)
        assert compared(plain, own).kind == "same"


@table(
    ("machine", "name", "value"),
    [(quiet, "FOLLOWING", gains.PLAIN), (interrupted, "BLOCK", 1 << 30), (loaded, "MOST_OFF", 0.0)],
    ids=["the first plain step counts", "steps count beside any others", "no error"],
)
def test_a_worse_estimate_is_found_out(
    machine: MakeMachine, name: str, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would not be as right as it says."""
    monkeypatch.setattr(gains, name, value)
    assert not is_honest(errors_of(machine))


def times_of(steps: Sequence[Sequence[int]]) -> StepTimes:
    """Return the times of recorded steps."""
    times = StepTimes()
    for drafted, emitted, seconds, verified, _ in steps:
        times.add(drafted, emitted, seconds * UNIT, (seconds - verified) * UNIT)
    return times


def test_no_loaded_start_is_called_slower() -> None:
    """In 200 parts of the recorded ones; what is called faster is no wild guess."""
    chance, found = random.Random(40), list[Gain]()
    for place in range(200):
        steps = STARTS[place % len(STARTS)]
        length = chance.randint(30, len(steps)) if len(steps) > 30 else len(steps)
        begin = chance.randint(0, len(steps) - length)
        found.append(times_of(steps[begin : begin + length]).gain())

    assert [gain for gain in found if gain.kind == "slower"] == []
    assert sum(gain.kind == "faster" for gain in found) > 10
    assert max(gain.speedup for gain in found if gain.kind == "faster") < 2.5


@table(("speedup", "kind"), [(2.0, "faster"), (1.2, "faster"), (1.0, "same"), (0.8, "slower")])
def test_a_quiet_machine_gets_a_verdict(speedup: float, kind: str) -> None:
    """The speedup, and the seconds saved or lost, which agree with both rates."""
    gain = timed(speedup).gain()

    assert gain.kind == kind
    assert gain.speedup == pytest.approx(speedup, rel=0.01)
    assert gain.saved_s == pytest.approx(4.0 * (speedup - 1), abs=0.05)
    without, ours = gain.rates
    assert gain.saved_s == pytest.approx(400 / without - 400 / ours)
    assert ours == pytest.approx(100.0)


def steps(count: int, drafted: int, emitted: int, seconds: float, times: StepTimes) -> StepTimes:
    """Add some steps that are alike."""
    for _ in range(count):
        times.add(drafted, emitted, seconds)
    return times


def mixed(draft_s: float, plain_s: float, emitted: int = 3) -> StepTimes:
    """Return the times of steps with drafts, four plain steps, and steps with drafts."""
    times = steps(24, 3, emitted, draft_s, StepTimes())
    return steps(24, 3, emitted, draft_s, steps(4, 0, 1, plain_s, times))


def test_without_enough_plain_steps_nothing_is_said() -> None:
    """Nor in the first second, nor with few drafts; without drafts it is plain speed."""
    assert mixed(0.05, 0.03).gain().is_sound
    assert steps(400, 3, 3, 0.05, StepTimes()).gain() == Gain("measuring")
    few = steps(24, 3, 3, 0.05, steps(3, 0, 1, 0.03, steps(24, 3, 3, 0.05, StepTimes())))
    assert few.gain() == Gain("measuring")
    assert mixed(0.005, 0.003).gain().kind == "measuring"
    assert steps(25, 0, 1, 0.05, steps(7, 3, 3, 0.05, StepTimes())).gain().kind == "measuring"
    assert mixed(0.05, 0.03).gain().saved_s > mixed(0.005, 0.003).gain().saved_s == 0.0
    looking = StepTimes()
    for _ in range(6):
        looking.add(0, 1, 0.05, 0.04)
    assert steps(2, 3, 3, 0.1, looking).gain() == Gain("measuring")
    plain = steps(50, 0, 1, 0.1, StepTimes())
    assert plain.gain() == Gain()
    assert not plain.gain().is_sound


def test_an_answer_that_hardly_drafted_is_as_fast_as_plain_decoding() -> None:
    """However few its drafts were: nearly all of its steps are plain."""
    times = steps(100, 0, 1, 0.05, StepTimes())
    for _ in range(3):
        times.add(3, 2, 0.12)
        steps(40, 0, 1, 0.05, times)
    gain = times.gain()
    assert gain.kind == "same"
    assert gain.speedup == pytest.approx(226 * 0.05 / times.seconds, rel=0.01)


def test_a_step_that_looks_for_a_draft_in_vain_is_no_plain_step() -> None:
    """A draft pass is no part of plain decoding, and disturbs the next step."""
    times = steps(24, 3, 3, 0.05, StepTimes())
    for _ in range(8):
        times.add(0, 1, 0.04, 0.01)
    assert steps(24, 3, 3, 0.05, times).gain() == Gain("measuring")


@table(
    ("num_vain", "num_plain", "lookup"),
    [(0, 4, 0.0), (6, 4, 0.0), (0, 20, 0.09), (3, 0, 0.05), (5, 8, 0.09)],
)
def test_every_kind_of_step_has_its_price(num_vain: int, num_plain: int, lookup: float) -> None:
    """Looking for drafts is the answer's own time, in vain or not, as is what follows other steps.

    Plain decoding has neither; in a race it is known.
    """
    times, plain = StepTimes(), 0.03
    for number in range(12):
        steps(8, 3, 3, 0.05, times)
        for _ in range(num_vain):
            times.add(0, 1, 1.2 * plain + 0.01, 0.01)
        for place in range(num_plain or 5 * (number == 0)):
            took = plain * (1.2 if place == 0 else 1.0)
            times.add(0, 1, took * (1 + lookup), took * lookup)
    speedup = times.num_tokens * plain / times.seconds

    assert times.gain().speedup == pytest.approx(speedup, rel=0.015)
    lane = steps(times.num_tokens, 0, 1, plain, StepTimes())
    assert compared(lane, times).speedup == pytest.approx(speedup, rel=0.015)


def test_steps_that_were_held_up_change_nothing() -> None:
    """Neither one of a usual length nor the only one of its length, nor a plain one or a look."""
    usual = mixed(0.05, 0.03).gain().speedup
    for num_plain, drafted, drafting in (
        (2, 0, 0.0), (0, 0, 0.0), (2, 3, 0.0), (2, 2, 0.0), (2, 15, 0.0), (2, 0, 0.3), (0, 0, 0.57)
    ):  # fmt: skip
        times = steps(num_plain, 0, 1, 0.03, steps(12, 3, 3, 0.05, StepTimes()))
        times.add(drafted, 1 + 2 * (drafted > 0), 0.6, drafting)
        times = steps(40, 3, 3, 0.05, steps(4, 0, 1, 0.03, times))
        assert times.gain().speedup == pytest.approx(usual, rel=0.06)


def test_there_is_no_more_to_gain_than_tokens_per_step() -> None:
    """However long plain steps took, a pass over more tokens takes as long."""
    gain = mixed(0.05, 0.5).gain()
    assert gain.speedup == pytest.approx((48 * 3 + 4) / 52, rel=0.03)
    assert gain.kind == "measuring"  # no plain step was as fast


def test_impossible_figures_are_not_made() -> None:
    """Seconds that do not agree with the speedup, or a speedup of nothing."""
    for wrong in (("faster", 2.0, 0.1, 3.0, 2.0), ("slower", 0.0, 0.1, 0.0, 2.0)):
        with pytest.raises(ValueError, match="impossible"):
            Gain(*wrong)


def test_parts_of_an_answer_are_joined() -> None:
    """What either part shows counts, in whichever of them the plain steps are."""
    first, second = steps(40, 3, 3, 0.05, StepTimes()), mixed(0.05, 0.03)
    for joined in (first.joined(second), second.joined(first)):
        gain = joined.gain()
        assert gain.is_sound
        assert gain.own_s == pytest.approx(first.seconds + second.seconds)
        assert gain.num_tokens == 120 + 148
    assert second.joined(StepTimes()).gain() == second.gain()


@pytest.mark.parametrize(("first", "num_steps"), [(16, 16), (40, 40), (333, 333), (50_000, 40)])
def test_what_is_kept_of_an_answer_in_many_turns_is_spread_over_all(
    first: int, num_steps: int
) -> None:
    """As few blocks as of one in a single turn, as it sends them with each message."""
    whole, number = StepTimes(), 0
    while number < 100_000:
        turn = StepTimes()
        for _ in range(num_steps if number else first):
            number += 1
            turn.add(0 if number % 4 else 3, 1, number)
        whole = whole.joined(turn)
        assert len(whole._blocks) <= gains.MOST_BLOCKS
    begins = [block[0][1] for block in whole._blocks]
    gaps = [after - before for before, after in pairwise(begins)]
    assert len(begins) >= gains.MOST_BLOCKS // 2
    assert max(gaps) < 2 * min(gaps)


def test_a_long_answer_keeps_a_part_of_its_steps() -> None:
    """Evenly spread over all of it, as passes get slower."""
    times = StepTimes()
    for number in range(3000):
        depth = 1 + number / 3000
        steps(4, 0, 1, 0.03 * depth, steps(12, 3, 3, 0.05 * depth, times))
    gain = times.gain()
    assert gain.speedup == pytest.approx(40 * 0.03 / (12 * 0.05 + 4 * 0.03), rel=0.02)
    assert gain.kind == "faster"
    assert len(times._blocks) <= gains.MOST_BLOCKS


def test_two_answers_are_compared_by_the_token() -> None:
    """One may have fewer tokens, and a pass that was held up counts in neither."""
    own = steps(50, 7, 8, 0.08, StepTimes())  # 400 tokens in 4 s

    def plainly(seconds: float, num_tokens: int = 400) -> StepTimes:
        return steps(num_tokens, 0, 1, seconds / num_tokens, StepTimes())

    assert compared(plainly(6.0), own).speedup == pytest.approx(1.5, rel=0.04)
    assert compared(plainly(6.0, 800), own).speedup == pytest.approx(0.75, rel=0.04)
    held_up = plainly(6.0)
    held_up.add(0, 1, 2.0)
    assert compared(held_up, own).kind == "faster"
    assert compared(plainly(3.0), own).kind == "slower"
    assert compared(plainly(0.5), own).kind == "measuring"
    assert compared(plainly(6.0), plainly(4.0)) == Gain()
