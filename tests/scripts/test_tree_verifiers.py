"""Verifiers of draft trees leave the target's distribution as it is, by exact enumeration.

A verifier's every run is followed, with its probability: where it compares a uniform number with a
bound, both outcomes are followed. So the distribution of the tokens it emits is known to rounding.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pytest
from scipy import stats

from scripts.support import tree_verifiers
from scripts.support.tree_verifiers import (
    Fork,
    TargetAfter,
    TreeVerdict,
    TreeVerifier,
    chosen_fork,
    division,
    drawn_fork,
    mixed_fork,
    repeated_fork,
    verify_by_rejection,
    verify_by_selection,
    verify_by_traversal,
    verify_chosen,
    verify_trunk,
)
from specchat.decoding import verification
from specchat.decoding.distribution import (
    LARGEST_TABLE,
    Distribution,
    Random,
    Shares,
    excess_of,
    without,
)
from specchat.decoding.proposal import DraftToken
from specchat.decoding.verification import verify_by_block

MakeFork: TypeAlias = Callable[[Distribution, int, int, Random], Fork]
Counts: TypeAlias = Sequence[int] | Callable[[tuple[int, ...]], Sequence[int]]
"""How many siblings are at each fork, or how that follows from the trunk."""
Law: TypeAlias = dict[tuple[int, ...], float]
ROUNDING, NEGLIGIBLE = 1e-9, 1e-13
"""The largest error of a sum of probabilities, and the probability of an outcome left out."""


class Method(NamedTuple):
    """A verifier with the kind of siblings that it needs."""

    verify: TreeVerifier
    fork: MakeFork


METHODS = {
    "trunk": Method(verify_trunk, chosen_fork),
    "chosen": Method(verify_chosen, chosen_fork),
    "selection": Method(verify_by_selection, repeated_fork),
    "rejection": Method(verify_by_rejection, drawn_fork),
    "rejection, mixed": Method(verify_by_rejection, mixed_fork),
    "traversal": Method(verify_by_traversal, drawn_fork),
    "traversal, chosen": Method(verify_by_traversal, chosen_fork),
    "traversal, mixed": Method(verify_by_traversal, mixed_fork),
}
"""With every kind of siblings that each takes."""


class _Runs:
    """Runs a function of random numbers in all ways it can go, each with its probability."""

    def __init__(self) -> None:
        self._plan: list[bool] = []
        self._place = 0
        self.probability = 1.0

    def __iter__(self) -> Iterator[Random]:
        """Yield a source of uniform numbers for each run."""
        while True:
            self._place, self.probability = 0, 1.0
            yield self._uniform
            while self._plan and not self._plan[-1]:
                self._plan.pop()
            if not self._plan:
                return
            self._plan[-1] = False

    def decide(self, chance: float) -> bool:
        """Follow one outcome of a decision; the other one in another run, if it can happen."""
        if chance <= 0.0 or chance >= 1.0:
            return chance >= 1.0
        if self._place == len(self._plan):
            self._plan.append(True)
        outcome = self._plan[self._place]
        self._place += 1
        self.probability *= chance if outcome else 1.0 - chance
        return outcome

    def _uniform(self) -> Any:
        return _Uniform(self, [0.0, 1.0])


class _Uniform:
    """The number scale * u + offset, where u is uniform in the interval that is left."""

    def __init__(
        self, runs: _Runs, interval: list[float], scale: float = 1.0, offset: float = 0.0
    ) -> None:
        self._runs, self._interval, self._scale, self._offset = runs, interval, scale, offset

    def __mul__(self, factor: float) -> _Uniform:
        scale, offset = self._scale * factor, self._offset * factor
        return _Uniform(self._runs, self._interval, scale, offset)

    def __sub__(self, amount: float) -> _Uniform:
        return _Uniform(self._runs, self._interval, self._scale, self._offset - amount)

    def __lt__(self, bound: float) -> bool:
        low, high = self._interval
        cut = min(max((bound - self._offset) / self._scale, low), high)
        share = (cut - low) / (high - low)
        share = 0.0 if share < NEGLIGIBLE else 1.0 if share > 1 - NEGLIGIBLE else share
        is_below = self._runs.decide(share)
        if 0.0 < share < 1.0:
            self._interval[:] = [low, cut] if is_below else [cut, high]
        return is_below


class World:
    """A target and a drafter with random distributions after every text of up to `depth` tokens.

    Some probabilities are 0, in the target, in the drafter or in both.
    """

    def __init__(self, vocabulary: int, depth: int, seed: int, sharpness: float = 1.0) -> None:
        generator = np.random.default_rng(seed)

        def row() -> Distribution:
            weights = generator.dirichlet(np.full(vocabulary, sharpness))
            zero = generator.integers(2 * vocabulary)
            kept = np.arange(vocabulary)[np.arange(vocabulary) != zero]
            return Distribution(kept, weights[kept])

        self.vocabulary, self.depth = vocabulary, depth
        texts = [
            text
            for length in range(depth + 1)
            for text in itertools.product(range(vocabulary), repeat=length)
        ]
        self.target = {text: row() for text in texts}
        self.drafter = {text: row() for text in texts}

    def draft(self, fork: MakeFork, counts: Counts, random: Random) -> list[Fork]:
        """Draw a draft with so many siblings at each fork."""
        trunk: tuple[int, ...] = ()
        for _ in range(self.depth):
            trunk += (self.drafter[trunk].sample(random),)
        chosen = counts(trunk) if callable(counts) else counts
        return [
            fork(self.drafter[trunk[:length]], trunk[length], count, random)
            for length, count in enumerate(chosen)
        ]

    def chance(self, text: tuple[int, ...], start: int = 0) -> float:
        """Return the target's probability of a text's tokens from `start` on."""
        places = range(start, len(text))
        return float(
            np.prod([self.target[text[:place]].probability(text[place]) for place in places])
        )


def law_of(world: World, method: Method, counts: Counts, after: TargetAfter | None = None) -> Law:
    """Return the probability of each text that a step emits."""
    law: Law = defaultdict(float)
    runs = _Runs()
    for random in runs:
        draft = world.draft(method.fork, counts, random)
        path, token = method.verify(draft, after or world.target.__getitem__, random)
        law[*path, token] += runs.probability
    return law


def error_of(world: World, law: Law) -> float:
    """Return how far the law of all tokens up to the deepest is from the target's, at most.

    The target continues what a step emits.
    """
    length = world.depth + 1
    errors = [
        sum(
            law.get(text[:place], 0.0) * world.chance(text, place) for place in range(1, length + 1)
        )
        - world.chance(text)
        for text in itertools.product(range(world.vocabulary), repeat=length)
    ]
    return float(np.abs(errors).max())


def num_emitted(law: Law) -> float:
    """Return the expected number of tokens that a step emits."""
    return sum(len(text) * share for text, share in law.items())


CASES = [(5, (4,)), (3, (2, 1, 2)), (4, (3, 1)), (3, (0, 2, 1)), (4, (3, 0)), (3, (0, 0, 0))]
"""A size of the vocabulary, and a number of siblings at each fork."""


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(("vocabulary", "counts"), CASES)
def test_the_target_has_its_own_distribution(
    name: str, vocabulary: int, counts: tuple[int, ...]
) -> None:
    """Whatever the drafter's is: by exact enumeration."""
    world = World(vocabulary, len(counts), seed=sum(counts))
    law = law_of(world, METHODS[name], counts)
    assert sum(law.values()) == pytest.approx(1.0, abs=ROUNDING)
    assert error_of(world, law) < ROUNDING


