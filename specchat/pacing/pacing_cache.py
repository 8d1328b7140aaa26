"""What was learned of a pair on this machine: measured at first, kept from then on."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median_low
from time import perf_counter
from typing import Any

import platformdirs

from specchat.decoding.ports import LanguageModel
from specchat.pacing.knowledge import Knowledge
from specchat.pacing.pass_costs import PassCosts
from specchat.private_files import write_json

__all__ = ["Notebook", "measure_change", "measure_passes"]

FORMAT = 4
LARGEST_FILE = 1 << 20
TARGET_LENGTHS = (1, 4, 2, 3, 6, 5, 8, 16, 7, 12, 24, 33)
"""Passes to measure when nothing is known, the most telling first."""
DRAFT_LENGTHS = (1, 2, 4, 32)
MOST_ROUNDS, LONGEST_REPEATED = 4, 16
"""So often all lengths are measured at most; longer passes take long and are hardly ever made."""
NAMES = ("model name", "CPU part")
"""How lines of /proc/cpuinfo begin that tell processors apart: on ARM there is no other name."""
CHANGING, NUM_CHANGES, FEW_CHANGES = 4, 8, 3


def measure_passes(
    model: LanguageModel,
    costs: PassCosts,
    vocabulary: int,
    lengths: Sequence[int],
    most_rows: int,
    most_seconds: float,
) -> None:
    """Measure passes over so many tokens on an empty memory, for so long at most.

    Token ids are below `vocabulary`, and the logits of up to `most_rows` tokens are read. Lengths
    are gone through again while there is time, so that a program which disturbs for a moment spoils
    none of them, and the median counts. Each time a pass is made twice and the faster one counts:
    the first of a kind also prepares things.
    """
    began = perf_counter()
    taken: dict[int, list[float]] = {length: [] for length in lengths if length <= model.capacity}
    for num_done in range(MOST_ROUNDS):
        for length, known in taken.items():
            if perf_counter() - began > most_seconds:
                break
            if num_done == 0 or length <= LONGEST_REPEATED:
                pair = [_pass_seconds(model, vocabulary, length, most_rows) for _ in range(2)]
                known.append(min(pair))
    for length, known in taken.items():
        if known:
            costs.observe(length, 0, median_low(known))
    model.prefill([])


def measure_change(
    model: LanguageModel, costs: PassCosts, vocabulary: int, most_seconds: float
) -> None:
    """Measure how much longer a pass takes after one over another number of tokens.

    What differs by a few percent of a pass shows in the quickest of several only; where there is no
    time for several, passes are so long that it does not matter.
    """
    after_others, after_likes = [], []
    rounds = int(most_seconds / (costs.seconds(CHANGING, 0) + 2 * costs.seconds(1, 0) + 1e-9))
    if not costs.is_known or model.capacity < CHANGING or rounds < FEW_CHANGES:
        return
    for _ in range(min(rounds, NUM_CHANGES)):
        _pass_seconds(model, vocabulary, CHANGING, CHANGING)
        after_others.append(_pass_seconds(model, vocabulary, 1, 1))
        after_likes.append(_pass_seconds(model, vocabulary, 1, 1))
    costs.change = max(0.0, min(after_others) - min(after_likes)) / costs.speed
    model.prefill([])


def _pass_seconds(model: LanguageModel, vocabulary: int, length: int, most_rows: int) -> float:
    model.prefill([])
    tokens = [place % vocabulary for place in range(1, length + 1)]  # experts differ by token
    started = perf_counter()
    model.evaluate(tokens, min(length, most_rows))
    return perf_counter() - started


class Notebook:
    """The file that keeps what was learned of one pair, loaded in one way, on this machine.

    It holds figures alone, no text. What cannot be read is as if it were not there, and what cannot
    be written is learned again next time.
    """

    def __init__(self, subject: Mapping[str, Any]) -> None:
        """Take what the figures are about: the files, the way they are loaded."""
        self._subject = {**subject, "machine": _machine()}
        text = json.dumps(self._subject, sort_keys=True)
        name = hashlib.sha256(text.encode()).hexdigest()[:24]
        folder = Path(platformdirs.user_state_path("specchat", appauthor=False)) / "pacing"
        self.path = folder / f"{name}.json"

    def read(self) -> Knowledge:
        """Return what is known; what was learned elsewhere or long ago may be overruled soon."""
        knowledge = Knowledge()
        with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            if self.path.stat().st_size > LARGEST_FILE:
                return knowledge
            record = json.loads(self.path.read_text("utf-8"))
            if record["format"] != FORMAT:
                return knowledge
            knowledge.target.learn_record(record["target"])
            for origin, costs in record["drafts"].items():
                knowledge.costs_of(origin).learn_record(costs)
            for name, numbers in record["acceptance"].items():
                origin, _, kind = name.rpartition(" ")
                knowledge.acceptance_of(origin, kind == "greedy").learn_record(numbers)
        return knowledge

    def write(self, knowledge: Knowledge) -> None:
        """Keep what is known, whole or not at all."""
        record = {
            "format": FORMAT,
            "about": self._subject,
            "target": knowledge.target.as_record(),
            "drafts": {
                origin: costs.as_record()
                for origin, costs in knowledge.drafts.items()
                if costs.is_known
            },
            "acceptance": {
                name: model.as_record()
                for name, model in knowledge.acceptance.items()
                if model.num_observed
            },
        }
        with suppress(OSError):
            write_json(self.path, record)


def _machine() -> dict[str, Any]:
    """Return what tells this machine from others that share the user's files."""
    brand = platform.processor()
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text("ascii", "replace").splitlines()
        named = [line.split(":")[1].strip() for line in lines if line.startswith(NAMES)]
        brand = named[0] if named else brand
    return {"system": platform.system(), "processor": brand, "count": os.cpu_count()}
