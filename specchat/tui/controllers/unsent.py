"""What is written but not sent: kept on disk while it is typed; no Textual here."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from specchat.chat.draft import Draft, DraftFile
from specchat.tui.controllers.chat_view import ChatView
from specchat.tui.controllers.session import Post

KEEP_SECONDS = 0.5
"""A crash or a closed terminal loses what was typed in this time, and no more."""


class Unsent:
    """Keeps the text in the composer and the questions that wait, in a thread of its own.

    A chat that is killed, or whose terminal is closed, has no time to do that at its end.
    """

    def __init__(self, view: ChatView, history: Path | None, post: Post) -> None:
        """Keep nothing yet; without a history nothing is kept at all."""
        self.read: Callable[[], Draft] = Draft
        """Returns what is not sent."""
        self._view, self._post = view, post
        self._file = DraftFile(history) if history else None
        self._thread = ThreadPoolExecutor(1, "draft")
        self._kept = Draft()
        self._is_due = False
        self.is_taken = False
        """Whether what the chat before did not send has been shown."""

    def begin(self, show: Callable[[Draft], None]) -> None:
        """Show what the chat before did not send, unless there is nothing."""
        if self._file is None:
            return
        file = self._file

        def taken(draft: Draft) -> None:
            self._kept, self.is_taken = draft, True
            if draft.text.strip():
                show(draft)
            self.changed()

        self._thread.submit(lambda: self._post(taken, file.take()))

    def changed(self) -> None:
        """Keep what is not sent soon, if it has changed; called at every key."""
        if self.is_taken and not self._is_due:
            self._is_due = True
            self._view.later(KEEP_SECONDS, self._keep)

    def close(self) -> None:
        """Keep what is not sent, and leave it to the next chat."""
        if self._file is not None:
            if self.is_taken:
                self._keep()
            else:  # the chat ends before it could show what the one before did not send
                file, now = self._file, self.read()
                self._thread.submit(lambda: file.keep(file.take().above(now)))
            self._thread.submit(self._file.close)
        self._thread.shutdown()

    def _keep(self) -> None:
        self._is_due = False
        draft = self.read()
        if draft != self._kept and self._file is not None:
            self._kept = draft
            self._thread.submit(self._file.keep, draft)
