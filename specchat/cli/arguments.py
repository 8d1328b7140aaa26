"""The words of the command line. What numbers may be is checked where they are used."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import specchat
from specchat import drafters
from specchat.cli.parser import Parser

__all__ = ["parse"]

DESCRIPTION = "Chat with a language model on your own machine, speculatively decoded."
BENCH_TASKS = ["chat", "code", "edit", "summary", "reasoning", "json"]
ANSWERING = ("model", "decoding", "sampling", "chat", "network")
"""The tables of the settings that an answer depends on."""

ABOUT = {"-h", "--help", "--version"}
EPILOG = (
    "Without --pair or --target, here or in the settings, the demo pair that comes with specchat"
    " answers. Settings and the environment come before the built-in defaults named here."
)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line; `run` of the result is the command. Raises InvalidOption."""
    parser = Parser(prog="specchat", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument("--version", action="version", version=f"specchat {specchat.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_chat(commands)
    _add_ask(commands)
    _add_pull(commands)
    _add_list(commands)
    _add_show(commands)
    _add_rm(commands)
    _add_doctor(commands)
    _add_check(commands)
    _add_bench(commands)
    _add_tune(commands)
    _add_history(commands)
    _add_config(commands)
    _add_help(commands)
    words = list(sys.argv[1:] if arguments is None else arguments)
    is_chat = not words or (words[0].startswith("-") and words[0] not in ABOUT)
    return parser.parse_args(["chat", *words] if is_chat else words)


def _add_chat(commands: argparse._SubParsersAction[Parser]) -> None:
    chat = commands.add_parser("chat", help="open the chat (what specchat alone does)")
    _add_model(chat)
    _add_sampling(chat)
    chat.add_argument("--system", dest="system_prompt", help="a system prompt")
    chat.add_argument("--no-history", action="store_true", help="keep nothing of what is said")
    _add_offline(chat)
    chat.set_defaults(run=_late("specchat.cli.chat", *ANSWERING))


def _add_ask(commands: argparse._SubParsersAction[Parser]) -> None:
    ask = commands.add_parser("ask", help="answer once on stdout", epilog=EPILOG)
    ask.add_argument("prompt", nargs="*", help="the question; standard input is added to it")
    _add_model(ask)
    _add_sampling(ask)
    ask.add_argument("--system", dest="system_prompt", metavar="TEXT", help="a system prompt")
    ask.add_argument("--raw", action="store_true", help="continue the text; no chat template")
    ask.add_argument("--json", action="store_true", help="print one JSON object")
    ask.add_argument(
        "--show-drafts", action="store_true", help="colour the draft tokens that were accepted"
    )
    _add_offline(ask)
    ask.set_defaults(run=_late("specchat.cli.ask", *ANSWERING))


def _add_pull(commands: argparse._SubParsersAction[Parser]) -> None:
    pull = commands.add_parser("pull", help="download a pair, or a GGUF file of the hub")
    pull.add_argument(
        "name",
        metavar="NAME",
        nargs="?",
        help="a pair by name, org/repo/file.gguf, or the URL of a file; without it specchat offers"
        " the pair that suits this machine",
    )
    pull.add_argument("--draft", metavar="FILE", help="a draft model for a file, named as it is")
    pull.add_argument(
        "--check", action="store_true", help="hash what is here again instead, and fetch nothing"
    )
    _add_offline(pull)
    pull.set_defaults(run=_late("specchat.cli.pull", "network"))


def _add_list(commands: argparse._SubParsersAction[Parser]) -> None:
    listing = commands.add_parser("list", help="what the catalogue offers and what is here")
    listing.add_argument("--json", action="store_true", help="print one JSON object")
    _add_offline(listing)
    listing.set_defaults(run=_late("specchat.cli.list", "network"))


def _add_show(commands: argparse._SubParsersAction[Parser]) -> None:
    show = commands.add_parser("show", help="what there is to say of a pair or a model")
    show.add_argument(
        "name",
        metavar="NAME",
        help="a pair, org/repo/file.gguf, the path of a file, or a local model's name",
    )
    show.add_argument("--json", action="store_true", help="print one JSON object")
    _add_offline(show)
    show.set_defaults(run=_late("specchat.cli.show", "network"))


def _add_rm(commands: argparse._SubParsersAction[Parser]) -> None:
    rm = commands.add_parser("rm", help="delete what was pulled")
    rm.add_argument(
        "name", metavar="NAME", help="as it was pulled: a pair, org/repo/file.gguf, a URL"
    )
    rm.add_argument("--yes", action="store_true", help="do not ask")
    rm.set_defaults(run=_late("specchat.cli.rm"))


def _add_history(commands: argparse._SubParsersAction[Parser]) -> None:
    history = commands.add_parser("history", help="list, search, show, export conversations")
    actions = history.add_subparsers(title="actions", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="conversations, the newest first")
    listing.add_argument("--limit", type=int, default=50, help="how many (default 50)")
    search = actions.add_parser("search", help="find messages by their words")
    search.add_argument("words", nargs="+", metavar="WORD")
    show = actions.add_parser("show", help="print a conversation")
    show.add_argument("--stats", action="store_true", help="its statistics, answer by answer")
    export = actions.add_parser("export", help="write a conversation to a file")
    export.add_argument("--format", choices=["md", "json", "html"], default="md")
    export.add_argument("--output", type=Path, metavar="FILE", help="default: standard output")
    export.add_argument("--force", action="store_true", help="write over a file that is there")
    delete = actions.add_parser("delete", help="delete conversations for good")
    delete.add_argument("ids", nargs="*", type=int, metavar="ID")
    delete.add_argument("--all", action="store_true", help="all of them")
    delete.add_argument("--yes", action="store_true", help="do not ask")
    for action in (show, export):
        action.add_argument("id", type=int, metavar="ID", help="its number in the list")
    for action in (listing, search, show):
        action.add_argument("--json", action="store_true", help="print one JSON object")
    named = {"list": listing, "search": search, "show": show, "export": export, "delete": delete}
    for name, action in named.items():
        action.set_defaults(run=_late("specchat.cli.history"), action=name)


def _add_check(commands: argparse._SubParsersAction[Parser]) -> None:
    check = commands.add_parser("check", help="prove that a pair decodes losslessly here")
    _add_model(check)
    _add_draft_length(check, "auto")
    check.add_argument("--max-tokens", type=int, default=96, help="tokens per answer")
    check.add_argument("--json", action="store_true", help="print one JSON object")
    _add_offline(check)
    check.set_defaults(run=_late("specchat.cli.check", "model", "network"))


def _add_bench(commands: argparse._SubParsersAction[Parser]) -> None:
    bench = commands.add_parser(
        "bench", help="plain and speculative decoding side by side", epilog=EPILOG
    )
    _add_model(bench)
    _add_drafter(bench, "auto")
    _add_draft_length(bench, "auto")
    bench.add_argument("--temperature", type=float, action="append", help="default 0 and 0.8")
    bench.add_argument("--task", action="append", choices=BENCH_TASKS, help="default: all")
    bench.add_argument("--rounds", type=int, default=3, help="answers per task and temperature")
    bench.add_argument("--max-tokens", type=int, default=128, help="tokens per answer")
    bench.add_argument("--json", action="store_true", help="print one JSON object")
    bench.add_argument("--plot", type=Path, metavar="FILE", help="draw a picture: .svg or .png")
    _add_offline(bench)
    bench.set_defaults(run=_late("specchat.cli.bench", "model", "network"))


def _add_tune(commands: argparse._SubParsersAction[Parser]) -> None:
    tune = commands.add_parser(
        "tune", help="find the best settings for a target here and keep them", epilog=EPILOG
    )
    _add_model(tune, several_drafts=True)
    tune.add_argument("--rounds", type=int, default=2, help="answers per task")
    tune.add_argument("--max-tokens", type=int, default=128, help="tokens per answer")
    tune.add_argument("--json", action="store_true", help="print one JSON object")
    _add_offline(tune)
    tune.set_defaults(run=_late("specchat.cli.tune", "model", "network"))


def _add_doctor(commands: argparse._SubParsersAction[Parser]) -> None:
    doctor = commands.add_parser("doctor", help="check this machine and say what to do")
    doctor.add_argument("--json", action="store_true", help="print one JSON object")
    _add_offline(doctor)
    doctor.set_defaults(run=_late("specchat.cli.doctor"))


def _add_config(commands: argparse._SubParsersAction[Parser]) -> None:
    config = commands.add_parser("config", help="where the settings are, what holds, change them")
    actions = config.add_subparsers(title="actions", metavar="ACTION", required=True)
    actions.add_parser("path", help="print the path of the settings file")
    show = actions.add_parser("show", help="print every setting and where it is from")
    show.add_argument("--json", action="store_true", help="print one JSON object")
    actions.add_parser("edit", help="open the settings file with $VISUAL or $EDITOR")
    for name, action in actions.choices.items():
        action.set_defaults(run=_late("specchat.cli.config"), action=name)


def _add_help(commands: argparse._SubParsersAction[Parser]) -> None:
    page = commands.add_parser("help", help="show the documentation")
    page.add_argument("topic", metavar="TOPIC", nargs="?", help="a topic, or a command")
    page.set_defaults(run=_late("specchat.cli.help"), commands=commands.choices)


def _add_model(parser: argparse.ArgumentParser, *, several_drafts: bool = False) -> None:
    group = parser.add_argument_group("model")
    group.add_argument("--pair", help="a pair by name (default: demo)")
    group.add_argument(
        "--target",
        type=Path,
        metavar="FILE",
        help="a GGUF file, or a local model's name, as target",
    )
    group.add_argument(
        "--draft",
        type=Path,
        metavar="FILE",
        action="append" if several_drafts else "store",
        help="one as draft model, or none, as often as you like"
        if several_drafts
        else "one as draft model, or none (default: the best that is here)",
    )
    if not several_drafts:
        group.add_argument(
            "--save-as", metavar="NAME", help="keep this target and draft as a pair of that name"
        )
    group.add_argument("--ctx", type=int, help="context length (default 0: the model's own)")
    group.add_argument(
        "--gpu-layers",
        type=_number_or("auto"),
        metavar="auto|N",
        help="layers on the GPU (default auto: as many as fit)",
    )
    group.add_argument(
        "--draft-gpu-layers",
        type=_number_or("auto"),
        metavar="auto|N",
        help="layers of the draft on the GPU (default auto: as --gpu-layers says)",
    )
    group.add_argument(
        "--tensor-split",
        metavar="SHARES",
        help="the parts several GPUs take, 3,1 for instance (default: as each has memory)",
    )
    group.add_argument(
        "--split-mode",
        choices=["layer", "row", "none"],
        help="how several GPUs share a model (default layer; none: --main-gpu alone)",
    )
    group.add_argument("--main-gpu", type=int, metavar="N", help="the GPU used alone (default 0)")
    group.add_argument(
        "--threads",
        type=_number_or("auto"),
        metavar="auto|N",
        help="threads (default auto: physical cores)",
    )
    group.add_argument("--flash-attention", choices=["auto", "on", "off"], help="default auto")
    group.add_argument("--cache-type-k", metavar="TYPE", help="default auto; f16, q8_0, ...")
    group.add_argument("--cache-type-v", metavar="TYPE", help="default auto; f16, q8_0, ...")
    group.add_argument("--no-mmap", action="store_true", help="read the file instead of mapping it")
    group.add_argument("--mlock", action="store_true", help="keep the model from being swapped out")


def _add_offline(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--offline", action="store_true", default=None, help="ask nothing of the network"
    )


def _add_sampling(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("decoding")
    _add_drafter(group)
    _add_draft_length(group)
    group.add_argument("--temperature", type=float, help="default 0.8; 0 is greedy")
    group.add_argument("--top-k", type=int, help="default 40; 0 switches it off")
    group.add_argument("--top-p", type=float, help="default 0.95; 1 is off")
    group.add_argument("--min-p", type=float, help="default 0.05; 0 is off")
    group.add_argument("--repeat-penalty", type=float, help="default 1: off")
    group.add_argument("--presence-penalty", type=float, help="default 0: off")
    group.add_argument("--frequency-penalty", type=float, help="default 0: off")
    group.add_argument(
        "--seed",
        type=_number_or("random"),
        metavar="random|N",
        help="default random; the same seed gives the same answer",
    )
    group.add_argument(
        "--max-tokens",
        type=_number_or("unlimited"),
        metavar="unlimited|N",
        help="tokens to answer with at most (default unlimited)",
    )
    group.add_argument(
        "--stop", action="append", default=[], metavar="TEXT", help="end the answer before TEXT"
    )


def _add_drafter(parser: argparse._ActionsContainer, default: str | None = None) -> None:
    parser.add_argument(
        "--drafter",
        choices=drafters.choices(),
        default=default,
        help="what proposes tokens (default auto: all that can, by what each brings)",
    )


def _add_draft_length(parser: argparse._ActionsContainer, default: str | None = None) -> None:
    parser.add_argument(
        "--draft-length",
        type=_number_or("auto"),
        default=default,
        metavar="auto|N",
        help="tokens proposed in a step (default auto: as many as pay, step by step)",
    )


def _number_or(word: str) -> Callable[[str], int | str]:
    """Return a parser of whole numbers that lets one word pass."""

    def parse_number(text: str) -> int | str:
        try:
            return word if text == word else int(text)
        except ValueError:
            message = f"{text!r} is neither {word!r} nor a whole number"
            raise argparse.ArgumentTypeError(message) from None

    return parse_number


def _late(module: str, *tables: str) -> Callable[[argparse.Namespace], int]:
    """Return a command whose module is imported when it runs, to keep --help quick.

    What it takes from the settings, by table, fills in for the options that were not given.
    """

    def run(arguments: argparse.Namespace) -> int:
        if tables:
            importlib.import_module("specchat.cli.option_defaults").fill_in(arguments, tables)
        if getattr(arguments, "offline", False):
            importlib.import_module("specchat.hub.offline").go_offline()
        code: int = importlib.import_module(module).run(arguments)
        return code

    return run
