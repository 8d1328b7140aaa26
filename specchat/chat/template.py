"""Rendering a model's own chat template, which comes with the file and is not trusted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import Node
from jinja2.parser import Parser

from specchat.chat.sandbox import Sandbox
from specchat.chat.spending import LARGEST_TEXT
from specchat.chat.turn import Turn
from specchat.errors import TemplateError

__all__ = ["render"]

LONGEST_TEMPLATE = 128 * 1024
"""Characters; those of real models have less than 40 000. Compiling one is not on the budget."""


class _Generation(Extension):
    """Hugging Face's {% generation %} blocks mark the assistant's words; here they are plain."""

    tags = {"generation"}  # noqa: RUF012  # Jinja's own way

    def parse(self, parser: Parser) -> list[Node]:
        """Return what is inside."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def render(template: str, messages: Sequence[Turn], *, bos: str = "", eos: str = "") -> str:
    """Render a conversation, up to where the assistant's next answer begins.

    The template runs in Jinja's immutable sandbox, on a budget of time and of memory, with the
    functions Hugging Face's templates expect. Raises TemplateError when it fails or refuses the
    conversation.
    """
    if len(template) > LONGEST_TEMPLATE:
        raise TemplateError(
            f"the model's chat template is too long ({len(template)} letters, at most"
            f" {LONGEST_TEMPLATE}): ask with --raw, which uses none"
        )
    environment = Sandbox(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
    )
    environment.globals["raise_exception"] = _refuse
    try:
        stream = environment.from_string(template).generate(
            messages=list(messages), add_generation_prompt=True, bos_token=bos, eos_token=eos
        )
        return _joined(stream)
    except TemplateError:
        raise
    except Exception as error:  # noqa: BLE001  # templates are not ours: anything may come
        why = " ".join(str(error).split())[:300] or type(error).__name__
        raise TemplateError(
            f"the model's chat template failed ({why}): ask with --raw, which uses none"
        ) from None


def _joined(stream: object) -> str:
    parts: list[str] = []
    size = 0
    for part in stream:  # type: ignore[attr-defined]
        parts.append(part)
        size += len(part)
        if size > LARGEST_TEXT:
            raise TemplateError("the model's chat template writes without end: ask with --raw")
    return "".join(parts)


def _refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
