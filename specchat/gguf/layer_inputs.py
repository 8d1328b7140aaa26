"""Which targets give the inputs of their layers, as EAGLE-3 and DFlash drafts read them."""

from collections.abc import Collection, Mapping

from specchat.gguf.header import Header

UNTRIED = "not tried yet"
TOO_WIDE = "its layers are several times as wide as llama.cpp reads them"
TARGETS: Mapping[str, str] = {
    **dict.fromkeys(
        (
            *("llama", "nanbeige", "gpt-oss", "minimax-m2", "gemma4", "mimo2"),
            *("qwen3", "qwen3moe", "qwen3next", "qwen35", "qwen35moe"),
            *("hunyuan-dense", "hunyuan_vl", "lfm2", "lfm2moe"),
            *("bailingmoe3", "nemotron_h", "nemotron_h_moe", "minimax-01", "muse-glimmer"),
            "deepseek4",
        ),
        "",
    ),
    "qwen4exp": TOO_WIDE,
}
"""The architectures that give layer inputs in llama.cpp, and why others of them are refused.

llama.cpp ends the process where a layer gives none, or one of another width.
"""
GIVING_LAST_STATES = frozenset(
    {
        *("gpt-oss", "gemma4", "mimo2", "qwen3next", "qwen35", "qwen35moe"),
        *("bailingmoe3", "nemotron_h", "nemotron_h_moe"),
    }
)
"""The architectures that also give what their prediction head reads: the last layer's states."""
GIVING_LAST_OUTPUTS = frozenset({"deepseek4", "mimo2", "nemotron_h", "nemotron_h_moe"})
"""The architectures that give their last layer's output as if it were a further layer's input."""


def layers_read(draft: Header) -> tuple[int, ...]:
    """Return the numbers of the target's layers whose inputs a draft reads, empty if it has none.

    One past the last layer stands for the last layer's output.
    """
    layers = draft.metadata.get(f"{draft.architecture}.target_layers", ())
    kept = layers if isinstance(layers, tuple) else ()
    return tuple(layer for layer in kept if isinstance(layer, int))


def why_not_given(
    target: Header, layers: Collection[int], giving_last: Collection[str]
) -> str | None:
    """Return why a draft cannot read these layers of a target, None if it can.

    Only the architectures in `giving_last` give the last one's output.
    """
    kind = target.architecture
    if reason := TARGETS.get(kind, "llama.cpp does not give the inputs of their layers"):
        return f"targets of {kind} are not supported: {reason}"
    last = target.num_layers - target.num_heads
    if not all(0 <= layer <= last for layer in layers):
        return f"it reads layers up to {max(layers)}, the target has {last}"
    if last in layers and kind not in giving_last:
        return f"it reads the last layer's output, which targets of {kind} do not give"
    return None
