"""Answers within a grammar: exactly the target's distribution among what may come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from decoding.toy_answers import (
    GREEDY,
    WHOLE,
    ToyPair,
    remembered_distributions,
    tokens_of,
    verify_by_rejection,
)
from drafting.toy_vocabularies import MODELS, ToyModels
from specchat.decoding import answer_transcript
from specchat.decoding.constraint import Mask, Walk
from specchat.decoding.distribution import Distribution, Logits
from specchat.decoding.draft_maker import DraftMaker
from specchat.decoding.ports import Drafter, DraftTask, Pacer
from specchat.decoding.proposal import DraftToken, Hint
from specchat.decoding.sampling import Sampler
from specchat.decoding.verification import Verifier, verify_by_block
from specchat.drafter_registry import GRAMMAR
from specchat.drafting.combined import CombinedDrafter
from specchat.drafting.draft_model import DraftModelDrafter
from specchat.drafting.suffix import SuffixDrafter
from specchat.errors import InvalidOption, NothingAllowed
from specchat.options.declarations import Sampling
from specchat.pacing.knowledge import Knowledge
from specchat.pacing.pacer import LearningPacer
from specchat.testing.toy import ToyGrammar, random_logits
from tables import table

RULES = (
    {0: 1, 1: 2, 2: 2, 4: 6},
    {3: 3},  # forced, and so is the next
    {1: 0, 2: 5, 3: 2, 4: 0},
    {4: 4},
    {0: 0, 2: 2, 3: 4},
    {0: 0, 1: 5, 4: 2},
    {0: 7, 1: 7, 2: 0},
    {1: 2},
)
"""Where a token has one rule only, it is forced. The rules go round for ever."""
PROMPT = (1, 2)
NUM_TOKENS = 24
WORK_OUT = Sampler.distribution
SAMPLINGS = {
    "whole": WHOLE,
    "cool top-k": Sampling(temperature=0.7, top_k=2, top_p=1.0, min_p=0.0),
    "hot top-p": Sampling(temperature=1.4, top_k=0, top_p=0.8, min_p=0.0),
    "everything": Sampling(
        temperature=1.1, top_k=3, top_p=0.9, min_p=0.1, repeat_penalty=1.2, repeat_last_n=4
    ),
}


def grammar() -> ToyGrammar:
    """Return the grammar at its beginning."""
    return ToyGrammar(RULES)


class Outside(Drafter):
    """A drafter of somebody else's, which knows nothing of grammars: its draws may not come."""

    def __init__(self, inner: Drafter) -> None:
        """Replace a drafter."""
        del inner
        self.text: list[int] = []

    def begin(self, task: DraftTask) -> None:
        """Remember the text."""
        self.text, self.task, self.sampler = list(task.tokens), task, Sampler(task.sampling)
        self.num_emitted = 0

    def propose(self, pacer: Pacer) -> Sequence[DraftToken]:
        """Draw as many tokens as there is room for."""
        draft: list[DraftToken] = []
        model = random_logits(5, 2)
        for place in range(pacer.room):
            text = self.text + [each.token for each in draft]
            distribution = self.sampler.distribution(model(text), text)
            token = self.task.draw(distribution, self.num_emitted + place)
            draft.append(DraftToken(token, distribution, "draft"))
        return draft

    def observe(self, emitted: Sequence[int], num_accepted: int) -> None:
        """Extend the text."""
        self.text.extend(emitted)
        self.num_emitted += len(emitted)


def combined(inner: Drafter) -> Drafter:
    """Return the suffix drafter with the draft model."""
    assert isinstance(inner, DraftModelDrafter)
    return CombinedDrafter(SuffixDrafter(), inner)


WRAPS: dict[str, Callable[[Drafter], Drafter]] = {
    "model": lambda inner: inner,
    "suffix": lambda _: SuffixDrafter(),
    "combined": combined,
    "outside": Outside,
}


