"""The chat's commands: keys, footer, palette, F1 and slash commands all come from this table.

To add a command, add it to `COMMANDS` and to `ChatActions.calls`. No Textual here.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from specchat.errors import InvalidOption

KeyOf: TypeAlias = Callable[[str], str]
"""Returns the display names of a command's keys, by its id; all messages get key names from it."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command: `id` names its action and the setting that changes its key."""

    id: str
    title: str
    """Its name in the footer, and in the palette unless that has a longer one."""
    help: str
    """What it does, in one line."""
    key: str = ""
    slash: tuple[str, ...] = ()
    """Its slash commands, without the slash."""
    takes: tuple[str, ...] = ()
    """The arguments it accepts; the first one is the default."""
    takes_text: bool = False
    """Whether free text may follow its slash command."""
    text_help: str = ""
    """What that text does, where `help` does not say."""
    takes_lines: bool = False
    """Whether that text may have several lines."""
    is_priority: bool = True
    """Whether its key is handled before the focused widget sees it."""
    while_answering: bool = True
    """Whether it works while an answer is being written."""
    in_palette: bool = True
    palette_title: str = ""

    @property
    def slash_help(self) -> str:
        """What its slash command does, which may take more than its key."""
        return f"{self.help}; {self.text_help}" if self.text_help else self.help


COMMANDS = (
    Command(
        "help", "Help", "Documentation: keys, figures, settings and more", "f1", ("help",),
    ),
    Command(
        "models", "Models", "Switch to another pair, or download one", "f8", ("models",),
        takes_text=True, palette_title="Switch or download models",
    ),
    Command(
        "conversations", "Chats", "Show or hide the list of conversations", "f2",
        palette_title="List of chats",
    ),
    Command(
        "panel", "Panel", "Show or hide the stats panel; Tab moves to it, Esc leaves it",
        "f3", palette_title="Stats panel",
    ),
    Command(
        "origins", "Token colours", "Show or hide where each token came from",
        "f4",
    ),
    Command(
        "regenerate", "Regenerate",
        "Answer the last question again", "f5", ("regenerate", "retry"), takes_text=True,
        text_help="temperature=0.2 or a pair's name changes how", while_answering=False,
        palette_title="Regenerate the answer",
    ),
    Command(
        "go_on", "Continue the answer", "Continue an incomplete answer", "ctrl+g", ("continue",),
        while_answering=False,
    ),
    Command("steps", "Steps", "Step through the last answer", "f6", ("steps",),
            palette_title="Steps of the answer"),
    Command(
        "compare", "Race",
        "Race the last answer with and without speculation", "f7", ("race", "compare"),
        takes_text=True, text_help="save NAME.svg saves it", while_answering=False,
        palette_title="Race with and without speculation",
    ),
    Command("statistics", "Statistics", "Statistics for each answer", slash=("stats",)),
    Command(
        "settings", "Settings", "Change settings; model settings apply from the next start",
        "f9", ("settings",),
    ),
    Command(
        "ghost", "Ghost drafts", "Show or hide what is drafted ahead of the answer's text",
        slash=("ghost",),
    ),
    Command("theme", "Theme", "Choose the colours, now and from the next start",
            slash=("theme",)),
    Command("system", "System prompt", "Edit the system prompt", slash=("system",)),
    Command(
        "think", "Thinking",
        "Choose how much the model reasons: auto, on, off or a level it supports",
        slash=("think",), takes_text=True,
    ),
    Command(
        "schema", "Schema",
        "Have answers follow a JSON Schema, or fields such as name, age int; off ends that",
        slash=("schema",), takes_text=True, takes_lines=True,
    ),
    Command("presets", "Presets", "Use, edit or delete presets", slash=("presets",)),
    Command(
        "serve", "Serve other programs",
        "Serve the loaded pair to other programs, or stop", slash=("serve",), takes_text=True,
        text_help="a client's name copies its set-up",
    ),
    Command(
        "attach", "Attach a file", "Attach a text file, a folder or an image to the message",
        slash=("attach",), takes_text=True, text_help="without one, the picture that you copied",
    ),
    Command(
        "edit", "Open the editor", "Write the message in the editor that $VISUAL or $EDITOR names",
        "ctrl+e", ("edit",),
    ),
    Command(
        "new", "New", "Start a new conversation", "ctrl+n", ("new", "clear"),
        palette_title="New chat",
    ),
    Command("rename", "Rename chat", "Give this conversation a title", slash=("rename",)),
    Command("save", "Save code", "Save the last block of code to a file", slash=("save",),
            takes_text=True),
    Command("search", "Search all chats", "Search all conversations", "ctrl+f", ("search",)),
    Command("search_here", "Search this chat", "Search this conversation", "ctrl+t"),
    Command(
        "context", "Show the context", "Say what drops out of the context next",
        slash=("context",),
    ),
    Command(
        "pin", "Pin the question", "Keep the last question in the context, or no longer",
        slash=("pin",),
    ),
    Command(
        "compact", "Compact this chat",
        "Replace the conversation by a summary in the model's context",
        slash=("compact",), while_answering=False,
    ),
    Command(
        "export", "Export", "Write this conversation to a file in the current folder",
        slash=("export",), takes=("md", "json", "html"),
    ),
    Command("copy", "Copy answer", "Copy the last answer", slash=("copy",)),
    Command(
        "undo", "Undo", "Undo the last deletion, pin, summary or followed advice", "ctrl+z",
        ("undo",), is_priority=False,
    ),
    Command(
        "improve", "Follow the advice", "Do what the stats panel advises to make answers faster",
        "ctrl+l", ("improve",),
    ),
    Command("restart", "Restart the engine", "Restart the engine, even one that hangs", "ctrl+r"),
    Command(
        "unload", "Unload the model", "Free the model's memory; the next question loads it again",
        slash=("unload",), while_answering=False,
    ),
    Command("hide", "Hide the hint", "Hide the hint above the composer", "ctrl+o"),
    Command(
        "accept", "Accept the offer",
        "Take what the hint offers: a download, or a switch to the new pair", "ctrl+y",
    ),
    Command(
        "accept_second", "Accept the second offer", "Take the second download that the hint offers",
        "ctrl+s",
    ),
    Command("stop", "Stop", "Stop the answer", "escape", is_priority=False,
            palette_title="Stop the answer"),
    Command(
        "quit", "Quit", "Leave the chat", "ctrl+q", ("quit", "exit"),
        in_palette=False,  # Textual's own entry
    ),
)  # fmt: skip

