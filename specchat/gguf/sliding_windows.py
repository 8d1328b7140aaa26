"""Which layers of a model attend to a sliding window of tokens, by the rules of llama.cpp.

They are those of `load_arch_hparams` in its models/*.cpp, applied to a file's metadata.
"""

from specchat.gguf.header import Header

WINDOW_PATTERNS = {
    "afmoe": (4, False),
    "cohere2": (4, False),
    "cohere2moe": (4, True),
    "deepseek4": (0, False),
    "exaone-moe": (4, False),
    "exaone4": (4, False),
    "gemma2": (2, False),
    "gemma3": (6, False),
    "gemma3n": (5, False),
    "laguna": (4, True),
    "lfm2": (0, False),
    "llama4": (4, False),
    "mellum": (4, False),
    "muse-glimmer": (4, False),
    "olmo2": (4, False),
    "gpt-oss": (2, False),
    "plamo3": (8, False),
    "smallthinker": (4, True),
}
"""Architectures with sliding windows: the period in layers, and whether its first layer has full
attention rather than its last."""
NAMED_WINDOWS = frozenset({"gemma4", "granite_swa", "maple", "mimo2", "spark2_5", "step35"})
"""Architectures whose files list the layers with a sliding window."""
WITH_WINDOWS_IF_LARGE, LARGE = "exaone4", 64
"""An architecture of which only models of so many layers have them."""
MAY_SLIDE_NONE = frozenset(
    {
        *("afmoe", "deepseek4", "gemma3", "laguna", "lfm2", "llama4", "mellum", "olmo2", "plamo3"),
        "smallthinker",
    }
)
"""Architectures that slide none where their files say that it has no length; others do all the
same."""
DEFAULT_WINDOWS = {"exaone-moe": 128, "exaone4": 4096, "gemma2": 4096, "llama4": 8192}


def window_of(header: Header) -> int:
    """Return the sliding window in tokens, 0 for a model without one."""
    kind = header.architecture
    if kind not in WINDOW_PATTERNS and kind not in NAMED_WINDOWS:
        return 0
    if kind == WITH_WINDOWS_IF_LARGE and header.num_layers - header.num_heads != LARGE:
        return 0
    stated = header.own("attention.sliding_window", DEFAULT_WINDOWS.get(kind, 0))
    is_stated = f"{kind}.attention.sliding_window" in header.metadata
    return max(int(is_stated and kind not in MAY_SLIDE_NONE), stated)


def layers_with_window(header: Header, count: int) -> list[bool]:
    """Return for each of so many layers whether it has a sliding window."""
    pattern = header.metadata.get(f"{header.architecture}.attention.sliding_window_pattern")
    if not window_of(header):
        return [False] * count
    if isinstance(pattern, tuple):
        return [number < len(pattern) and bool(pattern[number]) for number in range(count)]
    period, dense_first = WINDOW_PATTERNS.get(header.architecture, (1, False))
    period = pattern if isinstance(pattern, int) and pattern >= 0 else period
    if period == 0:
        return [True] * count
    dense = 0 if dense_first else period - 1
    return [number % period != dense for number in range(count)]
