"""What is concluded from recent passes and drafts: rates, speeds, chances."""

from __future__ import annotations

import statistics

import numpy as np
import pytest

from specchat.pacing.calibration import Calibration
from specchat.pacing.recent_drafts import THRESHOLDS, PastDraft, RecentDrafts, StepSeconds, Way
from specchat.pacing.recent_seconds import RecentSeconds

STAIRS = {1: 1.0, 2: 1.6, 3: 2.1, 4: 1.4, 5: 1.9, 8: 2.2, 16: 3.4}


def seconds_of(*, is_measured: bool = True) -> RecentSeconds:
    """Return what passes take on a machine whose stairs were measured, or are only supposed."""
    return RecentSeconds(
        lambda size, _: STAIRS[max(1, size)] * (0.01 if is_measured else 1.0), lambda: is_measured
    )


def observe_many(seconds: RecentSeconds, factor: float, count: int = 400, seed: int = 0) -> None:
    """Let passes of random lengths take their time, with noise, and one in fifty stall."""
    random = np.random.default_rng(seed)
    for _ in range(count):
        size = int(random.choice(list(STAIRS)))
        stall = 30.0 if random.random() < 0.02 else 1.0
        noise = float(random.lognormal(0, 0.05))
        seconds.observe(size, 10, 0.01 * factor * STAIRS[size] * noise * stall)


def test_noise_and_stalls_change_nothing() -> None:
    """Each length takes what it takes, within a few percent."""
    for is_measured in (True, False):
        seconds = seconds_of(is_measured=is_measured)
        observe_many(seconds, 1.0)
        for size, cost in STAIRS.items():
            assert seconds.seconds(size, 10) == pytest.approx(0.01 * cost, rel=0.06)


def test_a_slower_machine_slows_every_length() -> None:
    """Only one is in use while it slows down; the others are not left behind."""
    seconds = seconds_of()
    observe_many(seconds, 1.0)
    for _ in range(20):
        seconds.observe(4, 10, 3 * 0.01 * STAIRS[4])
    for size, cost in STAIRS.items():
        assert seconds.seconds(size, 10) == pytest.approx(3 * 0.01 * cost, rel=0.15)


def test_no_factor_drifts_while_one_length_is_used() -> None:
    """Stalls come on one side only; after many passes the others still cost what they do."""
    seconds = seconds_of()
    random = np.random.default_rng(3)
    for _ in range(5_000):
        stall = 3.0 if random.random() < 0.05 else 1.0
        seconds.observe(1, 10, 0.01 * stall * float(random.lognormal(0, 0.05)))
    assert seconds.seconds(4, 10) == pytest.approx(0.01 * STAIRS[4], rel=0.15)


def test_what_a_length_takes_in_answers_corrects_what_was_measured() -> None:
    """Among other passes it may differ; one like it is taken to differ as much."""
    seconds = seconds_of()
    for _ in range(30):
        seconds.observe(1, 10, 0.01)
        seconds.observe(4, 10, 1.5 * 0.01 * STAIRS[4])
    assert seconds.seconds(4, 10) == pytest.approx(1.5 * 0.01 * STAIRS[4], rel=0.1)
    assert seconds.seconds(5, 10) == pytest.approx(1.5 * 0.01 * STAIRS[5], rel=0.1)
    assert seconds.seconds(1, 10) == pytest.approx(0.01, rel=0.1)


def test_costs_at_a_depth_are_kept_without_the_speed() -> None:
    """Far into a context the stairs differ, and how busy the machine was says nothing."""
    seconds = seconds_of()
    observe_many(seconds, 1.0)
    for _ in range(30):
        seconds.observe(1, 5000, 2 * 0.01)
        seconds.observe(4, 5000, 2 * 1.3 * 0.01 * STAIRS[4])
    kept = seconds.worth_keeping()
    deep = {size: took for (bucket, size), took in kept.items() if bucket}
    assert deep[4] / deep[1] == pytest.approx(1.3 * STAIRS[4], rel=0.15)


STEPS = StepSeconds([1.0, 1.1, 1.5, 1.6, 2.4], [0.0, 0.1, 0.2, 0.3, 0.4])


def test_the_rate_of_a_way_is_what_its_drafts_would_have_brought() -> None:
    """Compared with cutting every draft by hand."""
    random = np.random.default_rng(5)
    drafts = [
        PastDraft(tuple(random.random(4).tolist()), tuple(random.random(4).tolist()))
        for _ in range(2_000)
    ]
    recent = RecentDrafts(drafts[-96:])
    rates = recent.rates(STEPS)
    assert {way.threshold for way in rates} == set(THRESHOLDS)
    assert {way.length for way in rates} == {1, 2, 3, 4}
    for way, rate in rates.items():
        tokens, times = [], []
        for draft in drafts:
            survival, brought, kept, made = 1.0, 1.0, 0, 0
            for confidence, chance in zip(*draft, strict=True):
                if kept == way.length:
                    break
                made += 1
                if confidence < way.threshold:
                    break
                survival *= chance
                brought += survival
                kept += 1
            tokens.append(brought)
            times.append(STEPS.verifying[kept] + STEPS.drafting[made])
        by_hand = statistics.mean(tokens) / statistics.mean(times)
        assert rate == pytest.approx(by_hand, rel=0.15), way


def test_changes_of_length_cost_where_drafts_differ() -> None:
    """A threshold pays less where each change takes time; a constant changes nothing."""
    drafts = [
        PastDraft((0.9, 0.9 * (number % 2)), (0.9, 0.9 * (number % 2))) for number in range(60)
    ]
    free = RecentDrafts(drafts).rates(STEPS)
    dear = RecentDrafts(drafts).rates(StepSeconds(STEPS.verifying, STEPS.drafting, 0.5))
    assert dear[Way(2)] == pytest.approx(free[Way(2)])
    assert dear[Way(2, 0.5)] < 0.85 * free[Way(2, 0.5)]


def test_what_was_seldom_reached_is_taken_to_be_as_usual() -> None:
    """Tokens behind a rejected one are not known."""
    recent = RecentDrafts()
    assert len(set(recent.usual_chances())) == 1
    for _ in range(60):
        recent.add(PastDraft((0.5, 0.5, 0.5), (0.0,)))
    first, second, *_ = recent.usual_chances()
    assert first < 0.1
    assert second == pytest.approx(first)


def test_drafts_are_kept_as_numbers() -> None:
    """And come back as they were."""
    recent = RecentDrafts([PastDraft((0.5, 0.25), (1.0,)), PastDraft((), ())])
    assert RecentDrafts.of_record(recent.as_record()).as_record() == recent.as_record()


def test_a_confidence_is_calibrated() -> None:
    """Drafters that are too sure of themselves, or too modest, are known after some tokens."""
    random = np.random.default_rng(1)
    calibration = Calibration()
    assert calibration.chance(0.72) == pytest.approx(0.72)
    for _ in range(600):
        confidence = float(random.random())
        calibration.observe(confidence, float(random.random() < confidence / 2))
    for confidence in (0.25, 0.55, 0.85):
        assert calibration.chance(confidence) == pytest.approx(confidence / 2, abs=0.12)


def test_a_confidence_that_was_not_seen_is_as_right_as_others() -> None:
    """All bins teach each other a little."""
    calibration = Calibration()
    for _ in range(200):
        calibration.observe(0.55, 0.0)
    assert calibration.chance(0.95) < 0.2
    again = Calibration(calibration.as_record())
    assert again.chance(0.55) == calibration.chance(0.55)