COMPOSER_COMMANDS = (
    Command("send", "Send", "Send", "enter"),
    Command(
        "newline", "New line", "Start a new line (the last two in terminals that report them)",
        "ctrl+j,alt+enter,shift+enter",
    ),
    Command("complete", "Complete", "Complete the file name after an @", "tab"),
    Command("app.step_focus(-1)", "Messages", "Go to the messages", "shift+up"),
    Command("app.page(-1)", "Scroll up", "Scroll the conversation up", "pageup"),
    Command("app.page(1)", "Scroll down", "Scroll the conversation down", "pagedown"),
)  # fmt: skip
"""Commands that work only in the composer; their keys are fixed."""

FOOTER = ("send", "stop", "models", "compare", "steps", "help")
"""The commands whose keys stand at the bottom of the screen, in this order."""

CANCEL_EDIT = "cancel_edit"
"""What the key of "stop" does while a question is edited."""

MENU = (
    "new", "models", "regenerate", "go_on", "compare", "steps", "think", "system", "search",
    "settings", "help", "quit",
)  # fmt: skip
"""The commands that a slash alone lists; typing finds all."""

OFFER_COMMANDS = ("accept", "accept_second")
"""The commands that accept the hint's offers, in order; without an offer their keys do nothing."""

SEPARATOR = " · "
"""Stands between a command's help and its slash words in the palette."""

PALETTE_FIRST = ("new", "models", "regenerate", "search", "conversations", "settings")
"""The commands that the palette lists first, before the others in the order of the table."""

KEY_ACTIONS = frozenset(command.id for command in COMMANDS if command.key)
"""The commands whose keys can be changed in the settings."""

