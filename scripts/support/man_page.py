"""The manual page, specchat(1), made from the parser: every command and option once."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator

import specchat
from specchat.cli.arguments import DESCRIPTION, parse
from specchat.cli.option_arguments import TITLES
from specchat.docs import topics
from specchat.settings.schema import SETTINGS
from specchat.settings.sources import CONFIG, OTHERS

VARIABLES = {
    CONFIG: "another settings file",
    "NO_COLOR": "no colours, in commands and in the chat",
    "FORCE_COLOR": "colours even if the output is no terminal",
    "HF_HOME, HF_HUB_CACHE": "the folder of downloaded models",
    "HF_TOKEN": "the token for files that need one",
    "HF_ENDPOINT": "another hub, such as a mirror",
    "PAGER": "shows what specchat help prints",
    "VISUAL, EDITOR": "the editor of specchat config edit and of the chat",
}
FILES = {
    "~/.config/specchat/config.toml": "settings; specchat config path prints its path here",
    "~/.config/specchat/models.toml": "your own pairs",
    "~/.local/share/specchat/": "conversations, derived drafts, what was pulled",
    "~/.local/state/specchat/": "measurements and the log",
    "~/.cache/huggingface/hub/": "downloaded models, shared with other programs",
}
EXIT_CODES = {
    "0": "done",
    "1": "the work failed; one line on standard error says what, and what to do",
    "2": "usage error",
    "130": "interrupted",
}
EXAMPLES = {
    "specchat": "open the chat",
    'specchat ask "Why is the sky blue?"': "answer once",
    "git diff | specchat ask Summarize this change": "answer about standard input",
    "specchat pull": "download the best pair for this machine",
    "specchat ask --target model.gguf Hello": "use a file of your own",
}


def man_page() -> str:
    """Return the page in roff's man macros."""
    parser = parse(["completions", "bash"]).parser
    commands = _commands(parser)
    shared = _shared(commands["chat"], commands["serve"])
    lines = [
        f'.TH SPECCHAT 1 "" "specchat {specchat.__version__}" "User Commands"',
        ".nh",  # a hyphen in an option that is broken could not be copied
        *_section("NAME", ["specchat \\- chat with a language model on your own machine"]),
        *_section("SYNOPSIS", _synopsis()),
        *_section("DESCRIPTION", [_text(DESCRIPTION), ".PP", _text(parser.epilog or "")]),
        *_section("COMMANDS", _command_lines(commands, shared, "")),
        *_section("OPTIONS", _option_lines(shared)),
        *_section("ENVIRONMENT", _environment()),
        *_section("FILES", _items(FILES)),
        *_section("EXIT STATUS", _items(EXIT_CODES)),
        *_section("EXAMPLES", _items({f"$ {key}": EXAMPLES[key] for key in EXAMPLES})),
        *_section("SEE ALSO", [f"specchat help TOPIC, with these topics: {', '.join(topics())}."]),
    ]
    return "\n".join(lines) + "\n"


def _synopsis() -> list[str]:
    lines: list[str] = []
    for arguments in (
        "[\\fIOPTION\\fR ...]",
        "\\fICOMMAND\\fR [\\fIOPTION\\fR ...]",
        "\\-\\-version",
    ):
        lines += [f"\\fBspecchat\\fR {arguments}", ".br"]
    return lines[:-1]


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of a parser's commands, by name."""
    for action in parser._actions:  # noqa: SLF001  # argparse has no public access
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001  # as above
            return dict(action.choices)
    return {}


def _abouts(parser: argparse.ArgumentParser) -> dict[str, str]:
    """Return the help of a parser's commands, by name."""
    for action in parser._actions:  # noqa: SLF001  # as above
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001  # as above
            return {each.dest: each.help or "" for each in action._choices_actions}  # noqa: SLF001
    return {}


