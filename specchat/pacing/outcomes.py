"""How likely each token of a verified draft was to be accepted."""

from collections.abc import Iterator, Sequence

from specchat.decoding.distribution import LARGEST_TABLE, Distribution
from specchat.decoding.verification import TargetAt, Verdict

MIN_CHANCE = 0.02
"""Tokens that are less likely than this to be reached hardly matter."""


def outcomes(
    proposed: Sequence[Distribution], num_drafted: int, target: TargetAt, verdict: Verdict
) -> Iterator[tuple[int, float, float]]:
    """Yield the place of each token, its chance, and that of those before it to be accepted.

    `proposed` are the distributions of the drafted tokens, and perhaps that of a declined one.

    Of tokens drawn from q, after some that are accepted with probability P, the target wanting
    p there, the sum of min(q / P, p) is accepted: 1 - TV(p, q) for the first one (Leviathan et
    al. 2023, corollary 3.6), more behind others (block verification, Sun et al. 2024). That
    chance says more than the outcome, and is known of a declined token too. Comparing long
    distributions takes too long: there the outcome is used.
    """
    for place, (offered, reached) in enumerate(
        zip(proposed, verdict.prefix_probabilities, strict=False)
    ):
        if reached < MIN_CHANCE:
            continue
        wanted = target(place)
        if max(len(wanted), len(offered)) <= LARGEST_TABLE or place == num_drafted:
            yield place, 1.0 - wanted.excess_mass(offered, reached) / reached, reached
        elif place <= verdict.num_accepted:
            yield place, float(place < verdict.num_accepted), 1.0
        else:
            break