@pytest.mark.parametrize("name", METHODS)
def test_the_number_of_siblings_may_depend_on_the_trunk(name: str) -> None:
    """On all of it; but not with replacement, where verification depends on the number."""

    def counts(trunk: tuple[int, ...]) -> Sequence[int]:
        return sum(trunk) % 3, trunk[1] % 2

    world = World(4, 2, seed=5)
    error = error_of(world, law_of(world, METHODS[name], counts))
    assert error > 1e-3 if name == "selection" else error < ROUNDING


@pytest.mark.parametrize("name", METHODS)
def test_deep_trees_fit_the_target(name: str) -> None:
    """Depth 3, 4 children at each fork, 5 tokens: by a chi-squared test (false alarm 1e-5)."""
    world = World(5, 3, seed=7)
    verify, fork = METHODS[name]
    random = np.random.default_rng(11).random
    length, num_draws = 3, 8_000
    texts = list(itertools.product(range(5), repeat=length))
    places = {text: place for place, text in enumerate(texts)}
    counts = np.zeros(len(texts))
    for _ in range(num_draws):
        draft = world.draft(fork, (3, 3, 3), random)
        path, token = verify(draft, world.target.__getitem__, random)
        text = (*path, token)
        while len(text) < length:
            text += (world.target[text].sample(random),)
        counts[places[text[:length]]] += 1
    expected = np.array([world.chance(text) for text in texts])
    assert counts[expected == 0].sum() == 0
    rare = num_draws * expected < 5
    counts = np.array([*counts[~rare], counts[rare].sum()])
    expected = np.array([*expected[~rare], expected[rare].sum()])
    assert stats.chisquare(counts, num_draws * expected).pvalue > 1e-5


