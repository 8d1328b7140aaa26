"""`specchat ask`: answer once on stdout."""

import argparse
import json
import os
import stat
import sys
import threading
from collections.abc import Iterable, Iterator
from io import IncrementalNewlineDecoder
from typing import Any

from specchat.catalogue.catalogue_file import TRIAL, read_catalogue
from specchat.catalogue.fit import predicted_rate, recommend, size_of_pair
from specchat.chat.text_files import decoded
from specchat.cli import pull
from specchat.cli.image_arguments import images_of, require_projector, require_whole
from specchat.cli.model_arguments import (
    DEMO_NOTICE,
    asked,
    chosen_answerer,
    is_demo,
    is_first_run,
    loading_of,
    open_answerer,
    show_loading,
    stopping_on_interrupt,
    with_known_think,
)
from specchat.cli.pass_measuring import compare_passes, measure_unknown
from specchat.cli.structure_arguments import data_of, structure_of, why_not_valid
from specchat.cli.terminal import (
    DONE,
    FAILED,
    INTERRUPTED,
    has_colours,
    press,
    print_json,
    say,
)
from specchat.decoding.chunk import Chunk, Piece, ToolCall, pieces_of
from specchat.drafter_registry import TARGET
from specchat.engine.api import Engine
from specchat.errors import InvalidOption
from specchat.images.image import LONGEST_BEGINNING, type_of, with_images
from specchat.planning.device import find_machine
from specchat.safe_text import harmless
from specchat.structured.structure import Structure
from specchat.system.clone import set_up_images
from specchat.wording import answer_line, speculation_line

GREEN, UNDERLINED, DIM, PLAIN = "\x1b[32m", "\x1b[4m", "\x1b[2m", "\x1b[0m"
RAW_IGNORES = {"chat.system_prompt": "--system", "chat.think": "--think"}
THINKING = ("Thinking...\n", "\n...done thinking.")
"""The text around reasoning on terminals without colours."""
SECONDS_TO_HINT = 2.0
"""How long to wait for standard input before printing a hint."""
WAITING = "waiting for standard input to end; --no-stdin asks without it"


def run(arguments: argparse.Namespace) -> int:
    """Load the pair, stream the answer and print the statistics."""
    answerer = chosen_answerer(arguments)
    structure = structure_of(arguments)
    text, piped = _prompt(arguments)
    images = images_of(arguments, piped)
    if images and answerer.pair:
        require_projector(loading_of(arguments, answerer.pair))
        if reason := set_up_images(say):
            raise InvalidOption(reason)
        require_whole(images)
    prompt = with_images(text, images)
    if is_demo(arguments) and sys.stderr.isatty():
        say(DEMO_NOTICE)
    with open_answerer(arguments, answerer) as engine:
        options = with_known_think(answerer.options, engine.facts, arguments)
        options |= {"structure": structure, "images": images}
        compare_passes(engine, options, arguments)
        chunks = _with_notices(engine, _start_answer(engine, prompt, arguments, options))
        painter = AnswerPainter(arguments)
        with stopping_on_interrupt(engine.stop):
            answer = list(chunks if arguments.json else painter.painted(chunks))
        _report(engine, answer, arguments, structure, hides_reasoning=painter.hides_reasoning)
        if answer[-1].finish == "cancelled":
            return INTERRUPTED
        if structure and (reason := why_not_valid(structure, answer, engine.stats)):
            say(reason)
            return FAILED
        measure_unknown(engine, arguments)
    is_seen = sys.stdout.isatty() and sys.stderr.isatty() and not arguments.json
    return _offer_pairs() if is_seen and is_first_run(arguments) else DONE


def _prompt(arguments: argparse.Namespace) -> tuple[str, bytes]:
    """Return the prompt, and an image that was piped in.

    The prompt is the arguments, then standard input if that is a pipe or file and not an image.
    """
    parts, image = [" ".join(arguments.prompt)], b""
    if sys.stdin and not sys.stdin.isatty() and not arguments.no_stdin:
        mode = os.fstat(sys.stdin.fileno()).st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode):
            content = _standard_input()
            if type_of(content):
                image = content
            else:
                parts.append(_text_of(content).strip("\n"))
    prompt = "\n\n".join(part for part in parts if part.strip())
    if not prompt:
        raise InvalidOption('no question given: use specchat ask "QUESTION", or pipe one in')
    return prompt, image


