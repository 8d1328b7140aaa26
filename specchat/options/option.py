"""One option: its declaration, the rule for its values, and how values are written."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union

from specchat.errors import InvalidOption

Value = TypeVar("Value")

DECLARATION = "option"
"""The key of an option in the metadata of its field."""

PREFIX = "SPECCHAT_"
"""The prefix of all environment variables that set options."""

LARGEST = {int: 2**63 - 1, float: 1e308}
"""Limits that every TOML reader accepts, and that exclude infinity."""

NOUNS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    Path: "the path of a file",
}
LONGEST_SHOWN = 60


@dataclasses.dataclass(frozen=True, slots=True)
class Option:
    """An option, as `threads: int = declare(1, "Its help.", minimum=1)` declares it.

    `minimum`, `above` and `maximum` limit numbers. `none` is the word for None in text and files.
    `choices` returns the allowed words if they are only known at run time. For types unknown to
    this module, `convert` returns the value for a text or an object, or raises ValueError;
    `expected` then describes the rule. `example` is shown if the default is None. `is_setting` is
    false for options of the Python API alone.

    The rest is filled in by `fields`: `key` is the field's name, `table` its table in the settings
    file, `main_type` its type next to None and `literals` the strings of a Literal.
    """

    help: str
    _: dataclasses.KW_ONLY
    minimum: float | None = None
    above: float | None = None
    maximum: float | None = None
    none: str | None = None
    can_be_empty: bool = False
    choices: Callable[[], Sequence[str]] | None = None
    convert: Callable[[object], Any] | None = None
    expected: str = ""
    example: Any = None
    is_setting: bool = True
    is_list: bool = False
    flag: str = ""
    metavar: str = ""
    key: str = ""
    table: str = ""
    main_type: Any = None
    literals: tuple[str, ...] = ()
    can_be_none: bool = False
    default: Any = None

    @property
    def name(self) -> str:
        """The full name in the settings: "sampling.top_k"."""
        return f"{self.table}.{self.key}" if self.table else self.key

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return f"{PREFIX}{self.key.upper()}"

    @property
    def sample(self) -> Any:
        """The default as written in the settings file, or the example if there is no default."""
        default = self.write(self.default)
        return self.write(self.example) if default is None else default

    @property
    def words(self) -> tuple[str, ...]:
        """The allowed words; unless `is_choice`, other values are allowed too."""
        if self.choices:
            return tuple(self.choices())
        return (self.none, *self.literals) if self.none else self.literals

    @property
    def is_choice(self) -> bool:
        """Whether the value must be one of a few words."""
        return bool(self.choices or (self.literals and self.main_type is None))

    @property
    def description(self) -> str:
        """The rule as text that can follow "must be"."""
        if self.expected:
            return self.expected
        if self.is_choice:
            return f"one of {', '.join(self.words)}"
        if self.main_type is str:
            return "a string" if self.can_be_empty else "a non-empty string"
        choices = "".join(f'"{word}" or ' for word in self.words)
        return choices + NOUNS[self.main_type] + self._range

    def checked(self, value: object, name: str = "", *, is_strict: bool = True) -> Any:
        """Return a value converted to the option's type, such as 1 to 1.0, and "1" unless strict.

        Raises InvalidOption, which calls the option `name`, as the source of the value does.
        """
        if self.can_be_none and (value is None or value == self.none):
            return None
        try:
            if self.convert:
                return self.convert(value)
            import msgspec

            kind = Literal[self.words] if self.is_choice else _msgspec_type(self)
            converted = msgspec.convert(_plain_number(value), kind, strict=is_strict)
        except ValueError:
            is_huge = self.main_type is int and self.maximum is None and _is_huge(value)
            what = f"{self.description}{' and below 2^63' * is_huge}, not {_given(value)}"
            raise InvalidOption(f"{name or self.name} must be {what}") from None
        return Path(converted) if self.main_type is Path else converted

    def parsed(self, text: str, name: str = "") -> Any:
        """Return the value that a text stands for; raises as `checked` does."""
        return self.checked(text, name, is_strict=False)

    def write(self, value: Any) -> Any:
        """Return a value as written in the settings file; None if it cannot be expressed there."""
        if value is None or value == ():
            return self.none
        if isinstance(value, tuple):
            is_text = isinstance(value[0], str)
            return list(value) if is_text else ",".join(map(_plain_text, value))
        return str(value) if isinstance(value, Path) else value

    def shown(self, value: Any) -> str:
        """Return a value as people write it; empty for a None that has no word."""
        written = self.write(value)
        if written is None:
            return ""
        return ", ".join(written) if isinstance(written, list) else _plain_text(written)

    @property
    def _range(self) -> str:
        low, high = self.minimum, self.maximum
        if self.above is not None:
            return f" above {self.above:g}" + ("" if high is None else f" and at most {high:g}")
        if low is None:
            return ""
        return f" of at least {low:g}" if high is None else f" from {low:g} to {_plain_text(high)}"


def declare(default: Value, about: str, **rules: Any) -> Value:
    """Return a field that is an option, with its help and the rules that `Option` takes."""
    is_dict = isinstance(default, dict)
    given: Any = {"default_factory": dict} if is_dict else {"default": default}
    field: Value = dataclasses.field(metadata={DECLARATION: Option(about, **rules)}, **given)
    return field


@cache
def _msgspec_type(option: Option) -> Any:
    """Return the type with its range, without None, in msgspec's form."""
    from msgspec import Meta

    main: Any = str if option.main_type is Path else option.main_type
    limits: dict[str, Any] = {}
    if main is str:
        limits["min_length"] = 0 if option.can_be_empty else 1
    elif main in LARGEST:
        largest = LARGEST[main]
        limits["le"] = largest if option.maximum is None else option.maximum
        low = {"ge": -largest if option.minimum is None else option.minimum}
        limits |= low if option.above is None else {"gt": option.above}
    described = Annotated[main, Meta(description=option.description, **limits)]
    return Union[described, Literal[option.literals]] if option.literals else described  # noqa: UP007


def _plain_number(value: object) -> object:
    """Return NumPy numbers as Python numbers, and paths as strings."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, bool | int | float) or not isinstance(value, Real):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


def _plain_text(value: object) -> str:
    """Return a value as text without loss, 1.0 as "1"."""
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_huge(value: object) -> bool:
    """Return True for a whole number that exceeds what TOML and llama.cpp can hold."""
    if isinstance(value, str):
        return value.isdecimal() and (len(value) > LONGEST_SHOWN or int(value) > LARGEST[int])
    return isinstance(value, int) and value > LARGEST[int]


def _given(value: object) -> str:
    """Return a wrong value for a message, shortened if it is long."""
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    try:
        text = f'"{value}"' if isinstance(value, str | Path) else _plain_text(value)
    except ValueError:  # Python refuses to write integers of thousands of digits
        return "a number that long"
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 3]}..."
