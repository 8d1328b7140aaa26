"""The contract that every drafter of the registry must fulfil."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from decoding.toy_answers import decode
from drafting.toy_vocabularies import MODELS, ToyModels, is_remembered
from specchat import drafter_registry
from specchat.decoding.chunk import Chunk
from specchat.decoding.fixed_pacer import FixedPacer
from specchat.decoding.noise import Noise
from specchat.decoding.ports import Drafter, DraftTask, Rows
from specchat.decoding.request import Request
from specchat.decoding.statistics import Statistics
from specchat.drafting.factory import Materials, choose_drafter, make_drafter
from specchat.drafting.token_map import TokenMap
from specchat.errors import InvalidOption
from specchat.options.declarations import Sampling
from specchat.testing.toy import LogitsAfter, ToyLanguageModel, random_logits, scripted_logits
from tables import table

DRAFTERS = list(drafter_registry.DRAFTERS)
GREEDY = Sampling(temperature=0.0)
WHOLE = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
PROPOSERS = [name for name in DRAFTERS if name != "none"]
END = 4

PASSAGE = [int(token) for token in np.random.default_rng(1).integers(0, 40, 25)]
ALMOST = [token if place % 5 else 40 for place, token in enumerate(PASSAGE)]
"""The passage as a draft model has it that is wrong at every fifth token."""


class CountingModel(ToyLanguageModel):
    """A toy that remembers every text it evaluated, each as the tokens up to and with its last."""

    def __init__(self, logits_after: LogitsAfter, capacity: int = 4096) -> None:
        """Start having evaluated nothing."""
        super().__init__(logits_after, capacity)
        self.evaluated: list[tuple[int, ...]] = []

    def evaluate(self, tokens: Sequence[int], num_rows: int) -> Rows:
        """Evaluate, and note it."""
        rows = super().evaluate(tokens, num_rows)
        ends = range(self.length - len(tokens) + 1, self.length + 1)
        self.evaluated += [tuple(self.tokens[:end]) for end in ends]
        return rows


class Pair:
    """A toy target and one drafter of the registry, with the draft model it may use."""

    def __init__(
        self,
        name: str,
        target: LogitsAfter,
        draft: LogitsAfter,
        *,
        vocabulary: int = 5,
        tokens: TokenMap | None = None,
        capacity: int = 4096,
        draft_capacity: int = 4096,
        end_tokens: Sequence[int] = (),
    ) -> None:
        """Create both models and the drafter.

        `tokens` is the map to the draft's vocabulary, by default the same ids below `vocabulary`.
        """
        self.target = ToyLanguageModel(target, capacity)
        self.draft = CountingModel(draft, draft_capacity)
        kind = drafter_registry.DRAFTERS[name].needs or "model"
        self.token_map = tokens or TokenMap(vocabulary)
        materials = Materials(self.draft, self.token_map, end_tokens, kind)
        self.drafter: Drafter = make_drafter(name, materials)
        self.statistics = Statistics()

    def answer(
        self,
        prompt: Sequence[int],
        *,
        sampling: Sampling = GREEDY,
        seed: int = 0,
        draft_length: int = 4,
        max_tokens: int = 80,
    ) -> list[Chunk]:
        """Decode one answer; what every step left behind is checked on the way."""
        self.statistics = Statistics()
        request = Request(
            tokens=prompt,
            sampling=sampling,
            random=np.random.default_rng(seed).random,
            draft_length=draft_length,
            max_tokens=max_tokens,
        )
        chunks: list[Chunk] = []
        transcript = list(prompt)
        for chunk in decode(self.target, self.drafter, request, self.statistics):
            chunks.append(chunk)
            transcript += chunk.tokens
            assert len(chunk.proposed) <= draft_length
            assert self.target.tokens == transcript[: self.target.length]
            known, capacity = self.draft.tokens, self.draft.capacity
            assert is_remembered(known, transcript, self.token_map, capacity)
        return chunks


def tokens_of(chunks: Sequence[Chunk]) -> list[int]:
    """Return the tokens of an answer."""
    return [token for chunk in chunks for token in chunk.tokens]


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("models", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize("draft_length", [1, 3, 7])
def test_memories_are_the_transcripts_beginning_after_every_step(
    name: str, draft_length: int, models: ToyModels
) -> None:
    """Target and draft model hold nothing but what was said, at temperature 0 and above."""
    for seed in range(2):
        pair = Pair(name, models.target(seed), models.draft(seed + 50), tokens=models.token_map())
        pair.answer([1, 2], draft_length=draft_length)
        pair.answer([1, 2, 3], sampling=WHOLE, seed=seed, draft_length=draft_length)

        assert pair.statistics.generated_tokens == 80


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("name", DRAFTERS)
def test_the_text_is_plain_decodings(name: str) -> None:
    """Whatever is proposed, at temperature 0 the target's own text comes out."""
    for seed in range(20):
        plain = Pair("none", random_logits(5, seed), random_logits(5, 0)).answer([1, 2])
        drafted = Pair(name, random_logits(5, seed), random_logits(5, seed + 1)).answer([1, 2])

        assert tokens_of(drafted) == tokens_of(plain)


