"""The loop on toy models: exactly the target's text, whatever drafts, stops or cancels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from decoding.toy_answers import (
    GREEDY,
    WHOLE,
    ToyPair,
    decode,
    remembered_distributions,
    tokens_of,
    verify_by_rejection,
)
from drafting.toy_vocabularies import MODELS, ToyModels, is_remembered
from specchat.decoding.chunk import Chunk
from specchat.decoding.distribution import LARGEST_TABLE
from specchat.decoding.ports import Drafter, DraftTask, Pacer, Rows
from specchat.decoding.proposal import DraftToken, Hint
from specchat.decoding.request import Request
from specchat.decoding.sampling import Sampler
from specchat.decoding.verification import Verdict, Verifier, verify_by_block
from specchat.drafting.combined import CombinedDrafter
from specchat.drafting.suffix import SuffixDrafter
from specchat.errors import ContextFull, InvalidOption
from specchat.options.declarations import Sampling
from specchat.pacing.knowledge import Knowledge
from specchat.pacing.pacer import LearningPacer
from specchat.pacing.recent_seconds import RecentSeconds
from specchat.testing.toy import LogitsAfter, random_logits, scripted_logits
from tables import table

SCRIPT = [int(token) for token in np.random.default_rng(5).integers(0, 5, 400)]


def half_right(script: Sequence[int]) -> list[int]:
    """Return a script that differs from the given one at every other token."""
    return [token if place % 2 else (token + 1) % 5 for place, token in enumerate(script)]


DRAFTS = {
    "right": SCRIPT,
    "wrong": [(token + 1) % 5 for token in SCRIPT],
    "half right": half_right(SCRIPT),
}


@table("draft_length", [0, 1, 2, 3, 6, 16])
@table("draft", DRAFTS.values(), ids=DRAFTS.keys())
def test_greedy_text_is_plain_decodings(draft: list[int], draft_length: int) -> None:
    """At temperature 0 the tokens are those of plain decoding, with any draft."""
    pair = ToyPair(scripted_logits(5, SCRIPT), scripted_logits(5, draft))

    answer = pair.answer(draft_length=draft_length, max_tokens=100)

    assert answer == SCRIPT[2:102]


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    script=st.lists(st.integers(0, 3), min_size=80, max_size=80),
    flips=st.lists(st.booleans(), min_size=80, max_size=80),
    draft_length=st.integers(0, 8),
    num_tokens=st.integers(1, 70),
)
def test_any_script_comes_out_unchanged(
    script: list[int], flips: list[bool], draft_length: int, num_tokens: int
) -> None:
    """For random scripts and random drafts the text is the script, and memories follow it."""
    draft = [(token + flip) % 4 for token, flip in zip(script, flips, strict=True)]
    pair = ToyPair(scripted_logits(4, script), scripted_logits(4, draft), vocabulary=4)

    answer = pair.answer([0], draft_length=draft_length, max_tokens=num_tokens)

    assert answer == script[1 : num_tokens + 1]
    assert pair.target.tokens == [0, *answer[:-1]]
    assert pair.draft is not None
    assert pair.draft.tokens == [0, *answer][: len(pair.draft.tokens)]


def test_a_model_as_its_own_draft_shows_the_expected_origins() -> None:
    """With draft length 2 and nothing rejected, every third token is the target's own."""
    pair = ToyPair(scripted_logits(5, SCRIPT), scripted_logits(5, SCRIPT))

    chunks = pair.chunks(draft_length=2, max_tokens=9)

    assert [chunk.origins for chunk in chunks] == [("draft", "draft", "target")] * 3
    assert pair.statistics.acceptance_rate == 1.0
    assert pair.statistics.tokens_per_step == 3.0


def test_the_drafts_memory_is_never_evaluated_again() -> None:
    """The draft evaluates each token it keeps once, and only rejected ones in vain."""
    pair = ToyPair(scripted_logits(5, SCRIPT), scripted_logits(5, half_right(SCRIPT)))
    evaluated = 0
    assert pair.draft is not None
    evaluate = pair.draft.evaluate

    def counting(tokens: Sequence[int], num_rows: int) -> Rows:
        nonlocal evaluated
        evaluated += len(tokens)
        return evaluate(tokens, num_rows)

    pair.draft.evaluate = counting  # type: ignore[method-assign]
    pair.answer(draft_length=3, max_tokens=100)

    wasted = pair.statistics.drafted - pair.statistics.accepted
    assert evaluated <= 100 + wasted