def _text_of(content: bytes) -> str:
    """Return standard input as text; say so if its encoding is not UTF-8."""
    try:
        text, encoding = decoded(content)
    except ValueError:
        raise InvalidOption("standard input is not text: pipe a text, or use --no-stdin") from None
    if encoding:
        say(f"standard input was read as {encoding}")
    return text


def _standard_input() -> bytes:
    """Return all of standard input, of an image no more than one may have.

    Print a hint if it stays open.
    """
    hint = threading.Timer(SECONDS_TO_HINT, say, [WAITING])
    hint.daemon = True
    hint.start()
    try:
        begin = sys.stdin.buffer.read(LONGEST_BEGINNING)
        if not type_of(begin):
            return begin + sys.stdin.buffer.read()
        from specchat.images.picture import MOST_BYTES  # who asks about a text needs none of it

        return begin + sys.stdin.buffer.read(MOST_BYTES)
    finally:
        hint.cancel()


def _start_answer(
    engine: Engine, prompt: str, arguments: argparse.Namespace, options: dict[str, Any]
) -> Iterator[Chunk]:
    """Start an answer with the chat template, or continue the text as it is (--raw)."""
    if arguments.raw:
        for name, option in RAW_IGNORES.items():
            if arguments.settings.source(name) == "command line":
                say(f"--raw ignores {option}")
        return engine.generate(prompt, on_progress=show_loading, **options)
    if not engine.facts.has_chat_template:
        say(f"{engine.facts.target} has no chat template: continuing the text")
    return engine.answer(asked(arguments, prompt), on_progress=show_loading, **options)


