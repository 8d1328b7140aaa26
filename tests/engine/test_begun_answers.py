"""An answer that begins with tokens of an earlier one goes on as that one did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from conftest import WriteModel
from engine.test_lossless import EXACT, PROMPT
from specchat import Engine
from specchat.decoding.chunk import Chunk
from specchat.errors import InvalidOption
from tables import table

Options = dict[str, Any]


def tokens_in(steps: Sequence[Chunk]) -> list[int]:
    """Return the tokens of some steps."""
    return [token for step in steps for token in step.tokens]


def up_to(steps: Sequence[Chunk], count: int) -> list[Chunk]:
    """Return the steps of the first `count` tokens, the last step cut where needed."""
    kept: list[Chunk] = []
    for step in steps:
        num = min(count - len(tokens_in(kept)), len(step.tokens))
        if num:
            kept.append(Chunk("", step.tokens[:num], step.origins[:num], step.texts[:num]))
    return kept


@table("architecture", ["llama", "mamba"])
@table("options", [{"temperature": 0.0}, {"temperature": 0.8, "seed": 7}])
def test_what_follows_kept_tokens_is_what_followed_them(
    shallow: WriteModel, architecture: str, options: Options
) -> None:
    """At temperature 0 and with a seed, wherever the answer is cut, with drafts and without."""
    draft = shallow(architecture, "half right")
    with Engine.load(shallow(architecture), draft, **EXACT) as engine:
        steps = list(engine.generate(PROMPT, max_tokens=24, drafter="none", **options))
        whole = tokens_in(steps)
        for count in (1, 9, 20):
            for drafter in ("none", "model"):
                begun = up_to(steps, count)
                more: Options = {"max_tokens": 24 - count, "drafter": drafter, "draft_length": 3}
                again = list(engine.generate(PROMPT, begun=begun, **more, **options))
                assert tokens_in(again) == whole
                assert [step.origins for step in again[: len(begun)]] == [
                    step.origins for step in begun
                ]
                assert engine.stats.generated_tokens == 24 - count
                assert engine.stats.prompt_tokens == len(PROMPT) + count


def test_another_token_is_kept_and_continued(shallow: WriteModel) -> None:
    """The answer begins with it, as if the model had drawn it; an end token ends it at once."""
    with Engine.load(shallow("llama"), **EXACT) as engine:
        options: Options = {"temperature": 0.0, "max_tokens": 8, "alternatives": 5}
        steps = list(engine.generate(PROMPT, **options))
        first = next(step for step in steps if step.tokens)
        other = next(token for token, _, _ in first.alternatives[0] if token != first.tokens[0])
        chosen = Chunk("", (other,), ("chosen",), ("",))
        branched = tokens_in(list(engine.generate(PROMPT, begun=[chosen], **options)))
        plain = tokens_in(list(engine.generate([*PROMPT, other], **options)))

    assert branched == [other, *plain]


def test_alternatives_are_the_models_own_probabilities(shallow: WriteModel) -> None:
    """Best first, with the emitted token; as many as asked for, and none unless asked for."""
    with Engine.load(shallow("llama"), shallow("llama", "half right"), **EXACT) as engine:
        options: Options = {"max_tokens": 30, "seed": 3, "draft_length": 3, "drafter": "model"}
        steps = list(engine.generate(PROMPT, alternatives=4, temperature=1.5, **options))
        assert all(len(step.alternatives) == len(step.tokens) for step in steps)
        for step in steps:
            for token, found in zip(step.tokens, step.alternatives, strict=True):
                shares = [share for _, _, share in found]
                assert len(found) in {4, 5}
                assert shares[:4] == sorted(shares[:4], reverse=True)
                assert 0.0 < sum(shares) <= 1.0 + 1e-9
                assert token in {each for each, _, _ in found}
        assert engine.stats.accepted > 0
        greedy = list(engine.generate(PROMPT, alternatives=2, temperature=0.0, max_tokens=9))
        for step in greedy:
            for token, found in zip(step.tokens, step.alternatives, strict=True):
                assert found[0][0] == token
                assert found[0][2] < 1.0
        for step in engine.generate(PROMPT, max_tokens=4):
            assert step.alternatives == ()


def test_tokens_of_another_model_are_refused(shallow: WriteModel) -> None:
    """Their numbers, or their texts, are not this model's."""
    with Engine.load(shallow("llama"), **EXACT) as engine:
        for wrong in (
            Chunk("", (10**6,), ("target",), ("",)),
            Chunk("", (1,), ("target",), ("§",)),
        ):
            with pytest.raises(InvalidOption, match="another model wrote"):
                list(engine.generate(PROMPT, begun=[wrong]))
