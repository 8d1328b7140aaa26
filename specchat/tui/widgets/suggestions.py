"""The slash commands that match what is typed, listed above the composer."""

from dataclasses import dataclass

from rich.text import Text
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from specchat.tui.commands import SLASHES, matching

WIDEST = max(map(len, SLASHES))


class Suggestions(OptionList, can_focus=False):
    """Hidden unless a command is being typed; the focus stays in the composer."""

    _text = ""
    """The text the commands are listed for."""

    @dataclass
    class Taken(Message):
        """The user runs a command."""

        text: str

    def follow(self, text: str) -> bool:
        """List the commands that a new text may become; return True if there are any."""
        if text == self._text:
            return False
        self._text = text
        found = matching(text)
        self.display = bool(found)
        self.clear_options()
        for word, command in found.items():
            line = Text(f"/{word:<{WIDEST}}  ")
            takes = f" ({', '.join(command.takes)})" if command.takes else ""
            line.append(f"{command.help}{takes}", "dim")
            self.add_option(Option(line, id=word))
        self.highlighted = 0 if found else None
        return self.display

    @property
    def marked(self) -> str:
        """The name of the highlighted command."""
        option = self.highlighted_option
        return str(option.id) if option else ""

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Run the clicked command."""
        event.stop()
        self.post_message(self.Taken(f"/{event.option.id}"))
