"""Verification: which drafted tokens the target keeps. The one place where acceptance happens.

Every verifier takes the draft, the target's processed distribution at each position (asked for only
when needed; position i follows the first i drafted tokens, position len(draft) the whole draft) and
a source of uniform numbers, and returns how many drafted tokens are kept and the target's own token
that follows them. The text that results is distributed exactly as the target's own.
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
    """What verification decided: the number of drafted tokens kept, and the token after them."""

    num_accepted: int
    token: int


Verifier: TypeAlias = Callable[[Sequence[DraftToken], TargetAt, Random], Verdict]


def verify_by_argmax(draft: Sequence[DraftToken], target: TargetAt, random: Random) -> Verdict:
    """Keep a drafted token if and only if it is the target's most probable one."""
    del random  # nothing is drawn at temperature 0
    for position, drafted in enumerate(draft):
        best = target(position).best()
        if best != drafted.token:
            return Verdict(position, best)
    return Verdict(len(draft), target(len(draft)).best())


def verify_by_rejection(draft: Sequence[DraftToken], target: TargetAt, random: Random) -> Verdict:
    """Keep a token with probability min(1, p/q), else draw from norm(max(0, p - q)).

    Leviathan et al. 2023 (arXiv 2211.17192), Chen et al. 2023 (arXiv 2302.01318).
    """
    for position, (token, proposed, _) in enumerate(draft):
        wanted = target(position)
        if random() * proposed.probability(token) >= wanted.probability(token):
            return Verdict(position, wanted.sample_excess(proposed, random))
    return Verdict(len(draft), target(len(draft)).sample(random))


def verify_by_block(draft: Sequence[DraftToken], target: TargetAt, random: Random) -> Verdict:
    """Keep the longest prefix that passes a joint test; never fewer tokens on average than above.

    Block verification, Sun et al. 2024 (arXiv 2403.10444). `kept` is the paper's P_i, the
    probability with which the prefix up to i may stay; the search does not stop at the first
    prefix that fails, and the residual is scaled by the `kept` of the prefix that stays.
    """
    num_accepted, kept, accepted_kept = 0, 1.0, 1.0
    for position, (token, proposed, _) in enumerate(draft):
        kept = min(1.0, kept * target(position).probability(token) / proposed.probability(token))
        if kept == 0.0:  # every longer prefix has probability 0 too
            break
        if random() < _chance_to_keep(kept, position + 1, draft, target):
            num_accepted, accepted_kept = position + 1, kept
    if num_accepted == len(draft):
        return Verdict(num_accepted, target(num_accepted).sample(random))
    rejected = draft[num_accepted].distribution
    return Verdict(
        num_accepted, target(num_accepted).sample_excess(rejected, random, accepted_kept)
    )


def _chance_to_keep(
    kept: float, length: int, draft: Sequence[DraftToken], target: TargetAt
) -> float:
    """Return the paper's h_i: the chance that a prefix of this length passes its test."""
    if length == len(draft) or kept == 1.0:
        return kept
    excess = target(length).excess_mass(draft[length].distribution, kept)
    return excess / (excess + 1.0 - kept)
