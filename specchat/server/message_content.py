"""The content of messages as text: what clients of all APIs send in parts."""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any, TypeAlias

from specchat.engine.api import EngineFacts
from specchat.images.image import Image
from specchat.images.text_only import TEXT_ONLY, text_only
from specchat.server.api_errors import BAD_REQUEST, ApiError
from specchat.server.received_images import IMAGE_TYPES, bytes_of

Content: TypeAlias = str | list[Any]
"""A text, or a list of parts with images among them."""
TEXT_FIELDS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
"""The field with the text of a part, by the part's type."""
MOST_IMAGES = 100
"""Images of a request: each is decoded in a process of its own, which takes a moment."""


def text_of(content: Any, field: str) -> str:
    """Return the text of content: a text, null, or a list of parts.

    Raises ApiError, which names the `field`, for anything but text.
    """
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(_part_text(part, field) for part in _parts_of(content, field))


def content_of(content: Any, field: str) -> Content:
    """Return content as text, or as it is if there are images among its parts.

    Raises as `text_of` for anything but those.
    """
    if content is None or isinstance(content, str):
        return content or ""
    parts = _parts_of(content, field)
    if not any(map(_is_image, parts)):
        return text_of(parts, field)
    for part in parts:
        if not _is_image(part):
            _part_text(part, field)
    return parts


class ShownContent:
    """Makes text of the contents of a conversation's messages, with a mark for each image.

    These are collected in `images`. The `model` is named where it takes none.
    """

    def __init__(self, model: str, facts: EngineFacts, on_refused: Callable[[], object]) -> None:
        """Begin a conversation; `on_refused` is called for an image that cannot be taken."""
        self.images: list[Image] = []
        self._takes_images, self._on_refused = facts.takes_images, on_refused
        is_named = facts.images_off_reason == TEXT_ONLY
        self._why_not = text_only(model, advises=True) if is_named else facts.images_off_reason

    def text_of(self, content: Any, field: str) -> str:
        """Return the text of what was said. Raises ApiError for what the model cannot read."""
        if not isinstance(content, list):
            return text_of(content, field)
        return self._joined([self._shown(part, field) for part in content])

    def result_text(self, content: Any, field: str) -> str:
        """Return a tool's result as text.

        An agent sends results on its own account, so what cannot be read of them must not end the
        conversation: the model learns that there was something.
        """
        if content is None or isinstance(content, str):
            return content or ""
        parts = _parts_of(content, field)
        return self._joined([self._result_part(part, field) for part in parts])

    def _joined(self, texts: Sequence[str]) -> str:
        """Return texts a line each; as in llama-server, an image is not set apart by lines."""
        marks = {image.mark for image in self.images}
        groups = groupby(texts, marks.__contains__)
        return "".join("".join(each) if is_image else "\n".join(each) for is_image, each in groups)

    def _shown(self, part: Any, field: str) -> str:
        if not _is_image(part):
            return _part_text(part, field)
        if not self._takes_images:
            self._on_refused()
            message = f"{field}: content of type {_type_of(part)!r}: {self._why_not}"
            raise ApiError(BAD_REQUEST, message, field)
        if len(self.images) >= MOST_IMAGES:
            raise ApiError(BAD_REQUEST, f"{field}: at most {MOST_IMAGES} images", field)
        name = f"{field}: image {len(self.images) + 1}"
        self.images.append(Image(bytes_of(part, name, field), name))
        return str(self.images[-1])

    def _result_part(self, part: Any, field: str) -> str:
        kind = _type_of(part)
        if kind in TEXT_FIELDS:
            return _part_text(part, field)
        if not (self._takes_images and _is_image(part)):
            return f"[{kind:.40}: {TEXT_ONLY}]"
        try:
            return self._shown(part, field)
        except ApiError as error:
            return f"[{error.message.removeprefix(f'{field}: ')}]"


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


def _is_image(part: Any) -> bool:
    return _type_of(part) in IMAGE_TYPES


def _type_of(part: Any) -> str:
    """Return the type of a part of some content; without one it is text."""
    return str(part.get("type", "text")) if isinstance(part, Mapping) else type(part).__name__
