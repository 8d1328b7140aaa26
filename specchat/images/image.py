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


def known_image(data: bytes, name: str, mark: str, digest: bytes) -> Image:
    """Return an image with a mark and a digest that it had before."""
    image = object.__new__(Image)
    values = {"data": data, "name": name, "mark": mark, "digest": digest}
    for attribute, value in values.items():
        object.__setattr__(image, attribute, value)
    return image


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
