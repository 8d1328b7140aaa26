"""What is known of a pair on a machine: what passes cost, and how likely drafts are accepted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from specchat.pacing.acceptance import AcceptanceModel
from specchat.passes.learned_cache import LearnedPair
from specchat.passes.pass_costs import PassCosts

LONGEST_KNOWN = 33
"""Passes over up to this many tokens have a measured cost."""
POSITION_WEIGHT = 0.7
"""Assumed gain above temperature 0, in logits, of a token far into a draft over the first one: 0.4
to 0.9 were measured, at acceptance rates from 0.5 to 0.9."""
FEW_ACCEPTED = 4
"""The tokens of a pass that says what reading an accepted token takes."""
TARGET = "target"
UNKNOWN_DRAFT_COST = 0.1
"""Assumed cost of a draft pass that was never measured, as a share of a target pass."""


@dataclass(slots=True)
class Knowledge:
    """Everything learned of a pair on a machine, kept from answer to answer."""

    target: PassCosts = field(default_factory=lambda: PassCosts(LONGEST_KNOWN))
    drafts: dict[str, PassCosts] = field(default_factory=dict)
    """The costs of draft passes, by the origin of their proposals."""
    acceptance: dict[str, AcceptanceModel] = field(default_factory=dict)
    drafts_blocks: bool = False
    """Whether a draft pass gives all tokens of a draft."""
    reads_accepted: bool = False
    """Whether the first draft pass of a step reads all tokens that the last step accepted: what a
    prediction head made of them was made of its own rows."""
    measured: set[str] = field(default_factory=set)
    """The models whose passes were measured: TARGET, or the origin of their proposals."""

    @classmethod
    def of_record(cls, record: LearnedPair) -> Knowledge:
        """Return what an earlier session learned."""
        knowledge = cls(measured=set(record.measured))
        knowledge.target.learn_record(record.target)
        for origin, costs in record.drafts.items():
            knowledge.costs_of(origin).learn_record(costs)
        for name, numbers in record.acceptance.items():
            origin, _, kind = name.rpartition(" ")
            knowledge.acceptance_of(origin, kind == "greedy").learn_record(numbers)
        return knowledge

    def as_record(self) -> LearnedPair:
        """Return what is known, for later sessions."""
        return LearnedPair(
            self.target.as_record(),
            {origin: costs.as_record() for origin, costs in self.drafts.items() if costs.is_known},
            {name: each.as_record() for name, each in self.acceptance.items() if each.num_observed},
            sorted(self.measured),
        )

    def doubt(self) -> bool:
        """Judge anew what was only learned from the passes of answers; return if there is any.

        These may have been made at a bad moment: on a busy machine, or with weights not yet read.
        """
        costs = {TARGET: self.target, **self.drafts}
        doubtful = [costs[name] for name in costs.keys() - self.measured]
        for each in doubtful:
            each.doubt()
        return bool(doubtful)

    def add_origin(self, origin: str) -> None:
        """Count an origin among those of draft passes; a new one's costs are unknown."""
        if origin not in self.drafts:
            self.drafts[origin] = PassCosts(LONGEST_KNOWN)

    def costs_of(self, origin: str) -> PassCosts:
        """Return the costs of an origin's draft passes, unknown so far if it is new."""
        self.add_origin(origin)
        return self.drafts[origin]

    def acceptance_of(self, origin: str, is_greedy: bool) -> AcceptanceModel:
        """Return the acceptance of an origin's proposals at temperature 0, or above it."""
        name = f"{origin} {'greedy' if is_greedy else 'sampled'}"
        if name not in self.acceptance:
            has_position = origin in self.drafts and not is_greedy
            self.acceptance[name] = AcceptanceModel(POSITION_WEIGHT if has_position else 0.0)
        return self.acceptance[name]

    def draft_seconds(self, origin: str, num_tokens: int, depth: int) -> float:
        """Return the time of an origin's draft pass over this many tokens."""
        costs, guess = self.drafts.get(origin), UNKNOWN_DRAFT_COST * self.target.seconds(1, depth)
        if costs is None or not costs.is_known:
            return guess
        seconds = costs.seconds(num_tokens, depth)
        return seconds if costs.is_one_known else min(seconds, guess)

    def draft_costs(self, origin: str, depth: int) -> tuple[float, float, float, float]:
        """Return the seconds of an origin's draft passes; see the function of that name."""
        return draft_costs(
            lambda num_tokens: self.draft_seconds(origin, num_tokens, depth),
            drafts_blocks=self.drafts_blocks,
            reads_accepted=self.reads_accepted,
        )


def draft_costs(
    seconds: Callable[[int], float], *, drafts_blocks: bool = False, reads_accepted: bool = False
) -> tuple[float, float, float, float]:
    """Return the seconds of a draft pass over one token, and what more of drafting takes.

    That is a pass for another token of a draft, no time if the first gives a whole block; one more
    token in the first pass, after a fully accepted draft; and one more for each accepted token,
    where all are read. `seconds` are those of a pass by its number of tokens.
    """
    single, several = seconds(1), FEW_ACCEPTED if reads_accepted else 2
    more = max(0.0, seconds(several) - single) / (several - 1)
    later = 0.0 if drafts_blocks else single
    return (single, later, 0.0, more) if reads_accepted else (single, later, more, 0.0)
