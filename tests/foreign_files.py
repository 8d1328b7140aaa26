"""Files that are not what their names claim, written for tests, with the words that name each."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from scripts.support.tiny_gguf import CHAT_TEMPLATE, write_hollow, write_model
from scripts.support.tiny_gguf.shapes import Shape

POINTER = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
    b"size 1234567890\n"
)
SAFETENSORS = struct.pack("<Q", 58) + b'{"a":{"dtype":"F32","shape":[25],"data_offsets":[0,100]}} '
ONNX = b"\x08\x08\x12\x07pytorch\x1a\x052.4.0:\xb0\x02\n\x30" + bytes(300)
ELF = b"\x7fELF\x02\x01\x01" + bytes(200)
OLD_IMATRIX = struct.pack("<ii", 12, 18) + b"blk.0.ffn_down.weight"[:18] + bytes(400)
PAGE = b"<!DOCTYPE html>\n<html lang=en><head><title>Sign in to the network</title></head></html>"


@dataclass(frozen=True, slots=True)
class Foreign:
    """A file to write, and what messages say of it: the text after its path, or part of it."""

    write: Callable[[Path], object]
    says: str
    name: str = "model.gguf"
    """The name of the file that is chosen; others may be beside it."""


def of_bytes(content: bytes, says: str, name: str = "model.gguf") -> Foreign:
    """Return a file with this content."""
    return Foreign(lambda path: path.write_bytes(content), says, name)


def of_header(says: str, architecture: str | None, **keys: Any) -> Foreign:
    """Return a GGUF file with such keys, where two underscores stand for a dot, and a tensor."""

    def write(path: Path) -> None:
        write_header(path, architecture, {key.replace("__", "."): keys[key] for key in keys})

    return Foreign(write, says)


def write_header(
    path: Path,
    architecture: str | None,
    keys: dict[str, Any],
    tensors: tuple[str, ...] = ("a.weight",),
) -> None:
    """Write a GGUF file with such keys and tensors of 32 values; None is no architecture."""
    writer = gguf.GGUFWriter(path, architecture or "none")
    if architecture is None:
        del writer.kv_data[0]["general.architecture"]
    for key, value in keys.items():
        writer.add_string(key, value) if isinstance(value, str) else writer.add_uint32(key, value)
    for name in tensors:
        writer.add_tensor(name, np.ones(32, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def model_bytes(path: Path, seed: int = 0) -> bytes:
    """Return the bytes of a tiny model."""
    content = write_model(path, "llama", num_layers=1, seed=seed).read_bytes()
    path.unlink()
    return content


def write_parts(folder: Path, stem: str = "m", count: int = 3, seed: float = 0) -> list[Path]:
    """Write a model in several parts, with two tensors each."""
    writer = gguf.GGUFWriter(folder / f"{stem}.gguf", "llama", split_max_tensors=2)
    writer.add_name(f"tiny {seed}")
    writer.add_block_count(count)
    writer.add_string("tokenizer.chat_template", CHAT_TEMPLATE)
    for number in range(2 * count):
        writer.add_tensor(f"blk.{number}", np.full(32, seed, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sorted(folder.glob(f"{stem}-0*.gguf"))


def cut(share: float, bytes_off: int = 0) -> Callable[[Path], None]:
    """Return what writes a model without its end."""

    def write(path: Path) -> None:
        content = model_bytes(path)
        path.write_bytes(content[: int(len(content) * share) - bytes_off])

    return write


def packed(pack: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    """Return what writes a model that was packed."""
    return lambda path: put(path, pack(model_bytes(path)))


def put(path: Path, content: bytes) -> None:
    """Write a file."""
    path.write_bytes(content)


def zipped(*members: str, before: bytes = b"") -> Callable[[bytes], bytes]:
    """Return what packs a file into a zip archive under these names, after other bytes."""

    def pack(content: bytes) -> bytes:
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            for member in members:
                archive.writestr(member, content)
        return before + file.getvalue()

    return pack


def tarred(content: bytes) -> bytes:
    """Pack a file into a tar archive."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        about = tarfile.TarInfo("model.gguf")
        about.size = len(content)
        archive.addfile(about, io.BytesIO(content))
    return file.getvalue()


