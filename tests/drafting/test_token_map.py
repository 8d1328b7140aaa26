"""The map to a draft model's vocabulary: what is read and drafted, exactly and without loss."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from typing import Any

import numpy as np
import pytest

from decoding.test_loop import transition_p_value
from decoding.toy_answers import WHOLE, ToyPair, verify_by_rejection
from drafting.toy_vocabularies import DRAFT, TARGET, Special, map_of, writing
from specchat.decoding.distribution import Distribution, Logits
from specchat.decoding.ports import DraftTask
from specchat.decoding.verification import Verifier, verify_by_block
from specchat.drafting.draft_model import DraftModelDrafter
from specchat.drafting.token_map import STAND_IN, CommonTokenMap, TokenMap
from specchat.options.declarations import Sampling
from specchat.testing.toy import LogitsAfter, ToyLanguageModel
from tables import table

# --- the map ------------------------------------------------------------------------------------


def test_images_are_left_out_unless_the_draft_model_has_cells_of_its_own() -> None:
    """The first cell of a part of an image stands for all of them; heads keep the target's."""
    text = [1, -5, -6, 2, -7, 3]
    own = {-5: (-8, -9, -10)}
    assert TokenMap(10).read(text) == [1, 2, 3]
    assert TokenMap(10, cells_for=lambda token: own.get(token, ())).read(text) == [
        *(1, -8, -9, -10, 2, 3)
    ]
    assert TokenMap(10, keeps_images=True).read(text) == text


def test_a_shortened_text_begins_behind_an_image() -> None:
    """A part of one cannot be read."""
    drafter = DraftModelDrafter(ToyLanguageModel(lambda _: np.zeros(9, np.float32)), TokenMap(9))
    for num_kept, wanted in ((2, [7, 8]), (3, [7, 8]), (5, [7, 8]), (6, [6, -3, -4, -5, 7, 8])):
        drafter._tokens = [5, 6, -3, -4, -5, 7, 8]
        drafter._shorten(num_kept)
        assert drafter._tokens == wanted


@pytest.mark.parametrize(("cell", "is_read"), [(2, True), (-3, False)])
def test_an_image_is_no_short_text(cell: int, *, is_read: bool) -> None:
    """Reading it takes an encoder first, so it waits until drafts are likely to be wanted."""
    for is_soon in (False, True):
        model = ToyLanguageModel(lambda _: np.zeros(9, np.float32))
        drafter = DraftModelDrafter(model, TokenMap(9, keeps_images=True))
        text = [1, cell, cell, 4]
        drafter.begin(DraftTask(text, Sampling(), lambda *_: 0, is_soon=is_soon))
        assert drafter._reads_prompt == (is_read or is_soon)


def test_common_tokens_are_read_one_to_one_and_others_spelled() -> None:
    """The longest tokens that fit come first; what cannot be spelled is left out."""
    tokens = map_of([b"a", b"b", b"abab", b"aba!", b"!"], [b"b", b"ab", b"a", b"aba"])

    assert tokens.read([0, 1]) == [2, 0]
    assert tokens.read([2]) == [3, 0]
    assert tokens.read([3]) == [3]
    assert tokens.read([4]) == [STAND_IN]
    assert tokens.read([0, 2, 1]) == [2, 3, 0, 0]


def test_half_a_character_is_spelled_with_bytes() -> None:
    """Byte-level tokens may end within a character."""
    smile = "😀".encode()
    tokens = map_of([smile[:2], smile[2:], b"x"], [b"x", smile, *(bytes([n]) for n in smile)])

    assert tokens.read([0, 1]) == [2, 3, 4, 5]


def test_control_tokens_are_read_by_their_names_and_never_drafted() -> None:
    """A name without a counterpart is a new line; the same name of a text is another token."""
    tokens = map_of(["<u>", "<v>", b"<w>", b"a"], [b"a", "<w>", "<u>", b"<", b"v", b">", b"\n"])

    assert tokens.read([0, 1, 3]) == [2, 6, 0]
    assert tokens.read([2]) == [3, 5]
    assert drafted(tokens, 7) == [(0, 3)]


@table(
    ("ours", "theirs", "pairs"),
    [
        (Special({1}, usual=(1, 1)), Special({0}, usual=(0, 0)), [(0, 1), (2, 2)]),
        (Special({1, 0}, usual=(1, 0)), Special({0, 1}, usual=(0, 1)), [(0, 1), (1, 0), (2, 2)]),
        (Special({3}, usual=(3, 3)), Special({1}, usual=(1, 1)), [(1, 3), (2, 2)]),
        (Special({0, 3}, usual=(3, 0)), Special({1}, usual=(1, 1)), [(1, 0), (2, 2)]),
        (Special({3}, usual=(-1, -1)), Special({1}, usual=(-1, 1)), [(2, 2)]),
        (Special({3}), Special(), [(2, 2)]),
    ],
)
def test_an_end_is_drafted_as_an_end(
    ours: Special, theirs: Special, pairs: list[tuple[int, int]]
) -> None:
    """Ends of the same name belong together, then those that both end their turns with."""
    tokens = map_of(["<s>", "<e>", b"a", "</t>"], ["<e>", "<s>", b"a"], ours, theirs)

    assert drafted(tokens, 3) == pairs
    assert all(tokens.read([target]) == [own] for own, target in pairs)