def _unscaled(proposed: Shares, token: int) -> Shares:
    """Forget to renormalise q."""
    return {each: share for each, share in proposed.items() if each != token}


def _forgotten(wanted: Shares, proposed: Shares, scale: float = 1.0) -> tuple[Shares, float]:
    """Forget the residual: draw the target's own token from p."""
    return wanted, excess_of(wanted, proposed, scale)[1]


def replace_part(patch: pytest.MonkeyPatch, part: str, mutant: Callable[..., Any]) -> None:
    """Replace a function that the verifiers use."""
    for module in (tree_verifiers, verification):
        patch.setattr(module, part, mutant)


class _Left(dict[int, float]):
    """A q without some tokens, which no drawn token may be; such a one is rejected."""

    def __missing__(self, token: int) -> float:
        return math.inf


def _without(proposed: Shares, token: int) -> Shares:
    return _Left(without({**proposed, token: 1.0}, token))


def _drawn_as_alike(draft: Sequence[Fork], after: TargetAfter, random: Random) -> TreeVerdict:
    """Verify siblings by a q that keeps the tokens drawn before."""
    with pytest.MonkeyPatch.context() as patched:
        replace_part(patched, "without", lambda proposed, _: proposed)
        return verify_by_traversal(draft, after, random)


def _half_factor(wanted: Shares, proposed: Shares, count: int) -> tuple[float, float]:
    """Take a division factor as if for one child."""
    factor, _ = division(wanted, proposed, 1)
    return factor, (1 - (1 - _overlap(wanted, proposed)) ** count) / _overlap(wanted, proposed)


def _overlap(wanted: Shares, proposed: Shares) -> float:
    return sum(min(share, proposed.get(token, 0.0)) for token, share in wanted.items())


WITHOUT_REPLACEMENT = ["rejection", "rejection, mixed", "traversal", "traversal, mixed"]


def off(name: str, after: Callable[[World], TargetAfter] | None = None) -> float:
    """Return the error of a method on a world where each mutant shows."""
    world = World(4, 2, seed=3)
    law = law_of(world, METHODS[name], (2, 2), after and after(world))
    return error_of(world, law)


