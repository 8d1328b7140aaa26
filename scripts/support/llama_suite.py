"""How llama.cpp's own server tests ended, and why some do not pass here."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

REASONS = Path(__file__).with_suffix(".toml")


class Outcome(NamedTuple):
    """How a test ended: passed, failed or skipped, and why."""

    test: str
    outcome: str
    why: str


@dataclass(frozen=True)
class Reason:
    """Why some tests do not pass.

    `kind` is "by design", "absent" or "the model's text". `tests` are names of files without
    `test_` and `.py`, or of a test in one, behind a colon, without `test_` and its case.
    """

    kind: str
    why: str
    tests: tuple[str, ...]

    def covers(self, test: str) -> bool:
        """Whether this is why a test does not pass."""
        return any(self.matches(pattern, test) for pattern in self.tests)

    @staticmethod
    def matches(pattern: str, test: str) -> bool:
        """Whether a pattern names a test; those of a whole file have no colon."""
        path, _, name = test.partition("::")
        file = path.removeprefix("test_").removesuffix(".py")
        case = name.removeprefix("test_")
        named, _, function = pattern.partition(":")
        return file == named and (
            not function or fnmatchcase(case, function) or case.partition("[")[0] == function
        )


def load_reasons() -> list[Reason]:
    """Return the known reasons."""
    content = tomllib.loads(REASONS.read_text("utf-8"))
    return [Reason(each["kind"], each["why"], tuple(each["tests"])) for each in content["reasons"]]


def read_outcomes(report: Path) -> list[Outcome]:
    """Return what the plugin noted of each test; the last line about one counts."""
    found: dict[str, Outcome] = {}
    for line in report.read_text("utf-8").splitlines():
        outcome = Outcome(**json.loads(line))
        found[outcome.test] = outcome
    return list(found.values())
