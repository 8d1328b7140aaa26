"""The bytes of images that messages have as base64: no address is opened.

What fetches a client's addresses reaches what the client cannot: the machine's own network, and its
files.
"""

import re
from base64 import b64decode
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from specchat.server.api_errors import BAD_REQUEST, ApiError

IMAGE_TYPES = frozenset({"image_url", "input_image", "image"})
"""The types of OpenAI's APIs, and of Anthropic's."""
SCHEME = re.compile(r"\s*([A-Za-z][A-Za-z0-9+.-]{0,20}):")
"""What an address begins with; base64 has no colon."""
AT_ONCE = 2**20
"""Characters that are decoded in one go, during which no other thread runs; a multiple of four."""
TO_SEND = "send the image itself, as a data: URL in base64"


def bytes_of(part: Mapping[str, Any], name: str, field: str) -> bytes:
    """Return the bytes of an image, which errors call by its `name`.

    Raises ApiError, which names the `field`, for an address and for what is not base64.
    """
    text = _text_of(part)
    if not isinstance(text, str) or not text.strip():
        raise ApiError(BAD_REQUEST, f"{name} has no data: {TO_SEND}", field)
    if scheme := SCHEME.match(text):
        if scheme[1].lower() != "data":
            message = f"{name} is at an address ({scheme[1]}:), and none is opened here: {TO_SEND}"
            raise ApiError(BAD_REQUEST, message, field)
        head, comma, text = text.partition(",")
        if not comma or not head.rstrip().lower().endswith(";base64"):
            raise ApiError(BAD_REQUEST, f"{name} is not in base64: {TO_SEND}", field)
    for lines in (text, "".join(text.split())):
        with suppress(ValueError):
            return _decoded(lines)
    raise ApiError(BAD_REQUEST, f"{name} is not valid base64", field)


def _text_of(part: Mapping[str, Any]) -> Any:
    """Return the base64 or the address of a part, in the form of any API."""
    if part["type"] == "image":
        source = part.get("source")
        if not isinstance(source, Mapping):
            return None
        return source.get("data") if source.get("type") == "base64" else source.get("url")
    given = part.get("image_url")
    return given.get("url") if isinstance(given, Mapping) else given


def _decoded(text: str) -> bytes:
    """Return the bytes of base64 in one line. Raises ValueError."""
    parts = range(0, len(text), AT_ONCE)
    return b"".join([b64decode(text[at : at + AT_ONCE], validate=True) for at in parts])
