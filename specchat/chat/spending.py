"""What a chat template may cost, in time and in memory, and what its filters cost.

Nothing in Python ends a computation from outside, so whatever can make much of little pays before
it is done: arithmetic, joining, loops, calls, filters and what is written out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from time import thread_time
from types import GeneratorType
from typing import Any

import jinja2

__all__ = [
    "CONTAINERS",
    "LARGEST_TEXT",
    "LARGEST_WIDTH",
    "MISSING",
    "WIDE_FIELD",
    "Budget",
    "number",
    "paid",
    "require_narrow",
    "require_small",
    "size",
]

LARGEST_TEXT = 4 * 1024 * 1024
"""Characters a rendered conversation, and any text made on the way, may have."""

MOST_UNITS = 64 * LARGEST_TEXT
"""Characters, or places in lists eight times, that may be made all in all."""

MOST_SECONDS = 1.0
"""Of the thread's own time: a machine that is busy elsewhere is no fault of a template's."""

UNITS_PER_PLACE = 8
LARGEST_NUMBER_BITS = 4096
LOOKS_AT_CLOCK = 32
WIDE_FORMAT = re.compile(r"[0-9]{4}|\*")
WIDE_FIELD = re.compile(r":[^{}]*(?:[0-9]{4}|\{)")
CONTAINERS = (list, tuple, dict, set, frozenset)
WITH_NUMBERS = {"center", "indent", "batch", "slice", "round", "tojson", "truncate"}
"""Filters to which a number says how much to make; larger ones than this are no use to anybody."""
LARGEST_WIDTH = 1000
STRUCTURAL = {
    "attr", "batch", "count", "d", "default", "dictsort", "first", "groupby", "items", "last",
    "length", "list", "map", "max", "min", "reject", "rejectattr", "reverse", "select",
    "selectattr", "slice", "sort", "sum", "unique",
}  # fmt: skip
"""Filters that look at what they are given, or pass it on, without writing it out."""
FREE = {"count", "d", "default", "first", "length"}
MISSING = {"lipsum", "random", "pprint", "urlize", "wordwrap", "xmlattr"}
"""What no chat needs; wrapping a text takes time that grows with its square."""


class Budget:
    """What may still be spent."""

    def __init__(self) -> None:
        """Begin with all of it."""
        self._units: float = MOST_UNITS
        self._deadline = thread_time() + MOST_SECONDS
        self._num_spent = 0

    @property
    def share_left(self) -> float:
        """The share of the units that nobody has spent."""
        return self._units / MOST_UNITS

    def spend(self, units: float = 1) -> None:
        """Take so much off; jinja2.TemplateError where nothing is left, of units or of time."""
        self._units -= units
        self._num_spent += 1
        if self._units < 0:
            raise jinja2.TemplateError("it makes too much of too little")
        is_look = units > LARGEST_WIDTH or self._num_spent % LOOKS_AT_CLOCK == 0
        if is_look and thread_time() > self._deadline:
            raise jinja2.TemplateError("it takes too long")

    def spend_on(self, value: object) -> None:
        """Take off what a value is as a text, everything in it counted as often as it is in it."""
        if isinstance(value, (str, bytes)):
            self.spend(len(value))
            return
        waiting = [value]
        while waiting:
            each = waiting.pop()
            self.spend(len(each) if isinstance(each, (str, bytes)) else UNITS_PER_PLACE)
            if isinstance(each, CONTAINERS):
                waiting.extend(each)
            if isinstance(each, dict):
                waiting.extend(each.values())


def paid(budget: Budget, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter that pays before it works, and for each of a row that it makes bit by bit."""
    num_passed = int(hasattr(function, "jinja_pass_arg"))  # a context or the like comes first

    @wraps(function)
    def paying(*given: Any, **named: Any) -> Any:
        passed, values = given[:num_passed], list(given[num_passed:])
        if name == "join" and isinstance(values[0], Iterator):
            values[0] = list(values[0])
        _pay_for_filter(budget, name, values, named)
        result = function(*passed, *values, **named)
        return _paying(budget, result) if isinstance(result, GeneratorType) else result

    return paying


def _pay_for_filter(budget: Budget, name: str, given: list[Any], named: dict[str, Any]) -> None:
    """Pay for what a filter makes of a value, by what it is told to do with it."""
    value, told = given[0], [*given[1:], *named.values()]
    if name in WITH_NUMBERS and any(number(each) > LARGEST_WIDTH for each in told):
        raise jinja2.TemplateError("a number too large")
    if name in STRUCTURAL:
        budget.spend(1 if name in FREE else size(value))
    else:
        budget.spend_on([value, *told])
    if name == "join" and told:
        budget.spend(size(str(told[0])) * size(value))
    elif name == "replace" and len(told) > 1:
        budget.spend(str(value).count(str(told[0])) * len(str(told[1])))
    elif name == "indent":
        widest = max((number(each) or size(each) for each in told), default=4)
        budget.spend((str(value).count("\n") + 1) * widest)
    elif name == "striptags":  # which copies all of it for every comment
        budget.spend(str(value).count("<!--") * len(str(value)))
    elif name == "format":
        require_narrow(str(value))
        budget.spend(str(value).count("%") * sum(map(size, told)))
    elif name == "sum" and any(isinstance(each, CONTAINERS) for each in told):
        raise jinja2.TemplateError("sum is for numbers")


def _paying(budget: Budget, row: Iterable[Any]) -> Iterator[Any]:
    for each in row:
        budget.spend(UNITS_PER_PLACE)
        yield each


def require_narrow(form: str) -> None:
    """Refuse a format that asks for a width nobody wants."""
    if WIDE_FORMAT.search(form):
        raise jinja2.TemplateError("a width too large")


def require_small(operator: str, left: int, right: int) -> None:
    """Refuse to calculate with numbers of thousands of digits."""
    bits = {
        "+": max(left.bit_length(), right.bit_length()),
        "*": left.bit_length() + right.bit_length(),
        "**": left.bit_length() * max(0, right),
    }
    if bits.get(operator, 0) > LARGEST_NUMBER_BITS:
        raise jinja2.TemplateError("a number too large")


def size(value: object) -> int:
    """Return what a copy of a value takes."""
    if isinstance(value, (str, bytes)):
        return len(value)
    is_row = isinstance(value, (*CONTAINERS, range))
    return UNITS_PER_PLACE * len(value) if is_row else 0  # type: ignore[arg-type]


def number(value: object) -> int:
    """Return how large a whole number is; 0 for anything else."""
    return abs(value) if isinstance(value, int) else 0
