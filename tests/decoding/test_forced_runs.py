"""Forced tokens within drafts, at their ends and at answers' edges: the answer is that of none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from decoding.toy_answers import GREEDY, WHOLE, ToyPair, decode, tokens_of
from specchat.decoding.chunk import Chunk
from specchat.decoding.constraint import Constraint, Mask, Walk
from specchat.decoding.distribution import Logits
from specchat.decoding.ports import Drafter
from specchat.decoding.request import Request
from specchat.decoding.statistics import Statistics
from specchat.drafting.draft_model import DraftModelDrafter
from specchat.drafting.factory import Materials
from specchat.drafting.head_drafter import HeadDrafter
from specchat.drafting.suffix import SuffixDrafter
from specchat.drafting.token_map import TokenMap
from specchat.errors import Cancelled, EngineFailed
from specchat.options.declarations import Sampling
from specchat.testing.toy import ToyGrammar, ToyLanguageModel, random_logits, scripted_logits
from tables import table

PROMPT = (1, 2)
RULES = [{1: 1, 3: 1}, {2: 2}, {0: 3, 3: 3}, {1: 3, 2: 3}]
"""After the first token, another one is forced."""
WRAPS: dict[str, Callable[[Drafter], Drafter]] = {
    "model": lambda inner: inner,
    "suffix": lambda _: SuffixDrafter(),
}


def answers_of(
    make: Callable[[], Constraint], sampling: Sampling = GREEDY, **options: Any
) -> list[tuple[list[int], bool | None]]:
    """Return the tokens and the validity of an answer without drafts, and with several."""
    found = []
    for wrap in WRAPS.values():
        for length in (0, 1, 2, 3, 7):
            pair = ToyPair(random_logits(5, 3), random_logits(5, 3), wrap=wrap, end_tokens=[4])
            given = {"constraint": make(), "draft_length": length, "is_seeded": True, **options}
            tokens = pair.answer(PROMPT, sampling, **given)
            found.append((tokens, pair.statistics.is_valid))
    return found


def test_a_bias_against_a_forced_token_changes_nothing() -> None:
    """With drafts, too, whose verification used to find that nothing may come."""
    sampling = Sampling(temperature=0.0, logit_bias={2: float("-inf")})
    found = answers_of(lambda: ToyGrammar(RULES, [3], [4]), sampling, max_tokens=6)
    assert found == [found[0]] * len(found)
    assert found[0][0][1] == 2


@pytest.mark.slow
@table("seed", range(30))
def test_validity_is_that_of_the_answer_not_of_a_rejected_draft(seed: int) -> None:
    """Which may have left the constraint at another place when the answer ended."""
    rules = [{0: 1, 1: 1, 2: 0}, {0: 0, 1: 1, 3: 0}]
    found = answers_of(lambda: ToyGrammar(rules, [1], [4]), WHOLE, seed=seed, max_tokens=30)
    assert found == [found[0]] * len(found)


class Hard(ToyGrammar):
    """A grammar too complex to follow from some states on, or to some."""

    state_without_mask, state_beyond = 2, -1

    def mask(self) -> Mask:
        """Return what may come, if that can be said."""
        if self.state == self.state_without_mask:
            raise EngineFailed("too complex")
        return super().mask()

    def push(self, token: int) -> None:
        """Follow a token, if that can be done."""
        super().push(token)
        if self.state == self.state_beyond:
            super().pop(1)
            raise EngineFailed("too complex")


class Harder(Hard):
    """One that cannot even go there."""

    state_without_mask, state_beyond = -1, 2


@pytest.mark.parametrize("kind", [Hard, Harder])
def test_a_draft_may_go_where_a_constraint_cannot_follow(kind: type[Hard]) -> None:
    """If the target does not go there, nobody learns of it; if it does, the answer fails."""
    rules = [{1: 1}, {2: 2, 3: 0}, {0: 0, 1: 0}]
    right, wrong = scripted_logits(5, [1, 3]), scripted_logits(5, [1, 2])
    for wrap in WRAPS.values():
        for length in (0, 1, 3):
            pair = ToyPair(right, wrong, wrap=wrap)
            options: dict[str, Any] = {"draft_length": length, "max_tokens": 12}
            found = pair.answer(PROMPT, constraint=kind(rules), **options)
            assert found == [1, 3] * 6
            assert pair.draft
            with pytest.raises(EngineFailed):
                ToyPair(wrong, right, wrap=wrap).answer(PROMPT, constraint=kind(rules), **options)


def test_a_head_that_has_nothing_to_offer_drafts_nothing() -> None:
    """Such as one whose few tokens may not come; its fit is not judged by that."""

    def nothing_else(_: Sequence[int]) -> Logits:
        row = np.full(5, -np.inf, np.float32)
        row[4] = 1.0
        return row

    materials = Materials(None, TokenMap(5), ())
    drafter = HeadDrafter(ToyLanguageModel(nothing_else), materials)
    request = Request(
        tokens=PROMPT, sampling=GREEDY, constraint=ToyGrammar(RULES, [3]), max_tokens=8
    )
    chunks = list(decode(ToyLanguageModel(random_logits(5, 3)), drafter, request, Statistics()))
    assert len(tokens_of(chunks)) == 8
    assert materials.head_fit.num_drafts == 0


class Stopped(ToyLanguageModel):
    """A target that is stopped in the prompt."""

    def prefill(self, *_: Any) -> int:
        """Stop."""
        raise Cancelled("stopped")


@pytest.mark.parametrize("is_whole", [False, True])
def test_what_begins_an_answer_comes_though_its_prompt_is_stopped(is_whole: bool) -> None:
    """It is counted, so an answer that goes on from there counts nothing twice."""
    rules = [{1: 1}, {2: 2}, {}] if is_whole else [{1: 1}, {2: 2}, {0: 2, 3: 2}]
    drafter = DraftModelDrafter(ToyLanguageModel(random_logits(5, 3)), TokenMap(5))
    statistics = Statistics()
    request = Request(tokens=PROMPT, sampling=GREEDY, constraint=ToyGrammar(rules, [2]))
    chunks = list(decode(Stopped(random_logits(5, 3)), drafter, request, statistics))
    assert tokens_of(chunks) == [1, 2]
    assert [each.finish for each in chunks if each.finish] == ["stop" if is_whole else "cancelled"]
    assert statistics.generated_tokens == statistics.forced == 2


def test_likely_tokens_do_not_depend_on_who_drafted_a_forced_one() -> None:
    """It is the only one in its place, as without drafts."""
    found = []
    for wrap in WRAPS.values():
        for length in (0, 1, 2, 3, 7):
            pair = ToyPair(random_logits(5, 3), random_logits(5, 3), wrap=wrap)
            chunks = pair.chunks(
                PROMPT, constraint=ToyGrammar([{1: 1, 3: 1}, {2: 2}, {0: 0, 3: 1}]),
                draft_length=length, num_alternatives=2, max_tokens=24,
            )  # fmt: skip
            found.append([each for chunk in chunks for each in chunk.alternatives])
    assert all(each == found[0] for each in found)
    assert ((2, "", 1.0),) in found[0]


@pytest.mark.parametrize("longest", [1, 2, 3])
def test_an_interrupted_exact_answer_reads_forced_tokens_in_exact_passes(
    longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that its last step forced, which the prompt's long pass would round differently."""
    rules = [{0: 1, 3: 1}, {1: 2}, {2: 3}, {3: 4}, {1: 0}]
    options: dict[str, Any] = {"draft_length": 0, "longest_pass": longest, "max_tokens": 40}
    pair = ToyPair(random_logits(5, 1))
    whole = pair.answer(PROMPT, constraint=ToyGrammar(rules), **options)
    stream, begun = pair.stream(PROMPT, constraint=ToyGrammar(rules), **options), list[Chunk]()
    for chunk in stream:
        begun.append(chunk)
        if len(begun) == 3:
            break
    stream.close()
    num_held = pair.target.length
    options["max_tokens"] -= len(tokens_of(begun))
    pair.target.ledger.clear()
    read, prefill = list[int](), pair.target.prefill

    def watched(tokens: Sequence[int], *rest: Any) -> int:
        read.append(len(tokens))
        return prefill(tokens, *rest)

    monkeypatch.setattr(pair.target, "prefill", watched)
    rest = pair.answer(PROMPT, constraint=ToyGrammar(rules), begun=begun, **options)
    assert rest == whole
    assert read == [num_held]
    assert max(size - before for size, before in passes(pair.target, num_held)) <= longest


