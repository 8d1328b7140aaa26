"""`specchat race`: an answer decoded with drafts and without, played side by side."""

import argparse
import shutil
import sys
from contextlib import suppress
from time import monotonic, sleep

from specchat.bench.race_picture import ENDINGS, card_path, play
from specchat.bench.race_record import MAX_TOKENS, Race, run_race
from specchat.bench.tasks import TASKS
from specchat.chat.export import write_export
from specchat.cli.model_arguments import (
    DEMO_NOTICE,
    asked,
    chosen_answerer,
    is_demo,
    open_answerer,
    show_loading,
    stopping_on_interrupt,
)
from specchat.cli.terminal import print_result, say, show_line
from specchat.decoding.chunk import Chunk, pieces_of
from specchat.drafter_registry import PLAIN
from specchat.errors import InvalidOption
from specchat.options.declarations import GenerateOptions
from specchat.safe_text import harmless

MAX_SIZE = (110, 30)
"""The largest size of a race, in columns and rows."""
SECOND_SCREEN, FIRST_SCREEN = "\x1b[?1049h\x1b[?25l\x1b[2J", "\x1b[?25h\x1b[?1049l"
TASK = "edit"
"""The benchmark task whose first prompt is the default."""


def run(arguments: argparse.Namespace) -> None:
    """Race an answer, then play the race, save it or print the result."""
    path = card_path(arguments.save) if arguments.save else None
    race = _run(arguments)
    if path:
        show_line(f"saving {path.name}")
        content = ENDINGS[path.suffix]([race])
        show_line()
        say(f"saved to {write_export(path, content, overwrite=True)}")
    if sys.stdout.isatty() and not arguments.json:
        _play(race)
    print_result(arguments, race.as_record(), [race.summary()])


def _run(arguments: argparse.Namespace) -> Race:
    """Load the pair, decode an answer, by default at temperature 0, and race it."""
    answerer = chosen_answerer(arguments)
    drafter = answerer.options["drafter"]
    if drafter == PLAIN:
        raise InvalidOption(
            "no race, because speculation is switched off: choose another --drafter"
        )
    given = arguments.settings.given_values(GenerateOptions)
    options = {"temperature": 0.0, "max_tokens": MAX_TOKENS, **given, "drafter": drafter}
    if is_demo(arguments) and sys.stderr.isatty():
        say(DEMO_NOTICE)

    is_seen = sys.stdout.isatty() and not arguments.json

    def show_answer(chunk: Chunk) -> None:
        if is_seen:
            text = "".join(piece.text for piece in pieces_of(chunk))
            print(harmless(text), end="\n" if chunk.finish else "", flush=True)
        else:
            show_line(f"answering: {engine.stats.generated_tokens} tokens")

    usual = next(task.prompts[0][0] for task in TASKS if task.name == TASK)
    messages = asked(arguments, " ".join(arguments.prompt) or usual)
    with open_answerer(arguments, answerer) as engine:
        engine.prepare(show_loading)
        with stopping_on_interrupt(engine.stop) as is_stopped:
            race = run_race(
                engine, messages, options, show_answer, show_line, is_stopped, answerer.title
            )
    show_line()
    return race


def _play(race: Race) -> None:
    """Play a race on the terminal's alternate screen; print its last frame to the main screen.

    Ctrl+C skips to the end.
    """
    from rich.console import Console

    from specchat.bench.race_frame import frame

    size = shutil.get_terminal_size()
    width, height = min(size.columns, MAX_SIZE[0]), min(size.lines - 1, MAX_SIZE[1])
    console = Console(width=width, height=height, highlight=False)
    began = monotonic()
    try:
        print(SECOND_SCREEN, end="", flush=True)
        with suppress(KeyboardInterrupt):
            for seconds, out in play([race], console):
                sleep(max(0.0, began + seconds - monotonic()))
                print(out, end="", flush=True)
    finally:
        print(FIRST_SCREEN, end="", flush=True)
    for line in frame(race, race.seconds, width, height):
        console.print(line, no_wrap=True)
