"""The content of messages as text: what clients of all APIs send in parts."""

from collections.abc import Mapping
from typing import Any

from specchat.server.api_errors import BAD_REQUEST, ApiError

TEXT_FIELDS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
"""The field with the text of a part, by the part's type."""


def text_of(content: Any, field: str) -> str:
    """Return the text of content: a text, null, or a list of parts.

    Raises ApiError, which names the `field`, for anything but text.
    """
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(_part_text(part, field) for part in _parts_of(content, field))


def result_text(content: Any, field: str) -> str:
    """Return a tool's result as text.

    An agent sends results on its own account, so an image among them must not end the conversation:
    the model learns that there was one.
    """
    if content is None or isinstance(content, str):
        return content or ""
    parts = _parts_of(content, field)
    return "\n".join(
        _part_text(part, field)
        if _type_of(part) in TEXT_FIELDS
        else f"[{_type_of(part):.40}: this model reads text only]"
        for part in parts
    )


def _parts_of(content: Any, field: str) -> list[Any]:
    if not isinstance(content, list):
        raise ApiError(BAD_REQUEST, f"{field}: content must be text or a list of parts", field)
    return content


def _part_text(part: Any, field: str) -> str:
    kind = _type_of(part)
    text = part.get(TEXT_FIELDS[kind]) if kind in TEXT_FIELDS else None
    if not isinstance(text, str):
        message = f"{field}: content of type {kind!r:.40} is not supported: send text"
        raise ApiError(BAD_REQUEST, message, field)
    return text


def _type_of(part: Any) -> str:
    """Return the type of a part of some content; without one it is text."""
    return str(part.get("type", "text")) if isinstance(part, Mapping) else type(part).__name__
