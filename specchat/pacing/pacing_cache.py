"""What was learned of a pair on this machine, kept from one session to the next."""

import hashlib
import json
import os
import platform
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specchat.pacing.knowledge import Knowledge
from specchat.private_files import FOLDERS, read_json, read_text, write_json

FORMAT = 8
MAX_FILES, MAX_AGE_SECONDS = 64, 180 * 24 * 3600
"""Of more files the oldest are deleted, and so are those not written for this long."""
PROCESSOR_FIELDS = ("model name", "CPU part")
"""How the lines of /proc/cpuinfo begin that identify a processor; ARM has only the second."""


@dataclass(slots=True)
class _Record:
    """The content of a file: costs as rows of (depth bucket, tokens, seconds), and acceptance."""

    format: int = 0
    target: list[tuple[int, int, float]] = field(default_factory=list)
    drafts: dict[str, list[tuple[int, int, float]]] = field(default_factory=dict)
    acceptance: dict[str, list[float]] = field(default_factory=dict)


class PacingCache:
    """The file with what was learned of one pair, loaded in one way, on this machine.

    It holds figures only, no text and no names; what it is about is hashed into the file's name. A
    file that cannot be read counts as missing, and one that cannot be written is learned again.
    """

    def __init__(self, subject: Mapping[str, Any]) -> None:
        """Derive the path from what the figures depend on: the files and the load options."""
        self.path = state_file("pacing", subject)

    def read(self) -> Knowledge:
        """Return what is known."""
        knowledge, record = Knowledge(), read_json(self.path, _Record, None)
        if record is None or record.format != FORMAT:
            return knowledge
        knowledge.target.learn_record(record.target)
        for origin, costs in record.drafts.items():
            knowledge.costs_of(origin).learn_record(costs)
        for name, numbers in record.acceptance.items():
            origin, _, kind = name.rpartition(" ")
            knowledge.acceptance_of(origin, kind == "greedy").learn_record(numbers)
        return knowledge

    def write(self, knowledge: Knowledge) -> None:
        """Keep what is known, and delete files that are old or too many."""
        record = _Record(FORMAT, knowledge.target.as_record())
        for origin, costs in knowledge.drafts.items():
            if costs.is_known:
                record.drafts[origin] = costs.as_record()
        for name, model in knowledge.acceptance.items():
            if model.num_observed:
                record.acceptance[name] = model.as_record()
        with suppress(OSError):
            is_new = not self.path.exists()
            write_json(self.path, record)
            if is_new:
                prune(self.path.parent)


def prune(folder: Path) -> None:
    """Delete files beyond the newest MAX_FILES, and those older than MAX_AGE_SECONDS."""
    dated = [(each.stat().st_mtime, each) for each in folder.glob("*.json")]
    oldest = time.time() - MAX_AGE_SECONDS
    for number, (written, path) in enumerate(sorted(dated, reverse=True)):
        if number >= MAX_FILES or written < oldest:
            path.unlink(missing_ok=True)


def state_file(folder: str, subject: Mapping[str, Any]) -> Path:
    """Return the path of a file; its name is a hash of the subject and this machine."""
    text = json.dumps({**subject, "machine": _machine()}, sort_keys=True)
    name = hashlib.sha256(text.encode()).hexdigest()[:24]
    return FOLDERS.user_state_path / folder / f"{name}.json"


def _machine() -> dict[str, Any]:
    """Return what distinguishes this machine from others that share the user's files."""
    lines = read_text(Path("/proc/cpuinfo")).splitlines()
    found = [line.split(":")[1].strip() for line in lines if line.startswith(PROCESSOR_FIELDS)]
    brand = found[0] if found else platform.processor()
    return {"system": platform.system(), "processor": brand, "count": os.cpu_count()}
