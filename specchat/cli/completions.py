"""`specchat completions`: shell scripts that complete commands, options and their values."""

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from shlex import quote

from specchat.settings.schema import SETTINGS

VALUES = {option.flag: option.words for option in SETTINGS}
"""The words that may follow a flag."""

BASH = """\
_specchat() {
    local at="${COMP_WORDS[1]}" previous="${COMP_WORDS[COMP_CWORD-1]}" words=""
    [[ $at == -* ]] && at=chat
    (( COMP_CWORD > 2 )) && case "$at" in @GROUPS@) at="$at ${COMP_WORDS[2]}" ;; esac
    (( COMP_CWORD == 1 )) && at=""
    case "$previous" in
@VALUES@
        *) case "$at" in
@WORDS@
        esac ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _specchat specchat"""
ZSH = """\
#compdef specchat
_specchat() {
    local at="$words[2]"
    [[ $at == -* ]] && at=chat
    (( CURRENT > 3 )) && case "$at" in @GROUPS@) at="$at $words[3]" ;; esac
    (( CURRENT == 2 )) && at=""
    case "$at" in
@WORDS@
    esac
}
compdef _specchat specchat"""

Table = Mapping[str, list["_Word"]]
"""The words that may follow each command; those of "" are the commands themselves."""


@dataclass(frozen=True, slots=True)
class _Word:
    """A command or a flag, with its help; `values` are the values a flag accepts."""

    name: str
    help: str
    takes_value: bool = False
    values: tuple[str, ...] = ()


def run(arguments: argparse.Namespace) -> None:
    """Print the completions for a shell."""
    table = dict(_table("", arguments.parser))
    print({"bash": _bash, "zsh": _zsh, "fish": _fish}[arguments.shell](table))


def _table(name: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, list[_Word]]]:
    """Yield each command of a parser, with the words that may follow it."""
    words: list[_Word] = []
    for action in parser._actions:  # noqa: SLF001  # argparse has no public access
        help_text = (action.help or "").replace("%%", "%")
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001  # as above
            for each in action._choices_actions:  # noqa: SLF001  # as above
                words.append(_Word(each.dest, each.help or ""))
                yield from _table(f"{name} {each.dest}".strip(), action.choices[each.dest])
        elif not action.option_strings:
            words += [_Word(str(value), help_text) for value in action.choices or ()]
        for flag in action.option_strings:
            values = tuple(map(str, action.choices or VALUES.get(flag, ())))
            words.append(_Word(flag, help_text, action.nargs != 0, values))
    yield name, words


def _bash(table: Table) -> str:
    flags = {word.name: word for words in table.values() for word in words if word.takes_value}
    values = [
        f"        {name}) words={quote(' '.join(flag.values))} ;;" for name, flag in flags.items()
    ]
    words = [
        f"            {quote(name)}) words={quote(' '.join(word.name for word in words))} ;;"
        for name, words in table.items()
    ]
    return _fill_in(BASH, table, WORDS=words, VALUES=values)


def _zsh(table: Table) -> str:
    words = [f"        {quote(name)}) {_zsh_words(each)} ;;" for name, each in table.items()]
    return _fill_in(ZSH, table, WORDS=words)


def _zsh_words(words: list[_Word]) -> str:
    """Return the zsh code that offers commands, flags and their values."""
    commands, flags = [], []
    for word in words:
        about = word.help.replace(":", "\\:")
        values = f"({' '.join(word.values)})" if word.values else "_files"
        if not word.name.startswith("-"):
            commands.append(quote(f"{word.name}:{about}"))
        else:
            about = about.replace("[", "\\[").replace("]", "\\]")
            flags.append(quote(f"*{word.name}[{about}]{f':value:{values}' * word.takes_value}"))
    offered = f"local -a commands=({' '.join(commands)}); _describe command commands; "
    return f"{offered * bool(commands)}_arguments {' '.join(flags)} '*:file:_files'"


def _fish(table: Table) -> str:
    lines = []
    for name, words in table.items():
        seen = [f"__fish_seen_subcommand_from {part}" for part in name.split()]
        where = "; and ".join(seen) or "__fish_use_subcommand"
        if name == "chat":
            where = f"__fish_use_subcommand; or {where}"
        for word in words:
            flag = word.name.lstrip("-")
            how = f"-{'l' if word.name.startswith('--') else 's'} {flag}"
            how = how if word.name.startswith("-") else f"-fa {flag}"
            if word.takes_value:
                how += f" -xa {quote(' '.join(word.values))}" if word.values else " -r"
            lines.append(f"complete -c specchat -n {quote(where)} {how} -d {quote(word.help)}")
    return "\n".join(lines)


def _fill_in(script: str, table: Table, **parts: list[str]) -> str:
    """Return a script with its lists filled in, and the names of commands with subcommands."""
    groups = dict.fromkeys(name.split()[0] for name in table if " " in name)
    script = script.replace("@GROUPS@", "|".join(groups))
    for name, lines in parts.items():
        script = script.replace(f"@{name}@", "\n".join(lines))
    return script
