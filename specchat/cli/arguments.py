"""The commands and their arguments. Options are declared in `specchat.options`."""

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
JSON, YES = "print one JSON object", "do not ask for confirmation"

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
    _add_answering(commands)
    _add_models(commands)
    _add_measuring(commands)
    _add_history(commands)
    _add_config(commands)
    page = _command(commands, "help", "show the documentation")
    page.add_argument("topic", metavar="TOPIC", nargs="?", help="a topic, or a command")
    page.set_defaults(commands=commands.choices)
    words = list(sys.argv[1:] if arguments is None else arguments)
    is_chat = not words or (words[0].startswith("-") and words[0] not in ABOUT)
    return parser.parse_args(["chat", *words] if is_chat else words)


def _add_answering(commands: Commands) -> None:
    screen = settings_of(ChatOptions, ScreenOptions)
    options = (*ANSWERED, *screen, *NETWORK)
    _add_save_as(_command(commands, "chat", "open the chat (the default command)", options))
    options = (*ANSWERED, *PROMPT, *NETWORK)
    ask = _command(commands, "ask", "answer one question on stdout", options, " [PROMPT ...]")
    help_text = "the question; standard input is appended"
    ask.add_argument("prompt", metavar="PROMPT", nargs="*", help=help_text)
    _add_flag(ask, "--raw", "continue the text, without chat template")
    _add_flag(ask, "--json", JSON)
    _add_flag(ask, "--show-drafts", "colour accepted draft tokens")
    _add_save_as(ask)


def _add_models(commands: Commands) -> None:
    pull = _command(commands, "pull", "download a pair or a GGUF file", NETWORK)
    help_text = (
        "a pair, org/repo/file.gguf, or a URL (default: offer the best pair for this machine)"
    )
    pull.add_argument("name", metavar="NAME", nargs="?", help=help_text)
    pull.add_argument("--draft", metavar="FILE", help="also download this draft model")
    _add_flag(pull, "--check", "verify downloaded files instead; nothing is fetched")
    listing = _command(commands, "list", "list available pairs and installed models", NETWORK)
    _add_flag(listing, "--json", JSON)
    show = _command(commands, "show", "show details of a pair or a model", NETWORK)
    help_text = "a pair, org/repo/file.gguf, a path, or a local model's name"
    show.add_argument("name", metavar="NAME", help=help_text)
    _add_flag(show, "--json", JSON)
    rm = _command(commands, "rm", "delete downloaded models")
    rm.add_argument("name", metavar="NAME", help="as pulled: a pair, org/repo/file.gguf, or a URL")
    _add_flag(rm, "--yes", YES)


def _add_measuring(commands: Commands) -> None:
    doctor = _command(commands, "doctor", "check this machine and suggest fixes")
    add_options(doctor, NETWORK)  # not completed: it also examines broken settings
    check = _command(
        commands, "check", "check that speculation does not change greedy output", MEASURED
    )
    _add_measured(check, "draft_length")
    _add_count(check, "--max-tokens", 96, "tokens per answer")
    _add_save_as(check)
    bench = _command(commands, "bench", "compare plain and speculative decoding", MEASURED)
    _add_measured(bench, "drafter", "draft_length")
    help_text = "sampling temperature, repeatable (default: 0 and 0.8)"
    bench.add_argument("--temperature", type=float, metavar="X", action="append", help=help_text)
    help_text = "task, repeatable (default: all)"
    bench.add_argument("--task", action="append", choices=BENCH_TASKS, help=help_text)
    _add_count(bench, "--rounds", 3, "answers per task and temperature")
    _add_count(bench, "--max-tokens", 128, "tokens per answer")
    bench.add_argument("--plot", type=Path, metavar="FILE", help="draw a chart: .svg or .png")
    _add_save_as(bench)
    tune = _add_tune(commands)
    for command in (doctor, check, bench, tune):
        _add_flag(command, "--json", JSON)