@table("models", MODELS.values(), ids=MODELS)
@table("draft_length", [1, 3, 5])
def test_closing_at_any_chunk_leaves_memories_consistent(
    draft_length: int, models: ToyModels
) -> None:
    """Whenever the generator is closed, both memories are prefixes of the transcript."""
    for stop_after in range(1, 25):
        pair = ToyPair(models.target(1), models.draft(2), tokens=models.token_map())
        stream = pair.stream(sampling=WHOLE, draft_length=draft_length)
        taken = [chunk for _, chunk in zip(range(stop_after), stream, strict=False)]
        stream.close()
        transcript = [1, 2, *tokens_of(taken)]

        assert pair.target.tokens == transcript[:-1]
        assert pair.draft is not None
        assert is_remembered(pair.draft.tokens, transcript, models.token_map(), 4096)


@pytest.mark.parametrize("models", MODELS.values(), ids=MODELS)
def test_an_answer_after_a_closed_one_is_right(models: ToyModels) -> None:
    """Closing in the middle does not change the next answer."""
    expected = ToyPair(models.target(1)).answer([3, 1, 2])
    pair = ToyPair(models.target(1), models.draft(2), tokens=models.token_map())
    for stop_after in range(1, 20):
        stream = pair.stream(draft_length=4)
        for _ in zip(range(stop_after), stream, strict=False):
            pass
        stream.close()

        assert pair.answer([3, 1, 2], draft_length=4) == expected


def test_cancelling_ends_with_what_is_there() -> None:
    """A raised flag ends the answer at the next step, and the chunk says so."""
    asked = iter([False] * 3 + [True] * 100)
    pair = ToyPair(scripted_logits(5, SCRIPT), scripted_logits(5, SCRIPT))

    chunks = pair.chunks(draft_length=2, is_cancelled=lambda: next(asked))

    assert tokens_of(chunks) == SCRIPT[2:11]
    assert chunks[-1].finish == "cancelled"
    assert chunks[-1].tokens == ()


@table("draft_length", [0, 1, 4, 7])
def test_the_end_of_generation_is_found_inside_the_accepted_run(draft_length: int) -> None:
    """Nothing after the end token is emitted, counted or kept in memory."""
    script = [1, 2, 3, 1, 2, 4, 3, 3, 3, 3, 3, 3]
    pair = ToyPair(scripted_logits(5, script), scripted_logits(5, script), end_tokens=[4])

    chunks = pair.chunks([1], draft_length=draft_length)

    assert tokens_of(chunks) == [2, 3, 1, 2, 4]
    assert chunks[-1].finish == "stop"
    assert pair.target.tokens == [1, 2, 3, 1, 2]
    assert pair.statistics.generated_tokens == 5


@table("max_tokens", range(1, 12))
def test_the_token_limit_is_exact(max_tokens: int) -> None:
    """Exactly as many tokens as asked for come out, and none is drafted for nothing."""
    pair = ToyPair(scripted_logits(5, SCRIPT), scripted_logits(5, SCRIPT))

    chunks = pair.chunks(draft_length=4, max_tokens=max_tokens)

    assert len(tokens_of(chunks)) == max_tokens
    assert chunks[-1].finish == "length"
    assert pair.statistics.accepted == pair.statistics.drafted


@table("capacity", range(3, 14))
def test_a_full_context_ends_the_answer(capacity: int) -> None:
    """The memory is used to its last token and never beyond."""
    pair = ToyPair(scripted_logits(5, SCRIPT), scripted_logits(5, SCRIPT), capacity=capacity)

    chunks = pair.chunks(draft_length=4, max_tokens=None)

    assert tokens_of(chunks) == SCRIPT[2 : capacity + 1]
    assert chunks[-1].finish == "context"
    assert pair.target.length == capacity


def test_a_prompt_longer_than_the_context_is_refused() -> None:
    """The message names both lengths and the option."""
    pair = ToyPair(scripted_logits(5, SCRIPT), capacity=4)

    with pytest.raises(ContextFull, match=r"5 tokens.*holds 4.*--ctx"):
        pair.answer([1] * 5)


