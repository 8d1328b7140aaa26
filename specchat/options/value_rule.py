"""The rule of a value: its type and range, in words and checked by msgspec."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

__all__ = ["ValueRule", "plain_number", "shown_value"]

LARGEST_NUMBER = 1e308
"""Keeps infinity out: no option has a use for it."""

LARGEST_INTEGER = 2**63 - 1
"""The largest integer that every TOML reader accepts."""

LONGEST_SHOWN = 60
NOUNS = {bool: "true or false", int: "a whole number", float: "a number", str: "", Path: ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueRule:
    """The type and range of a value.

    `type` is bool, int, float, str, Path or a Literal of strings, or a union of one of these with
    None or a Literal. `none` is the word that stands for None in texts and files. `choices` returns
    the allowed strings where they are known only while the program runs. For any other type,
    `convert` returns the value of a text or an object, or raises ValueError. `expected` describes
    the rule where type and range do not.
    """

    type: Any = str
    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    none: str | None = None
    can_be_empty: bool = False
    choices: Callable[[], Sequence[str]] | None = None
    convert: Callable[[object], Any] | None = None
    expected: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        """The words that may be written; numbers may be too unless `is_choice`."""
        if self.choices:
            return tuple(self.choices())
        literals = [get_args(part) for part in self.parts if get_origin(part) is Literal]
        return tuple([self.none] if self.none else []) + sum(literals, ())

    @property
    def is_choice(self) -> bool:
        """Whether the value is one of a few words."""
        return bool(self.choices) or (self.main_type is None and not self.convert)

    @property
    def is_list(self) -> bool:
        """Whether the value is a list of strings, which may be given one by one."""
        return get_origin(self.type) is Sequence

    @property
    def main_type(self) -> Any:
        """The type next to None and words; None where there is no other."""
        return next((part for part in self.parts if part in NOUNS), None)

    @property
    def msgspec_type(self) -> Any:
        """The type, but for None, with its range, as msgspec takes it."""
        return _msgspec_type(self)

    @property
    def description(self) -> str:
        """The rule in words, to follow "must be"."""
        if self.expected:
            return self.expected
        if self.is_choice:
            return f"one of {', '.join(self.words)}"
        if self.main_type in {str, Path}:
            what = "string" if self.main_type is str else "path of a file"
            return f"a {what}" if self.can_be_empty or what != "string" else f"a non-empty {what}"
        words = "".join(f'"{word}" or ' for word in self.words)
        return words + NOUNS[self.main_type] + self._range

    def check(self, value: object) -> Any:
        """Return a value in its own type, 1 as 1.0 for instance; ValueError if it is wrong."""
        return self._checked(value, is_strict=True)

    def read(self, text: str) -> Any:
        """Return the value that a text stands for; ValueError if it is wrong."""
        return self._checked(text, is_strict=False)

    def write(self, value: Any) -> Any:
        """Return a value as a TOML file has it; None where nothing stands for it."""
        if value is None or value == ():
            return self.none
        if isinstance(value, tuple):
            is_text = isinstance(value[0], str)
            return list(value) if is_text else ",".join(map(plain_number, value))
        return str(value) if isinstance(value, Path) else value

    def _checked(self, value: object, *, is_strict: bool) -> Any:
        if self.convert:
            return self.convert(value)
        if value == self.none if value is not None else NoneType in self.parts:
            return None
        if self.choices and value not in self.words:
            raise ValueError(self.description)
        import msgspec

        converted = msgspec.convert(_plain(value), self.msgspec_type, strict=is_strict)
        return Path(converted) if self.main_type is Path else converted

    @property
    def parts(self) -> tuple[Any, ...]:
        """The members of a union, or the one type."""
        is_union = get_origin(self.type) in {Union, UnionType}
        return get_args(self.type) if is_union else (self.type,)

    @property
    def _range(self) -> str:
        low, high = self.minimum, self.maximum
        if self.above is not None:
            return f" above {self.above:g}" + ("" if high is None else f" and at most {high:g}")
        if low is None:
            return "" if high is None else f" of at most {high:g}"
        return f" of at least {low:g}" if high is None else f" from {low:g} to {high:.15g}"


def plain_number(number: float) -> str:
    """Return a number in full, 1.0 as "1"."""
    return repr(number).removesuffix(".0")


def shown_value(value: object) -> str:
    """Return a wrong value as it stands in a message, cut where it is long."""
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    if isinstance(value, bool):
        return str(value).lower()
    text = f'"{value}"' if isinstance(value, str | Path) else _digits(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 3]}..."


def _digits(value: object) -> str:
    try:
        return str(value)
    except ValueError:  # Python refuses to write integers of thousands of digits
        return "a number that long"


def _plain(value: object) -> object:
    """Return NumPy's numbers as Python's, and paths as strings."""
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, Integral | Real):
        return int(value) if isinstance(value, Integral) else float(value)
    return str(value) if isinstance(value, Path) else value


@cache
def _msgspec_type(rule: ValueRule) -> Any:
    from msgspec import Meta

    largest = {int: LARGEST_INTEGER, float: LARGEST_NUMBER}.get(rule.main_type)
    limits: dict[str, Any] = {}
    if rule.main_type in {str, Path}:
        limits["min_length"] = 0 if rule.can_be_empty else 1
    if largest is not None:
        low = -largest if rule.minimum is None else rule.minimum
        limits["le"] = largest if rule.maximum is None else rule.maximum
        limits |= {"ge": low} if rule.above is None else {"gt": rule.above}
    main: Any = str if rule.main_type is Path else rule.main_type
    literals = [part for part in rule.parts if get_origin(part) is Literal]
    if main is None:
        return Union[tuple(literals)]  # noqa: UP007
    described = Annotated[main, Meta(description=rule.description, **limits)]
    return Union[(described, *literals)]
