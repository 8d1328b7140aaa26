"""Rounds of faults, tallied by fault."""

import random
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import TypeAlias

from scripts.support.chat_terminal import Failed
from scripts.support.faults import chat_faults, engine_faults, store_faults
from specchat.errors import SpecchatError

Play: TypeAlias = Callable[[str, Path, random.Random], str]
"""Injects the fault of a name in an empty folder, and returns the message that it gave."""
LONGEST_MESSAGE = 75


@dataclass
class Tally:
    """The rounds of one fault: how many held, the problems of the others, and a message."""

    rounds: int = 0
    seconds: float = 0.0
    problems: Counter[str] = field(default_factory=Counter)
    message: str = ""


def plan(rounds: int) -> Iterator[tuple[str, Play]]:
    """Yield each round's fault and the function that plays it."""
    kinds = ((0.06, chat_faults), (0.24, engine_faults), (0.7, store_faults))
    for share, kind in kinds:
        for name in islice(cycle(kind.FAULTS), round(rounds * share)):
            yield name, kind.play


def run(rounds: int, seed: int) -> dict[str, Tally]:
    """Play all rounds; return the tallies by fault."""
    tallies: dict[str, Tally] = {}
    chance = random.Random(seed)
    folder = Path(tempfile.mkdtemp(prefix="specchat-faults-"))
    try:
        for name, play in plan(rounds):
            tally = tallies.setdefault(name, Tally())
            began = time.monotonic()
            try:
                tally.message = play(name, folder / "round", chance) or tally.message
            except (Failed, SpecchatError, OSError) as problem:
                tally.problems[str(problem)] += 1
                print(f"{name}: {problem}", file=sys.stderr)
            tally.rounds += 1
            tally.seconds += time.monotonic() - began
            shutil.rmtree(folder / "round", ignore_errors=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return tallies


def table(tallies: dict[str, Tally]) -> str:
    """Return the results as Markdown."""
    lines = ["| fault | rounds | held | message |", "| --- | ---: | ---: | --- |"]
    for name, tally in tallies.items():
        held = tally.rounds - tally.problems.total()
        message = re.sub(r"/[^\s;]+", "...", " ".join(tally.message.split()))
        if len(message) > LONGEST_MESSAGE:
            message = message[: LONGEST_MESSAGE - 1] + "…"
        lines.append(f"| {name} | {tally.rounds} | {held} | {message} |")
    total = sum(tally.rounds for tally in tallies.values())
    failed = sum(tally.problems.total() for tally in tallies.values())
    return "\n".join([*lines, f"| all | {total} | {total - failed} | |"])


def all_held(tallies: dict[str, Tally]) -> bool:
    """Return True if no round had a problem."""
    return not any(tally.problems for tally in tallies.values())