def test_texts_begin_as_the_draft_models_own() -> None:
    """Its beginning-of-text token replaces the target's, and comes once."""
    ours: list[bytes | str] = ["<s>", b"a"]
    theirs: list[bytes | str] = [b"a", "<b>", "<s>"]
    with_both = map_of(ours, theirs, Special(first=0), Special(first=1))
    assert with_both.prompt([0, 1]) == [1, 0]
    assert with_both.prompt([1, 1]) == [1, 0, 0]
    assert map_of(ours, theirs, Special(first=0), Special()).prompt([0, 1]) == [0]
    assert map_of(ours, theirs, Special(first=0), Special()).prompt([0]) == [STAND_IN]
    assert map_of(ours, theirs, Special(), Special(first=2)).prompt([0, 1]) == [2, 0]


def drafted(tokens: CommonTokenMap, size: int) -> list[tuple[int, int]]:
    """Return the draft model's ids that may be drafted, with the target's."""
    row = tokens.restricted(np.zeros(size, dtype=np.float32))
    own = np.flatnonzero(row == 0.0)
    named = tokens.named(Distribution(own, np.ones(own.size)))
    return list(zip(own.tolist(), named.ids.tolist(), strict=True))


# --- exactness ----------------------------------------------------------------------------------


class OffByOne(ToyLanguageModel):
    """A broken memory, as with a wrong map of positions: it keeps one rejected token too many."""

    def rollback(self, length: int) -> None:
        """Keep one more token than it should."""
        super().rollback(min(length + 1, self.length))


class Unnormalised(CommonTokenMap):
    """A broken map: the mass of the tokens left out is missing in what verification is given."""

    def restricted(self, logits: Logits) -> Logits:
        """Note how much is left out."""
        row = super().restricted(logits)
        self.kept = float(np.exp(row).sum() / np.exp(logits).sum())
        return row

    def named(self, distribution: Distribution) -> Distribution:
        """Return a distribution that draws as it should."""
        return Short(super().named(distribution), self.kept)


class Short(Distribution):
    """A distribution of too little mass."""

    __slots__ = ("kept",)

    def __init__(self, whole: Distribution, kept: float) -> None:
        """Scale what is said of the probabilities, and draw as before."""
        super().__init__(whole.ids, whole.weights)
        self.kept = kept

    def probability(self, token: int) -> float:
        """Return too low a probability."""
        return self.kept * super().probability(token)


class Unrestricted(CommonTokenMap):
    """A broken map: nothing is left out, and tokens that the target lacks are called its first."""

    def restricted(self, logits: Logits) -> Logits:
        """Return all."""
        return logits


class Swapped(CommonTokenMap):
    """A wrong map, which is still one to one: what is drafted as one token was meant as another."""

    def named(self, distribution: Distribution) -> Distribution:
        """Call a by the name of b."""
        right = super().named(distribution)
        ids = np.array([{0: 1, 1: 0}.get(token, token) for token in right.ids.tolist()])
        return Distribution(ids, right.unscaled)


GRID = (np.arange(12) + 0.5) / 12
P, Q = (1 / 8, 3 / 8, 2 / 8, 2 / 8), {b"x": 3.0, b"b": 1.0, b"a": 2.0, b"c": 1.0, b"y": 5.0}
"""Of a, b, c and d; and the draft's weights: 2/4, 1/4, 1/4 of a, b and c, and 2/3 of others."""


def enumerated(kind: type[CommonTokenMap], verifier: Verifier) -> list[float]:
    """Return the probabilities of the first token, by all uniform numbers that matter.

    A step with a draft of one token uses three: to draw it, to accept it, and for the token after.
    """
    target = np.log(np.array(P, dtype=np.float32))
    draft = np.log(np.array(list(Q.values()), dtype=np.float32))
    tokens = map_of([b"a", b"b", b"c", b"d"], list(Q), kind=kind)
    pair = ToyPair(lambda _: target, lambda _: draft, tokens=tokens)
    counts: Counter[int] = Counter()
    for numbers in itertools.product(GRID.tolist(), repeat=3):
        stream = pair.stream([0], WHOLE, draft_length=1, max_tokens=2, verifier=verifier,
                             random=[*numbers, 0.5].__iter__().__next__)  # fmt: skip
        counts[next(stream).tokens[0]] += 1
        stream.close()
    return [counts[token] / counts.total() for token in range(4)]


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("verifier", [verify_by_rejection, verify_by_block])
def test_a_step_is_exact_by_enumeration(verifier: Verifier) -> None:
    """The first token has the target's probabilities to the last digit, with a wrong map, too."""
    assert enumerated(CommonTokenMap, verifier) == pytest.approx(P, abs=1e-12)
    assert enumerated(Swapped, verifier) == pytest.approx(P, abs=1e-12)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("verifier", [verify_by_rejection, verify_by_block])
