"""The files of a split model: their names, and whether they belong together."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from specchat.errors import ModelWontLoad
from specchat.gguf.unfinished_file import AGAIN

if TYPE_CHECKING:  # the chat's first frame needs names alone
    from specchat.gguf.header import Header, Value

MOST_PARTS = 999
PART_NAME = re.compile(
    r"(?P<stem>.*)-\d{5}-of-(?P<count>\d{5})(?P<end>\.gguf)", re.IGNORECASE | re.DOTALL
)


def split_names(file: str) -> tuple[str, ...]:
    """Return the names of all parts of a split GGUF, given one; otherwise the name itself."""
    split = PART_NAME.fullmatch(file)
    if not split or not int(split["count"]):
        return (file,)
    return tuple(
        f"{split['stem']}-{number:05}-of-{split['count']}{split['end']}"
        for number in range(1, min(int(split["count"]), MOST_PARTS) + 1)
    )


def size_with_parts(path: Path) -> int:
    """Return the size of a file with the parts it is split into, 0 if it is missing."""
    parts = [path.with_name(name) for name in split_names(path.name)]
    return sum(part.stat().st_size for part in parts if os.path.isfile(part))


def parts_of(path: Path, metadata: Mapping[str, Value]) -> tuple[Path, ...]:
    """Return the files of the model that begins with a file, which are in the same folder.

    Raises ModelWontLoad for a later part, under another name, or with others missing.
    """
    count, number = metadata.get("split.count", 0), metadata.get("split.no", 0)
    if not isinstance(count, int) or count <= 1 or not isinstance(number, int):
        return (path,)
    names = split_names(path.name)
    if len(names) != count:
        raise ModelWontLoad(
            f"{path} is part of a model in {count} files: rename it to its original name, like"
            f" model-00001-of-{count:05}.gguf"
        )
    if number not in range(count) or path.name != names[number]:
        raise ModelWontLoad(_misnamed(path, names, number))
    if number:
        is_here = os.path.isfile(path.with_name(names[0]))
        missing = "" if is_here else f", which is missing: {AGAIN}"
        raise ModelWontLoad(
            f"{path} is a later part of a split model: use its first part, {names[0]}{missing}"
        )
    parts = [path.with_name(name) for name in names]
    missing_parts = [part for part in parts if not os.path.isfile(part)]
    if missing_parts:
        missing = f"is missing ({len(missing_parts)} of its {count} parts are)"
        raise ModelWontLoad(f"{missing_parts[0]}, a part of a split model, {missing}: {AGAIN}")
    return tuple(parts)


def require_one_model(parts: Sequence[Header]) -> None:
    """Raise ModelWontLoad unless the parts of a split model, in this order, are one model."""
    first = parts[0]
    tensors: set[str] = set()
    for number, part in enumerate(parts):
        if part.metadata.get("split.no", 0) != number:
            names = split_names(first.path.name)
            raise ModelWontLoad(_misnamed(part.path, names, part.metadata.get("split.no")))
        totals = ("split.count", "split.tensors.count")
        is_like = all(part.metadata.get(key) == first.metadata.get(key) for key in totals)
        if not is_like or tensors & part.tensors.keys():
            raise ModelWontLoad(
                f"{part.path} is a part of another model than {first.path.name}: {AGAIN}"
            )
        tensors |= part.tensors.keys()
    total = first.metadata.get("split.tensors.count")
    if isinstance(total, int) and total != len(tensors):
        raise ModelWontLoad(
            f"{first.path}: its {len(parts)} parts have {len(tensors)} tensors, not {total}, so"
            f" some are of another model: {AGAIN}"
        )


def _misnamed(path: Path, names: Sequence[str], number: Value | None) -> str:
    """Return a message about a part that stands in the place of another."""
    if isinstance(number, int) and 0 <= number < len(names):
        return (
            f"{path} is part {number + 1} of its model, so the parts are named in the wrong order:"
            f" its right name is {names[number]}"
        )
    return f"{path} is not a part of the model that its name says: {AGAIN}"
