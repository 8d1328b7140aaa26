"""Prediction heads (MTP): which files have one, and whether llama.cpp can run it.

A head is a layer behind a model's last one, in the model's own file or in one of its own. It drafts
from the hidden states of the model.
"""

from dataclasses import replace
from operator import mod
from pathlib import Path
from typing import Literal

from specchat.errors import IncompatibleDraft
from specchat.gguf.block_draft import why_no_block_draft, why_unfit_block_draft
from specchat.gguf.eagle_draft import why_no_eagle_draft, why_unfit_eagle_draft
from specchat.gguf.header import HEAD_KINDS, Header, Value
from specchat.gguf.reader import read_header, read_whole_model, require_text
from specchat.gguf.vocabulary_facts import vocabulary_of

RUNNABLE = frozenset(
    {
        *("qwen35", "qwen35moe", "glm4moe", "glm-dsa", "hy_v3", "cohere2moe"),
        *("deepseek2", "deepseek32", "bailingmoe3", "nemotron_h_moe"),
    }
)
"""Architectures whose heads are known to work. llama.cpp ends the process for some others."""
ASSISTANTS = {"gemma4-assistant": "gemma4"}
"""Architectures of heads that read their target's memory, with that of the target."""
BLOCKS = "dflash"
"""The architecture of drafts that draft a block of tokens in one pass."""
EAGLES = "eagle3"
"""The architecture of EAGLE-3 drafts, heads that read several of their target's layers."""
FOR_OTHERS: dict[str, Literal["block", "eagle"]] = {BLOCKS: "block", EAGLES: "eagle"}
"""Architectures of drafts for targets of others, with their role."""
NEEDED = ("nextn.eh_proj.weight", "nextn.enorm.weight", "nextn.hnorm.weight", "attn_norm.weight")
"""Tensors without which llama.cpp ends the process; it reports others that are missing."""
NEEDED_TOO = {
    "hy_v3": ("ffn_down_exps.weight", "ffn_up_exps.weight"),
    "deepseek2": ("attn_q_a.weight", "attn_k_b.weight", "ffn_gate_inp.weight"),
}
"""The same of some architectures; up and gate may be one tensor."""


def has_head(header: Header) -> bool:
    """Return True if a file has a prediction head, with or without its model."""
    return any(".nextn.eh_proj." in name for name in header.tensors)


def why_no_head(header: Header) -> str | None:
    """Return why the head in a file cannot be used, None if it can."""
    is_other_kind = header.architecture in HEAD_KINDS
    if not has_head(header) and not is_other_kind:
        return f"{header.name} has no prediction head"
    if header.architecture in FOR_OTHERS:
        is_block = header.architecture == BLOCKS
        return why_no_block_draft(header) if is_block else why_no_eagle_draft(header)
    if header.architecture in ASSISTANTS:
        is_whole = 0 < header.num_heads == header.num_layers
        return None if is_whole else f"{header.name} has other layers than those of the head"
    if header.architecture not in RUNNABLE:
        return f"prediction heads of {header.architecture} are not supported yet"
    if header.metadata.get(f"{header.architecture}.attention.temperature_scale"):
        return f"the prediction head of {header.name} scales its attention by position"
    if header.num_heads != 1:
        return f"{header.name} has {header.num_heads} prediction heads, and one is supported"
    present = {name.replace("ffn_gate_up_", "ffn_up_") for name in header.tensors}
    needed = (*NEEDED, *NEEDED_TOO.get(header.architecture, ()))
    missing = [each for each in needed if f"{_prefix(header)}{each}" not in present]
    if missing:
        return f"the prediction head of {header.name} lacks the tensor {missing[0]}"
    return None


