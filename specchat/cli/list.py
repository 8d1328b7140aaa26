"""`specchat list`: the pairs of the catalogue, local models, and how well they fit this machine."""

import argparse
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from specchat.catalogue.catalogue_file import read_catalogue
from specchat.catalogue.entry import Entry, KnownHead
from specchat.catalogue.fit import judge, need_of, need_of_size, size_of_pair
from specchat.catalogue.header_cache import HeaderCache, HeaderFacts
from specchat.catalogue.known_heads import missing_head
from specchat.catalogue.local_models import LocalModel, find_local_models
from specchat.cli.terminal import print_result, say, table_lines
from specchat.errors import SpecchatError
from specchat.gguf.purpose import purpose_text
from specchat.gguf.reader import read_beginning
from specchat.hub.cache import find_present
from specchat.hub.pins import kept_references
from specchat.hub.references import Reference
from specchat.planning.device import Machine, find_machine
from specchat.safe_text import in_one_line
from specchat.wording import percent, size_text

Row = Mapping[str, Any]


def run(arguments: argparse.Namespace) -> None:
    """Print a row for each pair, each separately pulled file, and each other local model.

    Pairs with a mistake in the user's own models.toml are left out, with a notice.
    """
    machine = find_machine(arguments.settings["model.workers"])
    catalogue = read_catalogue()
    if catalogue.complaint:
        say(f"not all pairs are listed: {catalogue.complaint}")
    listed = [reference for entry in catalogue.entries.values() for reference in entry.references]
    of_pairs = {str(part) for reference in listed for part in reference.parts}
    pulled = [reference for reference in kept_references() if reference == reference.parts[0]]
    single = [reference for reference in pulled if str(reference) not in of_pairs]
    entries = [*catalogue.entries.values(), *map(_entry_of_file, single)]
    rows = [_row(entry, machine) for entry in entries]
    shown = {path for reference in (*listed, *single) if (path := find_present(reference))}
    local = [_row_of_local(model, machine, facts) for model, facts in models_beside(shown)]
    paths = [*(entry.paths[0] for entry in entries), *(Path(row["path"]) for row in local)]
    lacking: dict[str, KnownHead] = {}
    with HeaderCache() as cache:
        for row, path in zip([*rows, *local], paths, strict=True):
            head = missing_head(path, cache) if path else None
            row["missing_head"] = head.facts if head else None
            lacking |= {row["name"]: head} if head else {}
    gpus = [
        {"name": gpu.label, "total": gpu.total, "is_shared": gpu.kind == "integrated"}
        for gpu in machine.gpus or ()
    ]
    facts = {"free_bytes": machine.free, "gpus": None if machine.gpus is None else gpus}
    record = {"models": rows, "local": local, "machine": facts}
    tables = [*_lines(rows), *_local_lines(local), *_head_lines(lacking)]
    print_result(arguments, record, [*tables, "", _machine_line(machine)])


def models_beside(shown: Collection[Path]) -> list[tuple[LocalModel, HeaderFacts]]:
    """Return local models that can generate text, with their facts, except the `shown` files."""
    with HeaderCache() as cache:
        models = [model for model in find_local_models() if model.path not in shown]
        with_facts = [(model, cache.of(model.path)) for model in models]
    return [(model, facts) for model, facts in with_facts if facts.kind == "chat"]


def _head_lines(heads: Mapping[str, KnownHead]) -> list[str]:
    """Return an empty line and a line for each target, by name, that lacks its published head."""
    lines = [f"{name} lacks its head, {head.offer}" for name, head in heads.items()]
    return ["", *map(in_one_line, lines)] if lines else []


def _lines(rows: Collection[Row]) -> list[str]:
    table = [("NAME", "SIZE", "INSTALLED", "FIT", "DESCRIPTION")]
    for row in rows:
        size = size_of_pair(row["bytes"], row["about_gb"])
        table.append((row["name"], size, _installed(row), row["fit"], row["description"]))
    return table_lines(table, left=(0, 3, 4))


def _local_lines(rows: Collection[Row]) -> list[str]:
    """Return an empty line and the table of local models, whose names --target accepts."""
    table = [("LOCAL, for --target", "SIZE", "FIT", "FROM")]
    for row in rows:
        where = f"{row['from']}, with a prediction head" if row["has_head"] else row["from"]
        if row["origin"]:
            where = f"derived draft for {row['origin']['target']}"
        table.append((row["name"], size_text(row["bytes"]), row["fit"], where))
    return ["", *table_lines(table, left=(0, 2, 3))] if rows else []


def _entry_of_file(reference: Reference) -> Entry:
    name = str(reference) if reference.revision == "main" else f"{reference} ({reference.revision})"
    description, path = "pulled on its own", find_present(reference)
    with suppress(SpecchatError):
        if path and (what := purpose_text(read_beginning(path))):
            description = f"{description}: {what}"
    return Entry(name, description, reference, None, kind="file")


def record_of(entry: Entry) -> dict[str, Any]:
    """Return the JSON fields of a pair that `list` and `show` share."""
    return {
        "name": entry.name,
        "description": entry.description,
        "tier": entry.tier,
        "licence": entry.licence,
        "kind": entry.kind,
        "bytes": entry.num_bytes,
        "about_gb": entry.about_gb,
        "here": None not in entry.paths,
    }


def _row(entry: Entry, machine: Machine) -> dict[str, Any]:
    return {
        **record_of(entry),
        "memory_gb": dict(entry.memory_gb),
        "bytes_here": entry.bytes_here,
        "recommended": entry.is_recommended,
        "fit": judge(need_of(entry), machine),
        "files": [str(file) for file in entry.files],
    }


def _row_of_local(model: LocalModel, machine: Machine, facts: HeaderFacts) -> dict[str, Any]:
    origin = facts.origin
    return {
        "name": model.name,
        "from": model.tool,
        "has_head": facts.has_head,
        "origin": {"target": origin.target, "method": origin.method} if origin else None,
        "bytes": model.num_bytes,
        "fit": judge(need_of_size(model.num_bytes), machine),
        "path": str(model.path),
    }


def _machine_line(machine: Machine) -> str:
    """Return the facts about this machine that the FIT column is based on."""
    free = "unknown" if machine.free is None else size_text(machine.free)
    if machine.gpus is None:
        gpus = "GPU unknown (run `specchat doctor`)"
    else:
        gpus = ", ".join(f"{gpu.label} ({size_text(gpu.total)})" for gpu in machine.gpus)
        gpus = f"GPU: {gpus}" if gpus else "no usable GPU"
    return in_one_line(f"This machine: free memory {free}; {gpus}")


def _installed(row: Row) -> str:
    if row["here"]:
        return "yes"
    share = row["bytes_here"] / (row["bytes"] or 1e9 * (row["about_gb"] or 0) or float("inf"))
    return percent(min(share, 0.99)) if share else "no"