@table(
    "shared, step, stops",
    [
        (95, 1, [10, 20, 30, 40, 50, 60, 95]),
        (95, 25, [30, 60, 95]),
        (95, 61, [95]),
        (95, 0, [95]),
        (25, 1, [25, 30, 40, 50, 60]),  # as in a loop of tools, which the next question shortens
        (25, 25, [25, 50]),
        (0, 25, [30, 60]),
        (0, 0, []),
    ],
)
def test_a_prompt_is_read_in_parts_that_end_where_messages_do(
    shared: int, step: int, stops: list[int]
) -> None:
    """Some way apart, and where the next prompt leaves this one; the progress is of it all.

    They are the same when an answer that has begun goes on: other passes have other bits.
    """
    told: list[tuple[int, int]] = []
    for count in (0, 40):
        told.clear()
        pair = ToyPair(scripted_logits(5, SCRIPT))
        begun = Chunk("x" * count, (1,) * count, ("target",) * count, ("x",) * count)
        asked = Request(
            [*[1] * 9, 4] * 10,
            GREEDY,
            max_tokens=1,
            end_tokens=[4],
            num_shared=shared,
            state_step=step,
            begun=[begun] * bool(count),
        )
        for _ in decode(
            pair.target, pair.drafter, asked, pair.statistics, lambda *done: told.append(done)
        ):
            pass

        assert told == [(end, 99 + count) for end in (*stops, 99 + count)]


def test_a_second_question_reuses_the_first_ones_tokens() -> None:
    """Only what is new is evaluated, in the target and in the draft."""
    pair = ToyPair(scripted_logits(5, SCRIPT), scripted_logits(5, SCRIPT))
    answer = pair.answer(draft_length=3, max_tokens=10)

    pair.answer([1, 2, *answer, 0, 0], draft_length=3, max_tokens=1)

    assert pair.statistics.cached_tokens == 2 + len(answer) - 1


@table("options", [{"draft_length": -1}, {"max_tokens": 0}, {"tokens": []}], ids=str)
def test_values_out_of_range_are_refused(options: dict[str, int]) -> None:
    """A request that makes no sense is refused by name before anything is evaluated."""
    values = {"tokens": [1], "sampling": GREEDY, **options}
    with pytest.raises(InvalidOption, match=r"draft_length|max_tokens|prompt"):
        Request(**values)  # type: ignore[arg-type]


def test_the_same_seed_gives_the_same_answer() -> None:
    """Randomness comes from the seed alone."""
    pair = ToyPair(random_logits(5, 1), random_logits(5, 2))

    first, second, other = (pair.answer(sampling=WHOLE, seed=seed) for seed in (7, 7, 8))

    assert first == second
    assert first != other


class Wrapped:
    """A drafter around another, passing everything on."""

    def __init__(self, inner: Drafter) -> None:
        """Wrap a drafter."""
        self.inner = inner

    def begin(self, task: DraftTask) -> None:
        """Pass on."""
        self.inner.begin(task)

    def propose(self, pacer: Pacer) -> Sequence[DraftToken]:
        """Pass on."""
        return self.inner.propose(pacer)

    def observe(self, emitted: Sequence[int], num_accepted: int) -> None:
        """Pass on."""
        self.inner.observe(emitted, num_accepted)

    def close(self) -> None:
        """Pass on."""
        self.inner.close()


class StoppingByConfidence(Wrapped):
    """Draws from a toy draft, and stops after an unlikely token: known before the next draw."""

    def begin(self, task: DraftTask) -> None:
        """Remember the text and the randomness."""
        super().begin(task)
        self.text, self.task, self.sampler = list(task.tokens), task, Sampler(task.sampling)

    def propose(self, pacer: Pacer) -> Sequence[DraftToken]:
        """Draw on only while the token just drawn was likely."""
        draft: list[DraftToken] = []
        model = random_logits(5, 2)
        while len(draft) < pacer.room:
            text = self.text + [drafted.token for drafted in draft]
            distribution = self.sampler.distribution(model(text), text)
            token = self.task.draw(distribution, 0)
            draft.append(DraftToken(token, distribution, "draft"))
            if distribution.probability(token) < 0.4:
                break
        return draft

    def observe(self, emitted: Sequence[int], num_accepted: int) -> None:
        """Extend the text."""
        self.text.extend(emitted)


class Peeking(Wrapped):
    """A broken drafter: its pace depends on the token just drawn, which may be dropped."""

    def begin(self, task: DraftTask) -> None:
        """Remember the text and the randomness."""
        self.text, self.task, self.sampler = list(task.tokens), task, Sampler(task.sampling)

    def propose(self, pacer: Pacer) -> Sequence[DraftToken]:
        """Draw first, then ask, and stop before a token that was unlikely."""
        draft: list[DraftToken] = []
        model = random_logits(5, 2)
        while pacer.wants_pass("draft", 1):
            text = self.text + [drafted.token for drafted in draft]
            distribution = self.sampler.distribution(model(text), text)
            token = self.task.draw(distribution, 0)
            is_wanted = pacer.wants_token("draft", Hint(distribution.largest_share))
            if not is_wanted or distribution.probability(token) < 0.25:
                break
            draft.append(DraftToken(token, distribution, "draft"))
        return draft

    def observe(self, emitted: Sequence[int], num_accepted: int) -> None:
        """Extend the text."""
        self.text.extend(emitted)