def with_version(number: int, order: str = "<") -> Callable[[Path], None]:
    """Return what writes a model of another version or byte order."""
    return packed(lambda content: b"GGUF" + struct.pack(f"{order}I", number) + content[8:])


def unwritten_end(path: Path) -> None:
    """Write a model whose file has its full size, but whose last three quarters never came."""
    shape = Shape(320, num_layers=8, width=256, feed_forward=512, head_width=32, state=16)
    write_hollow(path, "llama", shape)
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\0")


def sparse(path: Path) -> None:
    """Reserve the place of a file without writing anything."""
    path.touch()
    os.truncate(path, 2**32)


def first_part(
    change: Callable[[list[Path]], object] = lambda _: None, number: int = 0
) -> Callable[[Path], None]:
    """Return what writes a model in three parts with a change, and moves the rest beside it."""

    def write(path: Path) -> None:
        parts = write_parts(path.parent)
        change(parts)
        assert path.name == f"m-{number + 1:05}-of-00003.gguf" or path.exists()

    return write


def drop(parts: list[Path]) -> None:
    """Delete the last part."""
    parts[-1].unlink()


def drop_others(parts: list[Path]) -> None:
    """Delete all parts but the first."""
    for part in parts[1:]:
        part.unlink()


def swap(parts: list[Path]) -> None:
    """Exchange the second and the third part."""
    second, third = parts[1].read_bytes(), parts[2].read_bytes()
    parts[1].write_bytes(third)
    parts[2].write_bytes(second)


