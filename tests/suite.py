"""How the tests run: what the quick run leaves out, and what a failure prints when it happens."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest

SLOW_FILE = "\npytestmark = pytest.mark.slow\n"
"""What a file says that has nothing for the quick run; that does not even import it."""
SESSION = "suite_failures"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that `scripts/test` gives unless it has `--all`."""
    help_text = "leave out tests that are marked slow, but for the cases that their marks keep"
    parser.addoption("--quick", action="store_true", help=help_text)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Print failures at once, in the process that has the terminal."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Failures(config, terminal), SESSION)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave files out of the quick run that are slow as a whole."""
    if not config.option.quick or collection_path.suffix != ".py":
        return None
    return SLOW_FILE in collection_path.read_text("utf-8") or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave slow tests out of the quick run; `slow(keep=N)` keeps N cases of each test."""
    if not config.option.quick:
        return
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left_out = {item for group in cases.values() for item in _left_out(group)}
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


def _left_out(cases: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the cases of one test that the quick run leaves out."""
    slow = [item for item in cases if item.get_closest_marker("slow")]
    if not slow:
        return []
    mark = slow[0].get_closest_marker("slow")
    kept = spread(len(slow), mark.kwargs.get("keep", 0) if mark else 0)
    return [item for index, item in enumerate(slow) if index not in kept]


def spread(count: int, number: int) -> set[int]:
    """Return this number of indices below `count`, spread over every one of nested tables.

    The stride has no factor in common with the count, so that it does not meet the same value of
    an inner table again and again.
    """
    if number >= count:
        return set(range(count))
    stride = count // max(1, number)
    while math.gcd(stride, count) > 1:
        stride -= 1
    return {index * stride for index in range(number)}


class Failures:
    """Prints each failure when it happens, with the command that repeats it."""

    def __init__(self, config: pytest.Config, terminal: pytest.TerminalReporter) -> None:
        """Store where to print."""
        self._config, self._terminal = config, terminal

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Print why a file cannot be collected."""
        if report.failed:
            self._print(report)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print a failure, or an error of a fixture, as the summary would in the end."""
        if report.failed:
            self._print(report)

    def _print(self, report: pytest.CollectReport | pytest.TestReport) -> None:
        self._terminal.write("\n")
        self._terminal.write_sep("_", f"failed: {report.head_line or report.nodeid}", red=True)
        self._terminal.write_line(report.longreprtext)
        for title, text in report.sections:
            self._terminal.write_sep("-", title)
            self._terminal.write_line(text.rstrip("\n"))
        self._terminal.write_line(f"repeat: scripts/test {shlex.quote(report.nodeid)}", bold=True)

    def pytest_sessionfinish(self) -> None:
        """Leave the texts out of the summary, which would print them again."""
        self._config.option.tbstyle = "no"
