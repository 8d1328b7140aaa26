"""`specchat show`: the facts about a pair, a file or a local model."""

import argparse
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from specchat.catalogue.catalogue_file import read_catalogue
from specchat.catalogue.draft_choice import find_drafts
from specchat.catalogue.entry import Entry
from specchat.catalogue.fit import (
    Memory,
    judge,
    memory_of,
    memory_of_entry,
    size_of_pair,
    states_of,
)
from specchat.catalogue.header_cache import HeaderCache
from specchat.catalogue.known_heads import missing_head
from specchat.catalogue.known_speed import KnownSpeed, known_speed
from specchat.catalogue.local_models import find_local_models, model_at
from specchat.catalogue.pairs import file_of
from specchat.catalogue.projectors import chosen_projector
from specchat.cli.list import record_of
from specchat.cli.terminal import print_result
from specchat.errors import InvalidOption
from specchat.formats.families import format_of
from specchat.gguf.draft_kinds import KINDS, has_head, kind_of, kind_of_file, why_no_head
from specchat.gguf.header import Header, LongArray, Value
from specchat.gguf.model_files import read_pair
from specchat.gguf.origin import DraftOrigin, origin_of
from specchat.gguf.purpose import purpose_text, why_no_text
from specchat.gguf.reader import read_header
from specchat.gguf.vocabulary_facts import vocabulary_of
from specchat.hub.references import Reference
from specchat.options.declarations import LoadOptions, think_values
from specchat.passes.learned_cache import LearnedCache
from specchat.planning.device import Machine, find_machine
from specchat.planning.forecast import foresee
from specchat.planning.model_layout import layout_of
from specchat.planning.notices import notices_of_file
from specchat.planning.planner import why_chains
from specchat.planning.text_copies import room_for_copies
from specchat.wording import exact_drafts, size_text, speedup_text

About = Mapping[str, Any]
Lines = Iterator[tuple[str, str]]
"""Labels and texts; lines with an empty text are not shown."""

NO_PARTS: About = {"projector": None, "head_cost": None, "missing_head": None}
MAX_TEXT_LENGTH = 200
"""The most characters to show of a metadata text; the chat template is printed in full."""
MAX_ARRAY_LENGTH = 20


def run(arguments: argparse.Namespace) -> None:
    """Print the facts as lines, or as one JSON object."""
    entry = read_catalogue().entries.get(arguments.name)
    options = LoadOptions(**arguments.settings.values(LoadOptions))
    if entry:
        about = _about_pair(entry, replace(options, workers=entry.workers or options.workers))
    else:
        about = _about_file(file_of(arguments.name), options)
    facts = _pair_lines(about) if entry else _file_lines(about)
    lines = [
        f"{name:<12} {line}".rstrip()
        for label, text in facts
        if text
        for name, line in zip_longest([label], text.split("\n"), fillvalue="")
    ]
    print_result(arguments, about, lines)


def _about_pair(entry: Entry, options: LoadOptions) -> dict[str, Any]:
    paths = entry.paths
    installed = [path for path in paths if path]
    memory = memory_of(*installed) if installed == paths else memory_of_entry(entry)
    machine = find_machine(options.workers)
    models: dict[str, Any] = {}
    for role, file, path in zip(("target", "draft"), entry.files, paths, strict=False):
        wheel = file.wheel if isinstance(file, Reference) else None
        models[role] = {
            "file": str(file),
            "wheel": str(wheel) if wheel else None,
            "here": path is not None,
            "model": _about_model(read_header(path)) if path else None,
        }
    target = models["target"]["model"]
    is_here = len(installed) == len(paths)
    return {
        **record_of(entry),
        "licence": entry.licence or (target["licence"] if target else ""),
        "sampling": dict(entry.sampling),
        "memory": [_about_memory(figure, machine) for figure in memory],
        "workers": list(entry.workers),
        "chains_reason": _why_chains(options, *installed) if is_here else None,
        "states": _about_states(machine, options, *installed) if is_here else None,
        "passes": _about_speed(machine, *installed) if is_here else None,
        **(_about_exactness(paths[0]) if paths[0] else {"exact": {}, "exact_cost": {}}),
        **(_about_parts(machine, options, *installed) if is_here else NO_PARTS),
        **models,
    }


