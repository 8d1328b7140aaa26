"""Summaries of local models, as `specchat show --json` prints them."""

from pathlib import Path
from typing import Any

from specchat.catalogue.draft_choice import find_drafts
from specchat.catalogue.local_models import find_local_models, model_at
from specchat.gguf.header import Header, LongArray, Value
from specchat.gguf.vocabulary_facts import vocabulary_of

MAX_TEXT_LENGTH = 200
"""Letters shown of a text in the metadata; the chat template is shown in full elsewhere."""
MAX_ARRAY_LENGTH = 20


def about_model(header: Header) -> dict[str, Any]:
    """Return the facts in a model's header, and which program's folder the file is in."""
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
        "is_head_only": header.is_head_only,
        "parameters": header.num_parameters,
        "quantisation": header.quantisation,
        "layers": header.num_layers,
        "context": header.training_context,
        "experts": header.own("expert_count"),
        "experts_at_work": header.own("expert_used_count"),
        "tokenizer": vocabulary.kind,
        "vocabulary": vocabulary.size,
        "licence": _licence(header),
        "metadata": {key: _shortened(value) for key, value in header.metadata.items()},
        "chat_template": header.chat_template,
    }


def about_drafts(target: Path) -> dict[str, Any]:
    """Return the drafts that fit a target, the best first, and why others do not."""
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
    name = header.text("general.license.name") or header.text("general.license")
    link = header.text("general.license.link")
    return f"{name} ({link})" if name and link else name or link


def _shortened(value: Value) -> Any:
    """Return a value of the metadata, or a description of a long one."""
    if isinstance(value, LongArray):
        return f"{value.length} {value.kind}"
    if isinstance(value, str) and len(value) > MAX_TEXT_LENGTH:
        return f"{value[:MAX_TEXT_LENGTH]}... ({len(value)} letters)"
    if isinstance(value, tuple) and len(value) > MAX_ARRAY_LENGTH:
        return f"{len(value)} {'texts' if isinstance(value[0], str) else 'numbers'}"
    return list(value) if isinstance(value, tuple) else value
