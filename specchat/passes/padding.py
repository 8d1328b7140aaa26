"""Target passes over more tokens than they have to read, where those take less time.

Kernels read weights in blocks: where a block serves four tokens and each token beyond a multiple of
four takes a pass over the weights of its own, a pass over three tokens takes longer than one over
four.
"""

from collections.abc import Sequence
from itertools import accumulate

WORTH_PADDING = 0.95
"""A pass is padded if that takes less than this share of its time; a smaller gain may be chance."""


def padded_row(row: list[float], longest: int) -> list[float]:
    """Return the costs of passes by their number of tokens, padded where that pays.

    Padded passes have up to `longest` tokens. Passes over one token are never padded.
    """
    several = row[2 : longest + 1]
    if not several:
        return row
    least = list(accumulate(reversed(several), min))[::-1]
    if least == several:  # no longer pass takes less time
        return row
    pairs = zip(several, least, strict=True)
    several = [low if low < WORTH_PADDING * cost else cost for cost, low in pairs]
    return [*row[:2], *several, *row[len(several) + 2 :]]


def padded_size(row: Sequence[float], num_tokens: int, longest: int) -> int:
    """Return the length, up to `longest`, at which a pass that must read some tokens is fastest."""
    costs = row[num_tokens : longest + 1]
    least = min(costs, default=0.0)
    if num_tokens < 2 or not costs or least >= WORTH_PADDING * costs[0]:
        return num_tokens
    return num_tokens + costs.index(least)
