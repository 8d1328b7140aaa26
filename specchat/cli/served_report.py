"""The report of `specchat bench` on a server that cannot decode plainly for comparison."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from specchat.bench.measurement import machine_record
from specchat.bench.results import Arm, Results, Run
from specchat.cli.terminal import table_lines
from specchat.engine.api import EngineFacts
from specchat.wording import percent

HEADINGS = ("task", "temp", "tokens/s", "first token", "accepted", "tokens per pass")
UNREPORTED = "not reported"


@dataclass(frozen=True, slots=True)
class ServedReport:
    """The speed of a server's answers as they arrive here, and what it reports of its drafts."""

    facts: EngineFacts
    arm: Arm
    results: Results

    def lines(self) -> Iterator[str]:
        """Yield the lines of the table."""
        cells = dict.fromkeys((run.task, run.temperature) for run in self.results.runs)
        yield f"{self.facts.target} on {self.facts.plan}, with the drafts of the server"
        yield ""
        yield from table_lines([HEADINGS, *(self._row(*cell) for cell in cells)])
        yield ""
        yield "no speedup: this server cannot turn drafts off for one answer"
        if not self.results.is_complete:
            yield "stopped early: the figures cover only the answers measured so far"

    def as_record(self) -> dict[str, Any]:
        """Return the JSON object, with the fields of a comparison as far as they are known."""
        return {
            "machine": machine_record() | {"served_by": self.facts.served_by},
            "model": {"target": self.facts.target, "draft": self.facts.draft},
            "runs": [self._record(run) for run in self.results.runs],
            "speedup": None,
            "skipped": self.results.skipped,
            "complete": self.results.is_complete,
        }

    def _row(self, task: str, temperature: float) -> tuple[str, ...]:
        runs = list(self.results.of(self.arm, task, temperature))

        def middle(name: str) -> float | None:
            values = [run.stats[name] for run in runs if run.stats[name] is not None]
            return median(values) if values else None

        rate, first = middle("tokens_per_second"), middle("time_to_first_token_s")
        accepted, per_pass = middle("acceptance_rate"), middle("tokens_per_step")
        return (
            task,
            f"{temperature:g}",
            f"{rate or 0.0:.1f}",
            f"{first or 0.0:.2f} s",
            UNREPORTED if accepted is None else percent(accepted),
            UNREPORTED if per_pass is None else f"{per_pass:.2f}",
        )

    def _record(self, run: Run) -> dict[str, Any]:
        named = {"temperature": run.temperature, "task": run.task, "round": run.number}
        return {**asdict(run.arm), **named, "prompt": run.prompt, "speedup": None, **run.stats}
