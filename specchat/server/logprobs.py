"""Log probabilities of tokens, as OpenAI's APIs have them: the model's own, before sampling."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from specchat.decoding.chunk import Alternative, Chunk

LEAST = -9999.0
"""What OpenAI's API has for a token of no probability."""


def chat_logprobs(chunks: Sequence[Chunk], num_top: int) -> dict[str, Any]:
    """Return the `logprobs` of steps in the chat API."""
    content = [
        {**_entry(own), "top_logprobs": [_entry(each) for each in likely[:num_top]]}
        for own, likely in _written(chunks)
    ]
    return {"content": content, "refusal": None}


def native_logprobs(chunks: Sequence[Chunk], num_top: int) -> list[dict[str, Any]]:
    """Return llama-server's `completion_probabilities` of steps, which name tokens by ids, too."""
    return [
        {**_with_id(own), "top_logprobs": [_with_id(each) for each in likely[:num_top]]}
        for own, likely in _written(chunks)
    ]


def log_of(probability: float) -> float:
    """Return the natural logarithm of a probability."""
    return math.log(probability) if probability > 0 else LEAST


def _entry(alternative: Alternative) -> dict[str, Any]:
    _, text, probability = alternative
    data = text.encode("utf-8", "surrogateescape")
    return {"token": text, "logprob": log_of(probability), "bytes": list(data)}


def _with_id(alternative: Alternative) -> dict[str, Any]:
    return {"id": alternative[0], **_entry(alternative)}


def _written(chunks: Sequence[Chunk]) -> Iterator[tuple[Alternative, Sequence[Alternative]]]:
    """Yield each token of steps, and the likely ones in its place."""
    for chunk in chunks:
        for token, likely in zip(chunk.tokens, chunk.alternatives, strict=False):
            yield next(each for each in likely if each[0] == token), likely


class TextLogprobs:
    """The `logprobs` of the API for texts: lists with an entry for each token."""

    def __init__(self, num_top: int, offset: int = 0) -> None:
        """Begin at an offset in the text, in characters; show `num_top` likely tokens."""
        self._num_top, self._offset = num_top, offset
        self._tokens: list[str] = []
        self._logprobs: list[float | None] = []
        self._top: list[dict[str, float] | None] = []
        self._offsets: list[int] = []

    def add_prompt(
        self,
        pieces: Sequence[bytes],
        tokens: Sequence[int],
        alternatives: Sequence[Sequence[Alternative]],
    ) -> None:
        """Add the tokens of a prompt; the first one has no probability."""
        for piece, token, likely in zip(pieces, tokens, alternatives, strict=False):
            self._add(token, piece.decode("utf-8", "replace"), likely)

    def add(self, chunks: Sequence[Chunk]) -> None:
        """Add the tokens of steps."""
        for (token, text, _), likely in _written(chunks):
            self._add(token, text, likely)

    def following(self, chunks: Sequence[Chunk]) -> "TextLogprobs":
        """Return the log probabilities of steps alone, which follow those added so far."""
        fresh = TextLogprobs(self._num_top, self._offset)
        fresh.add(chunks)
        self._offset = fresh._offset  # of this class
        return fresh

    def record(self) -> dict[str, Any]:
        """Return the lists as the API has them."""
        return {
            "tokens": self._tokens,
            "token_logprobs": self._logprobs,
            "top_logprobs": self._top if self._num_top else None,
            "text_offset": self._offsets,
        }

    def _add(self, token: int, text: str, likely: Sequence[Alternative]) -> None:
        self._tokens.append(text)
        self._offsets.append(self._offset)
        self._offset += len(text)
        own = next((share for each, _, share in likely if each == token), None)
        self._logprobs.append(None if own is None else log_of(own))
        shown = {each[1]: log_of(each[2]) for each in likely[: self._num_top]}
        self._top.append(shown if likely else None)
