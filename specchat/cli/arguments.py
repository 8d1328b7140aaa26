"""The commands and their arguments. Options are declared in `specchat.options`."""

import argparse
import gc
import importlib
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn, TypeAlias

from specchat.cli.image_arguments import add_images
from specchat.cli.option_arguments import add_option, add_options, complete, settings_of
from specchat.cli.structure_arguments import add_structure
from specchat.cli.terminal import DONE, print_exactly
from specchat.errors import InvalidOption, nearest
from specchat.options.declarations import (
    ChatOptions,
    GenerateOptions,
    LoadOptions,
    NetworkOptions,
    PairOptions,
    ScreenOptions,
    ServerOptions,
    WorkerOptions,
)
from specchat.options.option import Option
from specchat.options.option_fields import Options

DESCRIPTION = "Chat with a language model on your own machine, with speculative decoding."
EPILOG = (
    "Without --pair or --target, the demo pair answers; the chat opens the model used last. The"
    " settings file and environment variables replace the defaults shown here; `specchat config"
    " show` prints all of them."
)
BENCH_TASKS = ["chat", "code", "edit", "summary", "reasoning", "json"]
CLIENTS = ("openai", "codex", "claude", "opencode", "llm", "aider")
NARROWEST_HELP, WIDEST_HELP = 24, 100
MANY = 10
"""A command with more options than this shows [OPTION ...] in its usage line."""

NEGATIVE_NUMBER = re.compile(r"-(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$|-inf$", re.IGNORECASE)
ABOUT = {"-h", "--help", "--version"}
JSON, YES = "print one JSON object", "do not ask for confirmation"
PULLED = "a pair, org/repo, org/repo:Q4_K_M, org/repo/file.gguf, or a page's address"
MODEL_NAME = "a pair, a path, a local model's name, or a file on the hub"
CARD = ".svg or .gif (both animated), .png, .cast or .json"
TIME = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)([smh])")

NETWORK = settings_of(NetworkOptions)
MODEL = settings_of(PairOptions, LoadOptions)
DECODING = {option.key: option for option in settings_of(GenerateOptions)}
PROMPT = tuple(option for option in settings_of(ChatOptions) if option.key == "system_prompt")
MEASURED = (*MODEL, *NETWORK)
ANSWERED = (*MODEL, *sorted(DECODING.values(), key=lambda option: option.table))


def _help_formatter(prog: str) -> argparse.HelpFormatter:
    """Return a formatter as wide as the terminal, up to the width of the documentation."""
    columns = shutil.get_terminal_size().columns
    return argparse.HelpFormatter(prog, width=max(NARROWEST_HELP, min(WIDEST_HELP, columns) - 2))


NAMING_A_MODEL = ": a model is named by --pair NAME or --target FILE"


