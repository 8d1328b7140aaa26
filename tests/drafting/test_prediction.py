"""The prediction drafter: where its cursor is, what it proposes, and what that changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from conftest import WriteModel
from engine.conftest import shallow  # noqa: F401  # a fixture
from engine.test_lossless import EXACT
from specchat.drafting.prediction import LOST, NEAR_TOKENS, PredictionCursor
from specchat.engine.api import Engine, Loading
from specchat.engine.local_engine import LocalEngine
from tables import table

TEXT = list(range(100, 200))


def expected_after(answer: Sequence[int], text: Sequence[int] = TEXT) -> int | None:
    """Return the token that is expected after an answer; None if none is."""
    cursor = PredictionCursor(text)
    for token in answer:
        cursor.follow(token)
    return next((token for token, _ in cursor.expected(1)), None)


@table(
    ("answer", "following"),
    [
        pytest.param([], 100, id="at the beginning"),
        pytest.param(TEXT[:50], 150, id="as predicted"),
        pytest.param([*TEXT[:10], 7], 111, id="one token replaced"),
        pytest.param([*TEXT[:10], 7, *TEXT[10:12]], 112, id="one token inserted"),
        pytest.param([*TEXT[:10], 7, 8, 9, 7, *TEXT[10:12]], 112, id="some tokens inserted"),
        pytest.param([*TEXT[:10], *TEXT[40:42]], 142, id="a passage left out"),
        pytest.param([*TEXT[:10], 7, 8, *TEXT[90:94]], 194, id="a long passage left out"),
        pytest.param([*TEXT[:60], 7, 8, *TEXT[20:24]], 124, id="back to an earlier passage"),
        pytest.param([1, 2, 3, *TEXT[:2]], 102, id="something before it"),
        pytest.param(list(range(60)), None, id="another text"),
        pytest.param([7], 101, id="the first token replaced"),
        pytest.param([7, 8], None, id="another beginning"),
        pytest.param(TEXT, None, id="over"),
    ],
)
def test_the_cursor_follows_an_answer(answer: Sequence[int], following: int | None) -> None:
    """Also through what was changed in it."""
    assert expected_after(answer) == following


def test_of_several_places_the_one_ahead_is_taken() -> None:
    """A line that occurs often is taken where the text is, not where it occurs first."""
    line = [1, 2, 3, 4]
    text = [part for number in range(20) for part in (*line, 50 + number)]
    answer = [*text[:52], 9, 9, *line]
    assert expected_after(answer, text) == 50 + 10


def test_what_was_wrong_lately_is_expected_less() -> None:
    """A text that only looks alike loses its confidence, and regains it when it is right again."""
    cursor = PredictionCursor([1, 2, 3, 4, *TEXT[:40], 1, 2, 3, 4, *TEXT[:40]])
    sure = next(confidence for _, confidence in cursor.expected(1))
    for _ in range(10):
        for token in (1, 2, 3, 4, 9):
            cursor.follow(token)
    for token in (1, 2, 3, 4):
        cursor.follow(token)
    doubtful = next(confidence for _, confidence in cursor.expected(1))
    for token in TEXT[:39]:
        cursor.follow(token)
    assert doubtful < 0.7 * sure
    assert next(confidence for _, confidence in cursor.expected(1)) > sure


def test_an_empty_prediction_expects_nothing() -> None:
    """And neither does one that is over."""
    cursor = PredictionCursor(())
    cursor.follow(3)
    assert cursor.at == LOST
    assert len(TEXT) > NEAR_TOKENS


GREEDY: dict[str, Any] = {"temperature": 0.0, "max_tokens": 60, "ignore_end": True}
PROMPT = [40, 75, 111, 260, 90, 33, 201, 150]


def tokens_of(engine: Engine, **options: Any) -> list[int]:
    """Decode an answer and return its tokens."""
    steps = engine.generate(PROMPT, **GREEDY | options)
    return [token for step in steps for token in step.tokens]


@pytest.mark.parametrize("options", [{}, {"temperature": 0.9, "seed": 3}])
def test_a_prediction_changes_the_steps_and_not_the_text(
    shallow: WriteModel,  # noqa: F811
    options: dict[str, Any],
) -> None:
    """With a draft length and paced, seeded and greedy; what is accepted counts as its own."""
    with LocalEngine(Loading(shallow("llama"), **EXACT)) as engine:
        plain = tokens_of(engine, drafter="none", **options)
        edited = [*plain[:20], 7, *plain[22:]]
        for prediction in (plain, edited, [5] * 50, [10**6, *plain], "another text " * 20):
            fixed: dict[str, Any] = {"drafter": "suffix", "draft_length": 7, **options}
            assert tokens_of(engine, prediction=prediction, **fixed) == plain
            drafted, accepted = engine.stats.by_origin.get("prediction", (0, 0))
            if prediction in (plain, edited):
                assert accepted > 40
                assert engine.stats.steps <= len(plain) - accepted
            assert drafted - accepted < 20
            assert tokens_of(engine, prediction=prediction, **options) == plain
        assert tokens_of(engine, prediction=plain, drafter="none", **options) == plain
        assert engine.stats.by_origin == {}


def test_a_continued_answer_goes_on_in_the_prediction(
    shallow: WriteModel,  # noqa: F811
) -> None:
    """An answer that was interrupted knows how much of the prediction is written."""
    with LocalEngine(Loading(shallow("llama"), **EXACT)) as engine:
        plain = tokens_of(engine, drafter="none")
        fixed: dict[str, Any] = {"drafter": "suffix", "draft_length": 7, "prediction": plain}
        fixed |= GREEDY | {"max_tokens": 30}
        first = list(engine.generate(PROMPT, **fixed))
        first[-1] = first[-1]._replace(finish=None)
        rest = list(engine.generate(PROMPT, begun=first, **fixed))
        assert [token for step in rest for token in step.tokens] == plain
        assert engine.stats.by_origin["prediction"][1] > 20
