"""Images in a conversation that a server answers: parts of its messages, as data: URLs."""

from collections.abc import Mapping, Sequence
from typing import Any

from specchat.errors import InvalidOption
from specchat.images.image import MARKS, Image, data_url, parted, type_of
from specchat.images.picture import READ

MOST_BYTES = 20 * 2**20
"""Bytes of all images of a request: a third more in base64, and servers limit what they take."""
IMAGE_CHARACTERS = 1500
"""What an image counts beside text, where only characters are known."""


def require_sendable(images: Sequence[Image], to: str) -> None:
    """Raise InvalidOption for images that are too large together to be sent to a server."""
    size = sum(image.num_bytes for image in images)
    if size > MOST_BYTES:
        raise InvalidOption(
            f"the images have {size / 2**20:.0f} MiB together, and at most {MOST_BYTES >> 20} MiB"
            f" are sent to {to}: make them smaller"
        )


def with_parts(text: str, images: Sequence[Image]) -> str | list[dict[str, Any]]:
    """Return a message's text in parts if there are images in it. Raises InvalidOption."""
    parts: list[dict[str, Any]] = []
    for part in parted(text, images):
        if isinstance(part, Image):
            data = part.data  # read from the history each time
            if not type_of(data):
                raise InvalidOption(f"{part.name} is not an image specchat reads ({READ})")
            parts.append({"type": "image_url", "image_url": {"url": data_url(data)}})
        elif part:
            parts.append({"type": "text", "text": part})
    has_images = any("image_url" in part for part in parts)
    return parts if has_images else text


def num_characters(messages: Sequence[Mapping[str, Any]]) -> int:
    """Return how long messages are, with what stands for the marks and for their roles."""
    return sum(_length(message.get("content", "")) + 8 for message in messages)


def _length(content: Any) -> int:
    if isinstance(content, list):
        return sum(len(part["text"]) if "text" in part else IMAGE_CHARACTERS for part in content)
    return len(MARKS.sub("." * IMAGE_CHARACTERS, str(content)))
