"""A table of cases as one test: a loop that reports each row that fails, and goes on."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import pytest

Test: TypeAlias = Callable[..., None]
Names: TypeAlias = Callable[[Any], object] | Iterable[object] | None
ROWS = "rows_of_table"
"""The attribute that holds a test and its rows, to which another table adds its own."""


def table(
    arguments: str | Sequence[str], rows: Iterable[Any], *, ids: Names = None
) -> Callable[[Test], Test]:
    """Return a decorator that calls a test with each row, as `parametrize` would, in one test.

    A row costs microseconds, where a test of its own costs milliseconds in every worker. Fixtures
    are made once: for tests whose rows share them. `ids` names the rows in reports.
    """
    names = arguments.replace(" ", "").split(",") if isinstance(arguments, str) else [*arguments]
    is_bare = isinstance(arguments, str) and len(names) == 1
    values = [_values(row, is_bare=is_bare) for row in rows]
    assert values, f"no rows for {names}"
    outer = [
        (label, dict(zip(names, row, strict=True)))
        for label, row in zip(_labels(values, ids), values, strict=True)
    ]

    def decorate(test: Test) -> Test:
        plain, inner = getattr(test, ROWS, (test, [("", {})]))
        cases = [
            (", ".join(filter(None, (label, inner_label))), {**row, **inner_row})
            for label, row in outer
            for inner_label, inner_row in inner
        ]

        @functools.wraps(test)
        def loop(*, subtests: pytest.Subtests, **fixtures: Any) -> None:
            for label, row in cases:
                with subtests.test(label):
                    plain(**fixtures, **row)

        signature = inspect.signature(plain)
        fixtures = [each for name, each in signature.parameters.items() if name not in cases[0][1]]
        fixtures = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in fixtures]
        fixtures.append(inspect.Parameter("subtests", inspect.Parameter.KEYWORD_ONLY))
        loop.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        setattr(loop, ROWS, (plain, cases))
        return loop

    return decorate


def _values(row: Any, *, is_bare: bool) -> tuple[Any, ...]:
    """Return a row's values, one for each argument; a bare row is a value itself."""
    if isinstance(row, type(pytest.param())):
        assert not row.marks, "a row has no marks: make it a test of its own"
        return tuple(row.values)
    return (row,) if is_bare else tuple(row)


def _labels(rows: list[tuple[Any, ...]], ids: Names) -> list[str]:
    """Return what a report calls each row."""
    if callable(ids):
        return [", ".join(str(ids(value)) for value in row) for row in rows]
    if ids is not None:
        return [str(name) for name in ids]
    return [
        f"{index}: " + ", ".join(repr(value)[:60] for value in row)
        for index, row in enumerate(rows)
    ]