SLASHES = {word: command for command in COMMANDS for word in command.slash}
_SLASH = re.compile(r"/(\w*)(?:\s+(.*))?", re.DOTALL)
_KEYS = {command.id: command.key for command in (*COMMANDS, *COMPOSER_COMMANDS)}
_KEY_NAMES = {"escape": "Esc", "pageup": "PgUp", "pagedown": "PgDn", "delete": "Del"}


def find_command(action: str) -> Command | None:
    """Return the command that an action, such as `app.export('md')`, belongs to."""
    name = action.partition("(")[0].removeprefix("app.")
    return next((command for command in COMMANDS if command.id == name), None)


def key_of(command: str, changed: Mapping[str, str] | None = None) -> str:
    """Return the display names of a command's keys; `changed` has keys from the settings, by id."""
    return key_names((changed or {}).get(command, _KEYS[command]))


def slash_of(command: str) -> str:
    """Return a command's slash command, by its id."""
    return next(f"/{each.slash[0]}" for each in COMMANDS if each.id == command)


def palette_rows(key_of: KeyOf) -> Iterator[tuple[str, str, str]]:
    """Yield the title, help and action of every command, and of each of its arguments.

    The title names the key; the help ends with the command's slash words. The commands used most
    come first.
    """
    for command in sorted(COMMANDS, key=_place_in_palette):
        help_text = SEPARATOR.join([command.help, *(f"/{word}" for word in command.slash)])
        if command.in_palette and not command.takes:
            key = key_of(command.id)
            title = command.palette_title or command.title
            yield title + (f" ({key})" if key else ""), help_text, command.id
        for word in command.takes:
            yield f"{command.title} as {word}", help_text, f"{command.id}({word!r})"


def _place_in_palette(command: Command) -> int:
    is_first = command.id in PALETTE_FIRST
    return PALETTE_FIRST.index(command.id) if is_first else len(PALETTE_FIRST)


def key_rows(commands: Iterable[Command] = COMMANDS) -> tuple[tuple[str, str], ...]:
    """Return the keys of each command, and what it does."""
    return tuple((key_of(command.id), command.help) for command in commands if command.key)


def key_names(keys: str) -> str:
    """Return display names such as "Ctrl+X, F5" for Textual's names of keys."""
    named = re.sub(r"\w+", lambda key: _KEY_NAMES.get(key[0], key[0].title()), keys)
    return re.sub(r",\s*", ", ", named.strip())


def is_slash(text: str) -> bool:
    """Return True for a slash command: a line that starts with a slash and a word.

    A path such as /usr/bin is not one, as a second slash follows the first name. Further lines may
    follow only the commands that take them.
    """
    return bool(_SLASH.fullmatch(text)) and ("\n" not in text or takes_lines(text))


def takes_lines(text: str) -> bool:
    """Return True for a slash command, so far, that takes several lines."""
    found = _SLASH.fullmatch(text)
    command = SLASHES.get(found[1].lower()) if found else None
    return command is not None and command.takes_lines


def matching(text: str) -> dict[str, Command]:
    """Return the commands with a slash word that starts with the typed text, by their first words.

    A slash alone finds those of the menu.
    """
    found = _SLASH.fullmatch(text)
    if found is None or found[2] is not None or text[-1].isspace():
        return {}
    start = found[1].lower()
    listed = [each for each in COMMANDS if any(word.startswith(start) for word in each.slash)]
    if not start:
        listed = sorted((each for each in listed if each.id in MENU), key=_place_in_menu)
    return {each.slash[0]: each for each in listed}


def _place_in_menu(command: Command) -> int:
    return MENU.index(command.id)


def find_slash(text: str) -> str:
    """Return the action of a slash command, such as `export('md')`.

    Raises InvalidOption.
    """
    found = _SLASH.fullmatch(text.strip())
    word, given = (found[1].lower(), (found[2] or "").strip()) if found else ("", "")
    command = SLASHES.get(word)
    if command is None:
        raise InvalidOption(
            f"Unknown command /{word}. Type / for a list; a space before it sends it as text."
        )
    if given and not command.takes_text and given not in command.takes:
        takes = f"one of {', '.join(command.takes)}" if command.takes else "no argument"
        raise InvalidOption(f"/{word} takes {takes}, not {given}.")
    argument = given or next(iter(command.takes), "")
    return f"{command.id}({argument!r})" if argument else command.id
