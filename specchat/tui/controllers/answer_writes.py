"""Writing answers to the store as they grow, again until that succeeds; no Textual here."""

from collections.abc import Mapping
from time import monotonic
from typing import Any, NamedTuple

from specchat.chat.conversation import Message
from specchat.chat.store import Store
from specchat.chat.stored_steps import StoredSteps
from specchat.errors import AnswerGone, StoreBusy, StoreFailed
from specchat.tui.answer_parts import AnswerParts

WRITE_INTERVAL = 0.45
"""Seconds between two writes of a growing answer: a crash may lose at most a second of it."""


class AnswerWrite(NamedTuple):
    """The arguments of `Store.write` for an answer, and the answer as it ended, if it has."""

    arguments: Mapping[str, Any]
    ended: Message | None


class AnswerWrites:
    """The answers that are to be written: another program or a full disk may block the store."""

    def __init__(self, store: Store) -> None:
        """Begin with none."""
        self._store = store
        self._written = 0.0
        self._pending: dict[int, AnswerWrite] = {}
        self._failure: StoreFailed | None = None
        self.lost = ""
        """What is wrong with an answer that can never be written, until another one ends."""
        self._known_notice = store.notice

    @property
    def trouble(self) -> str:
        """What is wrong with the store; empty if nothing is, or if the store is only busy."""
        if self._failure is not None and not isinstance(self._failure, StoreBusy):
            return f"Not saved yet: {self._failure}"
        if self.lost:
            return self.lost
        return self._store.notice if self._store.notice != self._known_notice else ""

    def write(self, message: int, parts: AnswerParts) -> None:
        """Store an unfinished answer, with any incomplete call, once per `WRITE_INTERVAL`."""
        if monotonic() - self._written >= WRITE_INTERVAL:
            self._written = monotonic()
            text, pieces = parts.text_so_far
            arguments = {
                "text": text,
                "reasoning": parts.reasoning,
                "tool_calls": tuple(parts.tool_calls),
                # there are many, so stored only if needed to tell which text follows a call
                "pieces": pieces if parts.tool_calls or parts.open_call else (),
            }
            before = self._pending.get(message)
            self._pending[message] = AnswerWrite(arguments, before.ended if before else None)
            self.settle()

    @property
    def waiting(self) -> list[Message]:
        """The finished answers that could not be written yet, of any conversation."""
        return [each.ended for each in self._pending.values() if each.ended]

    def finish(self, message: Message, steps: StoredSteps | None) -> None:
        """Store a finished answer; without `steps`, those stay that are stored or to be stored."""
        self.lost = ""
        before = self._pending.get(message.id)
        if steps is None and before:
            steps = before.arguments.get("steps")
        arguments = {
            "text": message.text,
            "reasoning": message.reasoning,
            "tool_calls": message.tool_calls,
            "finish": message.finish,
            "statistics": message.statistics,
            "pieces": message.pieces,
            "steps": steps,
        }
        self._pending[message.id] = AnswerWrite(arguments, message)
        self.settle()

    def steps_of(self, answer: int) -> StoredSteps | None:
        """Return the steps of a finished answer, stored or not; None if there are none."""
        waiting = self._pending.get(answer)
        known: StoredSteps | None = waiting.arguments.get("steps") if waiting else None
        return known or self._store.steps(answer)

    def settle(self) -> bool:
        """Write what is pending; return False if some of it still could not be written."""
        self._failure = None
        for message, write in list(self._pending.items()):
            try:
                self._store.write(message, **write.arguments)
                del self._pending[message]
            except AnswerGone as error:
                del self._pending[message]
                self.lost = f"Not saved: {error}"
            except StoreFailed as error:
                self._failure = error
        return not self._pending