def _shared(*parsers: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    """Return the options that several commands have, by flag: those of the settings."""
    flags = {option.flag for option in SETTINGS}
    actions = [action for parser in parsers for action in parser._actions]  # noqa: SLF001
    return {each.option_strings[0]: each for each in actions if flags & set(each.option_strings)}


def _command_lines(
    commands: dict[str, argparse.ArgumentParser], shared: dict[str, argparse.Action], before: str
) -> Iterator[str]:
    """Yield each command with the arguments that only it has."""
    for name, parser in commands.items():
        inner, abouts = _commands(parser), _abouts(parser)
        actions = [each for each in parser._actions if "--help" not in each.option_strings]  # noqa: SLF001
        own = [
            each
            for each in actions
            if not isinstance(each, argparse._SubParsersAction)  # noqa: SLF001
            and getattr(shared.get((each.option_strings or [""])[0]), "help", None) != each.help
        ]
        places = " ".join(_place(each) for each in own if not each.option_strings)
        yield from (".TP", f"\\fB{_text(f'{before}{name}')}\\fR {places}".rstrip())
        yield _text(parser.description or "") or "\\&"
        if len(own) < len(actions) and not inner:
            yield "Takes options of the section OPTIONS too."
        if own or inner:
            yield ".RS"
            yield from _rows(own)
            for sub, parser_of_sub in inner.items():
                parser_of_sub.description = parser_of_sub.description or _sentence(abouts[sub])
            yield from _command_lines(inner, shared, f"{before}{name} ")
            yield ".RE"


def _option_lines(shared: dict[str, argparse.Action]) -> Iterator[str]:
    """Yield the options that several commands have, under the headings of the settings."""
    for table in dict.fromkeys(option.table for option in SETTINGS):
        flags = [option.flag for option in SETTINGS if option.table == table]
        if rows := [shared[flag] for flag in flags if flag in shared]:
            yield f'.SS "{(TITLES.get(table) or table).capitalize()}"'
            yield from _rows(rows)


def _rows(actions: Iterable[argparse.Action]) -> Iterator[str]:
    """Yield each argument with its help."""
    for action in actions:
        yield ".TP"
        flags = ", ".join(f"\\fB{_text(flag)}\\fR" for flag in action.option_strings)
        yield f"{flags} {_place(action) if action.nargs != 0 else ''}".strip()
        yield _text(_sentence((action.help or "").replace("%%", "%")))


def _place(action: argparse.Action) -> str:
    """Return the name of an argument's value."""
    if action.nargs == 0 or isinstance(action, argparse.BooleanOptionalAction):
        return ""
    choices = "|".join(map(str, action.choices or ()))
    name = f"\\fI{_text(str(action.metavar or choices or action.dest.upper()))}\\fR"
    return {"*": f"[{name} ...]", "+": f"{name} ...", "?": f"[{name}]"}.get(str(action.nargs), name)


def _environment() -> Iterator[str]:
    """Yield the variables: those of settings by their rule, the others by name."""
    example, others = SETTINGS[-1], ", ".join(sorted(OTHERS - {CONFIG}))
    named = next((each for each in SETTINGS if each.key == "top_k"), example)
    yield _text(
        f"Each setting has a variable, such as {named.variable} for {named.flag}; specchat config"
        f" show prints all settings and where each comes from. Others: {others}."
    )
    yield from _items(VARIABLES)


def _items(rows: dict[str, str]) -> Iterator[str]:
    for name, about in rows.items():
        yield from (".TP", f"\\fB{_text(name)}\\fR", _text(_sentence(about)))


def _section(title: str, lines: Iterable[str]) -> list[str]:
    return [f'.SH "{title}"', *lines]


def _sentence(words: str) -> str:
    text = words if words[1:2].isupper() else f"{words[:1].upper()}{words[1:]}"
    return text if text.endswith(".") else f"{text}."


def _text(words: str) -> str:
    """Return a text whose backslashes, hyphens and first characters roff takes as they are."""
    escaped = re.sub(r"\s+", " ", words.replace("\\", "\\e").replace("-", "\\-"))
    escaped = escaped.replace("`", "\\(ga").replace("'", "\\(aq").replace("~", "\\(ti")
    return f"\\&{escaped}" if escaped.startswith(".") else escaped
