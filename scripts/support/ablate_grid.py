"""Decode with and without each mechanism of pacing in one process; used by `compare_grid.py`.

All contestants share the loaded models. Each has its own knowledge of the pair, which begins with
the same measured costs, and decodes the same prompts in turn. The whole of pacing takes part twice:
what differs between these two is noise.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scripts.support.pacing_ablations import ablated
from specchat.engine.api import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.pacing.knowledge import Knowledge
from specchat.pacing.pacer import LearningPacer

__all__ = ["Contestant", "contest", "table"]

NOTHING = "nothing (noise)"


@dataclass(slots=True)
class Contestant:
    """Pacing without one mechanism (None: the whole), and its tokens per second by round."""

    name: str
    mechanism: str | None
    knowledge: Knowledge
    pacers: dict[tuple[str, bool], LearningPacer] = field(default_factory=dict)
    speeds: list[float] = field(default_factory=list)

    def decode(self, engine: LocalEngine, prompt: str, temperature: float, tokens: int) -> None:
        """Decode one answer on a state that has not seen it."""
        engine.forget()
        engine.pacing.knowledge, engine.pacing.pacers = self.knowledge, self.pacers
        with ablated(self.mechanism):
            for _ in engine.generate(
                prompt, temperature=temperature, top_k=40, top_p=1.0, min_p=0.0,
                max_tokens=tokens, ignore_end=True,
            ):  # fmt: skip
                pass
        self.speeds.append(engine.stats.tokens_per_second)


def contest(
    folder: Path,
    temperature: float,
    mechanisms: Sequence[str],
    prompts: Sequence[str],
    tokens: int,
    threads: int,
) -> dict[str, float]:
    """Return the speed without each mechanism over that of all pacing: medians of the rounds.

    A round is one prompt. Whoever begins differs from round to round.
    """
    pair = folder / "target.gguf", folder / "draft.gguf"
    with LocalEngine(Loading(*pair, ctx=1024, threads=threads)) as engine:
        engine.prepare()
        names = [("", None), (NOTHING, None), *((each, each) for each in mechanisms)]
        all_of_it, *others = [
            Contestant(name, mechanism, _copy(engine.pacing.knowledge)) for name, mechanism in names
        ]
        Contestant("", None, _copy(engine.pacing.knowledge)).decode(
            engine, prompts[0], temperature, tokens
        )  # to warm up
        for turn, prompt in enumerate(prompts):
            order = [all_of_it, *others]
            shift = turn * 3 % len(order)
            for contestant in order[shift:] + order[:shift]:
                contestant.decode(engine, prompt, temperature, tokens)
    return {
        each.name: statistics.median(
            without / with_it
            for without, with_it in zip(each.speeds, all_of_it.speeds, strict=True)
        )
        for each in others
    }


def table(cells: Sequence[dict[str, float]]) -> str:
    """Return the mean and the least ratio of each mechanism over all cells, as Markdown."""
    lines = ["| without | real grid: mean (worst cell) |", "| --- | --- |"]
    for name in cells[0]:
        ratios = [cell[name] for cell in cells]
        mean, worst = statistics.mean(ratios) - 1, min(ratios) - 1
        lines.append(f"| {name} | {mean:+.1%} ({worst:+.1%}) |")
    return "\n".join(lines)


def _copy(knowledge: Knowledge) -> Knowledge:
    """Return the same costs, with nothing known of acceptance."""
    copy = Knowledge()
    copy.target.learn_record(knowledge.target.as_record())
    for origin, costs in knowledge.drafts.items():
        copy.costs_of(origin).learn_record(costs.as_record())
    return copy
