"""An image as a request has it: the bytes of a file, and the mark where it stands in a text."""

import hashlib
import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

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


def _new_mark() -> str:
    return MARK.format(secrets.token_hex(16))


@dataclass(frozen=True, slots=True)
class Image:
    """A picture in a file's format: PNG, JPEG, WebP or GIF, of which the first frame counts.

    It is written into a message as text, `f"{image}What is this?"`, and given to the engine beside
    the messages. Errors call it by its `name`.
    """

    data: bytes = field(repr=False)
    name: str = "the image"
    mark: str = field(default_factory=_new_mark, compare=False)
    digest: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", hashlib.sha256(self.data).digest())

    def __str__(self) -> str:
        return self.mark


def type_of(content: bytes) -> str:
    """Return the media type that bytes begin as, "" if they begin as no image."""
    return next((name for name, begin in BEGINNINGS.items() if begin.match(content)), "")


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
