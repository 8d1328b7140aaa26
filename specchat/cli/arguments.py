"""The commands and their arguments. Options are declared in `specchat.options`."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import specchat
from specchat.cli.option_arguments import add_option, add_options, complete, settings_of
from specchat.cli.parser import Parser
from specchat.options import (
    ChatOptions,
    GenerateOptions,
    LoadOptions,
    NetworkOptions,
    Option,
    PairOptions,
    ScreenOptions,
)

__all__ = ["parse"]

Commands: TypeAlias = "argparse._SubParsersAction[Parser]"  # noqa: SLF001  # typeshed has no other

DESCRIPTION = "Chat with a language model on your own machine, with speculative decoding."
EPILOG = (
    "Without --pair or --target, the demo pair answers. The settings file and environment"
    " variables replace the defaults shown here; `specchat config show` prints all of them."
)
BENCH_TASKS = ["chat", "code", "edit", "summary", "reasoning", "json"]
MANY = 10
"""A command with more options than these does not repeat them in its usage line."""

ABOUT = {"-h", "--help", "--version"}

NETWORK = settings_of(NetworkOptions)
MODEL = settings_of(PairOptions, LoadOptions)
DECODING = {option.key: option for option in settings_of(GenerateOptions)}
PROMPT = tuple(option for option in settings_of(ChatOptions) if option.key == "system_prompt")
MEASURED = (*MODEL, *NETWORK)
ANSWERED = (*MODEL, *sorted(DECODING.values(), key=lambda option: option.table))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the parsed command line; its `run` is the command. Raises InvalidOption."""
    parser = Parser(prog="specchat", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument("--version", action="version", version=f"specchat {specchat.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for add in (
        _add_chat,
        _add_ask,
        _add_pull,
        _add_list,
        _add_show,
        _add_rm,
        _add_doctor,
        _add_check,
        _add_bench,
        _add_tune,
        _add_history,
        _add_config,
        _add_help,
    ):
        add(commands)
    words = list(sys.argv[1:] if arguments is None else arguments)
    is_chat = not words or (words[0].startswith("-") and words[0] not in ABOUT)
    return parser.parse_args(["chat", *words] if is_chat else words)


def _add_chat(commands: Commands) -> None:
    screen = settings_of(ChatOptions, ScreenOptions)
    chat = _command(
        commands,
        "chat",
        "open the chat (the default command)",
        (*ANSWERED, *screen, *NETWORK),
        epilog=EPILOG,
    )
    _add_save_as(chat)


def _add_ask(commands: Commands) -> None:
    ask = _command(
        commands,
        "ask",
        "answer one question on stdout",
        (*ANSWERED, *PROMPT, *NETWORK),
        rest=" [PROMPT ...]",
        epilog=EPILOG,
    )
    ask.add_argument(
        "prompt", nargs="*", metavar="PROMPT", help="the question; standard input is appended"
    )
    ask.add_argument("--raw", action="store_true", help="continue the text, without chat template")
    _add_json(ask)
    ask.add_argument("--show-drafts", action="store_true", help="colour accepted draft tokens")
    _add_save_as(ask)


def _add_pull(commands: Commands) -> None:
    pull = _command(commands, "pull", "download a pair or a GGUF file", NETWORK)
    pull.add_argument(
        "name",
        metavar="NAME",
        nargs="?",
        help="a pair, org/repo/file.gguf, or a file's URL (default: offer the best pair for this"
        " machine)",
    )
    pull.add_argument("--draft", metavar="FILE", help="also download this draft model")
    pull.add_argument(
        "--check", action="store_true", help="verify downloaded files instead; nothing is fetched"
    )


def _add_list(commands: Commands) -> None:
    listing = _command(commands, "list", "list available pairs and installed models", NETWORK)
    _add_json(listing)


def _add_show(commands: Commands) -> None:
    show = _command(commands, "show", "show details of a pair or a model", NETWORK)
    show.add_argument(
        "name", metavar="NAME", help="a pair, org/repo/file.gguf, a path, or a local model's name"
    )
    _add_json(show)


def _add_rm(commands: Commands) -> None:
    rm = _command(commands, "rm", "delete downloaded models")
    rm.add_argument("name", metavar="NAME", help="as pulled: a pair, org/repo/file.gguf, or a URL")
    _add_yes(rm)


def _add_doctor(commands: Commands) -> None:
    doctor = _command(commands, "doctor", "check this machine and suggest fixes")
    add_options(doctor, NETWORK)  # not completed: it also examines broken settings
    _add_json(doctor)


def _add_check(commands: Commands) -> None:
    check = _command(commands, "check", "verify that a pair decodes losslessly here", MEASURED)
    add_option(check, DECODING["draft_length"], default=DECODING["draft_length"].default)
    _add_max_tokens(check, 96)
    _add_json(check)
    _add_save_as(check)


def _add_bench(commands: Commands) -> None:
    bench = _command(
        commands, "bench", "compare plain and speculative decoding", MEASURED, epilog=EPILOG
    )
    for name in ("drafter", "draft_length"):
        add_option(bench, DECODING[name], default=DECODING[name].default)
    bench.add_argument(
        "--temperature",
        type=float,
        metavar="X",
        action="append",
        help="sampling temperature, repeatable (default: 0 and 0.8)",
    )
    bench.add_argument(
        "--task", action="append", choices=BENCH_TASKS, help="task, repeatable (default: all)"
    )
    _add_rounds(bench, 3, "answers per task and temperature")
    _add_max_tokens(bench, 128)
    bench.add_argument("--plot", type=Path, metavar="FILE", help="draw a chart: .svg or .png")
    _add_json(bench)
    _add_save_as(bench)


def _add_tune(commands: Commands) -> None:
    (draft,) = (option for option in MODEL if option.key == "draft")
    tune = _command(
        commands,
        "tune",
        "find and save the fastest settings for a target",
        tuple(option for option in MEASURED if option is not draft),
        epilog=EPILOG,
    )
    help_text = "draft model to try, or none; repeatable (default: the best installed ones)"
    add_option(tune, draft, action="append", help=help_text)
    tune.set_defaults(options=MEASURED)
    _add_rounds(tune, 2, "answers per task")
    _add_max_tokens(tune, 128)
    _add_json(tune)


def _add_history(commands: Commands) -> None:
    history = commands.add_parser("history", help="list, search, show, export or delete chats")
    actions = history.add_subparsers(title="actions", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="list conversations, newest first")
    listing.add_argument(
        "--limit", type=int, default=50, metavar="N", help="show at most N (default: 50)"
    )
    search = actions.add_parser("search", help="search messages")
    search.add_argument("words", nargs="+", metavar="WORD", help="words that a message contains")
    show = actions.add_parser("show", help="print a conversation")
    show.add_argument("--stats", action="store_true", help="print the statistics of each answer")
    export = actions.add_parser("export", help="write a conversation to a file")
    export.add_argument(
        "--format", choices=["md", "json", "html"], default="md", help="file format (default: md)"
    )
    export.add_argument("--output", type=Path, metavar="FILE", help="default: standard output")
    export.add_argument("--force", action="store_true", help="overwrite an existing file")
    delete = actions.add_parser("delete", help="delete conversations for good")
    delete.add_argument("ids", nargs="*", type=int, metavar="ID", help="numbers from the list")
    delete.add_argument("--all", action="store_true", help="delete all of them")
    _add_yes(delete)
    for action in (show, export):
        action.add_argument("id", type=int, metavar="ID", help="its number in the list")
    for action in (listing, search, show):
        _add_json(action)
    for name, action in actions.choices.items():
        action.set_defaults(run=_late("specchat.cli.history"), action=name)


def _add_config(commands: Commands) -> None:
    config = commands.add_parser("config", help="show or edit the settings")
    actions = config.add_subparsers(title="actions", metavar="ACTION", required=True)
    actions.add_parser("path", help="print the path of the settings file")
    show = actions.add_parser("show", help="print every setting and its source")
    _add_json(show)
    actions.add_parser("edit", help="open the settings file in $VISUAL or $EDITOR")
    for name, action in actions.choices.items():
        action.set_defaults(run=_late("specchat.cli.config"), action=name)


def _add_help(commands: Commands) -> None:
    page = _command(commands, "help", "show the documentation")
    page.add_argument("topic", metavar="TOPIC", nargs="?", help="a topic, or a command")
    page.set_defaults(commands=commands.choices)


def _command(
    commands: Commands,
    name: str,
    help_text: str,
    options: Sequence[Option] = (),
    rest: str = "",
    epilog: str | None = None,
) -> Parser:
    """Add a command with options, which the settings complete."""
    description = f"{help_text[0].upper()}{help_text[1:]}."
    usage = f"%(prog)s [OPTION ...]{rest}" if len(options) > MANY else None
    parser = commands.add_parser(
        name, usage=usage, help=help_text, description=description, epilog=epilog
    )
    add_options(parser, options)
    parser.set_defaults(run=_late(f"specchat.cli.{name}"), options=options)
    return parser


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _add_yes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")


def _add_save_as(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--save-as", metavar="NAME", help="save this target and draft model as a pair"
    )


def _add_rounds(parser: argparse.ArgumentParser, default: int, what: str) -> None:
    parser.add_argument(
        "--rounds", type=int, default=default, metavar="N", help=f"{what} (default: {default})"
    )


def _add_max_tokens(parser: argparse.ArgumentParser, default: int) -> None:
    parser.add_argument(
        "--max-tokens",
        type=int,
        default=default,
        metavar="N",
        help=f"tokens per answer (default: {default})",
    )


def _late(module: str) -> Callable[[argparse.Namespace], int]:
    """Return a command whose module is imported when it runs, which keeps --help fast."""

    def run(arguments: argparse.Namespace) -> int:
        if getattr(arguments, "options", ()):
            complete(arguments)
        if getattr(arguments, "offline", False):
            from specchat.hub.offline import go_offline

            go_offline()
        code: int = importlib.import_module(module).run(arguments)
        return code

    return run
