"""Rendering a model's own chat template, which comes with the file and is not trusted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, NoReturn, TypedDict

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from specchat.errors import TemplateError

__all__ = ["Message", "render"]

LARGEST_RENDERING = 4 * 1024 * 1024
"""Characters a rendered conversation may have; a template that goes on is out to fill memory."""


class Message(TypedDict):
    """One message of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


def render(template: str, messages: Sequence[Message], *, bos: str = "", eos: str = "") -> str:
    """Render a conversation, up to where the assistant's next answer begins.

    The template runs in Jinja's immutable sandbox, with the functions Hugging Face's templates
    expect. Raises TemplateError when it fails or refuses the conversation.
    """
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
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