class Dropping(Wrapped):
    """A broken drafter: it drops tokens it has drawn when they look unlikely."""

    def propose(self, pacer: Pacer) -> Sequence[DraftToken]:
        """Cut the proposal before the first drawn token that is improbable."""
        draft = self.inner.propose(pacer)
        likely = [d.distribution.probability(d.token) >= 0.3 for d in draft]
        return draft[: likely.index(False)] if False in likely else draft


MADE_WITH = ("wrap", "tokens", "most_branches")


def transition_p_value(
    target: LogitsAfter, draft: LogitsAfter, sampling: Sampling, **options: object
) -> float:
    """Chi-square of all tokens of many answers against the target's exact distributions.

    The toy looks two tokens back, so every pair of tokens is a cell of its own.
    """
    made_with = {name: options.pop(name) for name in MADE_WITH if name in options}
    pair = ToyPair(target, draft, **made_with)  # type: ignore[arg-type]
    observed = np.zeros((5, 5, 5))
    with remembered_distributions():
        for seed in range(60):
            text = [1, 2, *pair.answer(sampling=sampling, seed=seed, max_tokens=80, **options)]
            for place in range(2, len(text)):
                observed[tuple(text[place - 2 : place + 1])] += 1
    sampler = Sampler(sampling)
    statistic, freedom = 0.0, 0
    for first in range(5):
        for second in range(5):
            exact = sampler.distribution(target([first, second]), [])
            expected = observed[first, second].sum() * exact.weights_of(np.arange(5))
            assert observed[first, second][expected == 0].sum() == 0
            cells = expected > 0
            if not cells.any() or expected[cells].min() < 3:
                continue
            difference = observed[first, second][cells] - expected[cells]
            statistic += float((difference**2 / expected[cells]).sum())
            freedom += int(cells.sum()) - 1
    assert freedom > 10
    return float(stats.chi2.sf(statistic, freedom))


SAMPLINGS = {
    "whole": WHOLE,
    "cool top-k": Sampling(temperature=0.7, top_k=3, top_p=1.0, min_p=0.0),
    "hot top-p": Sampling(temperature=1.5, top_k=0, top_p=0.8, min_p=0.0),
    "min-p": Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.1),
    "everything": Sampling(temperature=0.9, top_k=4, top_p=0.9, min_p=0.05, logit_bias={1: 0.5}),
}


FITTING = [
    *((verify, "whole", length) for verify in (verify_by_rejection, verify_by_block)
      for length in (1, 2, 4, 6)),
    *((verify_by_block, name, length) for name in SAMPLINGS if name != "whole"
      for length in (2, 6)),
]  # fmt: skip
"""All lengths and rules for the models' own distributions; a short and a long draft for others."""


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("verifier", "sampling", "draft_length", "models"),
    [
        (*each, models)
        for models, step in zip(MODELS.values(), (1, 3), strict=True)
        for each in FITTING[::step]
    ],
)
def test_sampled_text_fits_the_exact_distribution(
    verifier: Verifier, sampling: str, draft_length: int, models: ToyModels
) -> None:
    """Every token of 60 answers fits (22 tests, false alarm 1e-5 each: 2.2e-4 in all)."""
    p = transition_p_value(
        models.target(1),
        models.draft(2),
        SAMPLINGS[sampling],
        tokens=models.token_map(),
        verifier=verifier,
        draft_length=draft_length,
    )

    assert p > 1e-5


@table("sampling", SAMPLINGS.values(), ids=SAMPLINGS.keys())
@table("is_seeded", [False, True])
def test_a_step_has_the_probabilities_of_the_tokens_it_compared(
    sampling: Sampling, *, is_seeded: bool
) -> None:
    """Those of target and drafter, as processed, up to the first rejected token."""
    target, draft = random_logits(5, 1), random_logits(5, 2)
    sampler, text = Sampler(sampling), [1, 2]
    for chunk in ToyPair(target, draft).chunks(sampling=sampling, is_seeded=is_seeded):
        num_accepted = len(chunk.proposed) - len(chunk.rejected)
        assert len(chunk.chances) == min(num_accepted + 1, len(chunk.proposed))
        for place, (wanted, proposed) in enumerate(chunk.chances):
            before, token = [*text, *chunk.proposed[:place]], chunk.proposed[place]
            exact = [sampler.distribution(each(before), []) for each in (target, draft)]
            assert [wanted, proposed] == pytest.approx([each.probability(token) for each in exact])
        text += chunk.tokens