def p_value(
    sampling: Sampling,
    *,
    wrap: str = "model",
    models: ToyModels = MODELS["same tokens"],
    is_seeded: bool = False,
    num_seeds: int = 60,
    **options: Any,
) -> float:
    """Chi-square of the tokens of many answers against the exact distributions in their places.

    A cell is the state of the grammar with the last two tokens, which is all that the toy looks at.
    Penalties look further back: then the expected counts are sums of probabilities that differ, and
    the statistic is smaller than chi-square, if anything.
    """
    target = models.target(1)
    pair = ToyPair(target, models.draft(2), wrap=WRAPS[wrap], tokens=models.token_map())
    sampler = Sampler(sampling)
    observed = np.zeros((len(RULES), 5, 5, 5))
    expected = np.zeros_like(observed)
    num_forced = 0
    with remembered_distributions():
        for seed in range(num_seeds):
            tokens = pair.answer(
                PROMPT, sampling, seed, constraint=grammar(), is_seeded=is_seeded,
                max_tokens=NUM_TOKENS, **options,
            )  # fmt: skip
            num_forced += pair.statistics.forced
            text, rules = [*PROMPT], grammar()
            for token in tokens:
                cell = (rules.state, *text[-2:])
                exact = WORK_OUT(sampler, target(text), text, rules.mask())
                observed[(*cell, token)] += 1
                expected[cell][exact.ids] += exact.weights
                rules.push(token)
                text.append(token)
    assert num_forced > num_seeds
    if (observed[expected == 0] > 0).any():
        return 0.0
    statistic, freedom = 0.0, 0
    for seen, wanted in zip(observed.reshape(-1, 5), expected.reshape(-1, 5), strict=True):
        is_large = wanted >= 5
        pairs = [*zip(seen[is_large], wanted[is_large], strict=True)]
        pairs.append((seen[~is_large].sum(), wanted[~is_large].sum()))
        pairs = [pair for pair in pairs if pair[1] >= 5]
        statistic += sum((count - mean) ** 2 / mean for count, mean in pairs)
        freedom += max(0, len(pairs) - 1)
    assert freedom > 10
    return float(stats.chi2.sf(statistic, freedom))


@pytest.mark.slow(keep=3)
@pytest.mark.parametrize(
    ("sampling", "wrap", "verifier"),
    [
        *((SAMPLINGS["everything"], wrap, verify_by_block) for wrap in WRAPS),
        *((sampling, "combined", verify_by_block) for sampling in SAMPLINGS.values()),
        *((sampling, "model", verify_by_rejection) for sampling in SAMPLINGS.values()),
    ],
)
def test_sampled_text_fits_the_exact_distribution(
    sampling: Sampling, wrap: str, verifier: Verifier
) -> None:
    """With every verifier and drafter (12 tests, false alarm 1e-6 each)."""
    assert p_value(sampling, wrap=wrap, verifier=verifier, draft_length=3) > 1e-6


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("draft_length", [1, 2, 6])
def test_draft_lengths_and_other_vocabularies_fit(draft_length: int) -> None:
    """With a draft model that names tokens differently, too (3 tests, 1e-6 each)."""
    options: dict[str, Any] = {"models": MODELS["other tokens"], "draft_length": draft_length}
    assert p_value(WHOLE, **options) > 1e-6


class FirstOnly(Walk):
    """Broken: only the first row is masked."""

    def mask_after(self, drafted: Sequence[int]) -> Mask | None:
        """Return the mask of the first place alone."""
        return super().mask_after(drafted) if not drafted else None


class OnePlaceOff(Walk):
    """Broken: the mask of the place before."""

    def mask_after(self, drafted: Sequence[int]) -> Mask | None:
        """Return what the token before could be."""
        return super().mask_after(drafted[:-1])


def drop_drawn(self: Any, draft: Sequence[DraftToken]) -> Sequence[DraftToken]:
    """Broken: cut a draft before what may not come, even if it was drawn."""
    walk: Walk = self._walk
    return draft[: walk.num_allowed([each.token for each in draft])]


