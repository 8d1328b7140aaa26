"""Prediction heads (MTP): which files have one, and whether llama.cpp can run it.

Such a head is a layer after a model's last one, in the model's own file or in a separate one.
"""

from collections.abc import Mapping
from dataclasses import replace

from specchat.gguf.header import Header, Value
from specchat.gguf.layer_inputs import UNTRIED
from specchat.gguf.vocabulary_facts import why_another_model

NO_GRAPH = "llama.cpp loads such a head, but cannot run it"
SEVERAL = "it has several heads, for one token each"
TARGETS: Mapping[str, str] = {
    **dict.fromkeys(
        (
            *("qwen3next", "qwen35", "qwen35moe", "glm4moe", "glm-dsa", "hy_v3", "cohere2moe"),
            *("deepseek2", "deepseek32", "bailingmoe3", "nemotron_h_moe"),
        ),
        "",
    ),
    **dict.fromkeys(("mimo2", "step35"), SEVERAL),
    **dict.fromkeys(("bailingmoe2", "exaone4", "exaone-moe", "glm4", "dots3note"), NO_GRAPH),
    **dict.fromkeys(("glm5-next", "qwen4exp"), NO_GRAPH),
    "deepseek4": UNTRIED,
}
"""Architectures with prediction heads, and why some are refused. llama.cpp ends the process for
some of those."""
GIVING_OUTPUT_STATES = frozenset({"qwen3next"})
"""The architectures whose head gives its own state only for tokens that have logits."""
NEEDED = ("nextn.eh_proj.weight", "nextn.enorm.weight", "nextn.hnorm.weight", "attn_norm.weight")
"""Tensors without which llama.cpp ends the process; it reports others that are missing."""
NEEDED_TOO = {
    "hy_v3": ("ffn_down_exps.weight", "ffn_up_exps.weight"),
    "deepseek2": ("attn_q_a.weight", "attn_k_b.weight", "ffn_gate_inp.weight"),
}
"""Further such tensors of some architectures; up and gate may be one tensor."""


def is_inside(header: Header) -> bool:
    """Return True if a file has a prediction head, with or without its model."""
    return any(".nextn.eh_proj." in name for name in header.tensors)


def is_alone(header: Header) -> bool:
    """Return True if a file holds layers of prediction heads, but not a model's first layer."""
    is_read = header.num_heads > 0 and bool(header.tensors)
    return is_read and "blk.0.attn_norm.weight" not in header.tensors  # llama.cpp's own test


def why_unusable(header: Header) -> str | None:
    """Return why the head in a file cannot be used, None if it can."""
    if not is_inside(header):
        return f"{header.name} has no prediction head"
    if reason := TARGETS.get(header.architecture, UNTRIED):
        return f"prediction heads of {header.architecture} are not supported: {reason}"
    if header.metadata.get(f"{header.architecture}.attention.temperature_scale"):
        return f"the prediction head of {header.name} scales its attention by position"
    if header.num_heads != 1:
        return f"{header.name} has {header.num_heads} prediction heads, and only one is supported"
    present = {name.replace("ffn_gate_up_", "ffn_up_") for name in header.tensors}
    needed = (*NEEDED, *NEEDED_TOO.get(header.architecture, ()))
    missing = [name for name in needed if f"{_prefix(header)}{name}" not in present]
    if missing:
        return f"the prediction head of {header.name} lacks the tensor {missing[0]}"
    return None


def why_unfit(target: Header, head: Header) -> str | None:
    """Return why a head in a separate file does not fit a target, None if it does."""
    width = "embedding_length"
    facts = [
        ("architecture", target.architecture, head.architecture),
        ("width", target.own(width), head.own(width)),
    ]
    return why_another_model(target, head, facts)


def as_model(header: Header) -> Header:
    """Return the header of the head in a file as that of a one-layer model.

    It includes everything else that is loaded for the head.
    """
    kind, prefix, is_whole = header.architecture, _prefix(header), is_alone(header)
    tensors = {
        name.replace(prefix, "blk.0."): tensor
        for name, tensor in header.tensors.items()
        if name.startswith(prefix) or (is_whole and not name.startswith("blk."))
    }
    single: dict[str, Value] = {f"{kind}.block_count": 1, f"{kind}.nextn_predict_layers": 0}
    heads = header.metadata.get(key := f"{kind}.attention.head_count_kv")
    if isinstance(heads, tuple) and heads:
        single[key] = heads[-1]
    name = header.name if is_whole else f"the prediction head of {header.name}"
    return replace(
        header,
        metadata={**header.metadata, **single, "general.name": name},
        tensors={name: replace(tensor, name=name) for name, tensor in tensors.items()},
    )


def _prefix(header: Header) -> str:
    """Return the name prefix of the head's tensors."""
    return f"blk.{header.num_layers - header.num_heads}."