@table("name", DRAFTERS)
@table("limit", range(9))
def test_no_more_is_proposed_than_asked_for(name: str, limit: int) -> None:
    """The limit holds for a text that invites long drafts, and a limit of 0 gives nothing."""
    pair = Pair(name, scripted_logits(41, PASSAGE), scripted_logits(41, PASSAGE), vocabulary=41)
    pair.drafter.begin(DraftTask(PASSAGE * 3, GREEDY, Noise(0).draw))

    draft = pair.drafter.propose(FixedPacer(limit))

    assert len(draft) == (0 if name == "none" else limit)


@pytest.mark.slow(keep=6)
@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize(("target_size", "draft_size"), [(5, 9), (9, 5), (5, 5)])
def test_only_tokens_that_the_target_knows_are_proposed(
    name: str, target_size: int, draft_size: int
) -> None:
    """A draft model with more ids, or fewer, than the target neither fails nor proposes others."""
    shared = min(target_size, draft_size)
    for seed in range(10):
        models = random_logits(target_size, seed), random_logits(draft_size, seed + 9)
        pair = Pair(name, *models, vocabulary=shared)
        chunks = pair.answer([0, target_size - 1, 1], sampling=WHOLE, seed=seed)

        assert all(token < target_size for chunk in chunks for token in chunk.proposed)
        if name == "model":
            assert all(token < shared for chunk in chunks for token in chunk.proposed)


@table("draft_length", [1, 2, 3, 6])
def test_the_draft_model_evaluates_no_text_twice(draft_length: int) -> None:
    """At temperature 0 a rejected token never comes again, so each text is evaluated once."""
    pair = Pair("model", scripted_logits(41, PASSAGE), scripted_logits(41, ALMOST), vocabulary=41)
    pair.answer(PASSAGE[:5], draft_length=draft_length, max_tokens=300)

    assert 0 < pair.statistics.accepted < pair.statistics.drafted
    assert len(pair.draft.evaluated) == len(set(pair.draft.evaluated))


@table("name", PROPOSERS)
def test_the_acceptance_rate_does_not_decay(name: str) -> None:
    """A draft as good as before is accepted as often as before, after a thousand tokens too."""
    models = scripted_logits(41, PASSAGE), scripted_logits(41, ALMOST)
    pair = Pair(name, *models, vocabulary=41)
    kept = [0, 0]
    drafted = [0, 0]
    chunks = pair.answer(PASSAGE[:5], max_tokens=1000)
    for place, chunk in enumerate(chunks):
        half = 2 * place // len(chunks)
        kept[half] += sum(origin != "target" for origin in chunk.origins)
        drafted[half] += len(chunk.proposed)

    assert kept[0] / drafted[0] > 0.4
    assert kept[1] / drafted[1] > kept[0] / drafted[0] - 0.02


def test_a_model_as_its_own_draft_is_always_right() -> None:
    """Every token it proposes is kept, from the first to the thousandth."""
    pair = Pair("model", random_logits(5, 3), random_logits(5, 3))
    pair.answer([1, 2], max_tokens=1000)

    assert pair.statistics.accepted == pair.statistics.drafted > 700


def test_nothing_is_drafted_after_an_end_token() -> None:
    """The draft model's draft ends with the token that ends the answer."""
    script = [1, 2, 3, END, 0]
    models = scripted_logits(5, script), scripted_logits(5, script)
    pair = Pair("model", *models, end_tokens=[END])
    pair.drafter.begin(DraftTask([1], GREEDY, Noise(0).draw))

    assert [drafted.token for drafted in pair.drafter.propose(FixedPacer(8))] == [2, 3, END]


