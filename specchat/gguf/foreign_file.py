"""Recognizes files that are not GGUF by their first bytes, and advises what to do."""

import codecs
import json
import re
import struct
from pathlib import Path
from typing import Any, BinaryIO

from specchat.gguf.unfinished_file import AGAIN, describe_piece, describe_unfinished
from specchat.wording import size_text

LOOK = "look for a GGUF version of the model"
OR_PULL = "or `specchat pull`"
OLD = "in a GGML format from before GGUF, which llama.cpp no longer reads"
SAMPLED_BYTES = 2**16
LONGEST_TEXT = 2**20
"""In bytes; web pages and messages saved in place of a model are not larger."""
SHOWN_TEXT = 60
KINDS: tuple[tuple[tuple[bytes, ...], str], ...] = (
    ((b"# xet version",), f"is a Xet pointer, not the model: `git xet` fetches that, {OR_PULL}"),
    ((b"algg",), f"is a LoRA adapter {OLD}: {LOOK} it was made for"),
    ((b"lmgg", b"fmgg", b"tjgg"), f"is {OLD}: {LOOK}"),
    ((b"nsgg", b"qsgg"), "is a saved session of llama.cpp, not a model: choose its model"),
    ((b"MZqFpD",), f"is a llamafile, a program with a model inside: {LOOK} itself"),
    ((b"\x1f\x8b",), "is compressed with gzip: unpack it with `gunzip`"),
    ((b"BZh",), "is compressed with bzip2: unpack it with `bunzip2`"),
    ((b"\xfd7zXZ\0",), "is compressed with xz: unpack it with `unxz`"),
    ((b"\x28\xb5\x2f\xfd",), "is compressed with zstd: unpack it with `unzstd`"),
    ((b"7z\xbc\xaf\x27\x1c",), "is a 7z archive: unpack it with `7z x`"),
    ((b"Rar!\x1a\x07",), "is a RAR archive: unpack it"),
    (
        tuple(b"\x80%c" % protocol for protocol in range(2, 6)),
        f"is a PyTorch or pickle file: {LOOK}",
    ),
    ((b"\x89HDF\r\n\x1a\n",), f"is an HDF5 file: {LOOK}"),
    ((b"\x93NUMPY",), f"is a NumPy array: {LOOK}"),
    ((b"%PDF-",), f"is a PDF document: {LOOK}"),
    ((b"\x89PNG", b"\xff\xd8\xff", b"RIFF"), f"is an image, audio or video file: {LOOK}"),
    ((b"#!",), f"is a script, not a model: {LOOK}"),
)
"""Kinds of files by magic bytes, worded as the rest of a sentence that begins with the path."""
PROGRAMS = (
    *(b"\x7fELF", b"MZ", b"\xfe\xed\xfa\xce", b"\xfe\xed\xfa\xcf"),
    *(b"\xce\xfa\xed\xfe", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe"),
)
POINTERS = (b"version https://git-lfs.github.com/spec/", b"version https://hawser.github.com/spec/")
POINTER_SIZE = re.compile(rb"^size (\d{1,18})\r?$", re.MULTILINE)
PAGES = (b"<!doctype html", b"<html", b"<head", b"<body", b"<script", b"<!--")
XML, PAGE_INSIDE = b"<?xml", re.compile(rb"<(?:!doctype )?html", re.IGNORECASE)
NEXT_VERSIONS = 16
"""Versions below this may be released one day; higher numbers mean damage."""
ZIP, TAR, TAR_OFFSET = b"PK\x03\x04", b"ustar", 257
TFLITE, TFLITE_OFFSET = b"TFL3", 4
ONNX_START = re.compile(rb"\x08[\x01-\x14]\x12([\x01-\x40])([\x20-\x7e]+)")
"""The fields of its format's version and of the program that wrote it, in protobuf."""
MATRIX_START = re.compile(rb"[\0-\xff]{3}\0[\x01-\x7f]\0{3}(blk\.|output|token_embd)")
"""The number of entries, and the length and beginning of the first tensor's name."""
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
    file.seek(max(0, size - SAMPLED_BYTES))
    return f"{path} {_kind(path, beginning, file.read(SAMPLED_BYTES), size)}"


def describe_folder(path: Path) -> str:
    """Return a message that says what to name instead of a folder."""
    names = sorted(entry.name for entry in path.iterdir())
    if any(name.lower().endswith(".gguf") for name in names):
        return f"{path} is a folder: name a .gguf file in it"
    if any(name.endswith((".safetensors", ".bin", ".pth")) for name in names):
        return f"{path} is a folder with a model in another format: {LOOK}"
    return f"{path} is a folder without a .gguf file: name a .gguf file"


def _kind(path: Path, beginning: bytes, end: bytes, size: int) -> str:
    """Return the rest of a sentence that begins with the path."""
    is_begun = size < len("GGUF") and b"GGUF".startswith(beginning)
    if not any(beginning) or is_begun:
        unfinished = describe_unfinished(path, "" if is_begun else "it begins with zeros")
        is_empty = not beginning and unfinished.endswith(f": {AGAIN}")
        return f"is empty: {AGAIN}" if is_empty else unfinished
    text = beginning.removeprefix(codecs.BOM_UTF8)
    if text.startswith(POINTERS):
        stated = POINTER_SIZE.search(beginning[:LONGEST_TEXT])
        of_size = f" of {size_text(int(stated[1]))}" if stated else ""
        what = f"is a Git LFS pointer, not the file{of_size} itself"
        return f"{what}: `git lfs pull` fetches that, {OR_PULL}"
    for magics, what in KINDS:
        if text.startswith(magics):
            return what
    return (
        _kind_of_archive(beginning, end)
        or _kind_of_model(path, beginning, size)
        or describe_piece(path)
        or _kind_of_text(beginning, size)
        or UNKNOWN
    )


def _kind_of_archive(beginning: bytes, end: bytes) -> str:
    """Return the rest of a sentence for an archive or a program, empty for others.

    Archives name what is in them at their end.
    """
    if beginning.startswith(PROGRAMS):
        is_llamafile = b"PK\x05\x06" in end and b".gguf" in end
        what = "llamafile, a program with a model inside" if is_llamafile else "program"
        return f"is a {what}: {LOOK} itself"
    if beginning.startswith(ZIP):
        marks = (b"data.pkl", b".data/serialization_id")
        is_checkpoint = any(mark in part for mark in marks for part in (beginning, end))
        return f"is a PyTorch file: {LOOK}" if is_checkpoint else "is a zip archive: unpack it"
    if beginning[TAR_OFFSET:].startswith(TAR):
        return "is a tar archive: unpack it with `tar -xf`"
    return ""


def _kind_of_model(path: Path, beginning: bytes, size: int) -> str:
    """Return the rest of a sentence for what other programs read, empty for others."""
    if _is_safetensors(beginning, size):
        return (
            f"is a safetensors file: {LOOK}, or convert it with llama.cpp's convert_hf_to_gguf.py"
        )
    writer = ONNX_START.match(beginning)
    if (writer and len(writer[2]) >= writer[1][0]) or path.suffix.lower() == ".onnx":
        return f"is an ONNX file: {LOOK}"
    if beginning[TFLITE_OFFSET:].startswith(TFLITE):
        return f"is a TensorFlow Lite file: {LOOK}"
    if MATRIX_START.match(beginning):
        return "is an importance matrix, used for quantization: choose a chat model"
    return ""


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
    if beginning.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        beginning = beginning.decode("utf-16", "replace").encode()
    text = beginning.removeprefix(codecs.BOM_UTF8).lstrip()
    is_xml = text.startswith(XML)
    is_page = PAGE_INSIDE.search(text) if is_xml else text[:SHOWN_TEXT].lower().startswith(PAGES)
    if is_page:
        return f"is a web page, not the model: use the page's download link, {OR_PULL}"
    is_cut = size > SAMPLED_BYTES  # perhaps within a character
    try:
        sample = codecs.getincrementaldecoder("utf-8-sig")().decode(beginning, not is_cut)
    except UnicodeDecodeError:
        return ""
    if size > LONGEST_TEXT or not all(
        letter.isprintable() or letter.isspace() for letter in sample
    ):
        return ""
    parsed = _json_of(sample)
    if isinstance(parsed, dict) and "weight_map" in parsed:
        return f"is the index of a safetensors model: {LOOK}"
    shown = repr(" ".join(sample.split())[:SHOWN_TEXT])
    what = "an XML" if is_xml else "a text" if parsed is None else "a JSON"
    return f"is {what} file that begins with {shown}, not a GGUF file: {AGAIN}, or {LOOK}"


def _json_of(text: str) -> dict[str, Any] | list[Any] | None:
    """Return the object or array that a text is, None for other texts."""
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict | list) else None
