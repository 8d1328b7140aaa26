"""What there is to say of a model that is here: from its header, for a person and for a script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from specchat.catalogue.draft_choice import find_drafts
from specchat.catalogue.local_models import find_local_models, find_model, model_at
from specchat.catalogue.pairs import to_pull
from specchat.errors import ModelNotFound
from specchat.gguf.header import Header, LongArray, Value
from specchat.gguf.vocabulary_facts import vocabulary_of

__all__ = ["about_drafts", "about_model", "file_of"]

LONGEST_TEXT = 200
"""Letters of a text of the metadata that are told; the chat template has a place of its own."""
LONGEST_ARRAY = 20
"""Values of an array of the metadata that are told, else how many there are."""


def file_of(name: str) -> Path:
    """Return the file of a path or of a local model's name; ModelNotFound where there is none."""
    path = Path(name).expanduser()
    if path.exists():
        return path
    model = find_model(name)
    if model is None and (file := to_pull(name)):
        raise ModelNotFound(f"{file} is not here: `specchat pull {file}` fetches it")
    if model is None:
        raise ModelNotFound(
            f"there is no pair, no local model and no file named {name}: `specchat list` names"
            " those there are"
        )
    return model.path


def about_model(header: Header) -> dict[str, Any]:
    """Return what a model's header says, and whose folder the model is in."""
    real = header.path.resolve()
    twins = [each for each in find_local_models() if each.path.resolve() == real]
    model = twins[0] if twins else model_at(header.path)
    vocabulary = vocabulary_of(header)
    return {
        "path": str(header.path),
        "local_name": model.name if model else header.path.name,
        "from": model.tool if model else None,
        "bytes": header.file_bytes,
        "num_files": len(header.parts),
        "name": header.name,
        "architecture": header.architecture,
        "parameters": header.num_parameters,
        "quantisation": header.quantisation,
        "layers": header.num_layers,
        "context": header.training_context,
        "experts": header.own("expert_count"),
        "experts_at_work": header.own("expert_used_count"),
        "tokenizer": vocabulary.kind,
        "vocabulary": vocabulary.size,
        "licence": _licence(header),
        "metadata": {key: _shown(value) for key, value in header.metadata.items()},
        "chat_template": header.chat_template,
    }


def about_drafts(target: Path) -> dict[str, Any]:
    """Return which drafts fit a target, the best first, and why others do not."""
    found = find_drafts(target)
    return {
        "advice": found.advice,
        "fitting": [
            {"name": each.model.name, "path": str(each.model.path), "why": each.why}
            for each in found.fitting
        ],
        "unfit": [{"name": model.name, "why": why} for model, why in found.unfit],
    }


def _licence(header: Header) -> str:
    """Return the licence's name, and its address where the file has one."""
    name = header.text("general.license.name") or header.text("general.license")
    link = header.text("general.license.link")
    return f"{name} ({link})" if name and link else name or link


def _shown(value: Value) -> Any:
    """Return a value as far as it is short enough to be read."""
    if isinstance(value, LongArray):
        return f"{value.length} {value.kind}"
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        return f"{value[:LONGEST_TEXT]}... ({len(value)} letters)"
    if isinstance(value, tuple) and len(value) > LONGEST_ARRAY:
        return f"{len(value)} {'texts' if isinstance(value[0], str) else 'numbers'}"
    return list(value) if isinstance(value, tuple) else value