@pytest.mark.parametrize("name", WITHOUT_REPLACEMENT)
@pytest.mark.parametrize(("part", "mutant"), [("without", _unscaled), ("excess_of", _forgotten)])
def test_a_forgotten_part_shows(
    name: str, part: str, mutant: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The normalised q, or the residual."""
    replace_part(monkeypatch, part, mutant)
    assert off(name) > 1e-3


def test_a_wrong_division_factor_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one that is too small, K-SEQ accepts too much."""
    monkeypatch.setattr(tree_verifiers, "division", _half_factor)
    assert off("selection") > 1e-3


@pytest.mark.parametrize("verify", [verify_by_rejection, verify_by_traversal])
def test_siblings_drawn_with_replacement_show(
    verify: TreeVerifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If they are verified as if drawn without."""
    replace_part(monkeypatch, "without", _without)
    world = World(4, 2, seed=3)
    assert error_of(world, law_of(world, Method(verify, drawn_fork), (2, 2))) < ROUNDING
    assert error_of(world, law_of(world, Method(verify, repeated_fork), (2, 2))) > 1e-3


def test_a_q_that_keeps_rejected_tokens_shows() -> None:
    """Siblings drawn without replacement have another q."""
    world = World(4, 2, seed=3)
    assert error_of(world, law_of(world, Method(_drawn_as_alike, drawn_fork), (2, 2))) > 1e-3


@pytest.mark.parametrize("name", METHODS)
def test_a_wrong_row_shows(name: str) -> None:
    """The target's distribution before the last token of the path, instead of after it."""
    assert off(name, lambda world: lambda path: world.target[path[:-1]]) > 1e-3


@pytest.mark.parametrize("name", [each for each in METHODS if each != "trunk"])
def test_a_wrong_row_behind_a_sibling_shows(name: str) -> None:
    """The row of the fork, instead of the row behind the sibling."""

    def after(world: World) -> TargetAfter:
        def row(path: tuple[int, ...]) -> Distribution:
            return world.target[path[:-1] if path in siblings else path]

        return row

    siblings: set[tuple[int, ...]] = set()
    verify, fork = METHODS[name]

    def marked(draft: Sequence[Fork], row: TargetAfter, random: Random) -> TreeVerdict:
        siblings.clear()
        trunk = tuple(each.drawn[0] for each in draft)
        for length, each in enumerate(draft):
            others = {*each.drawn[1:], *each.chosen} - {trunk[length]}
            siblings.update((*trunk[:length], other) for other in others)
        return verify(draft, row, random)

    world = World(4, 2, seed=3)
    law = law_of(world, Method(marked, fork), (2, 2), after(world))
    assert error_of(world, law) > 1e-3


def test_a_chosen_sibling_verified_as_drawn_shows() -> None:
    """Chosen siblings have no q."""

    def fork(proposed: Distribution, token: int, count: int, random: Random) -> Fork:
        chosen = chosen_fork(proposed, token, count, random)
        return Fork(proposed, (*chosen.drawn, *chosen.chosen))

    world = World(4, 2, seed=3)
    for verify in (verify_by_rejection, verify_by_traversal):
        assert error_of(world, law_of(world, Method(verify, fork), (2, 2))) > 1e-3


def test_traversal_of_a_chain_is_block_verification() -> None:
    """It accepts the same, with the same probability."""
    world = World(3, 3, seed=1)
    chain = law_of(world, METHODS["traversal"], (0, 0, 0))
    block = law_of(world, METHODS["trunk"], (0, 0, 0))
    for text in {*chain, *block}:
        assert chain.get(text, 0.0) == pytest.approx(block.get(text, 0.0), abs=ROUNDING)


def test_block_verification_is_decodings_own() -> None:
    """The trunk's verifier gives what the verifier of chains does, by the same numbers."""
    world = World(4, 3, seed=2)
    for seed in range(50):
        draft = world.draft(drawn_fork, (2, 2, 2), np.random.default_rng(seed).random)
        chain = [DraftToken(each.drawn[0], each.proposed, "draft") for each in draft]
        trunk = tuple(each.token for each in chain)
        wanted = verify_by_block(
            chain,
            lambda length, trunk=trunk: world.target[trunk[:length]],  # type: ignore[misc]
            np.random.default_rng(seed).random,
        )
        random = np.random.default_rng(seed).random
        assert verify_trunk(draft, world.target.__getitem__, random) == (
            trunk[: wanted.num_accepted],
            wanted.token,
        )


def test_chosen_siblings_are_accepted_with_the_same_probability_from_the_leaves_up() -> None:
    """The product's rule loses nothing against traversal."""
    world = World(4, 2, seed=4)
    leaves = law_of(world, METHODS["traversal, chosen"], (2, 2))
    product = law_of(world, METHODS["chosen"], (2, 2))
    for text in {*leaves, *product}:
        assert leaves.get(text, 0.0) == pytest.approx(product.get(text, 0.0), abs=ROUNDING)


@pytest.mark.parametrize("seed", range(6))
def test_who_accepts_more(seed: int) -> None:
    """Siblings add to what the trunk gives, and traversal accepts most of those drawn."""
    world, kept = World(4, 2, seed), ["trunk", "chosen", "rejection", "traversal"]
    emitted = {name: num_emitted(law_of(world, METHODS[name], (2, 2))) for name in kept}
    assert emitted["chosen"] > emitted["trunk"]
    assert emitted["traversal"] > emitted["trunk"]
    assert emitted["traversal"] >= emitted["rejection"] - ROUNDING
    assert max(emitted.values()) < 3


def test_the_division_factor_is_the_smallest() -> None:
    """That of one child is 1; a smaller one than that of several is not allowed."""
    generator = np.random.default_rng(5)
    for _ in range(50):
        rows = [Distribution(np.arange(5), generator.dirichlet(np.ones(5))) for _ in range(2)]
        wanted, proposed = (each.shares() for each in rows)
        assert division(wanted, proposed, 1)[0] == 1.0
        factor, weight = division(wanted, proposed, 3)
        assert 1.0 <= factor <= 3.0
        assert weight <= factor
        assert factor - weight < 1e-3 or factor == 1.0


@pytest.mark.parametrize("name", METHODS)
def test_long_distributions_and_short_ones_give_the_same(name: str) -> None:
    """Long ones are stored as arrays."""
    size = LARGEST_TABLE + 1
    generator = np.random.default_rng(6)
    rows = [Distribution(np.arange(size), generator.dirichlet(np.ones(size))) for _ in range(3)]
    assert rows[0].table is None
    verify, fork = METHODS[name]
    random = generator.random
    emitted = [
        verify([fork(rows[0], rows[0].sample(random), 4, random)], lambda path: rows[1], random)
        for _ in range(2_000)
    ]
    first = np.array([[*path, token][0] for path, token in emitted])
    bins = np.array_split(np.arange(size), 8)
    counts = [int(np.isin(first, each).sum()) for each in bins]
    shares = np.array([rows[1].weights[each].sum() for each in bins])
    assert stats.chisquare(counts, len(first) * shares).pvalue > 1e-5
