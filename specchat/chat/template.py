"""Rendering a model's own chat template, which comes with the file and is not trusted."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from specchat.chat.turn import Turn
from specchat.errors import TemplateError

__all__ = ["render"]

LARGEST_EXPONENT = 64
WIDE_FORMAT = re.compile(r"[0-9]{4}|\*")
LARGEST_RENDERING = 4 * 1024 * 1024
"""Characters a rendered conversation may have; a template that goes on is out to fill memory."""


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's sandbox, which also refuses results that are out to fill memory or time."""

    intercepted_binops = frozenset({"*", "**", "%"})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Refuse to make something huge."""
        if operator == "**" and _magnitude(right) > LARGEST_EXPONENT:
            raise jinja2.TemplateError("a power too large")
        sizes = [len(side) for side in (left, right) if isinstance(side, (str, list, tuple))]
        if operator == "*" and sizes:
            times = max((_magnitude(side) for side in (left, right)), default=0)
            if max(sizes) * times > LARGEST_RENDERING:
                raise jinja2.TemplateError("a repetition too long")
        if operator == "%" and isinstance(left, str) and WIDE_FORMAT.search(left):
            raise jinja2.TemplateError("a width too large")
        return super().call_binop(context, operator, left, right)


def _magnitude(value: object) -> float:
    return abs(value) if isinstance(value, (int, float)) else 0


class _Generation(Extension):
    """Hugging Face's {% generation %} blocks mark the assistant's words; here they are plain."""

    tags = {"generation"}  # noqa: RUF012  # Jinja's own way

    def parse(self, parser: Parser) -> list[Node]:
        """Return what is inside."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(value: object, indent: int | None = None, **options: Any) -> str:
    """Write JSON as Hugging Face's templates expect it: not escaped for HTML."""
    chosen: dict[str, Any] = {
        name: options[name] for name in ("ensure_ascii", "separators") if name in options
    }
    return json.dumps(value, indent=indent, **({"ensure_ascii": False} | chosen))


def render(template: str, messages: Sequence[Turn], *, bos: str = "", eos: str = "") -> str:
    """Render a conversation, up to where the assistant's next answer begins.

    The template runs in Jinja's immutable sandbox, with the functions Hugging Face's templates
    expect. Raises TemplateError when it fails or refuses the conversation.
    """
    environment = _Sandbox(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().astimezone().strftime(form)
    try:
        stream = environment.from_string(template).generate(
            messages=list(messages), add_generation_prompt=True, bos_token=bos, eos_token=eos
        )
        return _joined(stream)
    except TemplateError:
        raise
    except Exception as error:  # noqa: BLE001  # templates are not ours: anything may come
        raise TemplateError(
            f"the model's chat template failed ({error}): ask with --raw, which uses none"
        ) from None


def _joined(stream: object) -> str:
    parts: list[str] = []
    size = 0
    for part in stream:  # type: ignore[attr-defined]
        parts.append(part)
        size += len(part)
        if size > LARGEST_RENDERING:
            raise TemplateError("the model's chat template writes without end: ask with --raw")
    return "".join(parts)


def _refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
