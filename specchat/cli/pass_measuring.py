"""Measuring what a pair's passes cost: after an answer, and once it was pulled or tuned."""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any

from specchat.catalogue.header_cache import HeaderCache
from specchat.catalogue.known_speed import known_speed
from specchat.catalogue.pairs import Pair
from specchat.cli.arguments import parse
from specchat.cli.model_arguments import (
    chosen_pair,
    generate_options,
    loading_of,
    show_loading,
    stopping_on_interrupt,
)
from specchat.cli.option_arguments import complete
from specchat.cli.terminal import say, show_line
from specchat.engine.api import Engine
from specchat.errors import SpecchatError
from specchat.gguf.reader import read_header
from specchat.options.declarations import LoadOptions
from specchat.planning.device import find_machine
from specchat.planning.forecast import foresee
from specchat.requests.progress import Stage
from specchat.sharing import process_engine

SECONDS_TO_MEASURE = 3.0
"""How long to measure what passes cost, at most."""
NOT_MEASURED = "what its passes cost is not measured"
LATER = "the chat measures it when idle"


def measure_unknown(engine: Engine, arguments: argparse.Namespace) -> None:
    """Measure what answers of a loaded pair need and nobody has measured yet.

    That is what passes cost, for some seconds at most, and with `--exact on` which drafts are
    exact, as long as that takes. Ctrl+C skips it. Raises EngineFailed.
    """
    facts, needs_exact = engine.facts, arguments.exact == "on"
    needs_exact = needs_exact and facts.exact_draft is None
    if facts.served_by or not arguments.learn or (facts.knows_costs and not needs_exact):
        return
    ends = monotonic() + SECONDS_TO_MEASURE

    def report(stage: Stage, share: float) -> bool:
        show_loading(stage, share)
        return needs_exact or (stage == "measuring" and monotonic() < ends)

    sys.stdout.flush()
    with stopping_on_interrupt(engine.stop):
        engine.prepare(report)
    show_line()


def compare_passes(
    engine: Engine, options: Mapping[str, Any], arguments: argparse.Namespace
) -> None:
    """Measure which drafts are exact if an answer needs that and it is not measured yet.

    Ctrl+C skips it. Raises EngineFailed.
    """
    if arguments.learn and engine.facts.lacks_exactness(options):
        with stopping_on_interrupt(engine.stop):
            engine.prepare(show_loading, only_exactness=True)
        show_line()


def measure_pulled(words: Sequence[str], *, is_needed: bool) -> None:
    """Measure the pair that `ask` uses for these words, as `measure_pair` does.

    Nothing is measured where the target is not a chat model and, unless it `is_needed`, where the
    passes of the target were measured before.
    """
    with _reporting_failure():
        arguments = parse(["ask", *words])
        complete(arguments, on_notice=_ignore)
        pair = chosen_pair(arguments, on_notice=_ignore)
        with HeaderCache() as cache:
            if cache.of(pair.target).kind != "chat":
                return
        speed = known_speed(find_machine(), read_header(pair.target), pair.draft)
        if is_needed or not speed.is_measured:
            measure_pair(arguments, pair, generate_options(arguments, pair)["drafter"])


def measure_pair(arguments: argparse.Namespace, pair: Pair, drafter: str) -> None:
    """Load a pair as `ask` does, measure what its passes cost, and say what they cost.

    A pair that does not fit in memory is left out. Nothing is raised: the command's own work is
    done. Ctrl+C skips it.
    """
    if not arguments.learn:
        return
    with _reporting_failure():
        loading = loading_of(arguments, pair, drafter)
        machine = find_machine(loading.workers)
        options = LoadOptions(**loading.values(LoadOptions))
        if not foresee(pair.target, loading.draft, options, machine).fits:
            return
        with process_engine.ProcessEngine(loading, show_loading) as engine:
            measure_unknown(engine, arguments)
            is_known = engine.facts.knows_costs
        speed = known_speed(machine, read_header(pair.target), loading.draft)
        if is_known and speed.is_measured:
            say(f"measured here: passes over {speed.stair_text}; {speed.speed_text}")
        else:
            say(f"{NOT_MEASURED}: {LATER}")


@contextmanager
def _reporting_failure() -> Iterator[None]:
    """Report an error, or Ctrl+C, as one line, and go on."""
    try:
        yield
    except KeyboardInterrupt:
        show_line()
        say(f"{NOT_MEASURED}: {LATER}")
    except (SpecchatError, OSError) as error:
        show_line()
        say(f"{NOT_MEASURED}: {error}")


def _ignore(notice: str) -> None:
    """Leave out a notice that the command has printed, or that its user cannot act on."""
    del notice