def _about_file(path: Path, options: LoadOptions) -> dict[str, Any]:
    drafts, about = find_drafts(path), _about_model(read_header(path))
    machine = find_machine(options.workers)
    memory = memory_of(path) if about["generates_text"] else []
    best = [drafts.best.model.path] if drafts.best else []
    return {
        **about,
        "memory": [_about_memory(figure, machine) for figure in memory],
        "chains_reason": _why_chains(options, path) if about["generates_text"] else None,
        "states": _about_states(machine, options, path) if about["generates_text"] else None,
        "passes": _about_speed(machine, path) if about["generates_text"] else None,
        **_about_exactness(path),
        **(_about_parts(machine, options, path, *best) if about["generates_text"] else NO_PARTS),
        "drafts": {
            "advice": drafts.advice,
            "fitting": [
                {"name": draft.model.name, "path": str(draft.model.path), "why": draft.why}
                for draft in drafts.fitting
            ],
            "unfit": [{"name": model.name, "why": why} for model, why in drafts.unfit],
        },
    }


def _why_chains(options: LoadOptions, target: Path, draft: Path | None = None) -> str | None:
    """Return why drafts for a target are chains, by the headers alone; None if they may be trees.

    Raises as `read_pair` does.
    """
    header, of_draft = read_pair(target, draft)
    return why_chains(layout_of(header), kind_of(of_draft) if of_draft else None, options)


def _about_parts(
    machine: Machine, options: LoadOptions, target: Path, draft: Path | None = None
) -> dict[str, Any]:
    """Return a target's projector, what its head costs here, and the published one it lacks."""
    with HeaderCache() as cache:
        head = missing_head(target, cache)
    cost, options = None, replace(options, projector=chosen_projector(options.projector, target))
    with suppress(InvalidOption):  # loading reports an option that the model cannot have
        cost = foresee(target, draft, options, machine).head
    return {
        "projector": str(options.projector) if options.projector else None,
        "head_cost": {**asdict(cost), "words": str(cost)} if cost else None,
        "missing_head": {**head.facts, "offer": head.offer} if head else None,
    }


def _about_speed(machine: Machine, target: Path, draft: Path | None = None) -> dict[str, Any]:
    return asdict(known_speed(machine, read_header(target), draft))


def _about_memory(memory: Memory, machine: Machine) -> dict[str, Any]:
    return {
        "context": memory.ctx,
        "bytes": memory.num_bytes,
        "is_exact": memory.is_exact,
        "fit": judge(memory.num_bytes, machine),
    }


def _about_states(
    machine: Machine, options: LoadOptions, target: Path, draft: Path | None = None
) -> dict[str, int] | None:
    """Return the states to go back in a text: the bytes of one, and how many are kept."""
    states = states_of(target, draft, room_for_copies(options.cache_ram, machine.free or 0))
    return {"bytes": states.num_bytes, "kept": states.num_kept} if states else None


def _about_exactness(target: Path) -> dict[str, Any]:
    """Return the longest bit-exact drafts and their costs, by how the target was loaded."""
    results = LearnedCache(target).exactness()
    return {
        "exact": {way: result.usual - 1 for way, result in results.items()},
        "exact_cost": {way: result.largest_cost for way, result in results.items()},
    }


