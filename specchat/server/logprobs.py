"""Log probabilities of tokens, as OpenAI's APIs have them: the model's own, before sampling."""

import math
from collections.abc import Sequence
from typing import Any

from specchat.decoding.chunk import Alternative, Chunk

LEAST = -9999.0
"""What OpenAI's API has for a token of no probability."""


def chat_logprobs(chunks: Sequence[Chunk], num_top: int) -> dict[str, Any]:
    """Return the `logprobs` of steps in the chat API."""
    content: list[dict[str, Any]] = []
    for chunk in chunks:
        for token, found in zip(chunk.tokens, chunk.alternatives, strict=False):
            own = next(each for each in found if each[0] == token)
            content.append(
                {**_entry(own), "top_logprobs": [_entry(each) for each in found[:num_top]]}
            )
    return {"content": content, "refusal": None}


def log_of(probability: float) -> float:
    """Return the natural logarithm of a probability."""
    return math.log(probability) if probability > 0 else LEAST


def _entry(alternative: Alternative) -> dict[str, Any]:
    _, text, probability = alternative
    data = text.encode("utf-8", "surrogateescape")
    return {"token": text, "logprob": log_of(probability), "bytes": list(data)}