@pytest.mark.parametrize("mutant", [Unnormalised, Unrestricted])
def test_a_broken_map_is_caught_by_enumeration(
    mutant: type[CommonTokenMap], verifier: Verifier
) -> None:
    """What is drawn must be drawn from the distribution that verification is given."""
    assert enumerated(mutant, verifier) != pytest.approx(P, abs=0.02)


@pytest.mark.parametrize("mutant", [Unnormalised, Unrestricted])
def test_a_broken_map_does_not_fit(mutant: type[CommonTokenMap]) -> None:
    """Each fails the test of the loop that the right map passes, by a wide margin."""
    models = writing(TARGET, 1), half_right()
    p_value = transition_p_value(
        *models, WHOLE, draft_length=4, verifier=verify_by_rejection, tokens=map_of(kind=mutant)
    )

    assert p_value < 1e-9


def half_right() -> LogitsAfter:
    """Return a draft model that is right about half of the time."""
    right, wrong = writing(DRAFT, 1), writing(DRAFT, 2)
    return lambda text: 0.6 * right(text) + 0.4 * wrong(text)


# --- what a wrong map costs ---------------------------------------------------------------------


SURE = 3.0
"""The scale of logits that make a model rather sure of its next token."""


def acceptance(
    kind: type[CommonTokenMap] = CommonTokenMap, model: type[ToyLanguageModel] = ToyLanguageModel
) -> tuple[float, float]:
    """Return how often a draft's first token is accepted, and how often it should be.

    The draft model knows all probabilities, so that is as often as the target draws a common token.
    """
    tokens, exact = map_of(kind=kind), writing(TARGET, 8, SURE)
    pair = ToyPair(exact)
    pair.drafter = DraftModelDrafter(model(writing(DRAFT, 8, SURE)), tokens)
    text, common, kept = [0, 3], list[float](), list[bool]()
    options: dict[str, Any] = {
        "draft_length": 3,
        "max_tokens": 3000,
        "verifier": verify_by_rejection,
    }
    for chunk in pair.chunks(text, WHOLE, **options):
        if chunk.proposed:
            weights = np.exp(exact(text))
            common.append(float(weights[:3].sum() / weights.sum()))
            kept.append(len(chunk.rejected) < len(chunk.proposed))
        text += chunk.tokens
    return float(np.mean(kept)), float(np.mean(common))


@pytest.mark.slow
def test_a_right_draft_is_accepted_as_often_as_the_tokens_are_common() -> None:
    """Nothing is lost but the tokens that the draft model lacks (4 sigma: 1e-4)."""
    rate, expected = acceptance()

    assert 0.4 < expected < 0.95
    assert rate == pytest.approx(expected, abs=4 * np.sqrt(expected * (1 - expected) / 1000))


@pytest.mark.slow
@pytest.mark.parametrize(
    "mutant", [{"kind": Swapped}, {"model": OffByOne}], ids=["wrong token", "wrong position"]
)
def test_a_wrong_map_costs_acceptance(mutant: dict[str, type]) -> None:
    """Of one token or of a position: the text stays exact, and less is accepted."""
    rate, expected = acceptance(**mutant)

    assert rate < expected - 0.05


@pytest.mark.slow
def test_a_wrong_map_of_positions_changes_no_text() -> None:
    """The target decides, whatever the draft model has read."""
    plain = ToyPair(writing(TARGET, 1))
    pair = ToyPair(writing(TARGET, 1))
    pair.drafter = DraftModelDrafter(OffByOne(writing(DRAFT, 1)), map_of())
    for seed in range(20):
        text = pair.answer([0, 3], WHOLE, seed, draft_length=3, is_seeded=True)
        assert text == plain.answer([0, 3], WHOLE, seed, is_seeded=True)


def test_an_endless_token_takes_no_time_to_spell() -> None:
    """Only a file made to do harm has one; its end does not count."""
    same = [b"a", b"z"]
    tokens = map_of([*same, b"z" * 100_000 + b"a"], [*same, b"z" * 100_000 + b"b"])
    began = time.process_time()

    assert set(tokens.read([2])) == {1}
    assert time.process_time() - began < 1.0