def _about_model(header: Header) -> dict[str, Any]:
    """Return the facts in a model's header, and the program whose folder the file is in."""
    real = header.path.resolve()
    twins = [model for model in find_local_models() if model.path.resolve() == real]
    model = twins[0] if twins else model_at(header.path)
    vocabulary, kind = vocabulary_of(header), kind_of_file(header)
    return {
        "path": str(header.path),
        "local_name": model.name if model else header.path.name,
        "from": model.tool if model else None,
        "bytes": header.file_bytes,
        "num_files": len(header.parts),
        "name": header.name,
        "architecture": header.architecture,
        "is_head_only": kind.is_head,
        "draft_kind": kind.name if kind.is_head else None,
        "generates_text": not kind.is_head and why_no_text(header) is None,
        "purpose": why_no_text(header) or purpose_text(header),
        "origin": asdict(origin) if (origin := origin_of(header)) else None,
        "head": (why_no_head(header) or "") if has_head(header) else None,
        "parameters": header.num_parameters,
        "quantisation": header.quantisation,
        "notices": [] if purpose_text(header) else list(notices_of_file(header)),
        "layers": header.num_layers,
        "context": header.training_context,
        "experts": header.own("expert_count"),
        "experts_at_work": header.own("expert_used_count"),
        "tokenizer": vocabulary.kind,
        "vocabulary": vocabulary.size,
        "licence": _licence(header),
        "metadata": {key: _shortened(value) for key, value in header.metadata.items()},
        "chat_template": header.chat_template,
        "chat_format": format_of(header.chat_template).facts if header.chat_template else None,
    }


def _licence(header: Header) -> str:
    name = header.text("general.license.name") or header.text("general.license")
    link = header.text("general.license.link")
    return f"{name} ({link})" if name and link else name or link


def _shortened(value: Value) -> Any:
    """Return a metadata value, shortened or described if it is long."""
    if isinstance(value, LongArray):
        return f"{value.length} {value.kind}"
    if isinstance(value, str) and len(value) > MAX_TEXT_LENGTH:
        return f"{value[:MAX_TEXT_LENGTH]}... ({len(value)} letters)"
    if isinstance(value, tuple) and len(value) > MAX_ARRAY_LENGTH:
        return f"{len(value)} {'texts' if isinstance(value[0], str) else 'numbers'}"
    return list(value) if isinstance(value, tuple) else value


def _pair_lines(about: About) -> Lines:
    yield "name", about["name"]
    yield "description", about["description"]
    yield "tier", about["tier"]
    yield "licence", about["licence"] or "unknown: see the model's page on the hub"
    yield "size", f"{size_of_pair(about['bytes'], about['about_gb'])}, {_availability(about)}"
    yield "memory", "\n".join(map(_memory_text, about["memory"]))
    yield "states", _states_text(about["states"])
    yield "workers", ", ".join(about["workers"])
    yield from _part_lines(about)
    yield from _speed_lines(about)
    yield "bit-exact", "\n".join(_exact_texts(about))
    yield "draft tree", _chains_text(about)
    yield "sampling", ", ".join(f"{name} {value:g}" for name, value in about["sampling"].items())
    for role in ("target", "draft"):
        if role in about:
            yield role, about[role]["file"]
            if about[role]["wheel"]:
                yield "", f"also in the wheel {about[role]['wheel']} of the Python package index"
            if about[role]["model"]:
                for name, text in _facts(about[role]["model"]):
                    yield "", f"{name}: {text}" if name else text
    model = about["target"]["model"]
    if model:
        yield "chat", _format_text(model["chat_format"])
        yield "template", model["chat_template"]


def _availability(about: About) -> str:
    if about["here"]:
        return "installed"
    if any(isinstance(file, Reference) for file in read_catalogue().entries[about["name"]].files):
        return f"not installed: `specchat pull {about['name']}` fetches it"
    return "not installed"


def _file_lines(about: About) -> Lines:
    yield "name", about["local_name"]
    yield "file", about["path"]
    yield "from", about["from"]
    yield "kind", about["purpose"]
    if about["is_head_only"]:
        yield "kind", KINDS[about["draft_kind"]].description
    yield from _facts(about)
    yield "licence", about["licence"] or "not in the file"
    yield "memory", "\n".join(map(_memory_text, about["memory"]))
    yield "states", _states_text(about["states"])
    yield from _part_lines(about)
    yield from _speed_lines(about)
    yield "bit-exact", "\n".join(_exact_texts(about))
    yield "draft tree", _chains_text(about)
    if not about["generates_text"]:
        return
    advice, fitting = about["drafts"]["advice"], about["drafts"]["fitting"]
    if advice or not fitting:
        yield "draft", f"none: {advice or 'no local model fits'}"
    else:
        yield "draft", f"{fitting[0]['name']} {fitting[0]['why']}"
    yield "chat", _format_text(about["chat_format"])
    yield "template", about["chat_template"] or "none: `specchat ask --raw` continues a text"