def head_of(header: Header) -> Header:
    """Return the head in a file as a model of one layer, with what else is loaded for it."""
    if role := FOR_OTHERS.get(kind := header.architecture):
        size = {f"{kind}.vocab_size": vocabulary_of(header).size}
        return replace(header, role=role, metadata={**header.metadata, **size})
    if kind in ASSISTANTS:
        no_cache = {f"{kind}.attention.head_count_kv": 0, f"{kind}.nextn_predict_layers": 0}
        return replace(header, role="assistant", metadata={**header.metadata, **no_cache})
    prefix, is_alone = _prefix(header), header.is_head_only
    tensors = {
        name.replace(prefix, "blk.0."): tensor
        for name, tensor in header.tensors.items()
        if name.startswith(prefix) or (is_alone and not name.startswith("blk."))
    }
    single: dict[str, Value] = {f"{kind}.block_count": 1, f"{kind}.nextn_predict_layers": 0}
    heads = header.metadata.get(key := f"{kind}.attention.head_count_kv")
    if isinstance(heads, tuple) and heads:
        single[key] = heads[-1]
    name = header.name if is_alone else f"the prediction head of {header.name}"
    return replace(
        header,
        role="head" if is_alone else "own head",
        metadata={**header.metadata, **single, "general.name": name},
        tensors={name: replace(tensor, name=name) for name, tensor in tensors.items()},
    )


def read_pair(
    target: Path, draft: Path | None, *, with_head: bool = True
) -> tuple[Header, Header | None]:
    """Return the headers of a target and of what drafts for it: a model, a head, or None.

    Without a `draft`, that is the head in the target's file, if it can be used and `with_head`.
    Raises as `read_whole_model` does, and IncompatibleDraft for a head that does not fit.
    """
    model = read_whole_model(target)
    if draft is None:
        is_usable = with_head and why_no_head(model) is None
        return model, head_of(model) if is_usable else None
    drafting = read_header(draft)
    if not drafting.is_head_only:
        require_text(drafting)
        return model, drafting
    if reason := _why_unfit(model, drafting):
        raise IncompatibleDraft(
            f"{draft.name} cannot draft for {target.name}: {reason}; choose the head that belongs"
            " to the target, or --draft none"
        )
    return model, head_of(drafting)


def _why_unfit(target: Header, head: Header) -> str | None:
    """Return why a head in a file of its own does not fit a target, None if it does."""
    if reason := why_no_head(head):
        return reason
    kind, width, keys = head.architecture, "embedding_length", "attention.key_length"
    is_shared, vocabulary = kind in ASSISTANTS, vocabulary_of(target)
    wanted = target.architecture if kind in FOR_OTHERS else ASSISTANTS.get(kind, kind)
    facts: list[tuple[str, object, object]] = [("architecture", target.architecture, wanted)]
    if kind != EAGLES:
        needed = head.own(f"{width}_out" if is_shared else width)
        facts.append(("width", target.own(width), needed))
    if is_shared:  # llama.cpp does not compare what the head reads in the target's memory
        facts += [
            ("width of keys", target.own(each), head.own(each)) for each in (keys, f"{keys}_swa")
        ]
    for what, ours, theirs in facts:
        if ours != theirs:
            return f"its {what} is {theirs}, the target's is {ours}"
    if is_shared:
        if _last_two(target, "sliding_window_pattern") != (True, False):
            return "the target's last two layers are not a sliding and a full one"
        queries, keys_of = _last_two(head, "head_count"), _last_two(target, "head_count_kv")
        if not all(keys_of) or any(map(mod, queries, keys_of)):
            return f"its {queries} attention heads cannot share the target's {keys_of}"
    if vocabulary != vocabulary_of(head):
        return "its vocabulary is not the target's"
    if kind == EAGLES:
        return why_unfit_eagle_draft(target, head, vocabulary.size)
    return why_unfit_block_draft(target, head, vocabulary.size) if kind == BLOCKS else None


def _last_two(header: Header, key: str) -> tuple[int, ...]:
    """Return a number of the attention of the last two layers, zeros where it is not given."""
    value = header.metadata.get(f"{header.architecture}.attention.{key}", 0)
    last = value[-2:] if isinstance(value, tuple) and len(value) > 1 else (value, value)
    return tuple(each if isinstance(each, int) else 0 for each in last)


def _prefix(header: Header) -> str:
    """Return the beginning of the names of the head's tensors."""
    return f"blk.{header.num_layers - header.num_heads}."
