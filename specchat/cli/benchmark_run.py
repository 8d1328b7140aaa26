"""Running a benchmark from the command line, up to its end or to Ctrl+C."""

from __future__ import annotations

from contextlib import suppress

from specchat.bench.measurement import Plan, measure
from specchat.bench.results import Results
from specchat.cli.engine_session import stopping_on_interrupt
from specchat.cli.progress_line import show_measuring, wipe_progress
from specchat.engine import Engine

__all__ = ["run_benchmark"]


def run_benchmark(engine: Engine, plan: Plan) -> Results:
    """Return what was measured; an interrupt leaves the results incomplete."""
    results = Results()
    with stopping_on_interrupt(engine) as is_interrupted, suppress(KeyboardInterrupt):
        for results in measure(engine, plan, show_measuring):  # noqa: B007  # the last one counts
            if is_interrupted():
                break
    wipe_progress()
    return results