def mask_last(
    sampler: Sampler, logits: Logits, history: Sequence[int], mask: Mask | None = None
) -> Distribution:
    """Broken: the mask comes after top-k and all else."""
    found = WORK_OUT(sampler, logits, history)
    if mask is None:
        return found
    is_allowed = mask.allowed(found.ids)
    if not is_allowed.any():
        return WORK_OUT(sampler, logits, history, mask)
    return Distribution(found.ids[is_allowed], found.weights[is_allowed])


def broken_p_value(*arguments: Any, **options: Any) -> float:
    """Return the p-value of a broken loop; 0 if it emits what may not come."""
    try:
        return p_value(*arguments, draft_length=3, **options)
    except InvalidOption:
        return 0.0


@pytest.mark.parametrize("walk", [FirstOnly, OnePlaceOff])
def test_masks_of_wrong_places_are_caught(
    walk: type[Walk], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests above fail for them."""
    monkeypatch.setattr(answer_transcript, "Walk", walk)
    assert broken_p_value(WHOLE) < 1e-12


@pytest.mark.slow
def test_dropping_drawn_tokens_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """It favours what the draft proposes."""
    monkeypatch.setattr(DraftMaker, "_cut", drop_drawn)
    assert broken_p_value(WHOLE, wrap="outside", num_seeds=400) < 1e-12


@pytest.mark.slow
def test_a_mask_after_top_k_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves fewer tokens than there are."""
    monkeypatch.setattr(Sampler, "distribution", mask_last)
    assert broken_p_value(SAMPLINGS["cool top-k"]) < 1e-12


def answers(wrap: str, length: int, models: ToyModels, **options: Any) -> list[int]:
    """Return the tokens of an answer with a drafter; none of its chunks may lose the memory."""
    pair = ToyPair(models.target(1), models.draft(1), wrap=WRAPS[wrap], tokens=models.token_map())
    chunks = pair.chunks(
        PROMPT, constraint=grammar(), draft_length=length, max_tokens=40, **options
    )
    statistics = pair.statistics
    counted = statistics.accepted + statistics.steps + statistics.forced
    assert statistics.generated_tokens == len(tokens_of(chunks)) == counted
    origins = Counter(origin for chunk in chunks for origin in chunk.origins)
    assert origins[GRAMMAR.name] == statistics.forced
    assert all(len(each.tokens) == len(each.origins) == len(each.texts) for each in chunks)
    return tokens_of(chunks)


@pytest.mark.slow(keep=3)
@pytest.mark.parametrize("models", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("sampling", [GREEDY, WHOLE, SAMPLINGS["everything"]], ids=str)
def test_texts_do_not_depend_on_the_draft(sampling: Sampling, wrap: str, models: ToyModels) -> None:
    """At temperature 0 and with a seed, for 5 seeds, drafters and draft lengths."""
    for seed in range(5 if sampling is not GREEDY else 1):
        options: dict[str, Any] = {"sampling": sampling, "seed": seed, "is_seeded": True}
        plain = answers("model", 0, models, **options)
        for length in (1, 3, 7):
            assert answers(wrap, length, models, **options) == plain


@table("longest", [1, 2, 3, 5])
def test_forced_runs_are_read_in_passes_of_the_longest_size(longest: int) -> None:
    """No pass has more tokens than that, draft included, and the text is the same."""
    rules = [{0: 1, 1: 9}, *({step % 5: step + 1} for step in range(1, 8)), {1: 9}, {0: 0, 2: 0}]
    pair = ToyPair(random_logits(5, 1), random_logits(5, 1))
    expected = pair.answer(PROMPT, constraint=ToyGrammar(rules), draft_length=0)
    pair = ToyPair(random_logits(5, 1), random_logits(5, 1))
    length = longest - 1
    found = pair.answer(
        PROMPT, constraint=ToyGrammar(rules), draft_length=length, longest_pass=longest
    )
    assert found == expected
    held, sizes = len(PROMPT) - 1, []
    for kind, size in pair.target.ledger:
        if kind == "evaluate":
            sizes.append(size - held)
        held = size
    assert max(sizes) <= longest


@pytest.mark.parametrize("is_greedy", [True, False])
def test_forced_tokens_within_a_draft_take_no_draft_pass(is_greedy: bool) -> None:
    """The draft model reads them with its next pass, and the target's own token comes behind them.

    Every third place has a choice, and both models are the same. Two choices and what follows them
    fill a draft of six; the third choice is the target's own.
    """
    rules = [{0: 1, 1: 1}, {2: 2}, {3: 0}]
    pair = ToyPair(random_logits(5, 1), random_logits(5, 1))
    chunks = pair.chunks(
        PROMPT, GREEDY if is_greedy else WHOLE, constraint=ToyGrammar(rules), draft_length=6,
        max_tokens=63, is_seeded=True,
    )  # fmt: skip
    drafted = ("draft", "grammar", "grammar")
    assert [each.origins for each in chunks] == 7 * [(*drafted, *drafted, "target", *drafted[1:])]
    assert pair.draft
    assert len(pair.draft.ledger) == 2 * 7
    statistics = pair.statistics
    assert (statistics.drafted, statistics.accepted, statistics.forced) == (14, 14, 42)
    assert statistics.drafted_by_position == [7, 7]
    assert all(not each.rejected and len(each.proposed) == 6 for each in chunks)


class Eager(LearningPacer):
    """A pacer that drafts all it may and learns from it."""

    @property
    def room(self) -> int:
        """Room up to the limit."""
        return self._limit - len(self._known)

    def wants_pass(self, origin: str, num_tokens: int) -> bool:
        """Whether there is room."""
        self._num_passes += self.room > 0
        return self.room > 0

    def wants_token(self, origin: str, hint: Hint) -> bool:
        """Take it."""
        self._known.append((origin, hint))
        return True


def test_pacing_learns_of_drafted_tokens_what_there_is_to_learn() -> None:
    """Nothing from forced ones, two of three tokens here, which would make a draft seem right."""
    right, wrong = random_logits(5, 1), random_logits(5, 2)
    rules = [dict.fromkeys(range(5), 1), {2: 2}, {3: 0}]
    knowledge = Knowledge()
    pair = ToyPair(right, lambda text: 0.6 * right(text) + 0.4 * wrong(text))
    pacer = Eager(knowledge, is_greedy=False, pass_origin="draft")
    options: dict[str, Any] = {"sampling": WHOLE, "max_tokens": 300}
    pair.answer(PROMPT, constraint=ToyGrammar(rules), draft_length=7, pacer=pacer, **options)
    statistics = pair.statistics
    assert statistics.forced > statistics.accepted > 20
    record = knowledge.as_record()
    assert set(record.recent) == set(record.calibrations) == {"draft sampled"}
    drafted, accepted = statistics.by_origin["draft"]
    usual = knowledge.drafts_of("draft sampled").usual_chances()
    assert usual[0] == pytest.approx(accepted / drafted, abs=0.2)


def test_what_follows_a_rejected_token_is_not_counted() -> None:
    """As drafted or rejected: nobody chose it."""
    rules = [{0: 1, 1: 1, 2: 1, 4: 1}, {3: 2}, {3: 0}]
    pair = ToyPair(random_logits(5, 1), lambda text: -random_logits(5, 1)(text))
    chunks = pair.chunks(PROMPT, constraint=ToyGrammar(rules), draft_length=2, max_tokens=30)
    assert {each.origins for each in chunks} == {("target", "grammar", "grammar")}
    assert all(len(each.proposed) == len(each.rejected) == 1 for each in chunks)
    assert (pair.statistics.drafted, pair.statistics.accepted) == (len(chunks), 0)


def test_an_answer_ends_with_its_grammar() -> None:
    """Without a pass for the end; what is forced up to there is emitted, and it is valid."""
    rules = [{0: 1, 1: 1}, {2: 2}, {3: 3}, {}]
    for length in (0, 3):
        pair = ToyPair(random_logits(5, 1), random_logits(5, 1))
        chunks = pair.chunks(PROMPT, constraint=ToyGrammar(rules, [3]), draft_length=length)
        assert tokens_of(chunks)[1:] == [2, 3]
        assert (len(chunks), chunks[-1].finish) == (1, "stop")
        assert pair.statistics.is_valid is True
        assert pair.statistics.steps == 1


def test_an_answer_that_is_forced_takes_no_step() -> None:
    """The prompt is read all the same: the conversation goes on after it."""
    pair = ToyPair(random_logits(5, 1), random_logits(5, 1))
    chunks = pair.chunks(PROMPT, constraint=ToyGrammar([{4: 1}, {2: 2}, {}], [2]))
    assert tokens_of(chunks) == [4, 2]
    assert chunks[-1].finish == "stop"
    assert (pair.statistics.steps, pair.statistics.forced) == (0, 2)
    assert pair.target.tokens == [*PROMPT, 4]
    assert pair.statistics.prompt_tokens == len(PROMPT)


@table("max_tokens", range(1, 9))
def test_a_cut_answer_is_not_valid(max_tokens: int) -> None:
    """The token limit counts forced tokens, and may fall among them."""
    rules = [{0: 1, 1: 1}, {2: 2}, {3: 3}, {0: 4, 4: 4}, {1: 5}, {1: 6}, {2: 7}, {0: 8, 3: 8}, {}]
    for length in (0, 3):
        pair = ToyPair(random_logits(5, 1), random_logits(5, 1))
        chunks = pair.chunks(
            PROMPT, constraint=ToyGrammar(rules, [8]), draft_length=length, max_tokens=max_tokens
        )
        assert len(tokens_of(chunks)) == max_tokens
        assert chunks[-1].finish == ("stop" if max_tokens == 8 else "length")
        assert pair.statistics.is_valid is (max_tokens == 8)


@table("capacity", range(3, 12))
def test_a_full_context_ends_a_forced_run(capacity: int) -> None:
    """No more is emitted than the context holds and one token, as elsewhere."""
    rules = [{0: 1, 1: 1}, *({step % 5: step + 1} for step in range(1, 12)), {}]
    pair = ToyPair(random_logits(5, 1), random_logits(5, 1), capacity=capacity)
    chunks = pair.chunks(PROMPT, constraint=ToyGrammar(rules, [12]), draft_length=2)
    assert len(PROMPT) + len(tokens_of(chunks)) <= capacity + 1
    assert chunks[-1].finish == "context"
    assert pair.target.length <= capacity


def test_an_end_token_ends_where_the_grammar_may_end() -> None:
    """It is allowed in final states only, drafted or not, and everything after it is left out."""
    rules = [{0: 0, 1: 1, 2: 0}, {0: 0, 1: 1}]
    for seed in range(20):
        texts = []
        for length in (0, 1, 4):
            pair = ToyPair(random_logits(5, 1), random_logits(5, 1), end_tokens=[4])
            constraint = ToyGrammar(rules, [1], [4])
            texts.append(
                pair.answer(
                    PROMPT, WHOLE, seed, constraint=constraint, is_seeded=True, draft_length=length
                )
            )
            assert pair.statistics.is_valid is (texts[-1][-1] in {1, 4})
        assert texts == [texts[0]] * 3
        assert 3 not in texts[0]
        if 4 in texts[0]:
            assert texts[0].index(4) == len(texts[0]) - 1
            assert texts[0][-2] == 1


@table("cut", range(1, 9))
def test_an_interrupted_answer_goes_on_within_its_grammar(cut: int) -> None:
    """Where forced tokens follow, too: the text is that of one answer."""
    options: dict[str, Any] = {"sampling": WHOLE, "is_seeded": True, "draft_length": 3}
    pair = ToyPair(random_logits(5, 1), random_logits(5, 1))
    whole = pair.answer(PROMPT, constraint=grammar(), max_tokens=40, **options)
    begun = []
    stream = pair.stream(PROMPT, constraint=grammar(), max_tokens=40, **options)
    for chunk in stream:
        begun.append(chunk)
        if len(begun) == cut:
            break
    stream.close()
    left = 40 - len(tokens_of(begun))
    rest = pair.chunks(PROMPT, constraint=grammar(), begun=begun, max_tokens=left, **options)
    assert tokens_of(rest) == whole


def test_a_begun_answer_that_does_not_fit_is_refused() -> None:
    """With the constraint's own words, before anything is read."""
    pair = ToyPair(random_logits(5, 1))
    begun = pair.chunks(PROMPT, max_tokens=9)
    rules = [{(tokens_of(begun)[0] + 1) % 5: 0, (tokens_of(begun)[0] + 2) % 5: 0}]
    with pytest.raises(InvalidOption, match="may not come"):
        pair.answer(PROMPT, constraint=ToyGrammar(rules), begun=begun)


def test_likely_tokens_of_a_forced_place_are_the_one() -> None:
    """Each emitted token has its list."""
    pair = ToyPair(random_logits(5, 1), random_logits(5, 1))
    for chunk in pair.chunks(PROMPT, constraint=grammar(), num_alternatives=2, draft_length=2):
        assert len(chunk.alternatives) == len(chunk.tokens)
        for origin, token, found in zip(
            chunk.origins, chunk.tokens, chunk.alternatives, strict=True
        ):
            if origin == GRAMMAR.name:
                assert found == ((token, "", 1.0),)


def test_a_bias_against_all_that_may_come_is_named() -> None:
    """Not a text that breaks the grammar, and not an answer without an end."""
    never = Sampling(temperature=0.0, logit_bias={0: -np.inf, 3: -np.inf})
    pair = ToyPair(random_logits(5, 1))
    with pytest.raises(NothingAllowed, match="logit_bias"):
        pair.answer(PROMPT, never, constraint=ToyGrammar([{0: 0, 3: 0}]))


@given(st.lists(st.booleans(), min_size=1, max_size=200), st.integers(0, 2**32 - 1))
def test_masks_are_sets_of_tokens(flags: list[bool], seed: int) -> None:
    """Every way to ask gives the same; tokens beyond the vocabulary may not come."""
    wanted = {token for token, flag in enumerate(flags) if flag}
    mask = Mask.of(sorted(wanted), len(flags))
    ids = np.arange(len(flags) + 70)
    assert {int(each) for each in ids[mask.allowed(ids)]} == wanted
    assert {int(each) for each in ids if mask.allows(int(each))} == wanted
    row = np.random.default_rng(seed).normal(size=ids.size).astype(np.float32)
    masked = mask.masked(row)
    assert {int(each) for each in np.isfinite(masked).nonzero()[0]} == wanted
    assert (masked[sorted(wanted)] == row[sorted(wanted)]).all()
    assert mask.is_single is (len(wanted) == 1)
    for token in list(wanted)[:3]:
        assert ids[Mask.only(token).allowed(ids)].tolist() == [token]


@given(st.integers(0, 2**32 - 1), st.integers(1, 60))
def test_a_masked_row_is_processed_as_a_row_of_what_may_come(seed: int, count: int) -> None:
    """Whichever way is taken, the distribution is that of the row with all else left out."""
    random = np.random.default_rng(seed)
    row = (4 * random.normal(size=300)).astype(np.float32)
    allowed = np.sort(random.choice(300, count, replace=False))
    mask = Mask.of(allowed.tolist(), 300)
    for sampling in (GREEDY, *list(SAMPLINGS.values())[:3], Sampling(temperature=0.8, top_k=40)):
        found = Sampler(sampling).distribution(row, (), mask)
        alone = Sampler(sampling).distribution(row[allowed], ())
        assert sorted(found.ids.tolist()) == sorted(allowed[alone.ids].tolist())
        for token, share in zip(alone.ids.tolist(), alone.weights.tolist(), strict=True):
            assert found.probability(int(allowed[token])) == pytest.approx(share)
