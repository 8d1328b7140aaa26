"""What the context holds, and what drops out of it next, in words; no Textual here."""

from collections.abc import Iterator
from dataclasses import dataclass

from specchat.chat.conversation import Message, exchanges, is_pinned
from specchat.safe_text import harmless, in_one_line
from specchat.tui.controllers.answers import Answers
from specchat.tui.controllers.conversations import Conversations
from specchat.tui.controllers.pair_controller import PairController
from specchat.wording import percent

EXCERPT_LENGTH = 30
"""Characters shown of a message."""


@dataclass(frozen=True, slots=True)
class ContextReport:
    """Reports on the prompt of the branch that is shown."""

    conversations: Conversations
    answers: Answers
    pair_controller: PairController

    def words(self) -> str:
        """Return how full the context is, what is left out, and what drops out next."""
        facts = self.pair_controller.facts
        if facts is None:
            return "The model is not loaded yet."
        figures = self.answers.figures
        share = figures.context_share(facts.context, with_reasoning=facts.keeps_reasoning)
        if not facts.context:
            return f"{harmless(facts.served_by)} does not report the size of its context."
        parts = [f"The context of {facts.context} tokens is {percent(share)} full."]
        parts += self._missing(figures.statistics.left_out)
        return " ".join(parts)

    def _missing(self, num_left_out: int) -> Iterator[str]:
        chat = self.conversations
        sent = chat.tree.sent(chat.leaf)
        replaced = len(chat.branch) - len(sent)
        if any(each.mark == "summary" for each in sent):
            yield f"A summary stands for {replaced} earlier messages."
        if num_left_out:
            yield f"The oldest {num_left_out} messages are left out."
        turns = exchanges(sent)
        if num_pinned := sum(map(is_pinned, turns)):
            yield f"{num_pinned} turn{'s stay' if num_pinned > 1 else ' stays'} whatever happens."
        dropping = next_to_drop(turns, num_left_out)
        if dropping is None:
            yield "Nothing can drop out of it."
        else:
            yield f"Next to drop: “{excerpt(dropping.text)}” and what follows it."


def next_to_drop(turns: list[list[Message]], num_left_out: int) -> Message | None:
    """Return the first message that drops out next, after those that did; None if none can.

    The last turn always stays.
    """
    for turn in turns[:-1]:
        if is_pinned(turn):
            continue
        if num_left_out <= 0:
            return turn[0]
        num_left_out -= len(turn)
    return None


def excerpt(text: str) -> str:
    """Return the beginning of a text on one line."""
    line = " ".join(in_one_line(harmless(text)).split())
    return f"{line[:EXCERPT_LENGTH].rstrip()}…" if len(line) > EXCERPT_LENGTH else line
