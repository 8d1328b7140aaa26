"""`specchat list`: what the catalogue offers, what is here, and what fits this machine."""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from specchat.catalogue.catalogue_file import Entry, read_catalogue
from specchat.catalogue.fit import judge, need_of, need_of_size
from specchat.catalogue.header_cache import Notes
from specchat.catalogue.installed import bytes_here, bytes_of_pair, is_pair_here, size_of_pair
from specchat.catalogue.local_models import LocalModel, find_local_models
from specchat.cli.terminal import in_one_line, say
from specchat.hub.cache import find_present, size_in_words
from specchat.hub.pins import kept_references, pinned
from specchat.hub.references import Reference
from specchat.planning.machine import Machine, find_machine

__all__ = ["models_beside", "run"]


def run(arguments: argparse.Namespace) -> int:
    """Print a line for each pair, for each file pulled by itself, and for each local model.

    Pairs of the user's own models.toml that are told of with a mistake are left out, and said so.
    """
    machine = find_machine()
    catalogue = read_catalogue()
    entries = catalogue.entries
    if catalogue.complaint:
        say(f"not all pairs are listed: {catalogue.complaint}")
    listed = [each for entry in entries.values() for each in entry.references]
    of_pairs = {str(part) for each in listed for part in each.parts}
    kept = [each for each in kept_references() if each == each.parts[0]]
    alone = [each for each in kept if str(each) not in of_pairs]
    rows = [_row(entry, machine) for entry in entries.values()]
    rows += [_row_of_file(each, machine) for each in alone]
    told = {path for each in (*listed, *alone) if (path := find_present(each))}
    local = [_row_of_local(each, machine) for each in models_beside(told)]
    if arguments.json:
        print(json.dumps({"models": rows, "local": local, "machine": _about(machine)}))
        return 0
    _print_rows(rows)
    if local:
        _print_local(local)
    print(f"\n{_about_in_words(machine)}")
    return 0


def models_beside(told: Collection[Path]) -> list[LocalModel]:
    """Return the local models that can answer, but for those that are told of already."""
    with Notes() as notes:
        models = [each for each in find_local_models() if each.path not in told]
        return [each for each in models if notes.of(each.path).kind == "chat"]


def _print_rows(rows: list[dict[str, Any]]) -> None:
    names = [in_one_line(row["name"]) for row in rows]
    width = max(map(len, names))
    print(f"{'NAME':<{width}}  {'SIZE':>8}  {'HERE':>4}  {'FIT':<21}  WHAT FOR")
    for name, row in zip(names, rows, strict=True):
        size = size_of_pair(row["bytes"], row["about_gb"])
        what = row["description"] + (" (experimental: cannot be used yet)" if row["needs"] else "")
        fit = row["fit"]
        told = f"{size:>8}  {_here(row):>4}  {fit:<21}  {in_one_line(what)}"
        print(f"{name:<{width}}  {told}")


def _print_local(rows: list[dict[str, Any]]) -> None:
    """Print what other programs brought, to be used with --target by its name."""
    names = [in_one_line(row["name"]) for row in rows]
    width = max(map(len, [*names, "LOCAL, for --target"]))
    print(f"\n{'LOCAL, for --target':<{width}}  {'SIZE':>8}  {'FIT':<21}  FROM")
    for name, row in zip(names, rows, strict=True):
        size = size_in_words(row["bytes"])
        print(f"{name:<{width}}  {size:>8}  {row['fit']:<21}  {row['from']}")


def _row(entry: Entry, machine: Machine) -> dict[str, Any]:
    """Return what there is to say of a pair."""
    return {
        "name": entry.name,
        "description": entry.description,
        "tier": entry.tier,
        "licence": entry.licence,
        "kind": entry.kind,
        "needs": entry.experimental,
        "bytes": bytes_of_pair(entry),
        "about_gb": entry.about_gb,
        "memory_gb": dict(entry.memory_gb),
        "first_guess": dict(entry.first_guess),
        "here": is_pair_here(entry),
        "bytes_here": sum(map(bytes_here, entry.files)),
        "recommended": entry.is_recommended,
        "fit": judge(need_of(entry), machine),
        "files": [str(file) for file in entry.files],
    }


def _row_of_file(reference: Reference, machine: Machine) -> dict[str, Any]:
    """Return what there is to say of a file that belongs to no pair."""
    known = [pinned(part).size or 0 for part in reference.parts]
    size = sum(known) if all(known) else None
    name = str(reference) if reference.revision == "main" else f"{reference} ({reference.revision})"
    return {
        "name": name,
        "description": "pulled by itself",
        "tier": "",
        "licence": "",
        "kind": "file",
        "needs": "",
        "bytes": size,
        "about_gb": None,
        "memory_gb": {},
        "first_guess": {},
        "recommended": False,
        "here": find_present(reference) is not None,
        "bytes_here": bytes_here(reference),
        "fit": judge(need_of_size(size) if size else None, machine),
        "files": [str(reference)],
    }


def _row_of_local(model: LocalModel, machine: Machine) -> dict[str, Any]:
    """Return what there is to say of a model that another program brought."""
    return {
        "name": model.name,
        "from": model.tool,
        "bytes": model.num_bytes,
        "fit": judge(need_of_size(model.num_bytes), machine),
        "path": str(model.path),
    }


def _about(machine: Machine) -> dict[str, Any]:
    if machine.gpus is None:
        return {"free_bytes": machine.free, "gpus": None}
    gpus = [
        {"name": gpu.label, "total": gpu.total, "is_shared": gpu.kind == "integrated"}
        for gpu in machine.gpus
    ]
    return {"free_bytes": machine.free, "gpus": gpus}


def _about_in_words(machine: Machine) -> str:
    """Say what the column of fits was judged by."""
    free = "unknown" if machine.free is None else f"{size_in_words(machine.free)} free"
    if machine.gpus is None:
        gpus = "GPUs: not known yet, `specchat doctor` looks for them"
    else:
        gpus = ", ".join(f"{gpu.label} ({size_in_words(gpu.total)})" for gpu in machine.gpus)
        gpus = f"GPU: {gpus}" if gpus else "no GPU that llama.cpp can use"
    return in_one_line(f"This machine: memory {free}; {gpus}")


def _here(row: dict[str, Any]) -> str:
    """Return yes, no, or how much of it."""
    if row["here"]:
        return "yes"
    share = row["bytes_here"] / (row["bytes"] or 1e9 * (row["about_gb"] or 0) or float("inf"))
    return f"{min(share, 0.99):.0%}" if share else "no"
