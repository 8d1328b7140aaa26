"""Saving a code block of an answer to a file."""

import asyncio
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from specchat.errors import InvalidOption, SpecchatError
from specchat.safe_text import harmless, in_one_line
from specchat.system.current_folder import current_folder
from specchat.system.private_files import replace_file, write_new
from specchat.tui.controllers.chat_state import ChatState
from specchat.tui.main_view import MainView
from specchat.tui.markdown.typesetter import CodeBlock, code_fences
from specchat.tui.screens.dialogs import ChoiceScreen, ConfirmScreen, LineScreen, ListEntry
from specchat.wording import size_text

PLAIN_NAME = "code.txt"


@dataclass(frozen=True, slots=True)
class CodeSaver:
    """Writes code where the user says, and never over a file without asking."""

    view: MainView
    state: ChatState

    def save(self, name: str = "") -> None:
        """Save the last code block under a name; without one, ask for it."""
        answers = [each for each in self.state.conversations.branch if each.role == "assistant"]
        found = (code_fences(answer.text) for answer in reversed(answers))
        blocks = next(filter(None, found), [])
        if not blocks:
            self.view.notify("There is no code to save.")
        elif name:
            self.view.app.run_worker(self._save(blocks[-1], name))
        else:
            self.view.app.run_worker(self._choose(blocks))

    def save_block(self, block: CodeBlock) -> None:
        """Save a code block, under a name that the user is asked for."""
        self.view.app.run_worker(self._ask_name(block))

    async def _choose(self, blocks: list[CodeBlock]) -> None:
        chosen: str | None = "0"
        if len(blocks) > 1:
            lines = [
                ListEntry(str(place), block.content.strip().partition("\n")[0], block.language)
                for place, block in enumerate(blocks)
            ]
            marked = str(len(blocks) - 1)
            chosen = await self.view.app.push_screen_wait(
                ChoiceScreen("Which code?", lines, marked=marked)
            )
        if chosen is not None:
            await self._ask_name(blocks[int(chosen)])

    async def _ask_name(self, block: CodeBlock) -> None:
        title = f"Save {block.content.count(chr(10))} lines as\nA path, from {current_folder()}"
        screen = LineScreen(harmless(title), suggested_name(block.language), _check_name)
        if name := await self.view.app.push_screen_wait(screen):
            await self._save(block, name)

    async def _save(self, block: CodeBlock, name: str) -> None:
        """Write the code; ask first if there is a file of that name."""
        name = name.strip()
        try:
            path, num_bytes = _target(name)
            if num_bytes is None or await self._may_replace(name, num_bytes):
                write = partial(_write, path, block.content, is_new=num_bytes is None)
                await asyncio.to_thread(write)
                count = block.content.count("\n")
                lines = f"{count} line{'s' * (count != 1)}"
                self.view.notify(f"Saved {lines} to {in_one_line(name)}.")
        except (OSError, RuntimeError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            self.view.report(f"{in_one_line(name)} cannot be written: {reason}")
        except SpecchatError as error:
            self.view.report(error)

    async def _may_replace(self, name: str, num_bytes: int) -> bool:
        details = f"{in_one_line(name)} has {size_text(num_bytes)}; there is no undo."
        question = ConfirmScreen("Replace this file?", details, "Replace", "Keep")
        is_wanted = await self.view.app.push_screen_wait(question)
        return is_wanted is True


def suggested_name(language: str) -> str:
    """Return a file name with the usual ending for a language."""
    from rich.syntax import Syntax

    lexer = Syntax("", language).lexer
    patterns = lexer.filenames if lexer else ()
    endings = [pattern.removeprefix("*") for pattern in patterns if pattern.startswith("*.")]
    return f"code{endings[0]}" if endings and endings[0][1:].isalnum() else PLAIN_NAME


def _target(name: str) -> tuple[Path, int | None]:
    """Return the path of a name, and the size of the file there; None if there is none.

    Raises InvalidOption if something else is there, OSError or RuntimeError for an impossible name.
    """
    path = Path(name).expanduser()
    is_folder = name.endswith("/")
    if not is_folder and not path.exists() and not path.is_symlink():
        return path, None
    if is_folder or not path.is_file():
        raise InvalidOption(f"{in_one_line(name)} is not a file: choose another name")
    return path, path.stat().st_size


def _write(path: Path, content: str, *, is_new: bool) -> None:
    """Write the code as it is; a new file is not executable. On OSError nothing changes."""
    data = content.encode("utf-8", "replace")
    if is_new:
        write_new(path, data, 0o666)
    else:
        replace_file(path, data)


def _check_name(name: str) -> None:
    if not name.strip():
        raise InvalidOption("A file needs a name.")
