"""Recognizes files that are not GGUF by their first bytes, and advises what to do."""

import json
import struct
from pathlib import Path
from typing import BinaryIO

AGAIN = "download it again"
LOOK = "look for a GGUF version of the model"
OR_PULL = "or `specchat pull`"
SAMPLED_BYTES = 2**16
LONGEST_TEXT = 2**20
"""In bytes; web pages and messages saved in place of a model are not larger."""
SHOWN_TEXT = 60
KINDS: tuple[tuple[tuple[bytes, ...], str], ...] = (
    (
        (b"version https://git-lfs.github.com/spec/", b"version https://hawser.github.com/spec/"),
        f"is a Git LFS pointer, not the model: `git lfs pull` fetches that, {OR_PULL}",
    ),
    ((b"# xet version",), f"is a Xet pointer, not the model: `git xet` fetches that, {OR_PULL}"),
    (
        (b"lmgg", b"fmgg", b"tjgg", b"algg"),
        f"is in a GGML format from before GGUF, which llama.cpp no longer reads: {LOOK}",
    ),
    ((b"MZqFpD",), f"is a llamafile, a program with a model inside: {LOOK} itself"),
    ((b"\x1f\x8b",), "is compressed with gzip: unpack it"),
    ((b"BZh",), "is compressed with bzip2: unpack it"),
    ((b"\xfd7zXZ\0",), "is compressed with xz: unpack it"),
    ((b"\x28\xb5\x2f\xfd",), "is compressed with zstd: unpack it"),
    ((b"7z\xbc\xaf\x27\x1c",), "is a 7z archive: unpack it"),
    ((b"Rar!\x1a\x07",), "is a RAR archive: unpack it"),
    (
        tuple(b"\x80%c" % protocol for protocol in range(2, 6)),
        f"is a PyTorch or pickle file: {LOOK}",
    ),
    ((b"\x89HDF\r\n\x1a\n",), f"is an HDF5 file: {LOOK}"),
    ((b"\x93NUMPY",), f"is a NumPy array: {LOOK}"),
    ((b"%PDF-",), f"is a PDF document: {LOOK}"),
    ((b"\x89PNG", b"\xff\xd8\xff", b"RIFF"), f"is an image, audio or video file: {LOOK}"),
)
"""Kinds of files by magic bytes, worded as the rest of a sentence that begins with the path."""
PAGES = (b"<!doctype html", b"<html", b"<head", b"<body", b"<script", b"<?xml", b"<!--")
NEXT_VERSIONS = 16
"""Versions below this may be released one day; higher numbers mean damage."""
ZIP, TAR, TAR_OFFSET = b"PK\x03\x04", b"ustar", 257
UNKNOWN = f"is not a GGUF file: {LOOK}"


def describe_version(path: Path, version: int) -> str:
    """Return why a GGUF file of a version that llama.cpp does not read is refused."""
    if version and not version & 0xFFFF:
        return f"{path} is a GGUF file for big-endian machines: look for the little-endian version"
    if version == 1:
        why = "which llama.cpp no longer reads: look for a newer conversion"
        return f"{path} is a GGUF version 1 file, {why}"
    if version < NEXT_VERSIONS:
        advice = "update specchat, or look for an older conversion"
        return f"{path} is a GGUF version {version} file: {advice}"
    return f"{path} is damaged (unsupported GGUF version {version}): {AGAIN}"


def describe(path: Path, file: BinaryIO) -> str:
    """Return what kind of file an open file is if not GGUF, with advice."""
    file.seek(0)
    beginning, size = file.read(SAMPLED_BYTES), path.stat().st_size
    return f"{path} {_kind(beginning, size)}"


def describe_folder(path: Path) -> str:
    """Return a message that says what to name instead of a folder."""
    names = sorted(each.name for each in path.iterdir())
    if any(name.lower().endswith(".gguf") for name in names):
        return f"{path} is a folder: name a .gguf file in it"
    if any(name.endswith((".safetensors", ".bin", ".pth")) for name in names):
        return f"{path} is a folder with a model in another format: {LOOK}"
    return f"{path} is a folder without a .gguf file: name a .gguf file"


def _kind(beginning: bytes, size: int) -> str:
    """Return the rest of a sentence that begins with the path."""
    if not beginning:
        return f"is empty: {AGAIN}"
    if not any(beginning) or (size < len("GGUF") and b"GGUF".startswith(beginning)):
        return f"is an unfinished download: {AGAIN}"
    for magics, what in KINDS:
        if beginning.startswith(magics):
            return what
    if beginning.startswith(ZIP):
        is_checkpoint = b"data.pkl" in beginning or b".data/serialization_id" in beginning
        return f"is a PyTorch file: {LOOK}" if is_checkpoint else "is a zip archive: unpack it"
    if beginning[TAR_OFFSET:].startswith(TAR):
        return "is a tar archive: unpack it"
    if _is_safetensors(beginning, size):
        return (
            f"is a safetensors file: {LOOK}, or convert it with llama.cpp's convert_hf_to_gguf.py"
        )
    return _kind_of_text(beginning, size) or UNKNOWN


def _is_safetensors(beginning: bytes, size: int) -> bool:
    """Whether a file begins with the length of a JSON object and its opening brace."""
    if len(beginning) < 9:
        return False
    (length,) = struct.unpack("<Q", beginning[:8])
    return 2 <= length <= size - 8 and beginning[8:9] == b"{"


def _kind_of_text(beginning: bytes, size: int) -> str:
    """Return the rest of a sentence for a text file, empty for others.

    Servers send pages and messages in place of a file.
    """
    text = beginning.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text[:SHOWN_TEXT].lower().startswith(PAGES):
        return f"is a web page, not the model: use the page's download link, {OR_PULL}"
    try:
        words = beginning.decode("utf-8-sig")
    except UnicodeDecodeError:
        return ""
    if size > LONGEST_TEXT or not all(each.isprintable() or each.isspace() for each in words):
        return ""
    shown = ascii(" ".join(words.split())[:SHOWN_TEXT])
    what = "JSON" if _is_json(words) else "text"
    return f"is a {what} file that begins with {shown}, not a GGUF file: {AGAIN}, or {LOOK}"


def _is_json(words: str) -> bool:
    try:
        return isinstance(json.loads(words), dict | list)
    except (ValueError, RecursionError):
        return False
