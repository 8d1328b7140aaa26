"""Methods that take an options dataclass and are called with its fields as keywords."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from specchat.options.option import require_known

__all__ = ["takes"]

Keywords = ParamSpec("Keywords")
Owner = TypeVar("Owner")
Request = TypeVar("Request")
Result = TypeVar("Result")


def takes(
    request: Callable[Keywords, Request],
) -> Callable[[Callable[[Owner, Request], Result]], Callable[Concatenate[Owner, Keywords], Result]]:
    """Return a decorator: the method takes one request, callers give its fields.

    Type checkers see the dataclass's own parameters. A keyword that it does not have raises
    InvalidOption, which names the nearest.
    """
    signature = inspect.signature(request)
    known = tuple(signature.parameters)

    def decorate(
        method: Callable[[Owner, Request], Result],
    ) -> Callable[Concatenate[Owner, Keywords], Result]:
        @functools.wraps(method)
        def call(owner: Owner, /, *args: Keywords.args, **keywords: Keywords.kwargs) -> Result:
            require_known(keywords, known)
            return method(owner, request(*args, **keywords))

        self_parameter = next(iter(inspect.signature(method).parameters.values()))
        call.__signature__ = signature.replace(  # type: ignore[attr-defined]  # what help() shows
            parameters=[self_parameter, *signature.parameters.values()]
        )
        return call

    return decorate
