"""Which passes over several tokens give the bits of single ones, on tiny models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import WriteModel
from scripts.support.tiny_gguf import ARCHITECTURES
from specchat.llama import tinyblas
from specchat.llama.context import Context
from specchat.llama.model import Model
from specchat.options.declarations import LONGEST_DRAFT
from specchat.passes import exact_passes
from specchat.passes.exact_passes import LONGEST_COMPARED, NUM_COPIED
from specchat.passes.exactness import Exactness
from specchat.passes.exactness_measurement import ExactnessMeasurement
from specchat.planning.context_shape import ModelOptions
from tables import table

LONG = 60.0
"""Seconds that no comparison here takes."""


@contextmanager
def context_of(path: Path, **options: Any) -> Iterator[Context]:
    """Load a model with a context that can roll 32 tokens back."""
    usual: dict[str, Any] = {"ctx": 2048, "threads": 1, "rollback_length": 32, "gpu_layers": 0}
    load = ModelOptions(**{**usual, **options})
    with Model(path, load) as model, Context(model, load) as context:
        yield context


def longest_exact(context: Context, most_seconds: float = LONG) -> tuple[int, bool]:
    """Return the longest exact pass, and whether there was time to compare all."""
    measurement = ExactnessMeasurement("on", most_seconds=most_seconds)
    return measurement.run(context, tinyblas).longest, measurement.has_compared_all


@contextmanager
def batches_changed(
    context: Context, monkeypatch: pytest.MonkeyPatch, shortest: int, copies: int = 1
) -> Iterator[None]:
    """Make passes exact, then change a logit of those over `shortest` tokens in deep contexts."""
    monkeypatch.setattr(tinyblas, "longest_without", lambda: LONGEST_DRAFT + 1)
    evaluate, repeat = context.evaluate, context.rollback_kind.repeat
    num_copies = 1

    def repeated(num_times: int) -> bool:
        nonlocal num_copies
        num_copies = num_times
        return repeat(num_times)

    def changed(tokens: Sequence[int], num_rows: int) -> Any:
        if not num_rows:
            return evaluate(tokens, 0)
        rows = [evaluate([token], 1)[0].copy() for token in tokens]
        if len(tokens) >= shortest and num_copies >= copies:
            rows[-1][3] += np.float32(1e-3)
        return rows

    with monkeypatch.context() as patched:
        patched.setattr(context, "evaluate", changed)
        patched.setattr(context.rollback_kind, "repeat", repeated)
        yield


@table("architecture", ARCHITECTURES)
def test_the_measured_lengths_are_exact(tiny: WriteModel, architecture: str) -> None:
    """A text evaluated in passes of the measured length gives the bits of single tokens."""
    with (
        context_of(tiny(architecture), ctx=512, exact="on") as context,
        tinyblas.left_out(LONGEST_COMPARED),
    ):
        longest, _ = longest_exact(context)
        tokens = [1 + 11 * place % 300 for place in range(8 * longest)]
        context.prefill([])
        single = [context.evaluate([token], 1)[0].copy() for token in tokens]
        context.prefill([])
        batched = [
            row.copy()
            for start in range(0, len(tokens), longest)
            for row in context.evaluate(tokens[start : start + longest], longest)
        ]

        assert all(map(np.array_equal, single, batched))
        assert 1 <= longest <= context.longest_draft + 1


@pytest.mark.parametrize(("shortest", "longest"), [(2, 1), (3, 1), (5, 4), (9, 7), (40, 33)])
def test_one_changed_logit_is_found(
    tiny: WriteModel, monkeypatch: pytest.MonkeyPatch, shortest: int, longest: int
) -> None:
    """Lengths whose passes differ by 1e-3 in one logit are inexact, and so is their kernel."""
    with (
        context_of(tiny("llama"), ctx=512, exact="on") as context,
        batches_changed(context, monkeypatch, shortest),
    ):
        assert longest_exact(context) == (longest, True)


def test_deep_contexts_are_compared_too(tiny: WriteModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes that differ only after a thousand tokens are inexact."""
    with (
        context_of(tiny("llama"), exact="on") as context,
        batches_changed(context, monkeypatch, 4, copies=1000 // NUM_COPIED),
    ):
        assert longest_exact(context) == (3, True)


def test_the_comparison_leaves_an_empty_memory(tiny: WriteModel) -> None:
    """Afterwards a text gives the logits that it gave before."""
    with context_of(tiny("gemma3")) as context:
        before = context.evaluate([5, 6, 7], 1)[0].copy()
        longest_exact(context)

        assert context.length == 0
        assert np.array_equal(context.evaluate([5, 6, 7], 1)[0], before)


def test_without_time_nothing_is_proved(tiny: WriteModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the time does not reach counts as inexact, and the result says so."""
    monkeypatch.setattr(tinyblas, "longest_without", lambda: LONGEST_DRAFT + 1)
    with context_of(tiny("llama")) as context:
        assert longest_exact(context, 0.0) == (1, False)


def test_a_depth_that_is_not_reached_counts_as_inexact(
    tiny: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a hybrid, whose memory cannot be copied, reads too slowly to get there."""
    monkeypatch.setattr(tinyblas, "longest_without", lambda: LONGEST_DRAFT + 1)
    with context_of(tiny("llama")) as context:
        assert longest_exact(context)[0] > 1
        monkeypatch.setattr(context.rollback_kind, "repeat", lambda _: False)
        prefill = context.prefill

        def slow(tokens: Sequence[int]) -> None:
            monkeypatch.setattr(exact_passes, "perf_counter", lambda: 1e9 * len(tokens))
            prefill(tokens)

        monkeypatch.setattr(context, "prefill", slow)
        assert longest_exact(context) == (1, False)


def test_what_was_found_inexact_stays_so(tiny: WriteModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no attempt had time for all, and only an earlier one compared the text that showed it.

    The longest pass that any attempt proved counts else.
    """
    second = Exactness(3, bound=3).after(Exactness(8).after(None))
    assert (second.longest, second.attempts) == (3, 2)
    assert Exactness(2).after(Exactness(8).after(None)).longest == 8
    with (
        context_of(tiny("llama"), ctx=512, exact="on") as context,
        batches_changed(context, monkeypatch, 40),
    ):
        for most_seconds in (0.0, LONG):
            measurement = ExactnessMeasurement("on", second, most_seconds=most_seconds)
            assert measurement.run(context, tinyblas).longest == 3
