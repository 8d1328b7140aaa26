"""The engine of one command: loaded from the command line's options, stopped by Ctrl+C."""

import argparse
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from specchat.catalogue.pairs import Pair
from specchat.cli.model_arguments import loading_options, save_loaded
from specchat.cli.terminal import say, show_line
from specchat.engine import Engine
from specchat.engine.api import STAGES, Stage
from specchat.percentage import percent


def show_loading(stage: Stage, share: float) -> None:
    """Show the progress of loading a model or reading a prompt; clear the line at the end."""
    show_line("" if share >= 1 else f"{STAGES[stage]} {percent(share):>5}")


@contextmanager
def open_engine(arguments: argparse.Namespace, pair: Pair, draft: Path | None) -> Iterator[Engine]:
    """Load a pair's target with a draft model, or without one, and report any fallback."""
    options = loading_options(arguments, pair)
    with Engine.load(
        pair.target, draft, process=True, on_progress=show_loading, **options
    ) as engine:
        for notice in (save_loaded(arguments, pair, engine.facts), *engine.facts.notices):
            if notice:
                say(notice)
        yield engine


@contextmanager
def stopping_on_interrupt(engine: Engine) -> Iterator[Callable[[], bool]]:
    """Make the first Ctrl+C stop the answer and the second one interrupt the command.

    Yields a function that returns True once Ctrl+C was pressed.
    """
    is_interrupted = False

    def stop(number: int, frame: object) -> None:
        del number, frame
        nonlocal is_interrupted
        is_interrupted = True
        signal.signal(signal.SIGINT, before)
        engine.stop()

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield lambda: is_interrupted
    finally:
        signal.signal(signal.SIGINT, before)
