"""The shape of the code in figures: sizes, names and plain words.

A limit only ever falls. Run this file with `-s` to see the figures behind the limits.
"""

from __future__ import annotations

import ast
import re
import statistics
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "specchat"
FILES = sorted(PACKAGE.rglob("*.py"))
OTHERS = [
    path
    for name in ("scripts", "tests")
    for path in sorted((ROOT / name).rglob("*.py"))
    if "corpus" not in path.parts  # training text of the demo models
]
THIS_FILE = Path(__file__).resolve()

MAX_FUNCTION_LINES = 50
MAX_MEDIAN_FUNCTION_LINES = 8
MAX_P90_FUNCTION_LINES = 25
MAX_FILE_LINES = 300
MAX_LINES_OF = {
    "tui/app.py": 400,
    "options/declarations.py": 307,
    "pacing/pacer.py": 387,
}
"""Files that may be longer than others."""
MAX_PACKAGE_LINES = 30_946
"""The aim is 20,000: lower this limit with every simplification."""

NOT_NAMES = {"__init__", "__main__"}
PHRASES = {
    "told": r"\btold\b",
    "tell": r"\b[Tt]ell(s|ing)?\b(?! me|\()",
    "nobody": r"\b[Nn]obody\b",
    "so many": r"\bso many\b",
    "Say whether": r"\bSay (whether|how|what|so|which|why|that|in words)\b",
    "is no": r"(?<![Tt]here )\bis no\b(?! longer|[.,;])",
    "what there is": r"\bwhat there is\b",
    "by turns": r"\bby turns\b",
    "of late": r"\bof late\b",
    "times plain": r"\btimes plain\b",
    "a word too many": r"\bword too many\b",
    "Hear": r"\bHear\b",
    "comes to": r"\b(come|comes|came) to\b(?! an end)",
    "of specchat's own": r"\bof specchat's own\b",
}
"""Phrases of a language that is not plain English, and how to find them."""


def package_of(path: Path) -> str:
    """Return the package or module directly below specchat; "tests" or "scripts" for others."""
    above = PACKAGE if path.is_relative_to(PACKAGE) else ROOT
    return path.relative_to(above).parts[0].removesuffix(".py")


@cache
def syntax_tree(path: Path) -> ast.Module:
    """Return a file's syntax tree."""
    return ast.parse(path.read_text("utf-8"))


def function_lengths() -> dict[str, int]:
    """Return the number of lines of each function, by its file and name."""
    return {
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}": (node.end_lineno or 0)
        - node.lineno
        + 1
        for path in FILES
        for node in ast.walk(syntax_tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def num_lines(path: Path) -> int:
    """Return the number of lines of a file."""
    return len(path.read_text("utf-8").splitlines())


def phrases_in(text: str) -> Iterator[str]:
    """Yield each phrase of the list that a text contains, as often as it does."""
    for phrase, pattern in PHRASES.items():
        yield from [phrase] * len(re.findall(pattern, text))


def test_base_names_are_unique() -> None:
    """A file's name says what is in it, and no other file has the same name."""
    counts = Counter(path.stem for path in FILES if path.stem not in NOT_NAMES)

    assert [name for name, count in counts.items() if count > 1] == []


def test_functions_are_short() -> None:
    """The longest function, the median and the 90th percentile stay below their limits."""
    lengths = function_lengths()
    ordered = sorted(lengths.values())
    median, p90 = statistics.median(ordered), ordered[int(0.9 * len(ordered))]
    print(f"{len(ordered)} functions: median {median}, p90 {p90}, longest {ordered[-1]} lines")

    assert [name for name, length in lengths.items() if length > MAX_FUNCTION_LINES] == []
    assert median < MAX_MEDIAN_FUNCTION_LINES
    assert p90 < MAX_P90_FUNCTION_LINES


def test_files_are_short() -> None:
    """No file has more lines than its limit."""
    long = {
        name: count
        for path in FILES
        if (count := num_lines(path))
        > MAX_LINES_OF.get(name := path.relative_to(PACKAGE).as_posix(), MAX_FILE_LINES)
    }

    assert long == {}


def test_the_package_does_not_grow() -> None:
    """The number of lines in specchat/ stays below its limit."""
    counts: Counter[str] = Counter()
    for path in FILES:
        counts[package_of(path)] += num_lines(path)
    print(f"{counts.total()} lines: {dict(counts.most_common())}")

    assert counts.total() <= MAX_PACKAGE_LINES


@pytest.mark.parametrize("package", sorted({package_of(path) for path in FILES + OTHERS}))
def test_the_language_is_plain(package: str) -> None:
    """No package contains any of the listed phrases."""
    found = Counter(
        phrase
        for path in FILES + OTHERS
        if package_of(path) == package and path != THIS_FILE
        for phrase in phrases_in(path.read_text("utf-8"))
    )

    assert found == {}


def test_phrases_are_found_in_any_text() -> None:
    """Listed phrases are counted; similar plain English is not."""
    assert list(phrases_in("Nobody is told so many words.")) == ["told", "nobody", "so many"]
    assert list(phrases_in("There is no draft model. Return True if it fits.")) == []
