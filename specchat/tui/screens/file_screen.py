"""A dialog for the path of a GGUF file, which lists folders and files and completes the path.

A name on the hub may be typed too.
"""

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice, takewhile
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from specchat.hub.names import is_hub_name
from specchat.safe_text import harmless, in_one_line
from specchat.system.current_folder import current_folder
from specchat.tui.screens.dialogs import Dialog
from specchat.tui.widgets.filter_input import FilterInput
from specchat.wording import size_text

MAX_ENTRIES = 5000
"""The most entries of a folder that are looked at."""
SUFFIX = ".gguf"
PARENT = "../"
NOTHING = f"No folder or {SUFFIX} file starts like this."
ON_HUB = f"{NOTHING} Enter looks for it on the hub."


def entries_of(typed: str) -> list[tuple[str, int]]:
    """Return what a typed path may be completed to: folders, then GGUF files, with their sizes.

    The names replace what follows the last slash; folders end with one and have the size 0. Hidden
    ones are listed once their dot is typed.
    """
    folder, start = _split(typed)
    found: list[tuple[bool, str, int]] = []
    with suppress(OSError, ValueError), os.scandir(os.path.expanduser(folder) or ".") as entries:
        for entry in islice(entries, MAX_ENTRIES):
            with suppress(OSError):
                is_plain = entry.name == harmless(entry.name)
                is_folder = entry.is_dir()
                is_model = entry.name.lower().endswith(SUFFIX)
                is_hidden = entry.name.startswith(".") and not start.startswith(".")
                has_start = entry.name.lower().startswith(start.lower())
                if has_start and is_plain and not is_hidden and (is_folder or is_model):
                    size = 0 if is_folder else entry.stat().st_size
                    found.append((not is_folder, entry.name + "/" * is_folder, size))
    found.sort(key=lambda each: (each[0], each[1].lower()))
    return [*[(PARENT, 0)] * (not start), *((name, size) for _, name, size in found)]


def completed(typed: str, names: Sequence[str]) -> str:
    """Return a typed path with all that the names have in common."""
    folder, start = _split(typed)
    same = zip(*(name for name in names if name != PARENT), strict=False)
    common = "".join(letters[0] for letters in takewhile(lambda each: len(set(each)) == 1, same))
    return folder + (common if len(common) > len(start) else start)


def _split(typed: str) -> tuple[str, str]:
    """Return a path's folder with its slash, and what follows; "~" is a folder."""
    folder, slash, start = typed.rpartition("/")
    return ("~/", "") if typed == "~" else (folder + slash, start)


class _PathInput(FilterInput):
    """The path; Tab completes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "screen.choose", "Open"),
        Binding("tab", "screen.complete", "Complete"),
    ]


class FileScreen(Dialog[str | None]):
    """A path to type or to choose folder by folder; returns it, None if there is none."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "Cancel")]

    def __init__(self) -> None:
        """Start in the current folder."""
        super().__init__("Open a GGUF file")
        self._shown = ""
        """The path whose entries are listed."""
        self._names: list[str] = []

    def content(self) -> ComposeResult:
        """Put the path above the list."""
        yield _PathInput(placeholder=f"Path of a file (~ is {Path.home()}), or org/repo:Q4_K_M")
        files = OptionList(markup=False)
        files.can_focus = False
        yield files

    def on_mount(self) -> None:
        """List the current folder."""
        self.query_one(".dialog").add_class("-long")
        self.query_one(Input).focus()
        self.look()

    @work(exclusive=True)
    async def look(self) -> None:
        """List what the path may become; in a thread, as a folder may be on a slow disk."""
        typed = self.query_one(Input).value
        entries = await asyncio.to_thread(entries_of, typed)
        words = self.query_one_optional(Input)  # gone while the chat closes
        files = self.query_one_optional(OptionList)
        if words and files and typed == words.value:
            self._list(files, typed, entries)

    def _list(self, files: OptionList, typed: str, entries: Sequence[tuple[str, int]]) -> None:
        self._shown, self._names = typed, [name for name, _ in entries]
        files.clear_options()
        for name, size in entries:
            line = Text(in_one_line(name))
            if size:
                line.append(f"  {size_text(size)}", "dim")
            files.add_option(Option(line))
        has_files = any(size for _, size in entries) or len(entries) > 1
        files.highlighted = (1 if self._names[:1] == [PARENT] and has_files else 0) or 0
        if not entries:
            hint = ON_HUB if is_hub_name(typed) else NOTHING
            files.add_option(Option(hint, disabled=True))
            files.highlighted = None

    def on_input_changed(self) -> None:
        """List what the new path may become."""
        self.look()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Take the clicked entry."""
        self._take(self._names[event.option_index])

    async def action_list(self, action: str) -> None:
        """Run an action of the list, which has no focus."""
        await self.query_one(OptionList).run_action(action)

    def action_complete(self) -> None:
        """Complete the path as far as all entries agree, or else by the highlighted one."""
        typed = self._refreshed()
        found = completed(typed, self._names)
        highlighted = self.query_one(OptionList).highlighted
        if found == typed and highlighted is not None:
            found = _split(typed)[0] + self._names[highlighted]
        self._write(found)

    def action_choose(self) -> None:
        """Return the path if it is a file; else take the highlighted entry."""
        typed = self._refreshed()
        highlighted = self.query_one(OptionList).highlighted
        if _is_file(typed) or highlighted is None:
            self.dismiss(typed.strip() or None)
        else:
            self._take(self._names[highlighted])

    def _refreshed(self) -> str:
        """Return the path, with the list for it even if a key came before that was drawn."""
        typed = self.query_one(Input).value
        if typed != self._shown:
            self._list(self.query_one(OptionList), typed, entries_of(typed))
        return typed

    def _take(self, name: str) -> None:
        """Enter a folder, or return a file."""
        folder = _split(self._shown)[0]
        if name.endswith("/"):
            parent = _parent(folder) if name == PARENT else folder + name
            self._write(parent)
        else:
            self.dismiss(folder + name)

    def _write(self, path: str) -> None:
        line = self.query_one(Input)
        line.value = harmless(path)
        line.cursor_position = len(path)


def _parent(folder: str) -> str:
    """Return the folder above one, both with a slash at the end."""
    last = folder.rstrip("/").rpartition("/")[2]
    if last in {"", "."} and folder.startswith("/"):
        return "/"
    if last in {"", ".", "..", "~"}:
        path = Path(os.path.normpath(current_folder() / os.path.expanduser(folder)))
        return f"{path.parent.as_posix().rstrip('/')}/"
    return folder.rstrip("/")[: -len(last)]


def _is_file(typed: str) -> bool:
    with suppress(OSError, ValueError, RuntimeError):
        return Path(typed.strip()).expanduser().is_file()
    return False