def test_steps_without_a_choice_or_with_too_many_have_no_probabilities() -> None:
    """At temperature 0, and where finding the token among all others would take time."""
    target, draft = random_logits(5, 1), random_logits(5, 2)
    assert not any(chunk.chances for chunk in ToyPair(target, draft).chunks())
    chunks = ToyPair(*(random_logits(LARGEST_TABLE + 1, seed, order=1) for seed in (1, 2)),
                     vocabulary=LARGEST_TABLE + 1).chunks(sampling=WHOLE)  # fmt: skip
    assert any(chunk.proposed for chunk in chunks)
    assert not any(chunk.chances for chunk in chunks)


@pytest.mark.slow
def test_penalties_see_the_tokens_before_each_position() -> None:
    """With penalties every token is uniform in its own exact distribution (false alarm 1e-5)."""
    sampling = Sampling(
        temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, repeat_penalty=1.4,
        presence_penalty=0.3, frequency_penalty=0.2, repeat_last_n=6,
    )  # fmt: skip
    target = random_logits(5, 1)
    pair = ToyPair(target, random_logits(5, 2))
    sampler, uniform = Sampler(sampling), np.random.default_rng(9)
    ranks: list[float] = []
    for seed in range(40):
        text = [1, 2, *pair.answer(sampling=sampling, seed=seed, draft_length=4)]
        for place in range(2, len(text)):
            weights = sampler.distribution(target(text[:place]), text[:place]).weights_of(
                np.arange(5)
            )
            below = weights[: text[place]].sum()
            ranks.append(below + uniform.random() * weights[text[place]])

    assert stats.kstest(ranks, "uniform").pvalue > 1e-5


@pytest.mark.slow
def test_deciding_before_the_draw_keeps_the_text_exact() -> None:
    """A draft length that depends on what is known before each draw changes nothing."""
    models = random_logits(5, 1), random_logits(5, 2)
    for verifier in (verify_by_rejection, verify_by_block):
        p = transition_p_value(
            *models, WHOLE, verifier=verifier, draft_length=5, wrap=StoppingByConfidence
        )
        assert p > 1e-5


def paced(monkeypatch: pytest.MonkeyPatch) -> LearningPacer:
    """Return a pacer of a machine that is the same in every run, whatever the clock says."""
    knowledge = Knowledge()
    knowledge.target.begin_with({length: 0.95 + 0.05 * length for length in range(1, 9)})
    knowledge.costs_of("draft").begin_with({1: 0.02})
    monkeypatch.setattr(RecentSeconds, "observe", lambda *_: None)
    return LearningPacer(knowledge, is_greedy=False)


WRAPS: dict[str, Callable[[Drafter], Drafter]] = {
    "model": lambda drafter: drafter,
    "suffix": lambda _: SuffixDrafter(),
    "both": lambda drafter: CombinedDrafter(SuffixDrafter(), drafter),  # type: ignore[arg-type]
}


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("models", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("name", WRAPS)
def test_pacing_leaves_the_distribution_alone(
    name: str, models: ToyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long drafts are, and wherever they come from, the text is the target's own."""
    p_value = transition_p_value(
        models.target(1),
        models.draft(2),
        WHOLE,
        tokens=models.token_map(),
        draft_length=6,
        wrap=WRAPS[name],
        pacer=paced(monkeypatch),
    )

    assert p_value > 1e-6


@pytest.mark.slow
def test_a_pace_that_looks_at_drawn_tokens_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same pace, decided after the draw instead of before it, spoils the distribution."""
    models = random_logits(5, 1), random_logits(5, 2)
    p_value = transition_p_value(
        *models, WHOLE, draft_length=6, wrap=Peeking, pacer=paced(monkeypatch)
    )

    assert p_value < 1e-9


def test_dropping_a_drawn_token_is_caught() -> None:
    """A drafter that drops what it has drawn makes the text wrong, and the test says so."""
    models = random_logits(5, 1), random_logits(5, 2)

    assert transition_p_value(*models, WHOLE, draft_length=5, wrap=Dropping) < 1e-9


@pytest.mark.parametrize("mutant", ["accept always", "residual is the target's"])
def test_broken_verifiers_are_caught_in_the_loop(mutant: str) -> None:
    """The goodness-of-fit test of the whole loop fails for a broken verifier."""
    from decoding import test_verification as mutants

    broken = {
        "accept always": mutants.accept_always,
        "residual is the target's": mutants.correct_from_target,
    }[mutant]

    def verify(*arguments: object) -> object:
        return Verdict(*broken(*arguments))  # type: ignore[arg-type]

    models = random_logits(5, 1), random_logits(5, 2)

    assert transition_p_value(*models, WHOLE, verifier=verify, draft_length=3) < 1e-9