@pytest.mark.slow(keep=33)
@pytest.mark.parametrize("models", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize("draft_capacity", [3, 8, 20, 21, 22, 40])
def test_a_full_context_of_the_draft_model_is_started_anew(
    name: str, draft_capacity: int, models: ToyModels
) -> None:
    """The model drafts from the last tokens of the text; this answer and the next are right."""
    both, token_map = (models.target(1), models.draft(1)), models.token_map()
    plain = tokens_of(Pair("none", *both, tokens=token_map).answer([1, 2, 3]))
    pair = Pair(name, *both, tokens=token_map, draft_capacity=draft_capacity)

    assert tokens_of(pair.answer([1, 2, 3])) == plain
    assert tokens_of(pair.answer([1, 2, 3])) == plain
    assert pair.draft.length <= draft_capacity
    if name == "model" and draft_capacity > 3 and models is MODELS["same tokens"]:
        assert pair.statistics.acceptance_rate > 0.8
        assert pair.statistics.tokens_per_step > 1.5


@table("models", MODELS.values(), ids=MODELS)
@table("name", DRAFTERS)
@table("capacity", range(3, 12))
def test_the_targets_context_is_filled_to_its_last_place(
    name: str, capacity: int, models: ToyModels
) -> None:
    """No proposal reaches beyond the end of the context, and none of it is left unused."""
    both, token_map = (models.target(1), models.draft(1)), models.token_map()
    pair = Pair(name, *both, tokens=token_map, capacity=capacity, draft_capacity=capacity)
    chunks = pair.answer([1, 2, 3])

    assert chunks[-1].finish == "context"
    assert pair.target.length == capacity


@pytest.mark.slow
@table("models", MODELS.values(), ids=MODELS)
@table("name", DRAFTERS)
def test_another_conversation_is_begun_cleanly(name: str, models: ToyModels) -> None:
    """Continuing, going back and changing the subject give what a new drafter would."""
    both, token_map = (models.target(1), models.draft(2)), models.token_map()
    used = Pair(name, *both, tokens=token_map)
    first = tokens_of(used.answer([0, 3, 1]))
    for prompt in ([0, 3, 1, *first, 4, 4], [0, 3], [4, 4, 4, 4], [4]):
        expected = tokens_of(Pair("none", *both, tokens=token_map).answer(prompt))

        assert tokens_of(used.answer(prompt)) == expected


@table("name", DRAFTERS)
def test_an_unverified_proposal_does_no_harm(name: str) -> None:
    """An answer abandoned between a proposal and its verification leaves the next one right."""
    models = scripted_logits(41, PASSAGE), scripted_logits(41, ALMOST)
    pair = Pair(name, *models, vocabulary=41)
    pair.drafter.begin(DraftTask(PASSAGE * 2, GREEDY, Noise(0).draw))
    pair.drafter.propose(FixedPacer(6))
    expected = tokens_of(Pair("none", *models, vocabulary=41).answer(PASSAGE[:9]))

    assert tokens_of(pair.answer(PASSAGE[:9])) == expected


@table("name", DRAFTERS)
def test_the_same_random_numbers_give_the_same_text(name: str) -> None:
    """Nothing but the source of random numbers decides, not even an earlier answer."""
    models = random_logits(5, 1), random_logits(5, 2)
    pair = Pair(name, *models)
    first = tokens_of(pair.answer([1, 2], sampling=WHOLE, seed=3))
    again = tokens_of(Pair(name, *models).answer([1, 2], sampling=WHOLE, seed=3))
    other = tokens_of(Pair(name, *models).answer([1, 2], sampling=WHOLE, seed=4))

    assert first == again != other


@table("name", DRAFTERS)
def test_closing_twice_does_nothing(name: str) -> None:
    """The second call has no effect."""
    pair = Pair(name, random_logits(5, 1), random_logits(5, 1))
    pair.answer([1, 2])
    pair.drafter.close()
    pair.drafter.close()

    assert pair.draft.tokens == pair.target.tokens[: pair.draft.length]


def test_the_silent_drafter_is_plain_decoding() -> None:
    """Each step emits one token, and none is drafted."""
    pair = Pair("none", random_logits(5, 1), random_logits(5, 1))
    chunks = pair.answer([1, 2])

    assert [len(chunk.tokens) for chunk in chunks] == [1] * 80
    assert pair.statistics.tokens_per_step == 1.0
    assert pair.draft.evaluated == []


def test_the_factory_chooses_what_can_work() -> None:
    """The factory chooses a draft model if there is one; its error names an unknown drafter."""
    model = ToyLanguageModel(random_logits(5, 1))

    assert choose_drafter("auto", Materials(model, TokenMap(5), ())) == "suffix+model"
    assert choose_drafter("auto", Materials(None, TokenMap(5), ())) == "suffix"
    with pytest.raises(InvalidOption, match=r"unheard-of.*auto.*model.*suffix.*none"):
        choose_drafter("unheard-of", Materials(model, TokenMap(5), ()))
    reasons = {"model": "it cannot take tokens back"}
    with pytest.raises(InvalidOption, match="cannot take tokens back"):
        make_drafter("model", Materials(None, TokenMap(5), (), missing_reasons=reasons))
    with pytest.raises(InvalidOption, match="cannot take tokens back"):
        make_drafter(
            "suffix",
            Materials(model, TokenMap(5), (), no_rollback_reason="it cannot take tokens back"),
        )
