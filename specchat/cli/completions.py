"""`specchat completions`: shell scripts that complete commands, options and their values.

The scripts are shtab's. Where a name of a pair or a model is expected they call specchat for it.
"""

import argparse
import re
from collections.abc import Iterator
from shlex import quote

from specchat.docs import topics
from specchat.settings.schema import SETTINGS

VALUES = {option.flag: option.words for option in SETTINGS if option.words}
"""The suggested values of flags that accept other values, too, and so are unknown to argparse."""
NAMES = {"--pair": "pairs", "--target": "models", "--draft": "models"}
"""The arguments whose names are listed when Tab is pressed, each with a key of LISTS."""
COMMANDS_WITH_NAMES = ("show", "rm", "pull", "derive")
LISTS = ("pairs", "models")
SAFE_NAME = re.compile(r"[\w./@+:-]+", re.ASCII)
"""Other names are not offered: bash would run what is in them."""


def run(arguments: argparse.Namespace) -> None:
    """Print the completions for a shell, or the names that a script of one asks for."""
    if arguments.shell in LISTS:
        print("\n".join(_names(arguments.shell)))
        return
    import shtab

    parser: argparse.ArgumentParser = arguments.parser
    _describe(parser)
    commands = next(filter(_has_commands, parser._actions)).choices or {}  # noqa: SLF001  # argparse has no public access
    for name, command in dict(commands).items():
        _describe(command, has_names=name in COMMANDS_WITH_NAMES)
    for action in dict(commands)["chat"]._actions:  # noqa: SLF001  # `specchat --pair X` is the chat
        if not set(action.option_strings) & parser._option_string_actions.keys():  # noqa: SLF001  # as above
            parser._add_action(action)  # noqa: SLF001  # as above
    print(shtab.complete(parser, arguments.shell))


def _has_commands(action: argparse.Action) -> bool:
    return isinstance(action, argparse._SubParsersAction)  # noqa: SLF001  # as above


def _describe(parser: argparse.ArgumentParser, *, has_names: bool = False) -> None:
    """Tell shtab what may follow each flag, and what completes a name."""
    import shtab

    for action in parser._actions:  # noqa: SLF001  # argparse has no public access
        kind = next((NAMES[flag] for flag in action.option_strings if flag in NAMES), "")
        values = next((VALUES[flag] for flag in action.option_strings if flag in VALUES), ())
        if action.dest == "topic":
            values = tuple(topics())
        elif has_names and not action.option_strings and action.nargs != 0:
            kind = "models"
        if kind:
            action.complete = shtab.cmd(f"specchat completions {kind} 2>/dev/null")  # type: ignore[attr-defined]
        elif values and not action.choices:
            action.complete = shtab.cmd(f"printf '%s\\n' {' '.join(map(quote, values))}")  # type: ignore[attr-defined]
        elif not action.choices and action.nargs != 0:
            action.complete = shtab.FILE  # type: ignore[attr-defined]


def _names(kind: str) -> Iterator[str]:
    """Yield the names of pairs, and those of local models if wanted."""
    from specchat.catalogue.catalogue_file import read_catalogue
    from specchat.catalogue.local_models import find_local_models

    names = list(read_catalogue().entries)
    if kind == "models":
        names += [model.name for model in find_local_models()]
    yield from filter(SAFE_NAME.fullmatch, names)