def _add_tune(commands: Commands) -> Parser:
    (draft,) = (option for option in MODEL if option.key == "draft")
    others = tuple(option for option in MEASURED if option is not draft)
    tune = _command(commands, "tune", "find and save the fastest settings for a target", others)
    help_text = "draft model to try, or none; repeatable (default: the best installed ones)"
    add_option(tune, draft, action="append", help=help_text)
    tune.set_defaults(options=MEASURED)
    _add_count(tune, "--rounds", 2, "answers per task")
    _add_count(tune, "--max-tokens", 128, "tokens per answer")
    return tune


def _add_history(commands: Commands) -> None:
    history = commands.add_parser("history", help="list, search, show, export or delete chats")
    actions = history.add_subparsers(title="actions", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="list conversations, newest first")
    _add_count(listing, "--limit", 50, "show at most N")
    search = actions.add_parser("search", help="search messages")
    search.add_argument("words", nargs="+", metavar="WORD", help="words that a message contains")
    show = actions.add_parser("show", help="print a conversation")
    _add_flag(show, "--stats", "print the statistics of each answer")
    export = actions.add_parser("export", help="write a conversation to a file")
    formats, help_text = ["md", "json", "html"], "file format (default: md)"
    export.add_argument("--format", choices=formats, default=formats[0], help=help_text)
    export.add_argument("--output", type=Path, metavar="FILE", help="default: standard output")
    _add_flag(export, "--force", "overwrite an existing file")
    delete = actions.add_parser("delete", help="delete conversations for good")
    delete.add_argument("ids", nargs="*", type=int, metavar="ID", help="numbers from the list")
    _add_flag(delete, "--all", "delete all of them")
    _add_flag(delete, "--yes", YES)
    for action in (show, export):
        action.add_argument("id", type=int, metavar="ID", help="its number in the list")
    for action in (listing, search, show):
        _add_flag(action, "--json", JSON)
    _set_actions(actions, "history")


def _add_config(commands: Commands) -> None:
    config = commands.add_parser("config", help="show or edit the settings")
    actions = config.add_subparsers(title="actions", metavar="ACTION", required=True)
    actions.add_parser("path", help="print the path of the settings file")
    _add_flag(actions.add_parser("show", help="print every setting and its source"), "--json", JSON)
    actions.add_parser("edit", help="open the settings file in $VISUAL or $EDITOR")
    _set_actions(actions, "config")


def _command(
    commands: Commands,
    name: str,
    help_text: str,
    options: tuple[Option, ...] = (),
    arguments: str = "",
) -> Parser:
    """Add a command with options, which the settings complete."""
    has_many = len(options) > MANY
    parser = commands.add_parser(
        name,
        help=help_text,
        description=f"{help_text[0].upper()}{help_text[1:]}.",
        usage=f"%(prog)s [OPTION ...]{arguments}" if has_many else None,
        epilog=EPILOG if has_many else None,
    )
    add_options(parser, options)
    parser.set_defaults(run=_late(name), options=options)
    return parser


def _set_actions(actions: Commands, command: str) -> None:
    for name, action in actions.choices.items():
        action.set_defaults(run=_late(command), action=name)


def _add_flag(parser: argparse.ArgumentParser, name: str, help_text: str) -> None:
    parser.add_argument(name, action="store_true", help=help_text)


def _add_count(parser: argparse.ArgumentParser, name: str, default: int, help_text: str) -> None:
    help_text = f"{help_text} (default: {default})"
    parser.add_argument(name, type=int, default=default, metavar="N", help=help_text)


def _add_measured(parser: argparse.ArgumentParser, *keys: str) -> None:
    """Add options of decoding that settings do not change, so that results stay comparable."""
    for key in keys:
        add_option(parser, DECODING[key], default=DECODING[key].default)


def _add_save_as(parser: argparse.ArgumentParser) -> None:
    help_text = "save this target and draft model as a pair"
    parser.add_argument("--save-as", metavar="NAME", help=help_text)


def _late(command: str) -> Callable[[argparse.Namespace], int | None]:
    """Return a command whose module is imported when it runs, which keeps --help fast."""

    def run(arguments: argparse.Namespace) -> int | None:
        if getattr(arguments, "options", ()):
            complete(arguments)
        if getattr(arguments, "offline", False):
            from specchat.hub.offline import go_offline

            go_offline()
        code: int | None = importlib.import_module(f"specchat.cli.{command}").run(arguments)
        return code

    return run
