"""Drafted tokens, and what a drafter knows about a token before drafting it."""

from typing import NamedTuple

from specchat.decoding.chunk import Origin
from specchat.decoding.distribution import Distribution
from specchat.drafter_registry import GRAMMAR


class DraftToken(NamedTuple):
    """A drafted token and the distribution it was drawn from (certain if it was not drawn)."""

    token: int
    distribution: Distribution
    origin: Origin


def forced_token(token: int) -> DraftToken:
    """Return a token that a grammar forces at the end of a draft."""
    return DraftToken(token, Distribution.certain(token), GRAMMAR.name)


class Branch(NamedTuple):
    """A token beside the draft, which may follow one of its tokens in place of the next.

    It was chosen, not drawn: it takes nothing from the share of any token. It follows the first
    `fork` drafted tokens, or, if `behind` is not -1, the branch with that index among those that it
    is offered with, which must come before it. `confidence` is the drafter's own estimate of the
    probability that the target continues with it, if the target leaves the draft there.
    """

    token: int
    fork: int
    origin: Origin
    confidence: float
    behind: int = -1


class Hint(NamedTuple):
    """What a drafter knows about a token before drafting it.

    `confidence` is the drafter's own estimate of the probability of acceptance, 0 to 1. The token
    will be drawn from `distribution`; a token that costs no draft pass is certain in it.
    """

    confidence: float
    distribution: Distribution | None = None
