"""Prediction heads (MTP): which files have one, and whether llama.cpp can run it.

Such a head is a layer after a model's last one, in the model's own file or in a separate one.
"""

from collections.abc import Mapping
from dataclasses import replace

from specchat.gguf.fatal_values import why_types_unusable
from specchat.gguf.header import Header, Tensor, Value
from specchat.gguf.layer_inputs import UNTRIED
from specchat.gguf.vocabulary_facts import why_another_model

NO_GRAPH = "llama.cpp loads such a head, but cannot run it"
MOST_IN_TURN = 8
"""The most heads in turn: each has a context with room for all."""
TARGETS: Mapping[str, str] = {
    **dict.fromkeys(
        (
            *("qwen3next", "qwen35", "qwen35moe", "glm4moe", "glm-dsa", "hy_v3", "cohere2moe"),
            *("deepseek2", "deepseek32", "bailingmoe3", "nemotron_h_moe", "mimo2", "step35"),
            "deepseek4",
        ),
        "",
    ),
    **dict.fromkeys(("bailingmoe2", "exaone4", "exaone-moe", "glm4", "dots3note"), NO_GRAPH),
    **dict.fromkeys(("glm5-next", "qwen4exp"), NO_GRAPH),
}
"""Architectures with prediction heads, and why some are refused. llama.cpp ends the process for
some of those."""
IN_TURN: Mapping[str, str] = dict.fromkeys(("hy_v3", "mimo2", "step35"), "")
"""The architectures that may have several heads, for one token of a draft each."""
GIVING_OUTPUT_STATES = frozenset({"qwen3next", "mimo2", "step35", "deepseek4"})
"""The architectures whose head gives its own state only for tokens that have logits."""
NEEDED = ("nextn.eh_proj.weight", "nextn.enorm.weight", "nextn.hnorm.weight", "attn_norm.weight")
"""Tensors without which llama.cpp ends the process; it reports others that are missing."""
FORWARD = ("ffn_gate.weight", "ffn_up.weight", "ffn_down.weight")
NEEDED_TOO = {
    "hy_v3": ("ffn_down_exps.weight", "ffn_up_exps.weight"),
    "deepseek2": ("attn_q_a.weight", "attn_k_b.weight", "ffn_gate_inp.weight"),
    "mimo2": ("attn_qkv.weight", *FORWARD),
    "step35": FORWARD,
}
"""Further such tensors of some architectures; up and gate may be one tensor."""
ROUTER = "ffn_gate_inp.weight"
OF_EXPERTS = {
    "step35": tuple(
        name.replace(".", f"_{kind}.") for kind in ("exps", "shexp") for name in FORWARD
    ),
}
"""Those of a head with a mixture of experts in their place."""
OF_LAYERS = ("head_count", "head_count_kv", "sliding_window_pattern")
"""Properties of attention that may have a value for each layer."""


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
    most = MOST_IN_TURN if header.architecture in IN_TURN else 1
    if not 0 < header.num_heads <= min(most, header.num_layers):
        supported = f"at most {most} are" if most > 1 else "only one is"
        return f"{header.name} has {header.num_heads} prediction heads, and {supported} supported"
    present = {name.replace("ffn_gate_up_", "ffn_up_") for name in header.tensors}
    if difference := _why_unlike_others(header):
        return f"the prediction head of {header.name} {difference}"
    for prefix in _prefixes(header):
        missing = [name for name in _needed(header, prefix) if prefix + name not in present]
        if missing:
            return f"the prediction head of {header.name} lacks the tensor {missing[0]}"
    return why_types_unusable(replace(header, tensors=_own_tensors(header)))


def _why_unlike_others(header: Header) -> str | None:
    """Return what llama.cpp ends the process for in a head of DeepSeek V4, None if nothing."""
    if header.architecture != "deepseek4":
        return None
    layer = header.num_layers - 1
    ratios = header.metadata.get("deepseek4.attention.compress_ratios", ())
    if not isinstance(ratios, tuple) or len(ratios) <= layer or ratios[layer] != 0:
        return "compresses its keys"
    if header.own("hash_layer_count") > layer:
        return "chooses experts by tokens"
    return None


def has_several(header: Header) -> bool:
    """Return True if a file has heads in turn, with or without their model."""
    return header.architecture in IN_TURN and header.num_heads > 1 and is_inside(header)


def are_several_alone(header: Header) -> bool:
    """Return True if a file holds heads in turn, but not a model's first layer."""
    return header.architecture in IN_TURN and header.num_heads > 1 and is_alone(header)


def num_in_turn(header: Header) -> int:
    """Return the number of heads, which are the layers of the header that `as_model` returns."""
    return header.num_layers


def why_unfit(target: Header, head: Header) -> str | None:
    """Return why a head in a separate file does not fit a target, None if it does."""
    width = "embedding_length"
    facts = [
        ("architecture", target.architecture, head.architecture),
        ("width", target.own(width), head.own(width)),
    ]
    return why_another_model(target, head, facts)


def as_model(header: Header) -> Header:
    """Return the header of the heads in a file as that of a model with a layer for each.

    It includes everything else that is loaded for them.
    """
    kind, prefixes, is_whole = header.architecture, _prefixes(header), is_alone(header)
    tensors: dict[str, Tensor] = {}
    for name, tensor in _own_tensors(header).items():
        prefix = next((each for each in prefixes if name.startswith(each)), "")
        of_head = f"blk.{prefixes.index(prefix)}." if prefix else ""
        tensors[of_head + name.removeprefix(prefix)] = tensor
    own: dict[str, Value] = {
        f"{kind}.block_count": len(prefixes),
        f"{kind}.nextn_predict_layers": 0,
    }
    first = header.num_layers - len(prefixes)
    for key in (f"{kind}.attention.{each}" for each in OF_LAYERS):
        values = header.metadata.get(key)
        if isinstance(values, tuple):  # llama.cpp takes the missing ones of a short list as zero
            own[key] = (*values[first:], *[0] * len(prefixes))[: len(prefixes)]
    name = header.name if is_whole else f"the prediction head of {header.name}"
    return replace(
        header,
        metadata={**header.metadata, **own, "general.name": name},
        tensors={name: replace(tensor, name=name) for name, tensor in tensors.items()},
    )


def _own_tensors(header: Header) -> dict[str, Tensor]:
    """Return the tensors that are loaded for the heads."""
    prefixes, is_whole = tuple(_prefixes(header)), is_alone(header)
    return {
        name: tensor
        for name, tensor in header.tensors.items()
        if name.startswith(prefixes) or (is_whole and not name.startswith("blk."))
    }


def _prefixes(header: Header) -> list[str]:
    """Return the name prefix of each head's tensors."""
    first = header.num_layers - header.num_heads
    return [f"blk.{first + number}." for number in range(min(header.num_heads, MOST_IN_TURN))]


def _needed(header: Header, prefix: str) -> tuple[str, ...]:
    """Return the tensors without which llama.cpp ends the process, by their names in the layer."""
    of_experts = OF_EXPERTS.get(header.architecture, ())
    if of_experts and prefix + ROUTER in header.tensors:
        return (*NEEDED, *of_experts)
    return (*NEEDED, *NEEDED_TOO.get(header.architecture, ()))
