"""Rendering chat templates in a separate process: templates come with models and are not trusted.

`specchat.chat.template` starts it as a script. Jinja's immutable sandbox keeps a template away from
Python and the machine. Native watchdogs end the process if a template takes too long, a memory
limit if it needs too much.
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
"""Bytes of address space; rendering takes about 100 MiB."""
LONGEST_OUTPUT = 4 * 1024 * 1024
"""The most characters of a rendered conversation."""
LONGEST_REASON = 300
MAX_LIMITS = 3
"""Several renderings together may take this many times the limit of one."""
PATIENCE = 10
"""A rendering may wait for a processor this many times as long as it may use one."""


class _Generation(Extension):
    """Hugging Face's {% generation %} blocks mark what to train on; here they are plain text."""

    tags = {"generation"}  # noqa: RUF012  # Jinja's own way

    def parse(self, parser: Parser) -> list[Node]:
        """Return the block's content."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Given(list[Any]):
    """A list that a template is given and cannot change."""


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's immutable sandbox, except that a template may append to and pop its own lists."""

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Return True if a template may use an attribute."""
        is_own = type(obj) is list and attr in {"append", "pop"}
        return is_own or bool(super().is_safe_attribute(obj, attr, value))


def main() -> None:
    """Answer requests, a line of JSON each, until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is for the parent process
    _limit_memory()
    for line in sys.stdin:
        request = json.loads(line)
        deadline = process_time() + MAX_LIMITS * request["seconds"]
        answers = []
        for variables in request["variables"]:
            _limit_time(min(request["seconds"], max(0.001, deadline - process_time())))
            answers.append(_answer(request["template"], variables))
        _limit_time(request["seconds"])
        uses = _uses(request["template"]) if request["wants_uses"] else {}
        _limit_time(0)
        answer = {"answers": answers, "uses": uses}
        print(json.dumps(answer), flush=True)


def _limit_time(seconds: float) -> None:
    """End this process once it has used a processor for some seconds from now; 0 for no limit.

    It is time of the processor, so that a busy machine does not make a sound template fail. Time of
    the clock is limited too, generously, or alone where the system has no such timer.
    """
    if sys.platform == "win32":
        longest = seconds
    else:
        signal.setitimer(signal.ITIMER_PROF, seconds)  # its signal ends a process by default
        longest = PATIENCE * seconds
    faulthandler.cancel_dump_traceback_later()
    if seconds:
        faulthandler.dump_traceback_later(longest, exit=True)


def _limit_memory() -> None:
    """Limit this process's memory if the system can; elsewhere only time is limited."""
    if sys.platform != "win32":
        import resource

        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))


def _answer(template: str, variables: Mapping[str, Any]) -> dict[str, str]:
    try:
        given = {name: _given(value) for name, value in variables.items()}
        return {"text": _joined(_compiled(template).generate(**given))}
    except MemoryError:
        raise  # ends this process: the next template gets a new one
    except Exception as error:  # noqa: BLE001  # a template may raise anything
        return {"error": " ".join(str(error).split())[:LONGEST_REASON] or type(error).__name__}


def _given(value: Any) -> Any:
    """Return a value with every list in it made immutable."""
    if isinstance(value, dict):
        return {key: _given(each) for key, each in value.items()}
    return _Given(map(_given, value)) if isinstance(value, list) else value


def _uses(template: str) -> dict[str, list[Any]]:
    """Return the variables that a template uses, with the constants each is compared with.

    Comparisons of a copy count too: after `{% set effort = reasoning_effort or "high" %}`, those of
    `effort` count for `reasoning_effort`, as does "high". Empty if the template does not parse.
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
    # find_undeclared_variables folds constants, so it gets a tree of its own
    uses: dict[str, list[Any]] = {name: [] for name in find_undeclared_variables(other)}
    for compared in [*tree.find_all(Compare), *tree.find_all(Assign)]:
        names = {name.name for name in compared.find_all(Name) if name.ctx == "load"}
        names |= {name for copy in names for name in copies.get(copy, ())}
        constants = [each.value for each in compared.find_all(Const)]
        for name in names & uses.keys():
            uses[name] += [each for each in constants if isinstance(each, str | int)]
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
    environment.filters["safe"] = str  # Jinja's own returns Markup, which escapes what is added
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
    """Return JSON as Hugging Face's templates expect it: not escaped for HTML.

    A template's other options are not passed on: `cls` and `default` would be called.
    """
    found = list(value) if isinstance(value, Iterator) else value  # as the filter `map` returns
    return json.dumps(found, indent=indent, ensure_ascii=ensure_ascii, separators=separators)


if __name__ == "__main__":
    main()