def mix(parts: list[Path]) -> None:
    """Put a part of another model in the place of the second, one with other tensors."""
    folder = parts[0].parent / "other"
    folder.mkdir()
    writer = gguf.GGUFWriter(folder / "m.gguf", "llama", split_max_tensors=1)
    for number in range(3):
        writer.add_tensor(f"other.{number}", np.ones(32, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    parts[1].write_bytes(sorted(folder.glob("*.gguf"))[1].read_bytes())


def repeat(parts: list[Path]) -> None:
    """Write the second part with a tensor of the first."""
    write_header(
        parts[1], None, {"split.no": 1, "split.count": 3, "split.tensors.count": 6}, ("blk.0", "x")
    )


def recount(parts: list[Path]) -> None:
    """Rename the parts as if they were four."""
    for number, part in enumerate(parts, 1):
        part.rename(part.with_name(f"m-{number:05}-of-00004.gguf"))


PARTS = "m-00001-of-00003.gguf"
FILES: dict[str, Foreign] = {
    # what servers and programs for versions leave in place of a file
    "LFS pointer": of_bytes(POINTER, "LFS pointer"),
    "LFS pointer of Windows": of_bytes(POINTER.replace(b"\n", b"\r\n"), "LFS pointer"),
    "LFS pointer after a mark": of_bytes(b"\xef\xbb\xbf" + POINTER, "of 1.23 GB itself"),
    "LFS pointer without size": of_bytes(POINTER[:40], "LFS pointer"),
    "Xet pointer": of_bytes(b"# xet version 0\nfilesize = 1234567\n", "Xet pointer"),
    "web page": of_bytes(PAGE, "web page"),
    "web page after a mark": of_bytes(b"\xef\xbb\xbf" + PAGE, "web page"),
    "web page after blanks": of_bytes(b"\n\t  \r\n" + PAGE, "web page"),
    "web page in UTF-16": of_bytes(PAGE.decode().encode("utf-16"), "web page"),
    "web page after a comment": of_bytes(b"<!-- x -->" + PAGE, "web page"),
    "page without doctype": of_bytes(b"<HTML><BODY>403 Forbidden</BODY></HTML>", "web page"),
    "XML error": of_bytes(b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>', "XML"),
    "JSON error": of_bytes(b'{"error": "Repository not found"}', "JSON"),
    "JSON error in lines": of_bytes(b'\n {\n "error":\n  "Invalid token"\n}\n', "JSON"),
    "deep JSON": of_bytes(b"[" * 100_000, "is a text file that begins with"),
    "text cut in a character": of_bytes(b"a" + "é".encode() * 40_000, "a text file that begins"),
    "broken UTF-8": of_bytes("aé".encode()[:-1], "is not a GGUF file"),
    "text error": of_bytes(b"Entry not found", "text"),
    "empty": of_bytes(b"", "empty"),
    "zeros": of_bytes(bytes(100_000), "unfinished"),
    "sparse": Foreign(sparse, "unfinished"),
    "first bytes": of_bytes(b"GG", "unfinished"),
    # downloads that did not end
    "cut in its header": Foreign(cut(0.02), "unfinished"),
    "cut in its weights": Foreign(cut(0.5), "unfinished"),
    "cut at its last byte": Foreign(cut(1, 1), "unfinished"),
    "never written": Foreign(unwritten_end, "unfinished"),
    "of Chromium": Foreign(cut(0.5), "unfinished", "model.gguf.crdownload"),
    "of Firefox": Foreign(cut(0.5), "unfinished", "model.gguf.part"),
    "of Safari": Foreign(cut(0.5), "unfinished", "model.gguf.download"),
    "of the hub": Foreign(cut(0.5), "unfinished", "4d7a2146.incomplete"),
    "of aria2": Foreign(cut(0.5), "unfinished", "model.gguf.aria2__temp"),
    # other formats
    "GGUF 1": Foreign(with_version(1), "version 1"),
    "GGUF 9": Foreign(with_version(9), "version 9"),
    "big-endian": Foreign(with_version(3, ">"), "big-endian"),
    "GGML": of_bytes(b"lmgg" + bytes(100), "GGML"),
    "GGMF": of_bytes(b"fmgg" + bytes(100), "GGML"),
    "GGJT": of_bytes(b"tjgg" + bytes(100), "GGML"),
    "GGLA": of_bytes(b"algg" + bytes(100), "LoRA adapter"),
    "session": of_bytes(b"nsgg" + bytes(100), "session"),
    "safetensors": of_bytes(SAFETENSORS + bytes(100), "safetensors"),
    "safetensors index": of_bytes(b'{"metadata": {}, "weight_map": {}}', "safetensors"),
    "PyTorch": Foreign(packed(zipped("archive/data.pkl", "archive/version")), "PyTorch"),
    "pickle": of_bytes(pickle.dumps({"a": [1] * 50}, 4), "pickle"),
    "ONNX": of_bytes(ONNX, "ONNX"),
    "ONNX by name": of_bytes(b"\x08\x07\x12\x04abcd" + bytes(50), "ONNX", "model.onnx"),
    "TensorFlow Lite": of_bytes(b"\x1c\0\0\0TFL3" + bytes(100), "TensorFlow Lite"),
    "HDF5": of_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100), "HDF5"),
    "old imatrix": of_bytes(OLD_IMATRIX, "importance matrix"),
    # archives and programs
    "zip": Foreign(packed(zipped("model.gguf")), "zip archive"),
    "zip of others": Foreign(packed(zipped("a.txt")), "zip archive"),
    "tar": Foreign(packed(tarred), "tar archive"),
    "gzip": Foreign(packed(gzip.compress), "gzip"),
    "gzip of a tar": Foreign(packed(lambda content: gzip.compress(tarred(content))), "gzip"),
    "bzip2": Foreign(packed(bz2.compress), "bzip2"),
    "xz": Foreign(packed(lzma.compress), "xz"),
    "zstd": of_bytes(b"\x28\xb5\x2f\xfd\x04\0\x21\0\0GGUF" + bytes(40), "zstd"),
    "ELF": of_bytes(ELF, "program"),
    "Mach-O": of_bytes(b"\xcf\xfa\xed\xfe" + bytes(100), "program"),
    "Windows program": of_bytes(b"MZ\x90\0" + bytes(100), "program"),
    "script": of_bytes(b"#!/bin/sh\nexec llama-cli\n", "script"),
    "llamafile": Foreign(packed(zipped("m.gguf", before=b"MZqFpD='\n")), "llamafile"),
    "llamafile in ELF": Foreign(packed(zipped("m.gguf", before=ELF)), "llamafile"),
    "noise": of_bytes(b"\x01\x02\xff\xfe" * 100, "is not a GGUF file"),
    # GGUF files of something else
    "adapter": of_header("LoRA adapter", "llama", general__type="adapter", adapter__type="lora"),
    "adapter without type": Foreign(
        lambda path: write_header(
            path, "llama", {}, ("blk.0.attn_q.weight.lora_a", "blk.0.attn_q.weight.lora_b")
        ),
        "LoRA adapter",
    ),
    "projector": of_header("projector", "clip", general__type="mmproj"),
    "old projector": of_header("projector", "clip"),
    "embeddings": of_header("embedding", "bert"),
    "reranker": of_header("reranker", "bert", bert__pooling_type=4),
    "imatrix": of_header("importance matrix", None, general__type="imatrix"),
    "control vector": of_header("control vector", "controlvector"),
    "diffusion": of_header("diffusion", "dream"),
    "pictures": of_header("image", "flux"),
    "pictures without architecture": Foreign(
        lambda path: write_header(
            path, None, {}, ("model.diffusion_model.input_blocks.0.0.weight", "first_stage_model.x")
        ),
        "image",
    ),
    "vocabulary": Foreign(
        lambda path: write_header(
            path, "llama", {"tokenizer.ggml.model": "gpt2", "general.name": "vocab"}, ()
        ),
        "vocabulary",
    ),
    "no architecture": of_header("names no architecture", None),
    # parts
    "second part": Foreign(first_part(number=1), "a later part", "m-00002-of-00003.gguf"),
    "part missing": Foreign(first_part(drop), "missing", PARTS),
    "all others missing": Foreign(
        first_part(drop_others), "missing (2 of its 3 parts are)", PARTS
    ),
    "parts swapped": Foreign(first_part(swap), "wrong order", PARTS),
    "part cut": Foreign(
        first_part(lambda parts: os.truncate(parts[2], parts[2].stat().st_size - 5)),
        "unfinished", PARTS,
    ),
    "part of another model": Foreign(first_part(mix), "another model", PARTS),
    "part with the same tensor": Foreign(first_part(repeat), "another model", PARTS),
    "part that is a page": Foreign(
        first_part(lambda parts: parts[1].write_bytes(PAGE)), "web page", PARTS
    ),
    "parts of another count": Foreign(first_part(recount), "rename", "m-00001-of-00004.gguf"),
    "part renamed": Foreign(
        first_part(lambda parts: parts[0].rename(parts[0].with_name("model.gguf"))), "rename"
    ),
    "raw part": Foreign(cut(0.5), "join", "model.gguf.part1of2"),
    "later raw part": of_bytes(b"\x33\x44" * 400, "join", "model.gguf.part2of2"),
    "raw part by letter": Foreign(cut(0.5), "join", "model.gguf-split-a"),
    "raw part by number": Foreign(cut(0.5), "join", "model.gguf.001"),
}  # fmt: skip
"""By kind, each file and what messages say of it."""
SHOWN = frozenset(
    {
        *("adapter", "adapter without type", "projector", "old projector", "embeddings"),
        *("reranker", "imatrix", "control vector", "diffusion", "pictures"),
        *("pictures without architecture", "vocabulary", "no architecture"),
    }
)
"""GGUF files whose facts `show` prints."""
