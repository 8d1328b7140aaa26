"""Verification: which drafted tokens are accepted. The only place where acceptance happens.

A verifier takes the draft, the target's processed distribution at each position (computed only when
asked for; position i follows the first i drafted tokens, position len(draft) the whole draft) and a
source of uniform numbers. It returns how many drafted tokens are accepted and the target's own
token that follows them. The resulting text is distributed exactly as the target's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from specchat.decoding.distribution import Distribution, Random
from specchat.decoding.proposal import DraftToken

__all__ = [
    "TargetAt",
    "Verdict",
    "Verifier",
    "verify_by_argmax",
    "verify_by_block",
    "verify_by_rejection",
]

TargetAt: TypeAlias = Callable[[int], Distribution]
"""The target's processed distribution after the first i drafted tokens."""


class Verdict(NamedTuple):
    """What verification decided: the number of accepted tokens, and the token after them.

    `kept` holds the probabilities with which the first 0, 1, 2, ... drafted tokens were to be
    accepted, as far as they are above 0: of those that were, and of those that might have been.
    """

    num_accepted: int
    token: int
    kept: Sequence[float] = ()


CERTAIN = (1.0,)

Verifier: TypeAlias = Callable[[Sequence[DraftToken], TargetAt, Random], Verdict]


def verify_by_argmax(draft: Sequence[DraftToken], target: TargetAt, random: Random) -> Verdict:
    """Accept a drafted token if and only if it is the target's most probable one."""
    del random  # nothing is drawn at temperature 0
    for position, drafted in enumerate(draft):
        best = target(position).best()
        if best != drafted.token:
            return Verdict(position, best, CERTAIN * (position + 1))
    return Verdict(len(draft), target(len(draft)).best(), CERTAIN * (len(draft) + 1))


def verify_by_rejection(draft: Sequence[DraftToken], target: TargetAt, random: Random) -> Verdict:
    """Accept a token with probability min(1, p/q), else draw from norm(max(0, p - q)).

    Leviathan et al. 2023 (arXiv 2211.17192), Chen et al. 2023 (arXiv 2302.01318).
    """
    for position, (token, proposed, _) in enumerate(draft):
        wanted = target(position)
        if random() * proposed.probability(token) >= wanted.probability(token):
            instead = wanted.sample_excess(proposed, random)
            return Verdict(position, instead, CERTAIN * (position + 1))
    return Verdict(len(draft), target(len(draft)).sample(random), CERTAIN * (len(draft) + 1))


def verify_by_block(draft: Sequence[DraftToken], target: TargetAt, random: Random) -> Verdict:
    """Accept the longest prefix that passes a joint test; on average no fewer tokens than above.

    Block verification, Sun et al. 2024 (arXiv 2403.10444). `kept` are the paper's P_i, the
    probability with which the prefix up to i may stay; the search does not stop at the first
    prefix that fails, and the residual is scaled by the `kept` of the prefix that stays.
    """
    num_accepted, kept = 0, [1.0]
    for position, (token, proposed, _) in enumerate(draft):
        joint = kept[-1] * target(position).probability(token) / proposed.probability(token)
        if joint == 0.0:  # every longer prefix has probability 0 too
            break
        kept.append(min(1.0, joint))
        if random() < _chance_to_keep(kept[-1], position + 1, draft, target):
            num_accepted = position + 1
    if num_accepted == len(draft):
        return Verdict(num_accepted, target(num_accepted).sample(random), kept)
    rejected = draft[num_accepted].distribution
    token = target(num_accepted).sample_excess(rejected, random, kept[num_accepted])
    return Verdict(num_accepted, token, kept)


def _chance_to_keep(
    kept: float, length: int, draft: Sequence[DraftToken], target: TargetAt
) -> float:
    """Return the paper's h_i: the chance that a prefix of this length passes its test."""
    if length == len(draft) or kept == 1.0:
        return kept
    excess = target(length).excess_mass(draft[length].distribution, kept)
    return excess / (excess + 1.0 - kept)
