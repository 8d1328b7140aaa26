"""Verification: every rule by exhaustion where it can be, by goodness of fit where it draws."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from decoding.toy_answers import verify_by_rejection
from specchat.decoding.distribution import Distribution
from specchat.decoding.proposal import DraftToken
from specchat.decoding.verification import (
    TargetAt,
    Verdict,
    Verifier,
    verify_by_argmax,
    verify_by_block,
)
from tables import table

ALL = [verify_by_argmax, verify_by_rejection, verify_by_block]
DRAWING = [verify_by_rejection, verify_by_block]


def certain(tokens: Sequence[int]) -> list[DraftToken]:
    """Return a draft of tokens nothing was drawn for."""
    return [DraftToken(token, Distribution.certain(token), "draft") for token in tokens]


def targets(rows: Sequence[Distribution]) -> TargetAt:
    """Return the target's distributions by position, all known beforehand."""
    return lambda position: rows[position]


def distribution(*weights: float) -> Distribution:
    """Return a distribution over tokens 0, 1, 2, ..."""
    return Distribution(np.arange(len(weights)), np.array(weights))


@table("verify", ALL)
@table("length", [0, 1, 2, 3, 4])
def test_greedy_truth_table(verify: Verifier, length: int) -> None:
    """With certain target and draft, exactly the prefix that agrees is kept, then the target's."""
    random = np.random.default_rng(0).random
    for drafted in itertools.product(range(3), repeat=length):
        for wanted in itertools.product(range(3), repeat=length + 1):
            rows = [Distribution.certain(token) for token in wanted]
            agreeing = [a == b for a, b in zip(drafted, wanted, strict=False)]
            expected = agreeing.index(False) if False in agreeing else length

            verdict = verify(certain(drafted), targets(rows), random)

            assert verdict[:2] == (expected, wanted[expected])
            assert list(verdict.prefix_probabilities) == [1.0] * (expected + 1)


@table("verify", ALL)
def test_an_identical_draft_is_always_kept(verify: Verifier) -> None:
    """A draft drawn from the target's own distributions is never rejected."""
    generator = np.random.default_rng(1)
    for _ in range(300):
        rows = [Distribution(np.arange(4), generator.dirichlet(np.ones(4))) for _ in range(5)]
        if verify is verify_by_argmax:
            rows = [Distribution.certain(row.best()) for row in rows]
        draft = [DraftToken(row.sample(generator.random), row, "draft") for row in rows[:4]]

        assert verify(draft, targets(rows), generator.random).num_accepted == 4


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("verify", DRAWING)
def test_the_chances_of_acceptance_are_returned(verify: Verifier) -> None:
    """Over many drafts as many are kept up to each place as was likely (false alarm 1e-4).

    Token-level rejection returns them up to the rejected token.
    """
    generator = np.random.default_rng(3)
    off: list[list[float]] = []
    for _ in range(6000):
        rows = [Distribution(np.arange(4), generator.dirichlet(np.ones(4))) for _ in range(5)]
        others = [Distribution(np.arange(4), generator.dirichlet(np.ones(4))) for _ in range(4)]
        draft = [DraftToken(each.sample(generator.random), each, "draft") for each in others]
        verdict = verify(draft, targets(rows), generator.random)
        kept = [*verdict.prefix_probabilities, *[0.0] * 4][:5]
        off.append([(verdict.num_accepted >= place) - kept[place] for place in range(5)])
    errors = np.array(off)

    assert np.abs(errors[:, 0]).max() == 0
    if verify is verify_by_rejection:
        assert np.abs(errors).max() == 0
    else:
        z = errors[:, 1:].mean(0) / (errors[:, 1:].std(0) / np.sqrt(len(errors)))
        assert np.abs(z).max() < 4.2
        assert np.abs(errors[:, 1:]).mean() > 0.01


@pytest.mark.parametrize("verify", DRAWING)
def test_a_token_of_probability_0_is_never_accepted(verify: Verifier) -> None:
    """A token of probability 0 in the target is rejected, and the correction never is one."""
    random = np.random.default_rng(2).random
    draft = [DraftToken(2, distribution(0.1, 0.1, 0.8), "draft")]
    rows = [distribution(0.5, 0.5), distribution(0.0, 1.0)]
    for _ in range(2000):
        verdict = verify(draft, targets(rows), random)
        assert verdict.num_accepted == 0
        assert verdict.token in {0, 1}


def test_argmax_asks_the_target_no_further_than_the_first_mismatch() -> None:
    """Rows behind a rejection are not even processed."""
    asked: list[int] = []

    def target(position: int) -> Distribution:
        asked.append(position)
        return Distribution.certain(7)

    verify_by_argmax(certain([7, 3, 7, 7]), target, float)

    assert asked == [0, 1]


P, Q = (1 / 3, 2 / 3), (2 / 3, 1 / 3)
EXPECTED_ACCEPTED = [
    (verify_by_rejection, 2, 10 / 9),
    (verify_by_rejection, 3, 38 / 27),
    (verify_by_rejection, 4, 130 / 81),
    (verify_by_block, 2, 11 / 9),
    (verify_by_block, 3, 5 / 3),
    (verify_by_block, 4, 166 / 81),
]


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize(("verify", "length", "expected"), EXPECTED_ACCEPTED)
def test_mean_accepted_length_is_the_papers(verify: Verifier, length: int, expected: float) -> None:
    """On the paper's two-token example the mean number kept is the exact one (5 sigma: 6e-7)."""
    random = np.random.default_rng(3).random
    q, rows = distribution(*Q), [distribution(*P)] * (length + 1)
    kept = np.array(
        [
            verify(
                [DraftToken(q.sample(random), q, "draft") for _ in range(length)],
                targets(rows),
                random,
            ).num_accepted
            for _ in range(20_000)
        ]
    )

    assert abs(kept.mean() - expected) < 5 * kept.std() / np.sqrt(kept.size)