def _with_notices(engine: Engine, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    """Yield chunks; print notices before the first one, and those that came later at the end."""
    said = set[str]()

    def say_new() -> None:
        for notice in engine.stats.notices:
            if notice != engine.stats.invalid_reason and notice not in said:
                say(notice)
                said.add(notice)

    for number, chunk in enumerate(chunks):
        if number == 0:
            say_new()
        yield chunk
    say_new()


class AnswerPainter:
    """Prints an answer chunk by chunk; on a terminal, control characters are replaced.

    The answer goes to standard output, and so does each tool call, as a line of JSON. Reasoning is
    printed dimmed to standard error if both are terminals; when piped, it is omitted, or with
    --show-reasoning printed before the answer in <think> tags.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        """Colour accepted draft tokens if asked; underline them if NO_COLOR is set."""
        self._is_terminal = sys.stdout.isatty()
        mark = GREEN if has_colours() else UNDERLINED if self._is_terminal else ""
        self._mark = mark if arguments.show_drafts else ""
        self._frame = (DIM, PLAIN) if has_colours(sys.stderr) else THINKING
        self._tags_reasoning = arguments.show_reasoning and not self._is_terminal
        self.hides_reasoning = not (self._is_terminal or self._tags_reasoning)
        self._shows_reasoning = self._is_terminal and sys.stderr.isatty()
        self._line_ends = IncrementalNewlineDecoder(None, translate=False)
        self._is_reasoning = False
        self._last = ""

    def painted(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """Yield each chunk after printing it; finally end the last line."""
        for chunk in chunks:
            for piece in pieces_of(chunk):
                if piece.kind == "reasoning":
                    self._print_reasoning(piece.text)
                elif piece.kind == "answer" and piece.text:
                    self._end_reasoning()
                    self._print(piece)
            for call in chunk.tool_calls:
                self._end_reasoning()
                self._print_call(call)
            yield chunk
        self._end_reasoning()
        if self._last not in {"", "\n"}:
            print()

    def _print(self, piece: Piece) -> None:
        text = self._shown(piece.text) if self._is_terminal else piece.text
        self._last = piece.text[-1:]
        is_drafted = self._mark and text and piece.origin != TARGET.name
        print(f"{self._mark}{text}{PLAIN}" if is_drafted else text, end="", flush=True)

    def _print_call(self, call: ToolCall) -> None:
        if self._last not in {"", "\n"}:
            print()
        print_json({"name": call.name, "arguments": json.loads(call.arguments)})
        self._last = "\n"

    def _print_reasoning(self, text: str) -> None:
        begins, self._is_reasoning = not self._is_reasoning, True
        if self._tags_reasoning:
            print("<think>\n" * begins + text, end="", flush=True)
        elif self._shows_reasoning:
            print(self._frame[0] * begins + harmless(text), end="", file=sys.stderr, flush=True)

    def _end_reasoning(self) -> None:
        if not self._is_reasoning:
            return
        self._is_reasoning = False
        if self._tags_reasoning:
            print("\n</think>\n")
        elif self._shows_reasoning:
            print(f"{self._frame[1]}\n", file=sys.stderr, flush=True)

    def _shown(self, text: str) -> str:
        """Return printable text: control characters replaced, Windows line ends as newlines."""
        text = self._line_ends.decode(text)  # a carriage return is held back until the next piece
        return harmless(text.replace("\r\n", "\n"))


def _report(
    engine: Engine,
    answer: list[Chunk],
    arguments: argparse.Namespace,
    structure: Structure | None,
    *,
    hides_reasoning: bool,
) -> None:
    """Print the JSON object, or the statistics if stderr is a terminal."""
    if arguments.json:
        calls = [call for chunk in answer for call in chunk.tool_calls]
        record: dict[str, Any] = {
            "text": "".join(chunk.text for chunk in answer),
            "reasoning": "".join(chunk.reasoning for chunk in answer),
            "tool_calls": [
                {"id": call.id, "name": call.name, "arguments": json.loads(call.arguments)}
                for call in calls
            ],
            "tokens": [token for chunk in answer for token in chunk.tokens],
            "finish": answer[-1].finish,
            "model": {"target": engine.facts.target, "draft": engine.facts.draft},
            "drafter": engine.stats.drafter,
            "speculation": engine.stats.speculation,
            "stats": {**engine.stats.as_dict(), **engine.stats.gain.as_record()},
        }
        if structure:
            stats = engine.stats
            data = data_of(structure, record["text"]) if stats.is_valid else None
            record |= {"data": data, "valid": bool(stats.is_valid), "forced": stats.forced}
        print_json(record)
        return
    if reason := _why_empty(engine, answer, hides_reasoning=hides_reasoning):
        say(reason)
    if sys.stderr.isatty():
        say(answer_line({**engine.stats.as_dict(), **engine.stats.gain.as_record()}))
        say(speculation_line(engine.stats.speculation))


def _why_empty(engine: Engine, answer: list[Chunk], *, hides_reasoning: bool) -> str:
    """Return why there is no answer; empty if there is one, or if the user stopped it."""
    finish = answer[-1].finish
    if finish == "cancelled" or any(chunk.text or chunk.tool_calls for chunk in answer):
        return ""
    if not any(chunk.reasoning for chunk in answer):
        return "the answer is empty"
    count = engine.stats.reasoning_tokens
    how = {
        "length": f"--max-tokens ended its reasoning after {count} tokens",
        "context": f"its reasoning filled the context, with {count} tokens: use a larger --ctx",
    }.get(str(finish), f"it ended after {count} tokens of reasoning")
    return f"no answer: {how}{'; use --show-reasoning to see it' * hides_reasoning}"


def _offer_pairs() -> int:
    """Offer to download a first pair at a key press; return an exit code."""
    entries = read_catalogue().entries
    best = recommend(entries.values(), machine := find_machine())
    offers = {TRIAL: "to try things out"} if TRIAL in entries else {}
    if best and best.name not in offers:
        offers = {best.name: "recommended for this machine", **offers}
    keys = {str(number): name for number, name in enumerate(offers, 1)}
    width = max(map(len, offers), default=0)
    for key, name in keys.items():
        size = size_of_pair(entries[name].num_bytes, entries[name].about_gb)
        rate = predicted_rate(entries[name], machine)
        speed = f"≈{rate:.0f} tokens/s, " if rate else ""
        say(f"{key}  specchat pull {name:<{width}}  {size}, {speed}{offers[name]}")
    if not (keys and sys.stdin and sys.stdin.isatty()):
        return DONE
    chosen = keys.get(press(f"{' or '.join(keys)} downloads it now, any other key quits:"))
    return pull.run(argparse.Namespace(name=chosen, draft=None, check=False)) if chosen else DONE
