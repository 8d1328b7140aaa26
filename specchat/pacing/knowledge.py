"""What is learned of a pair on a machine: what passes cost, how likely tokens are to be kept."""

from __future__ import annotations

from dataclasses import dataclass, field

from specchat import drafters
from specchat.decoding.chunk import Origin
from specchat.pacing.acceptance import AcceptanceModel
from specchat.pacing.pass_costs import PassCosts

__all__ = ["LONGEST_KNOWN", "Knowledge"]

LONGEST_KNOWN = 33
"""Passes over up to so many tokens have a measured cost."""
PLACE_WEIGHT = 0.7
"""How much likelier, in logits, a token far into a draft is to be kept above temperature 0 than
the first one, until more is known: 0.4 to 0.9 were measured, with acceptances from 0.5 to 0.9."""
UNKNOWN_DRAFT_COST = 0.1
"""Cost of a draft pass nobody measured yet, as a share of a target pass."""


@dataclass(slots=True)
class Knowledge:
    """Everything learned of a pair on a machine, the starting point next time."""

    target: PassCosts = field(default_factory=lambda: PassCosts(LONGEST_KNOWN))
    draft: PassCosts = field(default_factory=lambda: PassCosts(LONGEST_KNOWN))
    acceptance: dict[str, AcceptanceModel] = field(default_factory=dict)

    def acceptance_of(self, origin: Origin, is_greedy: bool) -> AcceptanceModel:
        """Return what is known of a drafter at temperature 0, or above it."""
        name = f"{origin} {'greedy' if is_greedy else 'sampled'}"
        if name not in self.acceptance:
            is_forgiving = drafters.origin(origin).costs_pass and not is_greedy
            self.acceptance[name] = AcceptanceModel(PLACE_WEIGHT if is_forgiving else 0.0)
        return self.acceptance[name]

    def draft_seconds(self, num_tokens: int, depth: int) -> float:
        """Return what a draft pass over so many tokens takes."""
        if self.draft.is_known:
            return self.draft.seconds(num_tokens, depth)
        return UNKNOWN_DRAFT_COST * self.target.seconds(1, depth)
