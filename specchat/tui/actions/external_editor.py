"""The user's text editor for the message being written."""

import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from textual.app import SuspendNotSupported

from specchat.chat.text_files import decoded
from specchat.errors import EditorFailed, SpecchatError
from specchat.safe_text import harmless
from specchat.system.private_files import write_new
from specchat.system.text_editor import edit_file
from specchat.tui.main_view import MainView

FILE_NAME = "message.md"


@dataclass(frozen=True, slots=True)
class ExternalEditor:
    """Lets the user write the message in the editor that VISUAL or EDITOR names."""

    view: MainView

    def act(self) -> None:
        """Open the editor once the keys before this one are handled."""
        self.view.composer.call_later(lambda: self.view.app.run_worker(self._edit()))

    async def _edit(self) -> None:
        """Give the terminal to the editor, and put what was saved into the composer.

        That is also done if the editor fails or is killed, so that nothing is lost.
        """
        before = self.view.composer.text
        try:
            with tempfile.TemporaryDirectory(
                prefix="specchat-", ignore_cleanup_errors=True
            ) as folder:
                path = Path(folder) / FILE_NAME
                _write(path, before)
                failure = self._run_editor(path)
                after = _read(path)
        except OSError as error:
            raise EditorFailed(f"cannot write the message for the editor: {error}") from None
        if after is not None and after != before:
            self.view.composer.rewrite(after)
        if failure is not None:
            raise failure
        if after is None:
            raise EditorFailed("the editor's file is not text: the message is as it was")

    def _run_editor(self, path: Path) -> SpecchatError | None:
        """Return what went wrong, as the screen returns only if nothing is raised meanwhile."""
        failure: SpecchatError | None = None
        try:
            with self.view.app.suspend():
                try:
                    edit_file(path)
                except SpecchatError as error:
                    failure = error
        except SuspendNotSupported:
            return EditorFailed("this terminal cannot be given to an editor: write the text here")
        return failure


def _write(path: Path, text: str) -> None:
    write_new(path, f"{text}\n".encode() if text else b"")


def _read(path: Path) -> str | None:
    """Return the text without the newline that editors add; None if the file is not text."""
    with suppress(ValueError):
        content, _ = decoded(path.read_bytes())
        lines = harmless(content.replace("\r\n", "\n").replace("\r", "\n"))
        return lines.removesuffix("\n")
    return None
