"""`specchat ask`: answer once on stdout."""

import argparse
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from io import IncrementalNewlineDecoder
from typing import Any

from specchat.catalogue.catalogue_file import TRIAL, read_catalogue
from specchat.catalogue.fit import recommend, size_of_pair
from specchat.chat.figure_text import answer_line, speculation_line
from specchat.chat.safe_text import harmless
from specchat.cli import pull
from specchat.cli.model_arguments import (
    DEMO_NOTICE,
    asked,
    chosen_pair,
    generate_options,
    is_demo,
    is_first_run,
    open_engine,
    show_loading,
    stopping_on_interrupt,
)
from specchat.cli.terminal import DONE, INTERRUPTED, press, print_json, say
from specchat.decoding.chunk import Chunk
from specchat.drafter_registry import TARGET
from specchat.engine import Engine
from specchat.errors import InvalidOption
from specchat.planning.device import find_machine

GREEN, UNDERLINED, PLAIN = "\x1b[32m", "\x1b[4m", "\x1b[0m"


def run(arguments: argparse.Namespace) -> int:
    """Load the pair, stream the answer and print its statistics."""
    pair = chosen_pair(arguments)
    options = generate_options(arguments, pair)
    prompt = _prompt(arguments.prompt)
    if is_demo(arguments) and sys.stderr.isatty():
        say(DEMO_NOTICE)
    with open_engine(arguments, pair, options["drafter"]) as engine:
        chunks = _begin(engine, prompt, arguments, options)
        painter = AnswerPainter(arguments.show_drafts)
        with stopping_on_interrupt(engine.stop):
            answer = list(chunks if arguments.json else painter.painted(chunks))
        _report(engine, answer, arguments)
    if answer[-1].finish == "cancelled":
        return INTERRUPTED
    is_seen = sys.stdout.isatty() and sys.stderr.isatty() and not arguments.json
    return _offer_pairs() if is_seen and is_first_run(arguments) else DONE


def _prompt(words: list[str]) -> str:
    """Return the prompt: the command line's words, then a pipe or file on standard input."""
    parts = [" ".join(words)]
    if sys.stdin and not sys.stdin.isatty():
        mode = os.fstat(sys.stdin.fileno()).st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode):
            parts.append(sys.stdin.buffer.read().decode("utf-8", "replace").strip("\n"))
    prompt = "\n\n".join(part for part in parts if part.strip())
    if not prompt:
        raise InvalidOption('no question given: use specchat ask "QUESTION", or pipe one in')
    return prompt


def _begin(
    engine: Engine, prompt: str, arguments: argparse.Namespace, options: dict[str, Any]
) -> Iterator[Chunk]:
    """Start the answer with the chat template, or continue the raw text (--raw, or no template)."""
    if arguments.raw or not engine.facts.has_chat_template:
        if not arguments.raw:
            say(f"{engine.facts.target} has no chat template: continuing the text, as --raw does")
        return engine.generate(prompt, on_progress=show_loading, **options)
    return engine.chat(asked(arguments, prompt), on_progress=show_loading, **options)


class AnswerPainter:
    """Prints an answer chunk by chunk; on a terminal control characters are replaced."""

    def __init__(self, shows_drafts: bool) -> None:
        """Colour accepted draft tokens if asked; underline them if NO_COLOR is set."""
        self._is_terminal = sys.stdout.isatty()
        colour = UNDERLINED if os.environ.get("NO_COLOR") else GREEN
        self._mark = colour if shows_drafts and self._is_terminal else ""
        self._line_ends = IncrementalNewlineDecoder(None, translate=False)

    def painted(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """Yield chunks, each once it is printed; end the last line."""
        last = ""
        for chunk in chunks:
            if self._mark and chunk.texts:
                pieces = zip(chunk.texts, chunk.origins, strict=True)
                out = "".join(self._painted(text, origin) for text, origin in pieces)
            else:
                out = self._shown(chunk.text) if self._is_terminal else chunk.text
            last = chunk.text[-1:] or last
            print(out, end="", flush=True)
            yield chunk
        if last != "\n":
            print()

    def _shown(self, text: str) -> str:
        """Return a piece with control characters replaced; a Windows line end is one newline."""
        text = self._line_ends.decode(text)  # a return waits for its newline in the next piece
        return harmless(text.replace("\r\n", "\n"))

    def _painted(self, text: str, origin: str) -> str:
        text = self._shown(text)
        return text if origin == TARGET.name or not text else f"{self._mark}{text}{PLAIN}"


def _report(engine: Engine, answer: list[Chunk], arguments: argparse.Namespace) -> None:
    """Print the JSON object, or the statistics if stderr is a terminal."""
    if arguments.json:
        record = {
            "text": "".join(chunk.text for chunk in answer),
            "tokens": [token for chunk in answer for token in chunk.tokens],
            "finish": answer[-1].finish,
            "model": {"target": engine.facts.target, "draft": engine.facts.draft},
            "drafter": engine.stats.drafter,
            "speculation": engine.stats.speculation,
            "stats": engine.stats.as_dict(),
        }
        print_json(record)
    elif sys.stderr.isatty():
        say(answer_line({**engine.stats.as_dict(), "speedup": engine.stats.speedup}))
        say(speculation_line(engine.stats.speculation))


def _offer_pairs() -> int:
    """Offer to download a pair to begin with, at the press of a key; return an exit code."""
    entries = read_catalogue().entries
    best = recommend(entries.values(), find_machine())
    offers = {TRIAL: "to try things out"} if TRIAL in entries else {}
    if best and best.name not in offers:
        offers = {best.name: "recommended for this machine", **offers}
    keys = {str(number): name for number, name in enumerate(offers, 1)}
    width = max(map(len, offers), default=0)
    for key, name in keys.items():
        size = size_of_pair(entries[name].num_bytes, entries[name].about_gb)
        say(f"{key}  specchat pull {name:<{width}}  {size}, {offers[name]}")
    if not (keys and sys.stdin and sys.stdin.isatty()):
        return DONE
    chosen = keys.get(press(f"{' or '.join(keys)} downloads it now, any other key ends:"))
    return pull.run(argparse.Namespace(name=chosen, draft=None, check=False)) if chosen else DONE
