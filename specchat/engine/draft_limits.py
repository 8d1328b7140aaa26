"""How much of an answer may be drafted, by what is asked and what is known of the pair."""

from collections.abc import Iterator
from dataclasses import dataclass

from specchat import drafter_registry
from specchat.engine.api import EngineFacts
from specchat.requests.answer_request import AnswerRequest


@dataclass(frozen=True, slots=True)
class DraftLimits:
    """The limits of drafts with a pair of which these `facts` are known.

    `exact` is the option that it was loaded with. It `uses_gpus` if layers of it are on any.
    """

    facts: EngineFacts
    exact: str
    uses_gpus: bool

    def longest_pass(self, drafter: str, request: AnswerRequest) -> int | None:
        """Return the longest pass of an answer that must repeat or be exact, None for any length.

        An answer with a seed is drafted as usual if no draft is known to repeat.
        """
        longest = 1 + (self.facts.repeatable_draft or 0)
        if request.is_exact or self.exact == "on":
            return longest
        is_plain = request.draft_length == 0 or not drafter_registry.DRAFTERS[drafter].origins
        return longest if request.seed is not None and (longest > 1 or is_plain) else None

    def draft_length(self, request: AnswerRequest, longest_pass: int | None) -> int:
        """Return the most tokens that are drafted one behind another."""
        longest = self.facts.longest_draft
        if longest_pass is not None:
            longest = min(longest, longest_pass - 1)
        if isinstance(request.draft_tree, int):  # the draft is a part of it
            longest = min(longest, request.draft_tree)
        return min(request.num_to_draft, longest)

    def most_nodes(self, request: AnswerRequest, longest_pass: int | None) -> int:
        """Return the most tokens of a draft with branches, 0 for none.

        On a CPU branches are drafted only where asked for: on real pairs answers were 5 % slower
        with those that pacing chose.
        """
        if longest_pass or (request.draft_tree == "auto" and not self.uses_gpus):
            return 0
        return min(request.num_nodes, self.facts.longest_draft)

    def tree_notices(self, request: AnswerRequest, longest_pass: int | None) -> Iterator[str]:
        """Yield why draft trees of the size asked for are not possible."""
        size, facts = request.draft_tree, self.facts
        if not isinstance(size, int) or facts.speculation_off_reason or not request.num_to_draft:
            return
        reason = "the answer must be exact" if request.is_exact else facts.chains_reason
        if longest_pass is not None and not reason:
            reason = "an answer with a seed repeats, and passes with branches are not measured"
        if reason:
            yield f"drafts are chains, not trees of {size} tokens: {reason}"
            return
        longest = facts.longest_draft
        most = min(longest, min(request.num_to_draft, longest) + facts.most_branches)
        if size > most:
            yield f"draft trees have at most {most} tokens here, not {size}"
