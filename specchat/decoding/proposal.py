"""What a drafter proposes: tokens, and what it knows of them beforehand."""

from typing import NamedTuple

from specchat.decoding.chunk import Origin
from specchat.decoding.distribution import Distribution


class DraftToken(NamedTuple):
    """A drafted token and the distribution it was drawn from (certain if it was not drawn)."""

    token: int
    distribution: Distribution
    origin: Origin


class Hint(NamedTuple):
    """What a drafter knows of a token before it drafts it.

    `confidence` is the drafter's own estimate that the token will be accepted, 0 to 1. The token
    will be drawn from `distribution`, where one that costs no draft pass is certain.
    """

    confidence: float
    distribution: Distribution | None = None
