"""What the context holds, and what drops out of it next, in words; no Textual here."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

from specchat.chat.conversation import Message, exchanges, with_attachments
from specchat.requests.prompt_size import estimated_tokens
from specchat.safe_text import harmless, in_one_line
from specchat.tui.controllers.answers import Answers
from specchat.tui.controllers.conversations import Conversations
from specchat.tui.controllers.pair_controller import PairController
from specchat.tui.texts.figures import Figures
from specchat.wording import percent

EXCERPT_LENGTH = 30
"""Characters shown of a message."""


@dataclass(frozen=True, slots=True)
class ContextReport:
    """Reports on the prompt of the branch that is shown."""

    conversations: Conversations
    answers: Answers
    pair_controller: PairController

    @property
    def share(self) -> float:
        """How full the context is; before a prompt is read, what is known of it already."""
        facts = self.pair_controller.facts
        if facts is None or not facts.context:
            return 0.0
        writing, figures = self.answers.here, self.answers.figures
        if writing is not None and not figures.statistics.prompt_tokens:
            used = self._expected(keeps_reasoning=facts.keeps_reasoning)
            return min(used / facts.context, 1.0)
        is_kept = writing is not None or facts.keeps_reasoning
        return figures.context_tokens(with_reasoning=is_kept) / facts.context

    def _expected(self, *, keeps_reasoning: bool) -> int:
        """Return about how many tokens the prompt has: those of before, and what is new."""
        chat, num_tokens = self.conversations, 0
        for message in reversed(chat.tree.sent(chat.leaf)):
            question = chat.tree.get(message.parent or 0)
            if question is None or question.mark != "summary":  # whose prompt was what it replaces
                before = Figures.stored(message.statistics, ())
                known = before.context_tokens(with_reasoning=keeps_reasoning)
                if known:
                    return known + num_tokens
            num_tokens += estimated_tokens(with_attachments(message.text, message.attachments))
        return num_tokens + estimated_tokens(chat.system_prompt)

    def words(self) -> str:
        """Return how full the context is, what is left out, and what drops out next."""
        facts = self.pair_controller.facts
        if facts is None:
            return "The model is not loaded yet."
        if not facts.context:
            return f"{harmless(facts.served_by)} does not report the size of its context."
        parts = [f"The context of {facts.context} tokens is {percent(self.share)} full."]
        parts += self._missing(self.answers.figures.statistics.left_out)
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
        stay = chat.pinned_turns(chat.leaf, chat.schema.source if chat.schema else "")
        begins = accumulate(map(len, turns), initial=1 if chat.system_prompt else 0)
        dropped = [turn for begin, turn in zip(begins, turns, strict=False) if begin not in stay]
        if num_pinned := len(turns) - len(dropped):
            yield f"{num_pinned} turn{'s stay' if num_pinned > 1 else ' stays'} whatever happens."
        dropping = next_to_drop([turn for turn in dropped if turn is not turns[-1]], num_left_out)
        if dropping is None:
            yield "Nothing can drop out of it."
        else:
            yield f"Next to drop: “{excerpt(dropping.text)}” and what follows it."


def next_to_drop(turns: list[list[Message]], num_left_out: int) -> Message | None:
    """Return the first message of turns that drops out next, after those that did; None if none."""
    for turn in turns:
        if num_left_out <= 0:
            return turn[0]
        num_left_out -= len(turn)
    return None


def excerpt(text: str) -> str:
    """Return the beginning of a text on one line."""
    line = " ".join(in_one_line(harmless(text)).split())
    return f"{line[:EXCERPT_LENGTH].rstrip()}…" if len(line) > EXCERPT_LENGTH else line
