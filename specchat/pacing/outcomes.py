"""How likely each token of a verified draft was to be accepted.

Of tokens drawn from q, after some that are accepted with probability P, the target wanting p there,

    sum over tokens of min(q, P p) / P

is accepted once those before are: 1 - TV(p, q) for the first one (Leviathan et al. 2023, corollary
3.6), more behind others (block verification, Sun et al. 2024). That chance says more than the
outcome, and is known of a declined token, too.
"""

from collections.abc import Sequence

from specchat.decoding.distribution import LARGEST_TABLE, Distribution
from specchat.decoding.verification import TargetAt, Verdict

MIN_CHANCE = 0.02
"""Tokens that are less likely than this to be reached hardly matter."""


def chances_of_draft(
    proposed: Sequence[Distribution], num_drafted: int, target: TargetAt, verdict: Verdict
) -> list[float]:
    """Return the chance of the first, second, ... token, as far as they were likely to be reached.

    `proposed` are the distributions of the drafted tokens, and perhaps that of a declined one.
    Comparing long distributions takes too long: there the outcome is used.
    """
    chances: list[float] = []
    for place, (offered, reached) in enumerate(
        zip(proposed, verdict.prefix_probabilities, strict=False)
    ):
        if reached < MIN_CHANCE:
            break
        wanted = target(place)
        if max(len(wanted), len(offered)) <= LARGEST_TABLE or place == num_drafted:
            chances.append(1.0 - wanted.excess_mass(offered, reached) / reached)
        elif place <= verdict.num_accepted:
            chances.append(float(place < verdict.num_accepted))
        else:
            break
    return chances
