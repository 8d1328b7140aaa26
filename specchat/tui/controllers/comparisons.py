"""Comparisons: the last answer decoded again, to measure its speedup; no Textual here."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specchat.chat.conversation import Message
from specchat.decoding.statistics import Statistics
from specchat.drafter_registry import PLAIN
from specchat.tui.controllers.answers import Answers
from specchat.tui.controllers.chat_view import ChatView
from specchat.tui.controllers.conversations import Conversations
from specchat.tui.controllers.writing import Writing
from specchat.tui.figures import lines_below
from specchat.wording import speedup_text

COMPARED_TOKENS = 256
UNSTEADY = 1.25
"""If the measured speedup is this many times the estimated one, or the reverse, something else than
speculation has changed the speed."""


@dataclass(frozen=True, slots=True)
class Comparisons:
    """Decodes the last answer again, and keeps what that measures with it."""

    view: ChatView
    conversations: Conversations
    answers: Answers

    async def compare(self) -> None:
        """Decode the last answer again without speculation, to compare the speed."""
        writing = Writing(words="decoding without speculation", then=self._compared)
        await self.decode_again(writing, drafter=PLAIN)

    async def decode_again(self, writing: Writing, **options: Any) -> None:
        """Decode the last answer again, unless there is nothing to compare."""
        last = self.conversations.last
        if last is None or last.role != "assistant":
            self.view.notify("There is no answer to compare yet.")
        elif last.statistics.get("drafted") == 0:  # any difference would be chance
            self.view.notify("That answer used no drafts, so there is no speedup to measure.")
        else:
            writing.display = await self.view.last_answer()
            self.repeat(writing, last, **options)

    def repeat(self, writing: Writing, answer: Message, **options: Any) -> None:
        """Decode as many tokens as an answer has, but not too many."""
        tokens = min(max(answer.statistics.get("generated_tokens", 0), 16), COMPARED_TOKENS)
        self.answers.send(writing, answer.parent or 0, max_tokens=tokens, **options)

    def _compared(self, writing: Writing, statistics: Statistics) -> None:
        last, plain = self.conversations.last, statistics.tokens_per_second
        ours = last.statistics.get("tokens_per_second", 0.0) if last else 0.0
        if last is None or not plain or not ours:
            return
        measured, before = ours / plain, last.statistics.get("speedup") or ours / plain
        words = f"{plain:.1f} tokens/s without speculation, {ours:.1f} with it"
        words += f": {speedup_text(measured)}."
        if not 1 / UNSTEADY < measured / before < UNSTEADY:
            words += (
                f" Before, it was {speedup_text(before)}: the machine's speed seems to change."
                " /race decodes both anew."
            )
        self.view.notify(words, timeout=15)
        self.keep(writing, last, speedup_record("measured", plain, ours))

    def keep(self, writing: Writing, answer: Message, measured: Mapping[str, Any]) -> None:
        """Show and store what a comparison measured with the answer."""
        record = self.conversations.keep_figures(answer.id, measured)
        self.answers.figures.compare(record)
        self.view.show_state()
        if writing.display is not None:
            writing.display.say(*lines_below(answer.finish, record))
        self.answers.settle()


def speedup_record(source: str, plain: float, ours: float) -> dict[str, Any]:
    """Return the statistics of a speedup: its source in words, and both rates it follows from."""
    return {"speedup": ours / plain, "speedup_source": source, "measured_rates": [plain, ours]}
