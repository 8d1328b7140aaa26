"""What branches beside a draft bring and cost: which of them a pass should verify.

A branch is worth its chance to be accepted, and costs what the target's pass takes longer. Both are
in tokens, as in `draft_economics`.
"""

from collections.abc import Sequence

from specchat.decoding.proposal import Branch


def chances_of(
    chain: Sequence[float], branches: Sequence[Branch], right: Sequence[float]
) -> list[float]:
    """Return the chance of each branch to be accepted.

    `chain` has the chance of each drafted token to be accepted after those before it, and `right`
    that of each branch to be the target's token where the target leaves the draft:

        chain[0] ... chain[fork - 1] (1 - chain[fork]) right       beside the draft
        chance of the branch before it, times right                behind another branch

    Behind the whole draft, the target leaves it in any case.
    """
    survival, leaving = 1.0, list[float]()
    for chance in chain:
        leaving.append(survival * (1.0 - chance))
        survival *= chance
    leaving.append(survival)
    chances: list[float] = []
    for branch, share in zip(branches, right, strict=True):
        before = chances[branch.behind] if branch.behind >= 0 else leaving[branch.fork]
        chances.append(before * share)
    return chances


def best_number(
    chances: Sequence[float], prices: Sequence[float], num_before: int, worth: float = 1.0
) -> int:
    """Return how many branches, the likeliest first, bring the most for what they cost.

    `prices` has that of a target pass by its number of tokens, `num_before` of which are others.
    An accepted token is worth `worth` tokens. As passes go up in steps, a branch may only pay with
    several others, so all numbers are compared.
    """
    if num_before >= len(prices):
        return 0
    best, number, brought = 0.0, 0, 0.0
    for count, chance in enumerate(chances[: len(prices) - num_before - 1], 1):
        brought += chance * worth
        gain = brought - prices[num_before + count] + prices[num_before]
        if gain > best:
            best, number = gain, count
    return number
