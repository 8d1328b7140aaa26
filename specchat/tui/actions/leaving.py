"""What Esc and Ctrl+C do: stop the answer, return to the composer, or leave the chat."""

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
    _interrupted_at: float = 0.0

    def leave(self) -> None:
        """Return to the composer; stop the answer, or else close a panel over the conversation."""
        if not self._stop():
            self.view.navigation.uncover()

    def interrupt(self) -> None:
        """Return to the composer; stop the answer, or else leave the chat on the second press."""
        if self._stop():
            return
        before, self._interrupted_at = self._interrupted_at, monotonic()
        if self._interrupted_at - before < TWICE_SECONDS:
            self.view.app.exit()
        else:
            self.view.notify("Press Ctrl+C again to quit.")

    def _stop(self) -> bool:
        """Return to the composer; stop the answer and return True if one is being written."""
        self.view.composer.focus()
        is_writing = self.state.answers.current is not None
        if is_writing:
            self.state.answers.stop()
        return is_writing
