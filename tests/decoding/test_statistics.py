"""Statistics: counts that add up, by the definitions of the contract."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import count
from typing import Any

import numpy as np
import pytest

from decoding.toy_answers import WHOLE, ToyPair
from specchat.decoding import loop
from specchat.decoding import statistics as timing
from specchat.decoding.fixed_pacer import FixedPacer
from specchat.decoding.ports import Rows
from specchat.decoding.statistics import Statistics
from specchat.testing.toy import random_logits
from tables import table


def test_rates_follow_from_counted_steps() -> None:
    """Three steps by hand."""
    statistics = Statistics()
    statistics.count_step(num_drafted=3, num_accepted=3, num_emitted=4)
    statistics.count_step(num_drafted=3, num_accepted=1, num_emitted=2)
    statistics.count_step(num_drafted=1, num_accepted=0, num_emitted=1)

    assert statistics.acceptance_rate == pytest.approx(4 / 7)
    assert statistics.tokens_per_step == pytest.approx(7 / 3)
    assert statistics.acceptance_histogram == [1, 1, 0, 1]
    assert statistics.accepted_by_position == pytest.approx([2 / 3, 1 / 2, 1 / 2])


def test_an_answer_that_took_no_time_has_no_speed() -> None:
    """It is 0 before the first step, not a division by zero."""
    assert Statistics().tokens_per_second == 0.0
    assert Statistics(generated_tokens=6, decode_s=1.5).tokens_per_second == 4.0


class CheckingPacer(FixedPacer):
    """Lets four steps in sixteen be plain."""

    num_steps = 0

    def begin_step(self, depth: int, limit: int, num_forced: int = 0, num_sharing: int = 1) -> None:
        """Begin a step."""
        self.num_steps += 1
        is_plain = self.num_steps % 16 in range(8, 12)
        super().begin_step(depth, 0 if is_plain else limit, num_forced, num_sharing)


@table(("pacer", "kind"), [(CheckingPacer, "faster"), (FixedPacer, "measuring")])
def test_an_answers_plain_steps_say_what_it_gained(
    pacer: type[FixedPacer], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each target pass takes a second by this clock, so drafts bring the tokens per step."""
    pair = ToyPair(random_logits(5, 1), random_logits(5, 2))
    num_passes, evaluate = count(), pair.target.evaluate
    now = [0.0]

    def counted(tokens: Sequence[int], num_rows: int) -> Rows:
        now[0] = 1.0 + next(num_passes)
        return evaluate(tokens, num_rows)

    monkeypatch.setattr(pair.target, "evaluate", counted)
    for module in (loop, timing):
        monkeypatch.setattr(module, "perf_counter", lambda: now[0])
    pair.chunks(sampling=WHOLE, draft_length=3, max_tokens=400, pacer=pacer())

    gain = pair.statistics.gain
    assert gain.kind == kind
    if gain.is_sound:
        assert gain.speedup == pytest.approx(pair.statistics.tokens_per_step)


def test_a_passage_said_over_and_over_does_not_count() -> None:
    """Neither for the gain nor for the seconds saved."""
    pair = ToyPair(lambda tokens: np.eye(5, dtype=np.float32)[(tokens[-1] + 1) % 5])
    pair.chunks(draft_length=3, max_tokens=300)

    statistics = pair.statistics
    assert statistics.generated_tokens == 300
    assert 300 - statistics.repeated < 50
    assert statistics.step_times.num_tokens == 300 - statistics.repeated
    assert statistics.repeated < statistics.repeating < 300  # with the first times it was said
    times = statistics.step_times
    assert statistics.counted_rate == times.num_tokens / times.seconds


def test_a_continued_answer_counts_anew_how_long_it_repeats() -> None:
    """What it begins with may have been in the same loop."""
    pair = ToyPair(lambda tokens: np.eye(5, dtype=np.float32)[(tokens[-1] + 1) % 5])
    first = pair.chunks(draft_length=3, max_tokens=300)
    pair.chunks(draft_length=3, max_tokens=40, begun=tuple(first))
    assert pair.statistics.repeating == 40


@table(("repeating", "whole"), [(40, 340), (39, 39), (0, 0)])
def test_an_interruption_does_not_end_a_loop(repeating: int, whole: int) -> None:
    """If all of the later part repeats what the first one did, both count."""
    first = Statistics(prompt_tokens=5, generated_tokens=400, repeating=300)
    later = Statistics(prompt_tokens=5, generated_tokens=40, repeating=repeating)
    assert first.joined(later).repeating == whole
    assert first.joined(Statistics()).repeating == 300


@table(
    ("first", "later", "seconds"),
    [
        ({"prompt_s": 2.0}, {"generated_tokens": 1, "time_to_first_token_s": 3.0}, 10.0),
        ({"prompt_s": 2.0}, {}, 0.0),
        (
            {"generated_tokens": 1, "time_to_first_token_s": 3.0},
            {"generated_tokens": 1, "time_to_first_token_s": 1.0},
            3.0,
        ),
    ],
)
def test_the_first_token_comes_after_what_an_interrupted_prompt_has_waited(
    first: dict[str, Any], later: dict[str, Any], seconds: float
) -> None:
    """If it comes in the later part, that has begun seven seconds after the first one."""
    one, other = Statistics(prompt_tokens=5, **first), Statistics(prompt_tokens=5, **later)
    assert one.joined(other, 7.0).time_to_first_token_s == seconds


def test_an_answer_of_nothing_has_no_rates() -> None:
    """Before the first step every rate is 0 and nothing divides by 0."""
    figures = Statistics().as_dict()

    assert set(map(type, figures.values())) <= {int, float, list, dict}
    assert json.loads(json.dumps(figures)) == figures


@table("draft_length", [0, 1, 3, 8])
def test_the_counts_of_an_answer_add_up(draft_length: int) -> None:
    """Histogram, steps, accepted and generated tokens agree with the chunks."""
    pair = ToyPair(random_logits(5, 1), random_logits(5, 2))

    chunks = pair.chunks(sampling=WHOLE, draft_length=draft_length)

    statistics = pair.statistics
    histogram = statistics.acceptance_histogram
    assert sum(histogram) == statistics.steps == len(chunks)
    assert sum(kept * count for kept, count in enumerate(histogram)) == statistics.accepted
    assert sum(len(chunk.tokens) for chunk in chunks) == statistics.generated_tokens == 60
    assert sum(len(chunk.proposed) for chunk in chunks) == statistics.drafted
    assert statistics.accepted == sum(chunk.origins.count("draft") for chunk in chunks)
    assert statistics.decode_s >= statistics.overhead_s >= 0