def _facts(model: About) -> Lines:
    parts = f" in {model['num_files']} files" if model["num_files"] > 1 else ""
    yield "model", model["name"]
    yield "size", f"{size_text(model['bytes'])}{parts}, {model['quantisation']}"
    layers = f", {model['layers']} layer{'s'[: model['layers'] != 1]}" if model["layers"] else ""
    kind = f"{model['architecture']}, {_count(model['parameters'])} parameters{layers}"
    if model["experts"]:
        kind += f", {model['experts_at_work']} of {model['experts']} experts active"
    yield "architecture", kind
    if model["context"]:
        yield "context", f"{model['context']} tokens"
    if model["head"] is not None:
        yield "head", model["head"] or "a prediction head (MTP), which specchat drafts with"
    if model["vocabulary"]:
        yield "vocabulary", f"{model['vocabulary']} tokens, {model['tokenizer']} tokenizer"
    for notice in model["notices"]:
        yield "notice", notice
    if origin := model["origin"]:
        yield "derived", f"draft for {origin['target']}, {origin['method']}"
        speedup = DraftOrigin(**origin).speedup
        gain = f"predicted {speedup_text(speedup, 2)}" if speedup else "no speedup is recorded"
        yield "", f"{gain}; made with {origin['data']}"


def _format_text(about: About | None) -> str:
    """Return the facts about a chat format, one per line."""
    if about is None:
        return ""
    marks, calls = about["reasoning"], about["tool_calls"]
    reasoning = "the template has no reasoning"
    if marks:
        between = f"from {marks['begin'].strip()} " if marks["begin"].strip() else ""
        kept = "kept in" if about["keeps_reasoning"] else "left out of"
        end = marks["end"].strip().partition("\n")[0]
        reasoning = f"reasoning {between}up to {end}; earlier reasoning is {kept} prompts"
    lines = [reasoning]
    if about["think"]:
        lines.append(f"--think {think_values(about['think'], last=', ')}")
    if calls:
        lines.append(f"tool calls begin with {calls['begin'].strip()}")
    if not about["system_prompt"]:
        lines.append("no system role: the system prompt is put before the first question")
    return "\n".join(lines)


def _part_lines(about: About) -> Lines:
    if projector := about["projector"]:
        yield "images", f"read with {projector}"
    if cost := about["head_cost"]:
        yield "head", cost["words"]
    if missing := about["missing_head"]:
        yield "head", f"not here: {missing['offer']}"


def _speed_lines(about: About) -> Lines:
    if about["passes"]:
        speed = KnownSpeed(**about["passes"])
        yield "passes", speed.stair_text
        yield "speed", speed.speed_text


def _chains_text(about: About) -> str:
    reason = about["chains_reason"]
    return f"drafts are chains: {reason}" if reason else ""


def _memory_text(memory: About) -> str:
    size = f"{'' if memory['is_exact'] else 'about '}{size_text(memory['bytes'])}"
    return f"{size} with a context of {memory['context']} tokens: {memory['fit']}"


def _states_text(states: About | None) -> str:
    if not states:
        return ""
    size, kept = size_text(states["bytes"]), states["kept"]
    return f"a state takes {size}; up to {kept} are kept per conversation"


def _exact_texts(about: About) -> Iterator[str]:
    for way, longest in about["exact"].items():
        yield f"{exact_drafts(longest, about['exact_cost'][way])} ({way})"


def _count(number: int) -> str:
    """Return a number of parameters as written in model names, such as "1.7B"."""
    for unit, size in (("B", 10**9), ("M", 10**6)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return str(number)
