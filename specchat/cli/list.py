"""`specchat list`: what the catalogue offers, what of it is here, and what other programs have."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from specchat.catalogue.cache import find_present, part_path, pointer_path, size_in_words
from specchat.catalogue.entries import Entry, File, load_entries
from specchat.catalogue.local import LocalModel, find_local_models
from specchat.catalogue.pins import kept_references, pinned
from specchat.catalogue.references import Reference
from specchat.cli.terminal import harmless

__all__ = ["run"]


def run(arguments: argparse.Namespace) -> int:
    """Print a line for each pair, for each file pulled by itself, and for each local model."""
    entries = load_entries()
    listed = [each for entry in entries.values() for each in entry.references]
    of_pairs = {str(part) for each in listed for part in each.parts}
    kept = [each for each in kept_references() if each == each.parts[0]]
    alone = [each for each in kept if str(each) not in of_pairs]
    rows = [_row(entry) for entry in entries.values()] + [_row_of_file(each) for each in alone]
    told = {find_present(each) for each in (*listed, *alone)}
    local = [_row_of_local(each) for each in find_local_models() if each.path not in told]
    if arguments.json:
        print(json.dumps({"models": rows, "local": local}))
        return 0
    _print_rows(rows)
    if local:
        _print_local(local)
    return 0


def _print_rows(rows: list[dict[str, Any]]) -> None:
    width = max(len(row["name"]) for row in rows)
    print(f"{'NAME':<{width}}  {'SIZE':>8}  {'HERE':>4}  WHAT FOR")
    for row in rows:
        told = row["description"] + (" (experimental: cannot be used yet)" if row["needs"] else "")
        print(f"{row['name']:<{width}}  {_size(row):>8}  {_here(row):>4}  {told}")


def _print_local(rows: list[dict[str, Any]]) -> None:
    """Print what other programs brought, to be used with --target by its name."""
    names = [harmless(row["name"]) for row in rows]
    width = max(map(len, names))
    print(f"\n{'LOCAL, for --target':<{width}}  {'SIZE':>8}  FROM")
    for name, row in zip(names, rows, strict=True):
        print(f"{name:<{width}}  {size_in_words(row['bytes']):>8}  {row['from']}")


def _row(entry: Entry) -> dict[str, Any]:
    """Return what there is to say of a pair."""
    return {
        "name": entry.name,
        "description": entry.description,
        "tier": entry.tier,
        "licence": entry.licence,
        "kind": entry.kind,
        "needs": entry.experimental,
        "bytes": _num_bytes(entry),
        "about_gb": entry.about_gb,
        "memory_gb": dict(entry.memory_gb),
        "first_guess": dict(entry.first_guess),
        "here": all(_is_here(file) for file in entry.files),
        "bytes_here": sum(map(_bytes_here, entry.files)),
        "files": [str(file) for file in entry.files],
    }


def _row_of_file(reference: Reference) -> dict[str, Any]:
    """Return what there is to say of a file that belongs to no pair."""
    known = [pinned(part).size or 0 for part in reference.parts]
    name = str(reference) if reference.revision == "main" else f"{reference} ({reference.revision})"
    return {
        "name": name,
        "description": "pulled by itself",
        "tier": "",
        "licence": "",
        "kind": "file",
        "needs": "",
        "bytes": sum(known) if all(known) else None,
        "about_gb": None,
        "here": find_present(reference) is not None,
        "bytes_here": _bytes_here(reference),
        "files": [str(reference)],
    }


def _row_of_local(model: LocalModel) -> dict[str, Any]:
    """Return what there is to say of a model that another program brought."""
    return {
        "name": model.name,
        "from": model.tool,
        "bytes": model.num_bytes,
        "path": str(model.path),
    }


def _num_bytes(entry: Entry) -> int | None:
    """Return the size of all files of a pair, where it is known or was found out."""
    sizes = [
        part.stat().st_size if isinstance(part, Path) and part.is_file() else _size_of(part)
        for file in entry.files
        for part in (file.parts if isinstance(file, Reference) else [file])
    ]
    return sum(size or 0 for size in sizes) if all(sizes) else None


def _size_of(file: File) -> int | None:
    return pinned(file).size if isinstance(file, Reference) else None


def _is_here(file: File) -> bool:
    return file.is_file() if isinstance(file, Path) else find_present(file) is not None


def _bytes_here(file: File) -> int:
    """Return how much of a file is here, whole or not."""
    if isinstance(file, Path):
        return file.stat().st_size if file.is_file() else 0
    total = 0
    for part in map(pinned, file.parts):
        places = [pointer_path(part)] + ([part_path(part, part.sha256)] if part.sha256 else [])
        total += next((path.stat().st_size for path in places if path.is_file()), 0)
    return total


def _size(row: dict[str, Any]) -> str:
    if row["bytes"] is None:
        return f"~{row['about_gb']:g} GB" if row["about_gb"] else "?"
    return size_in_words(row["bytes"]) if row["bytes"] else "-"


def _here(row: dict[str, Any]) -> str:
    """Return yes, no, or how much of it."""
    if row["here"]:
        return "yes"
    share = row["bytes_here"] / (row["bytes"] or 1e9 * (row["about_gb"] or 0) or float("inf"))
    return f"{min(share, 0.99):.0%}" if share else "no"
