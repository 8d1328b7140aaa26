"""Gemma 4's assistants: prediction heads that read their target's KV cache and have none."""

from dataclasses import replace

from specchat.gguf.fatal_values import (
    values_of_layers,
    why_heads_unusable,
    why_types_unusable,
)
from specchat.gguf.header import Header
from specchat.gguf.vocabulary_facts import why_another_model

ARCHITECTURE, TARGET = "gemma4-assistant", "gemma4"


def why_unusable(header: Header) -> str | None:
    """Return why an assistant cannot be used, None if it can."""
    is_whole = 0 < header.num_heads == header.num_layers
    windows = header.metadata.get(f"{ARCHITECTURE}.attention.sliding_window_pattern")
    has_windows = any(windows) if isinstance(windows, tuple) else bool(windows)
    if not is_whole or not has_windows:
        return f"{header.name} does not have the layers of an assistant"
    return why_heads_unusable(header) or why_types_unusable(header)


def why_unfit(target: Header, head: Header) -> str | None:
    """Return why an assistant does not fit a target, None if it does.

    llama.cpp does not check that the assistant's layers match the target's KV cache.
    """
    keys = [f"attention.key_length{window}" for window in ("", "_swa")]
    values = [key.replace("key", "value") for key in keys]
    facts = [
        ("architecture", target.architecture, TARGET),
        ("width", target.own("embedding_length"), head.own("embedding_length_out")),
        *[("width of keys", target.own(key), head.own(key)) for key in keys],
        *[("width of values", target.own(key), head.own(key)) for key in values],
    ]
    if reason := why_another_model(target, head, facts):
        return reason
    if _last_two(target, "sliding_window_pattern") != (True, False):
        return "the target's last two layers are not one with sliding and one with full attention"
    shared, of_keys = _last_two(target, "head_count_kv"), _of_layers(head, "head_count_kv")
    windows = _of_layers(head, "sliding_window_pattern")
    expected = tuple(shared[not is_windowed] for is_windowed in windows)
    if of_keys != expected:
        return f"its layers have {of_keys} heads of keys, those they share {expected}"
    return None


def as_model(header: Header) -> Header:
    """Return the header as that of a model whose layers keep nothing in memory."""
    no_cache = {
        f"{ARCHITECTURE}.attention.head_count_kv": 0,
        f"{ARCHITECTURE}.nextn_predict_layers": 0,
    }
    return replace(header, metadata={**header.metadata, **no_cache})


def _last_two(header: Header, key: str) -> tuple[int, ...]:
    """Return an attention value of the last two layers, zeros if the file lacks it."""
    last = _of_layers(header, key)[-2:]
    return (*[0] * (2 - len(last)), *last)


def _of_layers(header: Header, key: str) -> tuple[int, ...]:
    """Return an attention value of each layer, zeros if the file lacks it."""
    return values_of_layers(header, f"attention.{key}")
