"""The interface of the screen for controllers, and all they know about it."""

from collections.abc import Callable
from typing import Any, Literal, Protocol, TypeAlias, get_args

from specchat.tui.answer_parts import AnswerParts
from specchat.tui.texts.ghost_text import Ghost

Subject: TypeAlias = Literal["history", "progress", "images", "context", "engine"]
"""The subjects of the status line, the most urgent first."""
PRESSING: tuple[Subject, ...] = get_args(Subject)


class AnswerDisplay(Protocol):
    """One answer on the screen."""

    def show(self, parts: AnswerParts, drafted: Ghost | None = None) -> None:
        """Show what has been written of the answer, and what was drafted behind it."""

    def say(
        self, words: str, details: str = "", older: str = "", *, has_failed: bool = False
    ) -> None:
        """Show a line below the answer.

        `details` replace it while the answer has the focus, `older` once another message follows.
        """


class ChatView(Protocol):
    """The chat's screen."""

    def notify(self, message: str, **how: Any) -> None:
        """Show a notice."""

    def report(self, reason: object) -> None:
        """Show a notice about an error."""

    def say(self, words: str, about: Subject = "engine") -> None:
        """Set the status text of a subject; empty clears it. The same text is not drawn again."""

    def show_state(self) -> None:
        """Update everything that depends on the controllers: figures, stop button, top line."""

    def show_frame(self) -> None:
        """Update what the composer's frame says."""

    def show_conversations(self) -> None:
        """Update the list of conversations."""

    def show_pull(self, name: str) -> None:
        """Update the display of a download."""

    def put_back(self, text: str) -> None:
        """Put a text that was refused into the composer, above what has been typed since."""

    def rewrite(self, text: str) -> None:
        """Replace the text in the composer; undo restores it."""

    async def show_branch(self) -> None:
        """Show the current branch of the conversation."""

    async def add(self, message: int) -> AnswerDisplay | None:
        """Add a message at the end; return the display of an answer."""

    async def last_answer(self) -> AnswerDisplay | None:
        """Return the display of the last message; None if it is a question."""

    def later(self, seconds: float, act: Callable[[], object]) -> None:
        """Call a function after some seconds."""
