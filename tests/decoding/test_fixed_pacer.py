"""The fixed pacer: as many tokens as allowed, by no clock and no memory."""

from __future__ import annotations

from specchat.decoding.fixed_pacer import FixedPacer
from specchat.decoding.proposal import Hint
from tables import table


def test_every_allowed_token_is_drafted() -> None:
    """Passes are wanted until the limit is reached, and again in the next step."""
    pacer = FixedPacer()
    for limit in (3, 0, 1):
        pacer.begin_step(10, limit)
        drafted = 0
        while pacer.wants_pass("head", 1) and pacer.wants_token("head", Hint(0.1)):
            drafted += 1

        assert drafted == limit
        assert pacer.room == 0


@table(("limit", "expected"), [(8, 4), (3, 3), (0, 0)])
def test_free_tokens_are_taken_while_they_may_be_accepted(limit: int, expected: int) -> None:
    """Up to the limit, and up to a chance of 2 % that all of them are accepted."""
    pacer = FixedPacer(limit)

    assert pacer.take("suffix", [Hint(0.4)] * 10) == expected
    assert pacer.room == limit - expected


def test_draft_passes_are_preferred_to_a_doubtful_passage() -> None:
    """Eight passes give 2.7 accepted tokens at the usual acceptance rate."""
    doubtful, sure = [Hint(0.6)] * 8, [Hint(0.9)] * 8

    assert FixedPacer(8).take("suffix", doubtful, rival="draft") == 0
    assert FixedPacer(8).take("suffix", sure, rival="draft") == 8
