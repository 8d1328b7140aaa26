"""`specchat list`: what the catalogue offers, and what of it is here."""

from __future__ import annotations

import argparse
import json
from typing import Any

from specchat.catalogue.cache import find_present, part_path, size_in_words
from specchat.catalogue.entries import Entry, load_entries
from specchat.catalogue.pins import kept_references, pinned
from specchat.catalogue.references import Reference

__all__ = ["run"]


def run(arguments: argparse.Namespace) -> int:
    """Print a line for each pair, and for each file that was pulled by itself."""
    entries = load_entries()
    of_pairs = {reference for entry in entries.values() for reference in entry.references}
    alone = [each for each in kept_references() if each not in of_pairs and each.parts[0] == each]
    rows = [_row(entry) for entry in entries.values()] + [_row_of_file(each) for each in alone]
    if arguments.json:
        print(json.dumps({"models": rows}))
        return 0
    width = max(len(row["name"]) for row in rows)
    print(f"{'NAME':<{width}}  {'SIZE':>8}  {'HERE':>4}  WHAT FOR")
    for row in rows:
        told = row["description"] + (f" (experimental: {row['needs']})" if row["needs"] else "")
        print(f"{row['name']:<{width}}  {_size(row):>8}  {_here(row):>4}  {told}")
    return 0


def _row(entry: Entry) -> dict[str, Any]:
    """Return what there is to say of a pair."""
    return {
        "name": entry.name,
        "description": entry.description,
        "tier": entry.tier,
        "licence": entry.licence,
        "kind": entry.kind,
        "needs": entry.experimental,
        "bytes": entry.num_bytes,
        "about_gb": entry.about_gb,
        "here": all(find_present(reference) for reference in entry.references),
        "bytes_here": sum(_bytes_here(reference) for reference in entry.references),
        "files": [str(file) for file in (entry.target, entry.draft) if file],
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


def _bytes_here(reference: Reference) -> int:
    """Return how much of a file is here, whole or not."""
    total = 0
    for part in map(pinned, reference.parts):
        path = find_present(part) if len(reference.parts) == 1 else None
        if path is None and part.sha256:
            path = part_path(part, part.sha256)
        total += path.stat().st_size if path and path.is_file() else 0
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
