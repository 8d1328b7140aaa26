"""What controllers may ask of the screen: the whole of what they know about it."""

from collections.abc import Callable
from typing import Any, Literal, Protocol, TypeAlias, get_args

from specchat.tui.answer_parts import AnswerParts

Subject: TypeAlias = Literal["history", "progress", "context", "engine"]
"""What the status line can be about, the most pressing first."""
PRESSING: tuple[Subject, ...] = get_args(Subject)


class AnswerDisplay(Protocol):
    """One answer on the screen."""

    def show(self, parts: AnswerParts) -> None:
        """Show the answer as far as it is written."""

    def say(self, words: str, details: str = "", *, has_failed: bool = False) -> None:
        """Show a line below the answer; the details take its place while it has the focus."""


class ChatView(Protocol):
    """The chat's screen."""

    def notify(self, message: str, **how: Any) -> None:
        """Show a notice."""

    def report(self, reason: object) -> None:
        """Show a notice about an error."""

    def say(self, words: str, about: Subject = "engine") -> None:
        """Set what the status line says about a subject; empty clears it."""

    def show_state(self) -> None:
        """Update what depends on the controllers' state: figures, stop button, top line."""

    def show_conversations(self) -> None:
        """Update the list of conversations."""

    def show_pull(self, name: str) -> None:
        """Update what is shown of a download."""

    def put_back(self, text: str) -> None:
        """Put a text into the composer."""

    async def show_branch(self) -> None:
        """Show the current branch of the conversation."""

    async def add(self, message: int) -> AnswerDisplay | None:
        """Add a message at the end; return the display of an answer."""

    async def last_answer(self) -> AnswerDisplay | None:
        """Return the answer at the end; None if the last message is a question."""

    def later(self, seconds: float, act: Callable[[], object]) -> None:
        """Call a function after some seconds."""
