"""What branches beside a draft bring and cost: which of them a pass should verify.

A branch is worth its chance to be accepted, and costs what the target's pass takes longer. Both are
in tokens, as in `draft_economics`.
"""

from collections.abc import Sequence


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
