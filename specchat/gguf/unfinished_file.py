"""Names GGUF files that are not whole: unfinished downloads, and pieces of a divided file."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the chat's first frame needs names alone
    from specchat.gguf.header import Header

AGAIN = "download it again"
RESUMED = (".specchat-part", ".incomplete")
"""Endings of specchat's own downloads and those of huggingface_hub."""
OTHERS = (
    *(".crdownload", ".part", ".partial", ".download", ".opdownload", ".filepart"),
    *(".aria2", ".aria2__temp", ".!qb", ".tmp"),
)
"""Endings of browsers and other programs, for the file or a record beside it."""
PIECE = re.compile(
    r"(?P<whole>.*\.gguf)[._-]?"
    r"(?:(?:part|split|chunk|piece)[._-]?(?:\d+(?:[._-]?of[._-]?\d+)?|[a-z]{1,2})|\d{2,3}|a[a-z])",
    re.IGNORECASE | re.DOTALL,
)
"""Names of the pieces that `split` and similar programs make, unlike llama.cpp's own tool."""
LEAST_CHECKED = 2**20
"""In bytes: smaller files arrive at once."""
LAST_SHARE, NUM_SAMPLES, SAMPLE_BYTES = 16, 16, 512


def describe_unfinished(path: Path, detail: str = "") -> str:
    """Return the rest of a sentence about an unfinished download, which begins with its path."""
    named = path.name.lower()
    ending = next((suffix for suffix in (*RESUMED, *OTHERS) if named.endswith(suffix)), "")
    # with os.path, a name that is too long is one that does not exist
    beside = next((other for other in OTHERS if os.path.exists(f"{path}{other}")), "")
    advice = AGAIN
    if ending in RESUMED:
        advice = "pull the model again, which resumes it"
    elif ending or beside:
        advice = f"let the program that fetches it finish, or {AGAIN}"
    if beside:
        detail = f"{detail}, with {path.name}{beside} beside it".removeprefix(", ")
    what = "is an unfinished download" + f" ({detail})" * bool(detail)
    return f"{what}: {advice}"


def describe_cut(path: Path, num_needed: int, num_bytes: int) -> str:
    """Return the rest of a sentence about a file whose end is missing.

    `num_needed` is 0 if the header itself is cut.
    """
    if piece := describe_piece(path):
        return piece
    needed = f"needs {num_needed:,} bytes, has {num_bytes:,}"
    return describe_unfinished(
        path, needed if num_needed else f"ends within its header, after {num_bytes:,} bytes"
    )


def describe_piece(path: Path) -> str:
    """Return the rest of a sentence about a piece of a divided file, empty for other names."""
    piece = PIECE.fullmatch(path.name)
    if piece is None:
        return ""
    whole = Path(piece["whole"]).name
    return f"is one piece of a divided file: join all pieces in order, cat PIECES > {whole}"


def why_unwritten(header: Header) -> str | None:
    """Return why the end of a model's file was never written, None if it was.

    Some programs reserve the whole size first, and what is not downloaded yet reads as zeros. Where
    the last tensor has begun, its zeros are its own.
    """
    offset = max((tensor.offset for tensor in header.tensors.values()), default=0)
    last = [header.data_position + offset] if header.data_position else []
    for path in header.parts:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            first, step = size - size // LAST_SHARE, size // LAST_SHARE // NUM_SAMPLES
            offsets = [first + number * step for number in range(1, NUM_SAMPLES)]
            for offset in (size - SAMPLE_BYTES, *last, *offsets):
                file.seek(max(0, offset))
                if size < LEAST_CHECKED or any(file.read(SAMPLE_BYTES)):
                    break
            else:
                return f"{path} {describe_unfinished(path, 'its end is empty')}"
    return None