class Parser(argparse.ArgumentParser):
    """An argparse parser that raises errors instead of exiting, and suggests similar options."""

    def __init__(self, **rules: Any) -> None:
        """Accept every negative number as a value; argparse would take -1e9 for an option."""
        super().__init__(**{"formatter_class": _help_formatter, **rules})
        self._negative_number_matcher = NEGATIVE_NUMBER

    def parse_known_args(  # type: ignore[override]  # the base class has overloads
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse a command's arguments; reject unexpected ones here, where the options are known."""
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            name = unknown[0].partition("=")[0]
            if name.startswith("-"):
                self.error(f"unknown option {name}{nearest(name, self._option_string_actions)}")
            takes_model = "--pair" in self._option_string_actions
            self.error(f"unexpected argument {unknown[0]!r}{NAMING_A_MODEL * takes_model}")
        return parsed, unknown

    def error(self, message: str) -> NoReturn:
        """Raise InvalidOption."""
        raise InvalidOption(f"{message}; see {self.prog} --help")


class _Version(argparse.Action):
    """Prints the versions and ends; what it imports is loaded only then."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        from specchat.cli.version import version_lines

        print_exactly("\n".join(version_lines()))
        parser.exit()


Commands: TypeAlias = "argparse._SubParsersAction[Parser]"  # noqa: SLF001  # typeshed has no public name


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the parsed command line, to pass to `run`. Raises InvalidOption."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    is_chat = not argv or (argv[0].startswith("-") and argv[0] not in ABOUT)
    parser = Parser(prog="specchat", description=DESCRIPTION, epilog=EPILOG)
    _add(parser, "--version", "show the versions and the build", action=_Version, nargs=0)
    commands = _subcommands(parser, "command")
    _add_chat(commands)
    if not is_chat:  # the first frame waits for the options of no other command
        _add_others(parser, commands)
        if not argv[0].startswith("-") and argv[0] not in commands.choices:
            similar = nearest(argv[0], commands.choices)
            parser.error(f"no command {argv[0]!r}{similar or NAMING_A_MODEL}")
    return parser.parse_args(["chat", *argv] if is_chat else argv)


def run(arguments: argparse.Namespace) -> int:
    """Run a command and return its exit code.

    The command's module is imported only here, which keeps --help fast.
    """
    if getattr(arguments, "options", ()):
        complete(arguments)
    if getattr(arguments, "offline", False):
        from specchat.hub.offline import go_offline

        go_offline()
    code: int | None = _imported(f"specchat.cli.{arguments.command}").run(arguments)
    return code or DONE


def _imported(name: str) -> ModuleType:
    """Return a module; collections wait, as importing leaves no garbage for them."""
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        gc.enable()


def _add_chat(commands: Commands) -> None:
    screen = settings_of(ChatOptions, ServerOptions, ScreenOptions)
    options = (*ANSWERED, *screen, *NETWORK)
    _add_save_as(_command(commands, "chat", "open the chat (the default command)", options))


def _add_save_as(parser: Parser) -> None:
    help_text = "save this target and draft model as a pair"
    _add(parser, "--save-as", help_text, metavar="NAME")


def _add_others(parser: Parser, commands: Commands) -> None:
    """Add all commands but the chat."""
    _add_answering(commands)
    _add_models(commands)
    _add_measuring(commands)
    _add_deriving(commands)
    _add_history(commands)
    _add_config(commands)
    page = _command(commands, "help", "show the documentation")
    _add(page, "topic", "a topic, or a command", metavar="TOPIC", nargs="?")
    page.set_defaults(commands=commands.choices)
    completions = _command(commands, "completions", "print the completions for a shell")
    help_text = "bash, zsh or fish; pairs or models prints the names that scripts complete"
    shells = ["bash", "zsh", "fish", "pairs", "models"]
    _add(completions, "shell", help_text, metavar="SHELL", choices=shells)
    completions.set_defaults(parser=parser)
    _command(commands, "update", "show how to update specchat; asks no network")
    named = ("ask", "list", "show", "doctor", "check", "bench", "race", "tune", "derive", "update")
    for name in named:
        each = " for each pair, one a line" if name == "bench" else ""
        _add_flag(commands.choices[name], "--json", f"{JSON}{each}")
    for name in ("ask", "check", "bench", "race"):
        _add_save_as(commands.choices[name])


def _add_answering(commands: Commands) -> None:
    options = (*ANSWERED, *PROMPT, *NETWORK)
    ask = _command(commands, "ask", "answer one question on stdout", options, " [PROMPT ...]")
    _add(ask, "prompt", "the question; standard input is appended", metavar="PROMPT", nargs="*")
    _add_flag(ask, "--raw", "continue the text, without the chat template")
    _add_flag(ask, "--show-drafts", "colour accepted draft tokens")
    _add_flag(ask, "--show-reasoning", "also print the reasoning when piped, in <think> tags")
    _add_flag(ask, "--no-stdin", "do not read standard input (for use in loops)")
    add_images(ask)
    add_structure(ask)
    options = (*settings_of(ServerOptions), *ANSWERED, *NETWORK)
    serve = _command(commands, "serve", "serve the pair to other programs over HTTP", options)
    serve.set_defaults(save_as=None)
    _add_flag(serve, "--json", "print one JSON object for each request")
    help_text = "first print how to point this client at the server"
    _add(serve, "--for", help_text, choices=CLIENTS, dest="client", metavar="CLIENT")

    _add_worker(commands)


def _add_worker(commands: Commands) -> None:
    help_text = "lend this machine's devices to specchat on another machine"
    worker = _command(commands, "worker", help_text)
    for option in (*WorkerOptions.fields(), *_named(LoadOptions, "threads")):
        add_option(worker, option, default=None)


def _add_models(commands: Commands) -> None:
    pull = _command(commands, "pull", "download a pair or a GGUF file", NETWORK)
    help_text = "(default: offer the best pair for this machine)"
    of_file = ", or a file or folder to save as a pair"
    _add(pull, "name", f"{PULLED}{of_file} {help_text}", metavar="NAME", nargs="?")
    _add(pull, "--draft", "also download this draft model, or none", metavar="FILE")
    _add_flag(pull, "--check", "verify downloaded files instead; nothing is fetched")
    _command(commands, "list", "list available pairs and installed models", NETWORK)
    show = _command(commands, "show", "show details of a pair or a model", NETWORK)
    _add(show, "name", MODEL_NAME, metavar="NAME")
    rm = _command(commands, "rm", "delete downloaded models and derived files")
    _add(rm, "name", f"{PULLED}, or a derived file's name", metavar="NAME")
    _add_flag(rm, "--yes", YES)


def _add_measuring(commands: Commands) -> None:
    doctor = _command(commands, "doctor", "check this machine and suggest fixes")
    add_options(doctor, NETWORK)  # does not read the settings: it also diagnoses broken ones
    (worker,) = _named(LoadOptions, "workers")
    help_text = "also check this worker, repeatable (default: those of the settings)"
    add_option(doctor, worker, default=None, help=help_text)
    help_text = "check that speculation does not change the output"
    check = _command(commands, "check", help_text, MEASURED)
    _add_measured(check, "draft_length")
    help_text = "sampling temperature (default: 0, or 0.8 with a seed)"
    add_option(check, DECODING["temperature"], default=None, help=help_text)
    seed = replace(DECODING["seed"], can_be_none=False, none=None)
    add_option(check, seed, default=None, help="seed of the text to check (default: 0)")
    _add_count(check, "--max-tokens", 96, "tokens per answer")
    (pair,) = (option for option in MODEL if option.key == "pair")
    others = tuple(option for option in MEASURED if option is not pair)
    bench = _command(commands, "bench", "compare plain and speculative decoding", others)
    help_text = "pair to measure, repeatable: one after another (default: demo)"
    add_option(bench, pair, action="append", help=help_text)
    bench.set_defaults(options=MEASURED)
    _add_measured(bench, "drafter", "draft_length", "draft_tree")
    help_text = "sampling temperature, repeatable (default: 0 and 0.8)"
    add_option(bench, DECODING["temperature"], default=None, help=help_text, action="append")
    _add(bench, "--task", "task, repeatable (default: all)", action="append", choices=BENCH_TASKS)
    _add_count(bench, "--rounds", 3, "answers per task and temperature", default=None)
    _add_count(bench, "--max-tokens", 128, "tokens per answer")
    help_text = "measure the prompts of Spec-Bench's question.jsonl instead; resumes after Ctrl+C"
    _add(bench, "--spec-bench", help_text, type=Path, metavar="FILE")
    help_text = "with --spec-bench: a sample of N prompts, evenly over its tasks"
    _add_count(bench, "--limit", None, help_text)
    _add(bench, "--plot", "draw a chart as .svg", type=Path, metavar="FILE")
    _add(bench, "--save", f"then race each pair and save a card: {CARD}", metavar="FILE")
    options = (*ANSWERED, *PROMPT, *NETWORK)
    help_text = "play plain and speculative decoding of one prompt side by side"
    race = _command(commands, "race", help_text, options, " [PROMPT ...]")
    _add(race, "prompt", "the question (default: edit a text)", metavar="PROMPT", nargs="*")
    _add(race, "--save", f"save the race to a file: {CARD}", metavar="FILE")
    (draft,) = (option for option in MODEL if option.key == "draft")
    others = tuple(option for option in MEASURED if option is not draft)
    tune = _command(commands, "tune", "find and save the fastest settings for a target", others)
    help_text = "draft model to try, or none; repeatable (default: the best installed ones)"
    add_option(tune, draft, action="append", help=help_text)
    tune.set_defaults(options=MEASURED)
    _add_count(tune, "--rounds", 2, "answers per task")
    _add_count(tune, "--max-tokens", 128, "tokens per answer")


def _add_deriving(commands: Commands) -> None:
    options = (*settings_of(LoadOptions), *NETWORK)
    usage = " --train TIME TARGET"
    derive = _command(commands, "derive", "train a draft for a target", options, usage)
    _add(derive, "target", f"the target: {MODEL_NAME}", metavar="TARGET")
    help_text = "train a head or small draft model for this long: 8h; resumes earlier training"
    _add(derive, "--train", help_text, type=_seconds, metavar="TIME", required=True)
    help_text = "also train on questions about this text; repeatable"
    _add(derive, "--text", help_text, type=Path, action="append", default=[], metavar="FILE")
    _add_flag(derive, "--history", "also train on the questions in your chats")
    _add_flag(derive, "--keep-slower", "keep the draft even if no speedup is predicted here")


def _named(declared: type[Options], key: str) -> list[Option]:
    """Return the option of a name."""
    return [option for option in declared.fields() if option.key == key]


def _seconds(text: str) -> float:
    match = TIME.fullmatch(text)
    if not match or not float(match[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is not a time: write 90s, 10m or 2h")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]


def _add_history(commands: Commands) -> None:
    history = commands.add_parser("history", help="list, search, show, export or delete chats")
    actions = _subcommands(history, "action")
    listing = actions.add_parser("list", help="list conversations, newest first")
    _add(listing, "--limit", "at most N (default: 50)", type=int, default=50, metavar="N")
    search = actions.add_parser("search", help="search messages")
    _add(search, "words", "words that a message contains", nargs="+", metavar="WORD")
    show = actions.add_parser("show", help="print a conversation")
    _add_flag(show, "--stats", "print the statistics of each answer")
    _add_flag(show, "--reasoning", "also print the reasoning of each answer")
    export = actions.add_parser("export", help="write a conversation to a file")
    formats = ["md", "json", "html"]
    _add(export, "--format", "file format (default: md)", choices=formats, default=formats[0])
    _add(export, "--output", "default: standard output", type=Path, metavar="FILE")
    _add_flag(export, "--force", "overwrite an existing file")
    delete = actions.add_parser("delete", help="delete conversations permanently")
    _add(delete, "ids", "numbers from the list", nargs="*", type=int, metavar="ID")
    _add_flag(delete, "--all", "delete all of them")
    _add_flag(delete, "--yes", YES)
    for action in (show, export):
        _add(action, "id", "its number in the list", type=int, metavar="ID")
    for action in (listing, search, show):
        _add_flag(action, "--json", JSON)


def _add_config(commands: Commands) -> None:
    config = commands.add_parser("config", help="show or edit the settings")
    actions = _subcommands(config, "action")
    actions.add_parser("path", help="print the path of the settings file")
    show = actions.add_parser("show", help="print every setting and its source")
    _add_flag(show, "--json", JSON)
    actions.add_parser("edit", help="open the settings file in $VISUAL or $EDITOR")


def _subcommands(parser: Parser, name: str) -> Commands:
    """Add subcommands to a parser; the attribute `name` will hold the chosen one."""
    return parser.add_subparsers(title=f"{name}s", metavar=name.upper(), dest=name, required=True)


def _command(
    commands: Commands,
    name: str,
    help_text: str,
    options: tuple[Option, ...] = (),
    arguments: str = "",
) -> Parser:
    """Add a command with options, whose missing values come from the settings."""
    has_many = len(options) > MANY
    parser = commands.add_parser(
        name,
        help=help_text,
        description=f"{help_text[0].upper()}{help_text[1:]}.",
        usage=f"%(prog)s [OPTION ...]{arguments}" if has_many else None,
        epilog=EPILOG if has_many else None,
    )
    add_options(parser, options)
    parser.set_defaults(options=options)
    return parser


def _add(parser: Parser, name: str, help_text: str, **rules: Any) -> None:
    parser.add_argument(name, help=help_text, **rules)


def _add_flag(parser: Parser, name: str, help_text: str) -> None:
    _add(parser, name, help_text, action="store_true")


def _add_count(
    parser: Parser, flag: str, shown: int | None, help_text: str, **changes: Any
) -> None:
    """Add an option for a count, whose default is the one that its help shows."""
    key = flag[2:].replace("-", "_")
    rules: dict[str, Any] = {"minimum": 1, "main_type": int, "default": shown}
    option = Option(help_text, key=key, flag=flag, **rules)
    add_option(parser, option, **{"default": shown, **changes})


def _add_measured(parser: Parser, *keys: str) -> None:
    """Add decoding options that ignore the settings, so that results stay comparable."""
    for key in keys:
        add_option(parser, DECODING[key], default=DECODING[key].default)
