"""What Esc and Ctrl+C do: stop the answer, clear the composer, or leave the chat."""

from dataclasses import dataclass
from time import monotonic

from specchat.tui.controllers.chat_state import ChatState
from specchat.tui.main_view import MainView

TWICE_SECONDS = 2.0
"""Between two presses of Ctrl+C that leave the chat."""


@dataclass(slots=True)
class Leaving:
    """Leaves what the user is in, step by step."""

    view: MainView
    state: ChatState
    _armed_at: float | None = None
    """When Ctrl+C was pressed last; None once another key was."""

    def leave(self) -> None:
        """Return to the composer; stop the answer, or else close a panel over the conversation."""
        if not self._stop():
            self.view.navigation.uncover()

    def interrupt(self) -> None:
        """Return to the composer; stop the answer, clear the text, or leave on the second press."""
        if self._stop():
            return
        if self.view.composer.text:
            self.view.composer.rewrite("")
            self.view.notify(f"{self.state.key_of('undo')} brings the text back.")
            return
        before, self._armed_at = self._armed_at, monotonic()
        if before is not None and self._armed_at - before < TWICE_SECONDS:
            self.view.app.exit()
        else:
            self.view.notify("Press Ctrl+C again to quit.", timeout=TWICE_SECONDS)

    def disarm(self) -> None:
        """Have Ctrl+C quit only on its second press from now on: something else was pressed."""
        self._armed_at = None

    def _stop(self) -> bool:
        """Return to the composer; stop the answer and return True if one is being written."""
        self.view.composer.focus()
        is_writing = self.state.answers.here is not None
        if is_writing:
            self.state.answers.stop()
        return is_writing
