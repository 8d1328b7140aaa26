"""Rendering chat templates in a separate process: templates come with models and are not trusted.

`specchat.formats.template` starts this module as a script. Jinja's immutable sandbox keeps
templates away from Python and the machine. Native watchdogs end the process if a template takes
too long, and a memory limit ends it if a template needs too much memory.
"""

import faulthandler
import json
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from time import process_time
from typing import Any, NoReturn

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.meta import find_undeclared_variables
from jinja2.nodes import Assign, Compare, Const, Name, Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

MEMORY_LIMIT = 512 * 1024 * 1024
"""Bytes of address space; rendering needs about 100 MiB."""
LONGEST_OUTPUT = 4 * 1024 * 1024
"""The most characters of a rendered conversation."""
LONGEST_REASON = 300
MAX_LIMITS = 3
"""A request with several renderings may take this many times the time limit of one."""
ELAPSED_FACTOR = 10
"""The limit on elapsed time is this many times the limit on processor time."""


class _Generation(Extension):
    """Ignores Hugging Face's {% generation %} tags, which mark what to train on."""

    tags = {"generation"}  # noqa: RUF012  # Jinja's interface

    def parse(self, parser: Parser) -> list[Node]:
        """Return the block's content."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _ReadOnlyList(list[Any]):
    """A list passed to a template, which the template cannot change."""


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's immutable sandbox, but a template may append to and pop from its own lists."""

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Return True if a template may use an attribute."""
        is_own = type(obj) is list and attr in {"append", "pop"}
        return is_own or bool(super().is_safe_attribute(obj, attr, value))


def main() -> None:
    """Answer requests, one line of JSON each, until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # only the parent process handles Ctrl+C
    _limit_memory()
    for line in sys.stdin:
        request = json.loads(line)
        deadline = process_time() + MAX_LIMITS * request["seconds"]
        answers = []
        for variables in request["variables"]:
            _limit_time(min(request["seconds"], max(0.001, deadline - process_time())))
            answers.append(_answer(request["template"], variables))
        _limit_time(request["seconds"])
        uses = _find_uses(request["template"]) if request["wants_uses"] else {}
        _limit_time(0)
        answer = {"answers": answers, "uses": uses}
        print(json.dumps(answer), flush=True)


def _limit_time(seconds: float) -> None:
    """End this process after it has used some seconds of processor time; 0 removes the limit.

    Processor time is measured so that a valid template does not fail on a busy machine. Elapsed
    time has a generous limit too, and is the only one where the system has no such timer.
    """
    if sys.platform == "win32":
        longest = seconds
    else:
        # the default action of its signal ends the process
        signal.setitimer(signal.ITIMER_PROF, seconds)
        longest = ELAPSED_FACTOR * seconds
    faulthandler.cancel_dump_traceback_later()
    if seconds:
        faulthandler.dump_traceback_later(longest, exit=True)


def _limit_memory() -> None:
    """Limit this process's memory if the system supports it; otherwise only time is limited."""
    if sys.platform != "win32":
        import resource

        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))


def _answer(template: str, variables: Mapping[str, Any]) -> dict[str, str]:
    try:
        given = {name: _read_only(value) for name, value in variables.items()}
        return {"text": _joined(_compiled(template).generate(**given))}
    except MemoryError:
        raise  # ends this process; the next template gets a new one
    except Exception as error:  # noqa: BLE001  # a template may raise anything
        return {"error": " ".join(str(error).split())[:LONGEST_REASON] or type(error).__name__}


def _read_only(value: Any) -> Any:
    """Return a value with all lists in it made immutable."""
    if isinstance(value, dict):
        return {key: _read_only(each) for key, each in value.items()}
    return _ReadOnlyList(map(_read_only, value)) if isinstance(value, list) else value


def _find_uses(template: str) -> dict[str, list[Any]]:
    """Return the variables that a template uses, each with the constants it is compared with.

    Comparisons of copies count too: after `{% set effort = reasoning_effort or "high" %}`, those of
    `effort` count for `reasoning_effort`, and so does "high". Empty if the template does not parse.
    """
    try:
        tree, other = (_environment().parse(template) for _ in range(2))
    except jinja2.TemplateError:
        return {}
    copies = {
        assigned.target.name: {name.name for name in assigned.node.find_all(Name)}
        for assigned in tree.find_all(Assign)
        if isinstance(assigned.target, Name)
    }
    # find_undeclared_variables folds constants, so it gets a separate tree
    uses: dict[str, list[Any]] = {name: [] for name in find_undeclared_variables(other)}
    for compared in [*tree.find_all(Compare), *tree.find_all(Assign)]:
        names = {name.name for name in compared.find_all(Name) if name.ctx == "load"}
        names |= {name for copy in names for name in copies.get(copy, ())}
        constants = [each.value for each in compared.find_all(Const)]
        for name in names & uses.keys():
            uses[name] += [constant for constant in constants if isinstance(constant, str | int)]
    return uses


@lru_cache(maxsize=2)
def _compiled(template: str) -> jinja2.Template:
    return _environment().from_string(template)


@lru_cache(maxsize=1)
def _environment() -> _Sandbox:
    """Return the sandbox, with the functions that Hugging Face's templates expect."""
    environment = _Sandbox(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
    )
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().astimezone().strftime(form)
    environment.filters["tojson"] = _as_json
    environment.filters["safe"] = (
        str  # Jinja's filter returns Markup, which escapes text appended to it
    )
    return environment


def _joined(parts: Iterable[str]) -> str:
    kept: list[str] = []
    size = 0
    for part in parts:
        kept.append(part)
        size += len(part)
        if size > LONGEST_OUTPUT:
            raise jinja2.TemplateError("its output exceeds the limit")
    return "".join(kept)


def _refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _as_json(
    value: object,
    indent: int | None = None,
    *,
    ensure_ascii: bool = False,
    separators: tuple[str, str] | None = None,
    **_: Any,
) -> str:
    """Return JSON as Hugging Face's templates expect it, without HTML escaping.

    Other options of a template are ignored, because `cls` and `default` would be called.
    """
    # for example, from the filter `map`
    found = list(value) if isinstance(value, Iterator) else value
    return json.dumps(found, indent=indent, ensure_ascii=ensure_ascii, separators=separators)


if __name__ == "__main__":
    main()
