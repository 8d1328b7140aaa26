"""Measure what each mechanism of pacing contributes, on simulated pairs.

Costs are nominal, so the result does not depend on this machine. Every scenario is decoded with all
mechanisms and with each one switched off, from the same seeds. The table gives the speed without
the mechanism over the speed with it: on average over all cells, for the group of cells that loses
most, and for the single cell that loses most. A mechanism that is below 1 % everywhere has no
place in the package.

    python scripts/measure/ablate_pacing.py [--seeds N] [--only GROUP] [MECHANISM...]
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from unittest.mock import patch

import numpy as np

from scripts.support.pacing_ablations import ABLATIONS, ablated
from scripts.support.simulated_pair import (
    CPU,
    FLAT,
    LINE,
    RIGHT,
    STAIRS,
    WRONG,
    Drawing,
    SimulatedMachine,
    always,
    knowledge_of,
)
from specchat.decoding.distribution import Distribution
from specchat.decoding.ports import Pacer
from specchat.decoding.proposal import DraftToken, Hint
from specchat.decoding.verification import verify_by_argmax
from specchat.pacing import pacer as pacing
from specchat.pacing.knowledge import Knowledge
from specchat.pacing.pacer import LearningPacer

CACHED = [0.0, 1.0, 1.9, 2.4, 1.85, 2.5, *(2.6 + 0.1 * more for more in range(35))]
"""As measured on two quiet cores whose caches hold the whole model."""
GPU = [0.0, *np.interp(range(1, 41), (1, 4, 8, 16, 32, 40), (1, 1.05, 1.1, 1.2, 1.4, 1.5))]
"""A GPU whose passes hardly grow."""
H200 = [0.0, *np.interp(range(1, 41), (1, 2, 4, 8, 16, 33, 40),
                        (1, 1.093, 1.416, 2.059, 2.478, 3.168, 3.45))]  # fmt: skip
"""As measured on an H200: 3.22 ms for one token."""
TABLES = {"line": LINE, "flat": FLAT, "stairs": STAIRS, "cpu": CPU, "gpu": GPU, "h200": H200}
CPU_TABLES = ("line", "flat", "stairs", "cpu")


@dataclass
class Real(SimulatedMachine):
    """A pair with what real machines add: disturbance, and passes that prepare for their length.

    `noise` is the deviation of the logarithm of measured times; one pass in twenty then takes three
    times as long. Passes after one of another length take `change` more, and plain ones `settling`
    right after drafting, then less from pass to pass. `stretch` is the length of passages that are
    copied from earlier text, and of those between them; 0 for none.
    """

    noise: float = 0.0
    change: float = 0.0
    settling: float = 0.0
    num_plain: int = 0
    stretch: int = 0
    measured: float = 0.0
    last_length: int = 0
    depth: int = 10
    speed: Callable[[int], float] = field(default=lambda _: 1.0)

    def __post_init__(self) -> None:
        """Prepare the randomness and the passages."""
        super().__post_init__()
        self.disturbance = np.random.default_rng(self.random_seed + 1000)
        self.passages = np.random.default_rng(self.random_seed + 2000).random(20_000)

    def clock(self) -> float:
        """Return the time as it is measured."""
        return self.measured

    def passed(self, nominal: float) -> float:
        """Let a pass take its time; return what is measured."""
        nominal *= self.speed(self.emitted)
        self.seconds += nominal
        stall = 3.0 if self.noise and self.disturbance.random() < 0.05 else 1.0
        taken = nominal * stall * float(np.exp(self.noise * self.disturbance.normal()))
        self.measured += taken
        return taken

    def decode(self, pacer: Pacer, num_tokens: int, longest: int = 16) -> float:
        """Decode with a draft model that knows the prompt; return tokens per second."""
        first, began = self.emitted, self.seconds
        self.num_read = first
        while self.emitted - first < num_tokens:
            limit = min(longest, num_tokens - (self.emitted - first) - 1)
            pacer.begin_step(self.depth, limit)
            draft, outcomes = self._passage(pacer)
            self._model_drafts(pacer, draft, outcomes)
            self._end_step(pacer, draft, outcomes)
        return (self.emitted - first) / (self.seconds - began)

    def _passage(self, pacer: Pacer) -> tuple[list[DraftToken], list[bool]]:
        """Return the tokens taken of a passage, and whether each would be right."""
        self.offered: list[bool] = []
        hints = self.hints() if self.stretch else []
        num_taken = pacer.take("suffix", hints, "draft") if hints else 0
        token = DraftToken(RIGHT, Distribution.certain(RIGHT), "suffix")
        return [token] * num_taken, self.offered[:num_taken]

    def hints(self) -> list[Hint]:
        """Return a passage that seems to go on here; behind new text it does only sometimes."""
        at, is_copied = self.emitted % self.stretch, self.emitted // self.stretch % 2 == 1
        if not is_copied and self.passages[self.emitted] > 0.3:
            return []
        length = at + 1 if is_copied else 2
        ends = self.stretch if is_copied else at + (1 if self.passages[self.emitted] < 0.08 else 0)
        self.offered = [place < ends for place in range(at, at + 16)]
        certain = Distribution.certain(RIGHT)
        return [Hint(more / (more + 3.0), certain) for more in range(length, length + 16)]

    def _model_drafts(self, pacer: Pacer, draft: list[DraftToken], outcomes: list[bool]) -> None:
        """Append tokens of the draft model."""
        self.was_read = False
        pending = self.emitted - self.num_read + 1 + len(draft)
        while any(pacer.wants_pass("draft", min(pending, most)) for most in (256, 32)):
            cost = np.interp(min(pending, 33), range(len(self.costs)), self.costs)
            self.passed(self.draft_cost * float(cost) * max(1.0, min(pending, 256) / 33))
            self.was_read, pending = True, 1
            confidence, distribution = self.proposed(self.emitted + len(draft))
            if not pacer.wants_token("draft", Hint(confidence, distribution)):
                break
            draft.append(DraftToken(RIGHT, distribution, "draft"))
            outcomes.append(self._is_right(len(draft) - 1))

    def _is_right(self, place: int) -> bool:
        return bool(self.random.random() < self.chance(self.emitted + place))

    def _end_step(self, pacer: Pacer, draft: list[DraftToken], outcomes: list[bool]) -> None:
        """Verify the draft at temperature 0."""
        length = len(draft) + 1
        changed = self.change if length != self.last_length else 0.0
        if length == 1:
            changed += self.settling * 0.8**self.num_plain
        self.num_plain = 0 if draft or self.was_read else self.num_plain + 1
        took = self.passed(self.pass_seconds(self.padded(length, self.depth)) + changed)
        self.last_length = length
        after = self.offered[len(draft)] if len(draft) < len(self.offered) else False
        wanted = [RIGHT if right else WRONG for right in (*outcomes, after)]
        if not any(each.origin == "suffix" for each in draft):
            wanted[len(draft)] = RIGHT if self._is_right(len(draft)) else WRONG
        verdict = verify_by_argmax(draft, lambda at: Distribution.certain(wanted[at]), float)
        pacer.learn(draft, lambda at: Distribution.certain(wanted[at]), verdict)
        num_kept = verdict.num_accepted
        self.drafted.append(len(draft))
        if self.was_read:
            self.num_read = self.emitted + min(num_kept + 1, len(draft) + 1)
        emitted = [RIGHT if right else WRONG for right in (*self.offered, *[False] * 20)]
        pacer.end_step(emitted[: num_kept + 1], took)
        self.emitted += num_kept + 1


@dataclass
class Deep(Real):
    """A pair asked in a short and in a long conversation in turn."""

    num_answers: int = 0

    def decode(self, pacer: Pacer, num_tokens: int, longest: int = 16) -> float:
        """Decode in the conversation that was not used last time."""
        self.num_answers += 1
        self.depth = 6000 if self.num_answers % 2 else 10
        return super().decode(pacer, num_tokens, longest)

    def pass_seconds(self, length: int) -> float:
        """Return the time of a target pass."""
        return self.costs[length] + (0.6 + 0.25 * length if self.depth > 10 else 0.0)


@dataclass
class Disturbed(Real):
    """A pair whose first passes seem to take longer, on a machine that does something else."""

    num_slow: int = 0
    factor: float = 1.0

    def passed(self, nominal: float) -> float:
        """Let a pass take its time; return what is measured."""
        taken = super().passed(nominal)
        if self.num_slow:
            self.num_slow -= 1
            self.measured += taken * (self.factor - 1.0)
            taken *= self.factor
        return taken


@dataclass
class Copying(Real):
    """A text that seems to copy passages long before it does."""

    def hints(self) -> list[Hint]:
        """Return a passage that seems to go on here."""
        if self.emitted >= 500:
            return super().hints()
        if self.passages[self.emitted] > 0.6:
            return []
        self.offered = [False] * 16
        certain = Distribution.certain(RIGHT)
        return [Hint(length / (length + 3.0), certain) for length in range(6, 22)]


Scenario = Callable[[int], float]
"""Decodes from a seed; returns tokens per second."""


def timed(machine: SimulatedMachine, decode: Callable[[SimulatedMachine], float]) -> float:
    """Decode with the pacer's clock being the machine's."""
    with patch.object(pacing, "perf_counter", machine.clock):
        return decode(machine)


def new_pair(
    machine: SimulatedMachine, num_tokens: int, knowledge: Knowledge | None = None
) -> float:
    """Decode one answer, with the costs measured at load."""
    greedy = not isinstance(machine, Drawing)
    pacer = LearningPacer(knowledge or knowledge_of(machine), is_greedy=greedy, pass_origin="draft")
    return timed(machine, lambda machine: machine.decode(pacer, num_tokens))


def answers(machine: SimulatedMachine, num_answers: int, num_tokens: int) -> float:
    """Decode several answers in turn; what is learned stays."""
    knowledge, first, began = knowledge_of(machine), machine.emitted, machine.seconds
    for _ in range(num_answers):
        new_pair(machine, num_tokens, knowledge)
    return (machine.emitted - first) / (machine.seconds - began)


def mixed(
    seed: int, share: float, sure: tuple[float, float], unsure: tuple[float, float]
) -> tuple[Callable[[int], float], Callable[[int], float]]:
    """Return chances and confidences of a text of sure and of unsure tokens."""
    is_sure = np.random.default_rng(seed + 77).random(20_000) < share
    chances = np.where(is_sure, sure[0], unsure[0])
    confidences = np.where(is_sure, sure[1], unsure[1])
    return chances.__getitem__, confidences.__getitem__


def steady(costs: Sequence[float], cost: float, chance: float, seed: int) -> float:
    """Return the speed on a text that stays as it is, with a confidence that says nothing."""
    return new_pair(SimulatedMachine(costs, cost, always(chance), seed), 800)


def confident(
    costs: Sequence[float], cost: float, sure: tuple[float, float], unsure: tuple[float, float],
    seed: int,
) -> float:  # fmt: skip
    """Return the speed where the confidence says something, rightly or wrongly."""
    chances, confidences = mixed(seed, 0.6, sure, unsure)
    return new_pair(SimulatedMachine(costs, cost, chances, seed, confidences), 800)


def sampled(costs: Sequence[float], cost: float, noise: float, seed: int) -> float:
    """Return the speed of four answers above temperature 0."""
    return answers(Drawing(costs, cost, always(0), seed, noise=noise), 4, 150)


def changing(
    costs: Sequence[float], cost: float, period: int, chances: tuple[float, float], seed: int
) -> float:
    """Return the speed on a text that changes, such as prose and code in turn."""
    machine = SimulatedMachine(costs, cost, lambda at: chances[at // period % 2], seed)
    return new_pair(machine, 1800)


def short(costs: Sequence[float], cost: float, chance: float, seed: int) -> float:
    """Return the speed of the first answer of an unknown pair, a short one."""
    return new_pair(SimulatedMachine(costs, cost, always(chance), seed), 128)


def misled(costs: Sequence[float], cost: float, at: float, cold: float, seed: int) -> float:
    """Return the speed of a short answer whose first tokens are unusual."""
    return new_pair(SimulatedMachine(costs, cost, lambda at_: cold if at_ < 4 else at, seed), 192)


def known(costs: Sequence[float], cost: float, chance: float, seed: int) -> float:
    """Return the speed of many short answers of a pair."""
    return answers(SimulatedMachine(costs, cost, always(chance), seed), 8, 96)


def noisy(costs: Sequence[float], cost: float, chance: float, seed: int) -> float:
    """Return the speed where passes are disturbed, and the first measurements were."""
    machine = Real(costs, cost, always(chance), seed, noise=0.06)
    knowledge = Knowledge()
    for length in (1, 4, 2, 3, 6, 5, 8, 16, 12, 24, 33):
        knowledge.target.observe(length, 0, machine.passed(machine.costs[length]))
    for length in (1, 2, 4, 32):
        nominal = machine.draft_cost * machine.costs[length]
        knowledge.costs_of("draft").observe(length, 0, machine.passed(nominal))
    return new_pair(machine, 1000, knowledge)


def unmeasured(
    costs: Sequence[float], cost: float, chance: float, slow: tuple[int, float], seed: int
) -> float:
    """Return the speed of a new pair, measured by its own passes, of which the first ones are slow.

    `slow` is their number and how many times longer they take; that time does not count.
    """
    machine = Disturbed(costs, cost, always(chance), seed, noise=0.06, change=0.1)
    machine.num_slow, machine.factor = slow
    return new_pair(machine, 1200, Knowledge())


def mismeasured(
    costs: Sequence[float], cost: float, chance: float, wrong: tuple[int, float], seed: int
) -> float:
    """Return the speed where one length was measured as far dearer than it is."""
    believed = [*costs]
    believed[wrong[0]] = wrong[1]
    knowledge = Knowledge()
    knowledge.target.learn_record(
        knowledge_of(SimulatedMachine(believed, cost, always(0))).target.as_record()
    )
    drafts = knowledge_of(SimulatedMachine(costs, cost, always(0))).costs_of("draft").as_record()
    knowledge.costs_of("draft").learn_record(drafts)
    return new_pair(SimulatedMachine(costs, cost, always(chance), seed), 1500, knowledge)


def slowing(costs: Sequence[float], cost: float, chance: float, seed: int) -> float:
    """Return the speed on a machine that is at times half as fast, with measuring noise."""
    machine = Real(costs, cost, always(chance), seed, noise=0.04)
    machine.speed = lambda at: 2.0 if at // 200 % 2 else 1.0
    return new_pair(machine, 1200)


def deep(costs: Sequence[float], cost: float, chance: float, seed: int) -> float:
    """Return the speed of answers in short and in long contexts in turn.

    In the long ones a target pass takes 0.6 longer, and 0.25 more for each token.
    """
    machine = Deep(costs, cost, always(chance), seed)
    return answers(machine, 10, 100)


def switching(
    costs: Sequence[float], cost: float, chance: float, change: float, seed: int
) -> float:
    """Return the speed where a pass after one of another length takes longer."""
    machine = Real(costs, cost, always(chance), seed, change=change)
    knowledge = knowledge_of(machine)
    return new_pair(machine, 1000, knowledge)


def settling(costs: Sequence[float], cost: float, chance: float, more: float, seed: int) -> float:
    """Return the speed where plain passes take longer right after drafting, with noise."""
    machine = Real(costs, cost, always(chance), seed, noise=0.04, settling=more)
    return new_pair(machine, 1500)


def copied(
    costs: Sequence[float], cost: float, chance: float, stretch: int, change: float, seed: int
) -> float:
    """Return the speed on a text that copies passages, with the draft model and the text."""
    machine = Real(costs, cost, always(chance), seed, stretch=stretch, change=change)
    knowledge = knowledge_of(machine)
    return new_pair(machine, 1000, knowledge)


def copied_late(costs: Sequence[float], cost: float, chance: float, seed: int) -> float:
    """Return the speed on a text that looks like copying, but copies only later on."""
    return new_pair(Copying(costs, cost, always(chance), seed, stretch=40), 1300)


def cell(
    group: str, decode: Callable[..., float], table: str, *rest: object
) -> tuple[str, str, Scenario]:
    """Return a cell: its group, its name and how it is decoded."""
    name = f"{table} {' '.join(map(str, rest))}"
    return group, name, partial(decode, TABLES[table], *rest)


def cells() -> Iterator[tuple[str, str, Scenario]]:
    """Yield every cell."""
    yield from cells_of_wrong_costs()
    for table, cost, chance in product(TABLES, (0.05, 0.25), (0.3, 0.6, 0.8, 0.97)):
        yield cell("steady", steady, table, cost, chance)
    for table, cost in product(CPU_TABLES, (0.05, 0.2)):
        for sure, unsure in (((0.95, 0.97), (0.4, 0.6)), ((0.9, 0.6), (0.5, 0.9))):
            yield cell("confident", confident, table, cost, sure, unsure)
    steps = ("line", "stairs", "cpu")
    for table, cost, noise in product(steps, (0.05, 0.15), (0.2, 0.35, 0.8)):
        yield cell("sampled", sampled, table, cost, noise)
    for table, chances in product(steps, ((0.15, 0.85), (0.6, 0.97))):
        for cost, period in ((0.08, 100), (0.08, 300), (0.25, 300)):
            yield cell("changing", changing, table, cost, period, chances)
    for table, cost, chance in product(CPU_TABLES, (0.05, 0.25), (0.0, 0.6, 0.99)):
        yield cell("short", short, table, cost, chance)
        if chance > 0.5:
            yield cell("misled", misled, table, cost, chance, 0.0)
        yield cell("known", known, table, cost, chance)
    for table, chance in product(steps, (0.5, 0.8, 0.97)):
        yield cell("noisy", noisy, table, 0.1, chance)
        yield cell("slowing", slowing, table, 0.1, chance)
        yield cell("deep", deep, table, 0.1, chance)
        yield cell("switching", switching, table, 0.1, chance, 0.3)
        yield cell("settling", settling, table, 0.15, chance, 0.4)
    for chance in (0.3, 0.5, 0.65):
        yield "settling", f"cached {chance}", partial(settling, CACHED, 0.1, chance, 0.5)
    for table, chance in product(CPU_TABLES, (0.3, 0.8)):
        yield cell("copied", copied, table, 0.1, chance, 12, 0.0)
        yield cell("copied", copied, table, 0.1, chance, 60, 0.2)
        yield cell("copied late", copied_late, table, 0.1, chance)


def cells_of_wrong_costs() -> Iterator[tuple[str, str, Scenario]]:
    """Yield the cells of pairs of which something wrong is believed at first."""
    slow = ((0, 1.0), (8, 6.0), (20, 6.0), (4, 20.0))
    for table, cost, chance, each in product(CPU_TABLES, (0.05, 0.25), (0.5, 0.8, 0.97), slow):
        yield cell("unmeasured", unmeasured, table, cost, chance, each)
    line = ("line", 0.05, 0.6, (1, 1.5))
    for table, *rest in (line, ("stairs", 0.05, 0.7, (4, 2.0)), ("flat", 0.1, 0.8, (9, 2.0))):
        yield cell("mismeasured", mismeasured, table, *rest)


def speeds(name: str | None, seeds: int, only: str) -> dict[str, list[float]]:
    """Return the speed in every cell by seed, with a mechanism switched off or with all.

    `only` begins the groups of these cells.
    """
    with ablated(name):
        return {
            f"{group}: {cell}": [decode(seed) for seed in range(seeds)]
            for group, cell, decode in cells()
            if group.startswith(only)
        }


def groups_of(full: dict[str, list[float]], without: dict[str, list[float]]) -> str:
    """Return lines of a table: the mean, least and highest speed with over without, by group."""
    by_group: dict[str, dict[str, float]] = defaultdict(dict)
    for cell, rates in without.items():
        group, _, name = cell.partition(": ")
        by_group[group][name] = statistics.mean(full[cell]) / statistics.mean(rates)
    lines = ["| group | with / without | least cell | best cell |\n| --- | --- | --- | --- |"]
    for group, ratios in by_group.items():
        least, best = min(ratios, key=ratios.__getitem__), max(ratios, key=ratios.__getitem__)
        lines.append(
            f"| {group} | {statistics.mean(ratios.values()):.3f}"
            f" | {ratios[least]:.3f} ({least}) | {ratios[best]:.3f} ({best}) |"
        )
    return "\n".join(lines)


def row(name: str, full: dict[str, list[float]], without: dict[str, list[float]]) -> str:
    """Return a line of the table."""
    by_group: dict[str, list[float]] = defaultdict(list)
    for cell, rates in without.items():
        ratio = statistics.mean(a / b for a, b in zip(rates, full[cell], strict=True))
        by_group[cell.partition(":")[0]].append(ratio)
        by_group[""].append(ratio)
    groups = {group: statistics.mean(found) for group, found in by_group.items()}
    overall = groups.pop("")
    worst = min(groups, key=lambda group: groups[group])
    ratios = {cell: statistics.mean(r) / statistics.mean(full[cell]) for cell, r in without.items()}
    cell = min(ratios, key=lambda cell: ratios[cell])
    return (
        f"| {name} | {overall - 1:+.1%} | {groups[worst] - 1:+.1%} ({worst})"
        f" | {ratios[cell] - 1:+.1%} ({cell}) |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("mechanisms", nargs="*", metavar="MECHANISM", help="default: all")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--only", default="", metavar="START", help="of the groups of cells")
    parser.add_argument("--groups", action="store_true", help="print all groups of each mechanism")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all speeds here")
    options = parser.parse_args()
    names: list[str | None] = [None, *(options.mechanisms or ABLATIONS)]
    print("| without | all cells | worst group | worst cell |\n| --- | --- | --- | --- |")
    found: dict[str, dict[str, list[float]]] = {}
    with ProcessPoolExecutor(options.processes) as pool:
        decode = partial(speeds, seeds=options.seeds, only=options.only)
        for name, result in zip(names, pool.map(decode, names), strict=True):
            found[name or ""] = result
            if name:
                print(row(name, found[""], result), flush=True)
            if name and options.groups:
                print(groups_of(found[""], result), flush=True)
            if options.json:
                options.json.write_text(json.dumps(found), "utf-8")


if __name__ == "__main__":
    main()
