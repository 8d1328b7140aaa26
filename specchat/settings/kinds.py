"""What a setting's value may be: each kind tells its rule in words and holds values to it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Choice", "FilePath", "Keys", "Kind", "Number", "Shares", "Switch", "Text", "Whole"]

LARGEST = 1e308
"""Beyond it there is infinity, which is no number to sample with."""

LARGEST_WHOLE = 2**63 - 1
"""What TOML promises to hold."""

KEY_NAME = re.compile(r"(?:(?:ctrl|alt|shift|super|hyper|meta)\+)*(?:\w+|[^\s\w,+])")

SWITCHES = {"true": True, "1": True, "false": False, "0": False}


class Kind(Protocol):
    """What a setting's value may be."""

    @property
    def rule(self) -> str:
        """Say what the value must be, to follow "must be"."""

    def takes(self, value: object) -> bool:
        """Say whether a value keeps the rule."""

    def read(self, text: str) -> object:
        """Return the value that a text of the environment means; ValueError if it means none."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number in a range; `is_above` leaves out the lowest itself, None means no limit."""

    low: float | None = None
    high: float | None = None
    is_above: bool = False

    @property
    def rule(self) -> str:
        """Say which numbers."""
        return "a number" + _span(self.low, self.high, is_above=self.is_above)

    def takes(self, value: object) -> bool:
        """Say whether it is a finite number in the range."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        is_finite = -LARGEST <= value <= LARGEST
        is_left_out = self.is_above and value == self.low
        return is_finite and not is_left_out and _is_within(value, self.low, self.high)

    def read(self, text: str) -> object:
        """Return the number."""
        return float(text)


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number in a range, or the one word that stands for no number."""

    low: int | None = None
    high: int | None = None
    word: str | None = None

    @property
    def rule(self) -> str:
        """Say which numbers, and the word."""
        word = f'"{self.word}" or ' if self.word else ""
        return f"{word}a whole number" + _span(self.low, self.high)

    def takes(self, value: object) -> bool:
        """Say whether it is the word or a whole number in the range."""
        if isinstance(value, str):
            return value == self.word
        if isinstance(value, bool) or not isinstance(value, int):
            return False
        return abs(value) <= LARGEST_WHOLE and _is_within(value, self.low, self.high)

    def read(self, text: str) -> object:
        """Return the number, or the word."""
        return text if text == self.word else int(text)


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words; a function gives them where they can change."""

    given: tuple[str, ...] | Callable[[], tuple[str, ...]]

    @property
    def words(self) -> tuple[str, ...]:
        """The words."""
        return self.given() if callable(self.given) else self.given

    @property
    def rule(self) -> str:
        """Say which words."""
        return "one of " + ", ".join(self.words)

    def takes(self, value: object) -> bool:
        """Say whether it is one of them."""
        return isinstance(value, str) and value in self.words

    def read(self, text: str) -> object:
        """Return the word."""
        return text


@dataclass(frozen=True, slots=True)
class Switch:
    """On or off."""

    @property
    def rule(self) -> str:
        """Name the two."""
        return "true or false"

    def takes(self, value: object) -> bool:
        """Say whether it is one of the two."""
        return isinstance(value, bool)

    def read(self, text: str) -> object:
        """Return what the word means."""
        if text.lower() not in SWITCHES:
            raise ValueError(text)
        return SWITCHES[text.lower()]


@dataclass(frozen=True, slots=True)
class Text:
    """A text; `rule` says which."""

    rule: str = "a text in quotes"
    can_be_empty: bool = False

    def takes(self, value: object) -> bool:
        """Say whether it is a text."""
        return isinstance(value, str) and (value != "" or self.can_be_empty)

    def read(self, text: str) -> object:
        """Return the text itself."""
        return text


@dataclass(frozen=True, slots=True)
class Keys:
    """A key of the chat by its name, or several with commas between them."""

    @property
    def rule(self) -> str:
        """Give an example."""
        return 'a key such as "ctrl+b", or several with commas between them'

    def takes(self, value: object) -> bool:
        """Say whether it looks like names of keys."""
        names = value.split(",") if isinstance(value, str) else [""]
        return all(KEY_NAME.fullmatch(name.strip()) for name in names)

    def read(self, text: str) -> object:
        """Return the names."""
        return text


@dataclass(frozen=True, slots=True)
class FilePath(Text):
    """The path of a file: "~" is the home folder, and a relative one begins at the settings."""

    rule: str = "the path of a file in quotes"


@dataclass(frozen=True, slots=True)
class Shares:
    """The parts that several devices take, as numbers with commas between them."""

    most: int

    @property
    def rule(self) -> str:
        """Show an example."""
        return f'the shares of up to {self.most} GPUs in quotes, "3,1" for instance'

    def takes(self, value: object) -> bool:
        """Say whether it is a text of numbers that are not all zero."""
        if not isinstance(value, str):
            return False
        try:
            shares = [float(part) for part in value.split(",")]
        except ValueError:
            return False
        is_right = all(0 <= share <= LARGEST for share in shares) and any(shares)
        return is_right and len(shares) <= self.most

    def read(self, text: str) -> object:
        """Return the text itself."""
        return text


def _is_within(value: float, low: float | None, high: float | None) -> bool:
    return (low is None or value >= low) and (high is None or value <= high)


def _span(low: float | None, high: float | None, *, is_above: bool = False) -> str:
    """Say a range in words."""
    if low is None:
        return "" if high is None else f" up to {high:g}"
    if high is None:
        return f" above {low:g}" if is_above else f" from {low:g} on"
    return f" above {low:g}, up to {high:g}" if is_above else f" from {low:g} to {high:.15g}"