def passes(target: ToyLanguageModel, held: int) -> list[tuple[int, int]]:
    """Return the length of the memory after and before each pass."""
    found = []
    for kind, size in target.ledger:
        if kind == "evaluate":
            found.append((size, held))
        held = size
    return found


def test_the_places_of_a_draft_are_asked_for_in_any_order() -> None:
    """Masks and forced tokens are those of a constraint that was led there."""
    rules = [{1: 1, 3: 2}, {2: 2}, {0: 0, 3: 1}]
    random = np.random.default_rng(3)
    walk = Walk(ToyGrammar(rules))
    for _ in range(300):
        drafted = random.choice([0, 1, 2, 3], size=random.integers(0, 5)).tolist()
        own = ToyGrammar(rules)
        allowed = 0
        for token in drafted:
            if not own.mask().allows(token):
                break
            own.push(token)
            allowed += 1
        if allowed == len(drafted):
            mask = walk.mask_after(drafted)
            assert mask is not None
            ids = np.arange(5)
            assert mask.allowed(ids).tolist() == own.mask().allowed(ids).tolist()
            assert list(walk.forced_after(drafted)) == list(own.forced())
        else:
            assert walk.mask_after(drafted) is None
            assert not walk.forced_after(drafted)
        assert walk.num_allowed(drafted) == allowed
