"""Values of options as people and programs write them, in the form that the options have.

Each function returns the value, or raises ValueError for what has no such form.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from specchat.options.worker_address import worker_address

NO_WORKERS = "none"
"""As the address of a worker: use none of those in the settings."""
MOST_GPUS = 16
"""ggml's limit (GGML_SCHED_MAX_BACKENDS, llama_max_devices)."""
LARGEST_BIAS = 1e6
"""Far beyond any logit, and far below the limit of single precision."""
LARGEST_TOKEN = 2**31 - 1
"""That of llama_token, an int32."""


def to_shares(given: object) -> tuple[float, ...]:
    """Return the GPUs' shares, given as numbers or as text with commas."""
    parts: Any = given.split(",") if isinstance(given, str) else given
    if not isinstance(parts, Sequence):
        raise ValueError(given)  # noqa: TRY004  # as for every other wrong value
    shares = tuple(float(part) for part in parts)
    is_right = len(shares) <= MOST_GPUS and all(0 <= share < float("inf") for share in shares)
    if not is_right or (shares and not any(shares)):
        raise ValueError(given)
    return shares


def to_parts(given: object) -> str:
    """Return a part of a model's blocks, with the number of blocks unless all are meant.

    A third and two of a block, ".3" and ".7", are some of its weights.
    """
    number = r"0*([1-9]\d{0,8}(?:\.[37])?|0\.[37])"
    match = re.fullmatch(rf"none|(?:experts|ffn)(?::{number})?", str(given), re.ASCII)
    if not match:
        raise ValueError(given)
    part, number = match[0].partition(":")[0], match[1]
    return f"{part}:{number}" if number else part


def to_workers(given: object) -> tuple[str, ...]:
    """Return the addresses of workers in full, each once; a text may have several with commas."""
    parts = [part for text in to_texts(given) for part in text.split(",")]
    if NO_WORKERS in parts:
        parts.remove(NO_WORKERS)
        if parts:
            raise ValueError(given)
    addresses = tuple(dict.fromkeys(str(worker_address(part)) for part in parts))
    if len(addresses) > MOST_GPUS:
        raise ValueError(given)
    return addresses


def to_names(given: object) -> tuple[str, ...]:
    """Return the names of devices; a text may have several with commas."""
    names = [part.strip() for text in to_texts(given) for part in text.split(",")]
    if not all(names):
        raise ValueError(given)
    return tuple(names)


def to_biases(given: object) -> Mapping[int, float]:
    """Return biases by token id; minus infinity bans a token."""
    if not isinstance(given, Mapping):
        raise ValueError(given)  # noqa: TRY004  # as for every other wrong value
    for token, bias in given.items():
        is_finite = abs(bias) <= LARGEST_BIAS
        if not 0 <= token <= LARGEST_TOKEN or not (is_finite or bias == -math.inf):
            raise ValueError(given)
    return given


def to_think_word(given: object) -> str:
    """Return the word or level as text; in TOML it may also be a boolean or a number."""
    if isinstance(given, bool):
        return "on" if given else "off"
    if given == "" or not isinstance(given, str | int):
        raise ValueError(given)
    return str(given)


def to_texts(given: object) -> tuple[str, ...]:
    """Return the stop strings; a single string counts as a list of one."""
    strings: Any = (given,) if isinstance(given, str) else given
    if not isinstance(strings, Sequence) or not all(isinstance(string, str) for string in strings):
        raise ValueError(given)
    return tuple(strings)
