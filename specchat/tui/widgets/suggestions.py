"""Completions of the text being typed, listed above the composer: commands, files after @."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.text import Text
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from specchat.tui.commands import COMMANDS, matching

WIDEST = max(len(command.slash[0]) for command in COMMANDS if command.slash)
MORE = "Type to find the others"


class Suggestions(OptionList, can_focus=False):
    """A list shown while a command or file name is typed; the focus stays in the composer."""

    has_files = False
    _text = ""
    """The text that the listed commands complete."""

    @dataclass
    class Taken(Message):
        """The user clicks a command, or a file to attach."""

        text: str
        is_file: bool = False

    def follow(self, text: str) -> bool:
        """List the commands that complete a new text; return True if there are any."""
        found = matching(text)
        is_new, self._text = text != self._text, text
        if not is_new or (self.has_files and not found):
            return False
        commands = {}
        for word, command in found.items():
            line = Text(f"/{word:<{WIDEST}}  ")
            takes = f" ({', '.join(command.takes)})" if command.takes else ""
            commands[word] = line.append(f"{command.slash_help}{takes}", "dim")
        self._list(commands)
        if text == "/":
            self.add_option(Option(MORE, disabled=True))
        self.highlighted = 0 if commands else None
        return self.display

    def list_files(self, names: Sequence[str]) -> None:
        """List files; none is highlighted, so that Enter still sends."""
        self._list({name: Text(f"@{name}") for name in names})
        self.has_files = self.display

    def _list(self, lines: Mapping[str, Text]) -> None:
        self.has_files = False
        self.display = bool(lines)
        self.clear_options()
        self.add_options(Option(line, id=name) for name, line in lines.items())

    @property
    def marked(self) -> str:
        """The highlighted command or file, by default the first one."""
        option = self.highlighted_option or self.get_option_at_index(0)
        return str(option.id)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Run the clicked command, or attach the clicked file."""
        event.stop()
        name = str(event.option.id)
        self.post_message(self.Taken(name if self.has_files else f"/{name}", self.has_files))
