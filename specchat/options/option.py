"""One option: everything that is declared of it, and the names by which it is set."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Self, get_args, get_type_hints

from specchat.errors import InvalidOption
from specchat.options.value_rule import ValueRule, plain_number, shown_value

__all__ = ["PREFIX", "Option", "Options", "fields", "nearest", "require_known", "values"]

PREFIX = "SPECCHAT_"
"""How the environment variables of all options begin."""

KNOWN: dict[type, tuple[Option, ...]] = {}
"""What `fields` found: reading type hints takes a while."""


@dataclasses.dataclass(frozen=True, slots=True)
class Option(ValueRule):
    """An option as it is declared: `Annotated[int, Option("Its help.", minimum=0)] = 1`.

    `example` shows a value where the default is None; `flag` and `metavar` replace the usual ones
    of the command line. `is_setting` is false for options of the Python API alone. The rest is
    filled in from around the declaration: `key` is the field's name, `table` its table in the
    settings file, which is empty for options that are not in it.
    """

    help: str
    example: Any = dataclasses.field(default=None, kw_only=True)
    flag: str = dataclasses.field(default="", kw_only=True)
    metavar: str = dataclasses.field(default="", kw_only=True)
    is_setting: bool = dataclasses.field(default=True, kw_only=True)
    table: str = dataclasses.field(default="", kw_only=True)
    key: str = dataclasses.field(default="", kw_only=True)
    default: Any = dataclasses.field(default=None, kw_only=True)

    @property
    def name(self) -> str:
        """Its name in the settings: "sampling.top_k"."""
        return f"{self.table}.{self.key}" if self.table else self.key

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return f"{PREFIX}{self.key.upper()}"

    @property
    def sample(self) -> Any:
        """The default as the settings file has it, or the example where that has none."""
        default = self.write(self.default)
        return self.write(self.example) if default is None else default

    def checked(self, value: object, name: str = "") -> Any:
        """Return a value in its own type; InvalidOption, which names the option, if it is wrong."""
        try:
            return self.check(value)
        except ValueError:
            raise self._refusal(value, name) from None

    def parsed(self, text: str, name: str = "") -> Any:
        """Return what a text stands for; InvalidOption, which names the option, if it is wrong."""
        try:
            return self.read(text)
        except ValueError:
            raise self._refusal(text, name) from None

    def shown(self, value: Any) -> str:
        """Return a value as people write it, empty for None where no word stands for it."""
        written = self.write(value)
        if isinstance(written, list):
            return ", ".join(written)
        if isinstance(written, bool):
            return str(written).lower()
        if isinstance(written, float):
            return plain_number(written)
        return "" if written is None else str(written)

    def _refusal(self, value: object, name: str) -> InvalidOption:
        given = shown_value(value)
        return InvalidOption(f"{name or self.name} must be {self.description}, not {given}")


class Options:
    """The base of dataclasses whose fields are options.

    Values that break their rules raise InvalidOption. Fields without an `Option` are not checked.
    """

    __slots__ = ()

    TABLE: ClassVar[str] = ""
    """The table of the settings file for options that name no other."""

    @classmethod
    def of(cls, keywords: Mapping[str, Any]) -> Self:
        """Return options of these values; InvalidOption names an unknown one and the nearest."""
        require_known(keywords, [field.name for field in dataclasses.fields(cls)])  # type: ignore[arg-type]  # as below
        return cls(**keywords)

    def __post_init__(self) -> None:
        """Check every value and keep it in its own type."""
        for option in fields(type(self)):
            value = option.checked(getattr(self, option.key), option.key)
            object.__setattr__(self, option.key, value)


def fields(declared: type[Options]) -> tuple[Option, ...]:
    """Return the options that a dataclass declares, in order."""
    if declared not in KNOWN:
        hints = get_type_hints(declared, include_extras=True)
        KNOWN[declared] = tuple(_declared_in(declared, hints))
    return KNOWN[declared]


def values(options: Options, declared: type[Options]) -> dict[str, Any]:
    """Return the fields that a dataclass, or a base of it, has: as keywords for another."""
    named = dataclasses.fields(declared)  # type: ignore[arg-type]  # subclasses are dataclasses
    return {field.name: getattr(options, field.name) for field in named}


def nearest(name: str, known: Collection[str]) -> str:
    """Return the end of a message that names the known name most like one; empty if none is."""
    import difflib  # 5 ms that only mistakes need

    found = difflib.get_close_matches(name, known, 1)
    return f"; the nearest is {found[0]}" if found else ""


def require_known(names: Iterable[str], known: Collection[str]) -> None:
    """Raise InvalidOption if a name is unknown."""
    for name in names:
        if name not in known:
            raise InvalidOption(f"there is no option {name}{nearest(name, known)}")


def _declared_in(declared: type[Options], hints: Mapping[str, Any]) -> Iterator[Option]:
    for field in dataclasses.fields(declared):  # type: ignore[arg-type]  # as above
        hint = hints[field.name]
        for option in getattr(hint, "__metadata__", ()):
            if isinstance(option, Option):
                has_default = field.default is not dataclasses.MISSING
                yield dataclasses.replace(
                    option,
                    key=field.name,
                    type=get_args(hint)[0],
                    default=field.default if has_default else None,
                    flag=option.flag or f"--{field.name.replace('_', '-')}",
                    table=(option.table or declared.TABLE) if option.is_setting else "",
                )
