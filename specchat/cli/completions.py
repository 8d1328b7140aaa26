"""`specchat completions`: shell scripts that complete commands, options and their values.

Scripts made by shtab know no names of pairs and models, no values of options that also take other
words, and no options without a command; argcomplete starts Python at every Tab. These start it only
where a name is expected.
"""

import argparse
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from shlex import quote

from specchat.docs import topics
from specchat.settings.schema import SETTINGS

VALUES = {option.flag: option.words for option in SETTINGS}
"""The words that may follow a flag."""
NAMES = {
    "--pair": "pairs",
    "--target": "models",
    "--draft": "models",
    **{f"{command} NAME": "models" for command in ("show", "rm", "pull")},
    "derive TARGET": "models",
}
"""What has names that are listed when Tab is pressed, and which: a key of LISTS."""
LISTS = ("pairs", "models")
SHELLS = ("bash", "zsh", "fish")
SAFE_NAME = re.compile(r"[\w./@+:-]+", re.ASCII)
"""Other names are not offered: bash would run what is in them."""

BASH = """\
_specchat() {
    local line="${COMP_LINE:0:COMP_POINT}" at="${COMP_WORDS[1]}" words="" IFS=$' \\n'
    local word="${line##* }" previous="${COMP_WORDS[COMP_CWORD-1]}"
    if [[ $word == --*=* ]]; then previous="${word%%=*}"; word="${word#*=}"; fi
    [[ $at == -* ]] && at=chat
    (( COMP_CWORD > 2 )) && case "$at" in @GROUPS@) at="$at ${COMP_WORDS[2]}" ;; esac
    (( COMP_CWORD == 1 )) && [[ $word != -* ]] && at=""
    case "$previous" in
@VALUES@
        *) case "$at" in
@WORDS@
        esac ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$word"))
    local before="${word%"${word##*:}"}"  # readline replaces only what follows a colon
    COMPREPLY=("${COMPREPLY[@]#"$before"}")
}
complete -o default -F _specchat specchat"""
ZSH = """\
#compdef specchat
_specchat_names() { compadd -- ${(f)"$(specchat completions $1 2>/dev/null)"}; _files }
_specchat() {
    local at="$words[2]"
    [[ $at == -* ]] && at=chat
    (( CURRENT > 3 )) && case "$at" in @GROUPS@) at="$at $words[3]" ;; esac
    (( CURRENT == 2 )) && [[ $words[2] != -* ]] && at=""
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
    names: str = ""
    """A key of LISTS: names that stand in its place, or behind a flag."""


def run(arguments: argparse.Namespace) -> None:
    """Print the completions for a shell, or the names that a script of one asks for."""
    if arguments.shell in LISTS:
        print("\n".join(_names(arguments.shell)))
        return
    table = dict(_table("", arguments.parser))
    print({"bash": _bash, "zsh": _zsh, "fish": _fish}[arguments.shell](table))


def _names(kind: str) -> Iterator[str]:
    """Yield the names of pairs, and those of local models if wanted."""
    from specchat.catalogue.catalogue_file import read_catalogue
    from specchat.catalogue.local_models import find_local_models

    found = list(read_catalogue().entries)
    if kind == "models":
        found += [model.name for model in find_local_models()]
    yield from filter(SAFE_NAME.fullmatch, found)


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
            shown = SHELLS if action.dest == "shell" else action.choices or ()
            shown = topics() if action.dest == "topic" else shown
            words += [_Word(str(value), help_text) for value in shown]
            if listed := NAMES.get(f"{name} {action.metavar}"):
                words.append(_Word("", help_text, names=listed))
        for flag in action.option_strings:
            values = tuple(map(str, action.choices or VALUES.get(flag, ())))
            words.append(_Word(flag, help_text, action.nargs != 0, values, NAMES.get(flag, "")))
    yield name, words


def _bash(table: Table) -> str:
    flags = {word.name: word for words in table.values() for word in words if word.takes_value}
    values = [f"        {name}) words={_bash_words([flag])} ;;" for name, flag in flags.items()]
    words = [
        f"            {quote(name)}) words={_bash_words(each)} ;;" for name, each in table.items()
    ]
    return _fill_in(BASH, table, WORDS=words, VALUES=values)


def _bash_words(words: list[_Word]) -> str:
    """Return bash code for the words of a command, or for the values of one flag."""
    is_flag = len(words) == 1 and words[0].takes_value
    shown = words[0].values if is_flag else [word.name for word in words if word.name]
    listed = next((word.names for word in words if word.names and (is_flag or not word.name)), "")
    code = quote(" ".join(shown))
    return code + f'" $(specchat completions {listed} 2>/dev/null)"' * bool(listed)


def _zsh(table: Table) -> str:
    words = [f"        {quote(name)}) {_zsh_words(each)} ;;" for name, each in table.items()]
    return _fill_in(ZSH, table, WORDS=words)


def _zsh_words(words: list[_Word]) -> str:
    """Return the zsh code that offers commands, flags and their values."""
    commands, flags, rest = [], [], "_files"
    for word in words:
        about = word.help.replace(":", "\\:")
        values = f"({' '.join(word.values)})" if word.values else "_files"
        values = f" _specchat_names {word.names}" if word.names else values  # a space: no options
        if not word.name:
            rest = values
        elif not word.name.startswith("-"):
            commands.append(quote(f"{word.name}:{about}"))
        else:
            about = about.replace("[", "\\[").replace("]", "\\]")
            is_long = "=" if word.takes_value and word.name.startswith("--") else ""
            value = f":value:{values}" * word.takes_value
            flags.append(quote(f"*{word.name}{is_long}[{about}]{value}"))
    offered = f"local -a commands=({' '.join(commands)}); _describe command commands; "
    return f"{offered * bool(commands)}_arguments {' '.join(flags)} {quote(f'*:name:{rest}')}"


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
            if word.names:
                listed = quote(f"(specchat completions {word.names} 2>/dev/null)")
                how = f"{how} -ra {listed}" if flag else f"-a {listed}"
            elif word.takes_value:
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
