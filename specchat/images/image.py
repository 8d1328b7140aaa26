"""An image as a request has it: the bytes of a file, and the mark where it stands in a text."""

import hashlib
import re
import secrets
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from specchat.errors import EngineFailed

BEGINNINGS = {
    "image/png": re.compile(rb"\x89PNG"),
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/gif": re.compile(rb"GIF8[79]a"),
    "image/webp": re.compile(rb"RIFF.{4}WEBP", re.DOTALL),
}
"""How files of each type begin."""
LONGEST_BEGINNING = 12
MARK = "zqimage{}qz"
"""ASCII letters and digits, so that it survives chat templates; random, so that only whoever has
the image can write it."""
MARKS = re.compile(MARK.format("[0-9a-f]{32}"))


def new_mark() -> str:
    """Return a mark that nobody else can know."""
    return MARK.format(secrets.token_hex(16))


@dataclass(frozen=True, slots=True, eq=False)
class Image:
    """A picture in a file's format: PNG, JPEG, WebP or GIF, of which the first frame counts.

    It is written into a message as text, `f"{image}What is this?"`, and given to the engine beside
    the messages. Errors call it by its `name`. The `digest` is the SHA-256 of its bytes.
    """

    data: bytes = field(repr=False)
    name: str = "the image"
    mark: str = field(default_factory=new_mark)
    digest: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", hashlib.sha256(self.data).digest())

    @property
    def num_bytes(self) -> int:
        """How many bytes it has."""
        return len(self.data)

    def __eq__(self, other: object) -> bool:
        """Whether the other has the same bytes and name, wherever they are kept."""
        return isinstance(other, Image) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def __str__(self) -> str:
        return self.mark

    @property
    def _identity(self) -> tuple[bytes, str]:
        return self.digest, self.name


class DistantImage(Image):
    """An image whose bytes are elsewhere: `read` returns those of a digest, each time anew.

    Another process gets neither its bytes nor a way to read them.
    """

    __slots__ = ("_num_bytes", "_read")
    _num_bytes: int
    _read: Callable[[bytes], bytes]

    def __init__(
        self,
        read: Callable[[bytes], bytes],
        name: str,
        digest: bytes,
        num_bytes: int,
        mark: str = "",
    ) -> None:
        values = {"name": name, "mark": mark or new_mark(), "digest": digest}
        for attribute, value in {**values, "_read": read, "_num_bytes": num_bytes}.items():
            object.__setattr__(self, attribute, value)

    @property
    def data(self) -> bytes:
        """Its bytes. Raises what reading them does."""
        return self._read(self.digest)

    @property
    def num_bytes(self) -> int:
        """How many bytes it has."""
        return self._num_bytes

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (_unread, self.name, self.digest, self.num_bytes, self.mark)


def distant(image: Image, read: Callable[[bytes], bytes] | None = None) -> Image:
    """Return an image without its bytes, and with a way to read them if there is one."""
    return DistantImage(read or _unread, image.name, image.digest, image.num_bytes, image.mark)


def _unread(digest: bytes) -> bytes:
    raise EngineFailed(f"the bytes of an image ({digest.hex()[:8]}) are in another process")


def type_of(content: bytes) -> str:
    """Return the media type that bytes begin as, "" if they begin as no image."""
    return next((name for name, begin in BEGINNINGS.items() if begin.match(content)), "")


def data_url(data: bytes) -> str:
    """Return the bytes of an image as a URL."""
    return f"data:{type_of(data)};base64,{b64encode(data).decode()}"


def with_images(text: str, images: Sequence[Image]) -> str:
    """Return a question that begins with images, as models are trained."""
    return "".join(map(str, images)) + text


def parted(text: str, images: Sequence[Image]) -> Iterator[str | Image]:
    """Yield the parts of a text, of which the first, the last and every other one are text."""
    by_mark = {image.mark: image for image in images}
    begin = 0
    for found in MARKS.finditer(text) if by_mark else ():
        if image := by_mark.get(found[0]):
            yield text[begin : found.start()]
            yield image
            begin = found.end()
    yield text[begin:]
