"""Dataclasses whose fields are options, and methods that take these fields as keywords."""

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from functools import cache, wraps
from types import NoneType, UnionType
from typing import (
    Any,
    ClassVar,
    Concatenate,
    Literal,
    ParamSpec,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from specchat.errors import InvalidOption, nearest
from specchat.options.option import DECLARATION, NOUNS, Option

Keywords = ParamSpec("Keywords")
Owner = TypeVar("Owner")
Request = TypeVar("Request")
Result = TypeVar("Result")


class Options:
    """The base of dataclasses whose fields are options.

    A value that breaks its option's rule raises InvalidOption. Fields without an `Option` are not
    checked.
    """

    __slots__ = ()

    TABLE: ClassVar[str] = ""
    """The table in the settings file for options that do not name another one."""

    @classmethod
    @cache  # reading type hints is slow
    def fields(cls) -> tuple[Option, ...]:
        """Return the options that the dataclass declares, in order."""
        hints = get_type_hints(cls)
        return tuple(
            dataclasses.replace(
                option,
                key=field.name,
                flag=option.flag or f"--{field.name.replace('_', '-')}",
                table=(option.table or cls.TABLE) if option.is_setting else "",
                default=None if field.default is dataclasses.MISSING else field.default,
                **_of_type(hints[field.name]),
            )
            for field in dataclasses.fields(cls)  # type: ignore[arg-type]  # all are
            if (option := field.metadata.get(DECLARATION))
        )

    def values(self, base: "type[Options] | None" = None) -> dict[str, Any]:
        """Return all fields, or those of a base class, as keywords for another dataclass."""
        named = dataclasses.fields(base or type(self))  # type: ignore[arg-type]  # as above
        return {field.name: getattr(self, field.name) for field in named}

    def __post_init__(self) -> None:
        """Check every value and convert it to its option's type."""
        for option in self.fields():
            value = option.checked(getattr(self, option.key), option.key)
            object.__setattr__(self, option.key, value)


def takes(
    request: Callable[Keywords, Request],
) -> Callable[[Callable[[Owner, Request], Result]], Callable[Concatenate[Owner, Keywords], Result]]:
    """Return a decorator for a method that takes a request: callers pass its fields as keywords.

    Type checkers and help() see the dataclass's parameters, help() also each option's help. An
    unknown keyword raises InvalidOption, which names the nearest one.
    """
    parameters = inspect.signature(request).parameters
    hints = get_type_hints(request)

    def decorate(
        method: Callable[[Owner, Request], Result],
    ) -> Callable[Concatenate[Owner, Keywords], Result]:
        @wraps(method)
        def call(owner: Owner, /, *args: Keywords.args, **keywords: Keywords.kwargs) -> Result:
            for name in keywords:
                if name not in parameters:
                    raise InvalidOption(f"unknown option {name}{nearest(name, parameters)}")
            return method(owner, request(*args, **keywords))

        signature = inspect.signature(method)
        shown = [
            parameter.replace(annotation=hints[name]) for name, parameter in parameters.items()
        ]
        own = [next(iter(signature.parameters.values())), *shown]
        call.__signature__ = signature.replace(parameters=own)  # type: ignore[attr-defined]
        lines = (f"{field.key}: {field.help}" for field in request.fields())  # type: ignore[attr-defined]
        call.__doc__ = "\n".join([inspect.getdoc(method) or "", "", *lines])
        return call

    return decorate


def _of_type(declared: Any) -> dict[str, Any]:
    """Return the fields of an `Option` that follow from its type."""
    is_union = get_origin(declared) in {Union, UnionType}
    parts = get_args(declared) if is_union else (declared,)
    literals = [word for part in parts if get_origin(part) is Literal for word in get_args(part)]
    return {
        "main_type": next((part for part in parts if part is str or part in NOUNS), None),
        "literals": tuple(literals),
        "can_be_none": NoneType in parts,
        "is_list": get_origin(declared) is Sequence,
    }
