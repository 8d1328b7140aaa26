"""Projectors (mmproj): files beside a model that turn images into what it reads."""

import hashlib
from contextlib import suppress
from pathlib import Path

from specchat.errors import ModelWontLoad, SpecchatError
from specchat.gguf.header import Header
from specchat.gguf.purpose import purpose_of
from specchat.gguf.reader import read_header

MOST_CELLS = 1024
"""The most tokens of an image, where the projector leaves that open: large ones have thousands."""
AT_ONCE = {"gemma3": 256, "gemma4v": 280, "gemma4uv": 280, "deepseek4v": 384}
"""The most tokens of an image by the kind of projector, where all of them attend to each other and
must be read in one pass. Those of Gemma 3 always have that many, Gemma 4's by default."""
SAMPLE = 2**20


def read_projector(path: Path, model: Header) -> Header:
    """Return the header of a model's projector.

    Raises ModelNotFound, and ModelWontLoad for a file that is none, or another model's.
    """
    header = read_header(path)
    if reason := why_unfit(header, model.own("embedding_length")):
        raise ModelWontLoad(
            f"{path.name} cannot be the projector of {model.name}: {reason}; choose the mmproj file"
            " that comes with the model, or --projector none"
        )
    return header


def planned_projector(path: Path | None) -> Header | None:
    """Return the header of a projector to plan with; loading says what is wrong with one."""
    with suppress(SpecchatError, OSError):
        return read_header(path) if path else None
    return None


def kind_of_projector(header: Header) -> str:
    """Return llama.cpp's name of the kind of a projector for images."""
    return header.text("clip.vision.projector_type") or header.text("clip.projector_type")


def cells_at_once(header: Header) -> int:
    """Return how many tokens of an image must be read in one pass, 0 if they need not be."""
    return AT_ONCE.get(kind_of_projector(header), 0)


def most_cells(header: Header) -> int:
    """Return the most tokens that an image is to have."""
    return cells_at_once(header) or MOST_CELLS


def fingerprint(header: Header) -> bytes:
    """Return a hash by which images of this projector are told from those of others.

    Only parts of the file count: reading all of it may take seconds.
    """
    found = hashlib.sha256(str(header.file_bytes).encode())
    with header.path.open("rb") as file:
        for share in (0.0, 0.25, 0.5, 0.75, 1.0):
            file.seek(int(share * max(0, header.file_bytes - SAMPLE)))
            found.update(file.read(SAMPLE))
    return found.digest()


def why_unfit(header: Header, width: int) -> str | None:
    """Return why a file is no projector for a model that reads states of a width; None if it is."""
    if purpose_of(header) != "projector":
        return "it is not a projector"
    if header.metadata.get("clip.has_vision_encoder") is not True:
        return "it is not made for images"
    own = header.number("clip.vision.projection_dim")
    # files of older converters have the width of the encoder there
    if header.text("general.type") == "mmproj" and 0 < own != width > 0:
        return f"it makes states of width {own}, and the model reads {width}"
    return None