def joint_counts(
    verify: Verifier, length: int, seed: int, num_draws: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return observed and expected counts of whole texts of length + 1 tokens.

    The model is a random tree over 3 tokens; texts shorter than that after a rejection are
    continued from the target, as the loop would.
    """
    generator = np.random.default_rng(seed)
    tree = {
        prefix: [Distribution(np.arange(3), generator.dirichlet(np.full(3, 0.8))) for _ in "pq"]
        for size in range(length + 1)
        for prefix in itertools.product(range(3), repeat=size)
    }
    counts = dict.fromkeys(itertools.product(range(3), repeat=length + 1), 0)
    for _ in range(num_draws):
        draft: list[DraftToken] = []
        drawn: tuple[int, ...] = ()
        for _ in range(length):
            q = tree[drawn][1]
            draft.append(DraftToken(q.sample(generator.random), q, "draft"))
            drawn += (draft[-1].token,)
        verdict = verify(draft, lambda i, drawn=drawn: tree[drawn[:i]][0], generator.random)  # type: ignore[misc]
        text = (*drawn[: verdict.num_accepted], verdict.token)
        while len(text) <= length:
            text += (tree[text][0].sample(generator.random),)
        counts[text] += 1
    expected = [
        np.prod([tree[text[:i]][0].probability(text[i]) for i in range(length + 1)])
        for text in counts
    ]
    return np.array(list(counts.values())), np.array(expected) * num_draws


def p_value(observed: np.ndarray, expected: np.ndarray) -> float:
    """Chi-square goodness of fit, cells expected under 5 times pooled into one."""
    small = expected < 5
    observed = np.append(observed[~small], observed[small].sum())
    expected = np.append(expected[~small], expected[small].sum())
    kept = expected > 0
    return float(stats.chisquare(observed[kept], expected[kept]).pvalue)


@pytest.mark.slow(keep=3)
@pytest.mark.parametrize("verify", DRAWING)
@pytest.mark.parametrize(("length", "seed"), [(1, 11), (2, 12), (3, 13), (3, 21)])
def test_texts_are_distributed_as_the_targets(verify: Verifier, length: int, seed: int) -> None:
    """Whole texts fit the target's joint distribution (false alarm 1e-4 each, seeds fixed)."""
    assert p_value(*joint_counts(verify, length, seed, num_draws=12_000)) > 1e-4


def accept_always(draft: Sequence[DraftToken], target: TargetAt, random: object) -> tuple[int, int]:
    """A broken verifier: keep whatever was drafted."""
    return len(draft), target(len(draft)).sample(random)  # type: ignore[arg-type]


def correct_from_target(
    draft: Sequence[DraftToken], target: TargetAt, random: object
) -> tuple[int, int]:
    """A broken verifier: the correction is drawn from p instead of the residual."""
    for position, (token, proposed, _) in enumerate(draft):
        wanted = target(position)
        if random() * proposed.probability(token) >= wanted.probability(token):  # type: ignore[operator]
            return position, wanted.sample(random)  # type: ignore[arg-type]
    return len(draft), target(len(draft)).sample(random)  # type: ignore[arg-type]


def block_with_break(
    draft: Sequence[DraftToken], target: TargetAt, random: object
) -> tuple[int, int]:
    """A broken block verification: it stops at the first prefix that fails, as one review asked."""
    kept, accepted = 1.0, (0, 1.0)
    for position, (token, proposed, _) in enumerate(draft):
        kept = min(1.0, kept * target(position).probability(token) / proposed.probability(token))
        chance = kept
        if position + 1 < len(draft) and kept < 1:
            excess = target(position + 1).excess_mass(draft[position + 1].distribution, kept)
            chance = excess / (excess + 1 - kept)
        if random() >= chance:  # type: ignore[operator]
            break
        accepted = (position + 1, kept)
    count, scale = accepted
    if count == len(draft):
        return count, target(count).sample(random)  # type: ignore[arg-type]
    return count, target(count).sample_excess(draft[count].distribution, random, scale)  # type: ignore[arg-type]


def unscaled_block(
    draft: Sequence[DraftToken], target: TargetAt, random: object
) -> tuple[int, int]:
    """A broken block verification: its residual is that of token-level rejection."""
    verdict = verify_by_block(draft, target, random)  # type: ignore[arg-type]
    if verdict.num_accepted == len(draft):
        return verdict[:2]
    rejected = draft[verdict.num_accepted].distribution
    return verdict.num_accepted, target(verdict.num_accepted).sample_excess(rejected, random)  # type: ignore[arg-type]


@table("mutant", [accept_always, correct_from_target, block_with_break, unscaled_block])
def test_a_broken_verifier_does_not_pass(mutant: Verifier) -> None:
    """Each mutant fails the very test the real verifiers pass, by a wide margin."""

    def verify(draft: Sequence[DraftToken], target: TargetAt, random: object) -> object:
        return Verdict(*mutant(draft, target, random))  # type: ignore[arg-type]

    observed = joint_counts(verify, 3, seed=21, num_draws=12_000)  # type: ignore[arg-type]

    assert p_value(*observed) < 1e-9
