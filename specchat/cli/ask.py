"""`specchat ask`: answer once on stdout."""

from __future__ import annotations

import argparse
import json
import os
import signal
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from specchat.chat.turn import Turn
from specchat.cli.model_arguments import (
    DEMO_NOTICE,
    chosen_drafter,
    chosen_pair,
    is_demo,
    loading_options,
    save_loaded,
    tell_on_terminal,
)
from specchat.cli.terminal import Painter, say
from specchat.decoding.chunk import Chunk
from specchat.decoding.statistics import Statistics
from specchat.drafters import may_use_model
from specchat.engine import Engine, GenerateOptions
from specchat.errors import InvalidOption

__all__ = ["run"]

INTERRUPTED = 130
DECODING_OPTIONS = (
    "drafter",
    "draft_length",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repeat_penalty",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "max_tokens",
    "stop",
)


def run(arguments: argparse.Namespace) -> int:
    """Load the pair, stream the answer, and say how it went."""
    pair = chosen_pair(arguments)
    given = {name: getattr(arguments, name) for name in DECODING_OPTIONS}
    options = {
        **pair.sampling,
        **{name: value for name, value in given.items() if value is not None},
    }
    GenerateOptions.of(options)  # wrong values are refused before anything is loaded
    prompt = _prompt(arguments.prompt)
    options["drafter"] = chosen_drafter(arguments, pair)
    draft = pair.draft if may_use_model(options["drafter"]) else None
    if is_demo(arguments) and sys.stderr.isatty():
        say(DEMO_NOTICE)
    with Engine.load(
        pair.target, draft, process=True, tell=tell_on_terminal, **loading_options(arguments, pair)
    ) as engine:
        for told in (save_loaded(arguments, pair, engine.facts), engine.facts.told):
            if told:
                say(told)
        is_raw = arguments.raw or not engine.facts.has_chat_template
        if is_raw and not arguments.raw:
            say(f"{engine.facts.target} has no chat template: continuing the text as with --raw")
        chunks = _begin(engine, prompt, arguments.system_prompt, is_raw, options)
        painter = Painter(arguments.show_drafts) if not arguments.json else None
        with _stopping_on_interrupt(engine):
            answer = _stream(chunks, painter)
        _report(engine, answer, arguments)
    return INTERRUPTED if answer.finish == "cancelled" else 0


def _prompt(words: list[str]) -> str:
    """Put the prompt together from the command line and from standard input."""
    given = " ".join(words)
    piped = _standard_input() if sys.stdin and not sys.stdin.isatty() else ""
    prompt = "\n\n".join(part for part in (given, piped) if part.strip())
    if not prompt:
        raise InvalidOption("there is no question: write one after ask, or pipe one in")
    return prompt


def _standard_input() -> str:
    """Read standard input where it is a pipe or a file; a device has nothing to say."""
    mode = os.fstat(sys.stdin.fileno()).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)):
        return ""
    return sys.stdin.buffer.read().decode("utf-8", "replace").strip("\n")


def _begin(
    engine: Engine, prompt: str, system: str | None, is_raw: bool, options: dict[str, Any]
) -> Iterator[Chunk]:
    if is_raw:
        return engine.generate(prompt, tell=tell_on_terminal, **options)
    messages: list[Turn] = [{"role": "user", "content": prompt}]
    if system:
        messages.insert(0, {"role": "system", "content": system})
    return engine.chat(messages, tell=tell_on_terminal, **options)


def _stream(chunks: Iterator[Chunk], painter: Painter | None) -> Chunk:
    """Print the answer as it comes, and return all of it as one chunk."""
    everything: list[Chunk] = []
    for chunk in chunks:
        everything.append(chunk)
        if painter:
            painter.paint(chunk)
    if painter:
        painter.finish()
    return Chunk(
        text="".join(chunk.text for chunk in everything),
        tokens=tuple(token for chunk in everything for token in chunk.tokens),
        finish=everything[-1].finish,
    )


@contextmanager
def _stopping_on_interrupt(engine: Engine) -> Iterator[None]:
    """Let the first Ctrl+C stop the answer, keeping what is there; the second one interrupts."""

    def stop(number: int, frame: object) -> None:
        del number, frame
        signal.signal(signal.SIGINT, before)
        engine.stop()

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _report(engine: Engine, answer: Chunk, arguments: argparse.Namespace) -> None:
    """Print the JSON object, or one line of statistics for a person who watches."""
    if arguments.json:
        print(json.dumps(_as_json(engine, answer), ensure_ascii=False))
    elif sys.stderr.isatty():
        say(_summary(engine.stats))
        say(engine.stats.speculation_in_words())


def _as_json(engine: Engine, answer: Chunk) -> dict[str, Any]:
    return {
        "text": answer.text,
        "tokens": list(answer.tokens),
        "finish": answer.finish,
        "model": {"target": engine.facts.target, "draft": engine.facts.draft},
        "drafter": engine.stats.drafter,
        "speculation": engine.stats.speculation,
        "stats": engine.stats.as_dict(),
    }


def _summary(stats: Statistics) -> str:
    parts = [
        f"{stats.generated_tokens} tokens",
        f"{stats.tokens_per_second:.1f} tokens/s",
        f"first after {stats.time_to_first_token_s:.2f} s",
    ]
    if stats.drafted:
        parts += [
            f"{stats.acceptance_rate:.0%} of {stats.drafted} draft tokens accepted",
            f"{stats.tokens_per_step:.2f} tokens per step",
        ]
    return " · ".join(parts)
