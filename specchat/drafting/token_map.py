"""Maps the target's tokens to those of a draft model, whose ids may differ.

A draft model with a different vocabulary drafts the tokens that stand for the same bytes in both
(Timor et al. 2025, arXiv 2502.05202): its logits are restricted to these before top-k and the
following steps, so that tokens are drawn from the distribution that verification is given. The
target's text is read token by token; a token that the draft model lacks is spelled with others. The
tokens that the draft model has read therefore never change when the text grows. Positions in its
memory count its own tokens.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Protocol, TypeAlias

import numpy as np

from specchat.decoding.constraint import Mask
from specchat.decoding.distribution import Distribution, Logits
from specchat.gguf.common_vocabulary import CommonVocabulary, Tokens
from specchat.options.declarations import Sampling

STAND_IN = 0
"""Read in place of a token that cannot be spelled; a wrong draft does no harm."""
UNKNOWN_CONTROL = b"\n"
"""Read in place of a control token whose name the draft model does not know.

With all names unknown, SmolLM2 as its own draft had 90 % of first tokens accepted this way, 88 %
with control tokens left out, and 81 % with their names spelled.
"""
LONGEST_SPELLED = 256
"""The longest token text that is spelled, in bytes; real ones are shorter."""
CellsFor: TypeAlias = Callable[[int], Sequence[int]]
"""Returns the draft model's cells for the part of an image that begins with one of the target's."""


def no_cells(_: int) -> Sequence[int]:
    """Return none, for a draft model that reads text only."""
    return ()


class TokenMap:
    """The map between two models whose first `size` tokens are the same.

    Cells of images, which are below zero, are left out unless it `keeps_images`, or `cells_for` the
    first one of an image returns the draft model's own: one that reads text only drafts better
    without an image than with something in its place.
    """

    def __init__(
        self, size: int, *, keeps_images: bool = False, cells_for: CellsFor = no_cells
    ) -> None:
        self._size, self._keeps_images, self._cells_for = size, keeps_images, cells_for

    def prompt(self, tokens: Sequence[int]) -> list[int]:
        """Return the draft model's tokens for a text from its beginning."""
        return self.read(tokens)

    def read(self, tokens: Sequence[int]) -> list[int]:
        """Return the draft model's tokens for some of the target's, at least one for each text."""
        if self._keeps_images or not tokens or min(tokens) >= 0:
            return [token if token < self._size else STAND_IN for token in tokens]
        read: list[int] = []
        for token in tokens:
            if token >= 0:
                read.append(token if token < self._size else STAND_IN)
            else:
                read += self._cells_for(token)
        return read

    def sampling(self, sampling: Sampling) -> Sampling:
        """Return sampling options with the draft model's ids."""
        return sampling

    def restricted(self, logits: Logits) -> Logits:
        """Return the draft model's logits without the tokens that the target lacks."""
        return logits[: self._size] if logits.size > self._size else logits

    def mask(self, mask: Mask | None) -> Mask | None:
        """Return a mask of the target's tokens as one of the draft model's."""
        return mask

    def named(self, distribution: Distribution) -> Distribution:
        """Return a distribution over the draft model's ids as one over the target's."""
        return distribution


class SpecialTokens(Protocol):
    """The special tokens of a loaded vocabulary."""

    @property
    def end_tokens(self) -> Collection[int]:
        """The tokens that end an answer."""

    def bos(self) -> int | None:
        """Return the beginning-of-text token if texts begin with one, otherwise None."""

    def usual_ends(self) -> Sequence[int]:
        """Return the tokens that end a turn and a text; negative if there is none."""


class CommonTokenMap(TokenMap):
    """The map between two models with different vocabularies, by the tokens that both have.

    Control tokens are matched by name. Of these, only end tokens are drafted.
    """

    def __init__(
        self,
        common: CommonVocabulary,
        target: SpecialTokens,
        draft: SpecialTokens,
        *,
        cells_for: CellsFor = no_cells,
    ) -> None:
        super().__init__(0, cells_for=cells_for)
        self._common, self._bos, opening = common, target.bos(), draft.bos()
        self._opening = [] if opening is None else [opening]
        self._drafted = {
            token: own
            for token, own in common.pairs.items()
            if token not in target.end_tokens and own not in draft.end_tokens
        } | _paired_ends(common, target, draft)
        self._same = _by_name(common.target, common.draft) | self._drafted
        own, names = list(self._drafted.values()), list(self._drafted)
        size = len(common.draft.names)
        self._mask = np.full(size, -np.inf, dtype=np.float32)
        self._mask[own] = 0.0
        self._names = np.zeros(size, dtype=np.int64)
        self._names[own] = names
        self._row = np.empty(size, dtype=np.float32)
        self._spelled: dict[int, list[int]] = {}
        self._longest = min(LONGEST_SPELLED, max(map(len, common.draft.by_piece), default=0))

    def prompt(self, tokens: Sequence[int]) -> list[int]:
        """Return the draft model's tokens for a text, beginning as its own texts do."""
        read = self.read(tokens[1:] if tokens[0] == self._bos else tokens)
        opening = self._opening if read[:1] != self._opening else []
        return [*opening, *read] or [STAND_IN]

    def read(self, tokens: Sequence[int]) -> list[int]:
        """Return the draft model's tokens: common ones directly, others spelled."""
        read: list[int] = []
        for token in tokens:
            if token in self._same:
                read.append(self._same[token])
            else:
                read += self._spelling(token) if token >= 0 else self._cells_for(token)
        return read

    def sampling(self, sampling: Sampling) -> Sampling:
        """Return options with the biases of common tokens only, by the draft model's ids."""
        biases, own = sampling.logit_bias, self._drafted
        common = {own[token]: bias for token, bias in biases.items() if token in own}
        return replace(sampling, logit_bias=common)

    def restricted(self, logits: Logits) -> Logits:
        """Return the logits, minus infinity for all other tokens; valid until the next call."""
        return np.add(logits, self._mask, out=self._row)

    def mask(self, mask: Mask | None) -> Mask | None:
        """Return the mask of the common tokens that may come."""
        if mask is None:
            return None
        return Mask.where(mask.allowed(self._names) & np.isfinite(self._mask))

    def named(self, distribution: Distribution) -> Distribution:
        """Return the distribution with the target's ids."""
        return Distribution(self._names[distribution.ids], distribution.unscaled)

    def _spelling(self, token: int) -> list[int]:
        """Return the draft model's tokens for the text of a token; at least one."""
        if token not in self._spelled:
            text = self._common.target.pieces[token] or UNKNOWN_CONTROL
            self._spelled[token] = list(self._cut(text[:LONGEST_SPELLED])) or [STAND_IN]
        return self._spelled[token]

    def _cut(self, text: bytes) -> Iterator[int]:
        """Yield the tokens of a text, always the longest match; skip bytes without a token."""
        by_piece = self._common.draft.by_piece
        while text:
            ends = range(min(self._longest, len(text)), 0, -1)
            end = next((end for end in ends if text[:end] in by_piece), 0)
            if end:
                yield by_piece[text[:end]]
            text = text[end or 1 :]


def _by_name(target: Tokens, draft: Tokens) -> dict[int, int]:
    """Return the control tokens with the same names."""
    by_name = {
        name: token
        for token, (name, piece) in enumerate(zip(draft.names, draft.pieces, strict=True))
        if not piece
    }
    return {
        token: by_name[name]
        for token, (name, piece) in enumerate(zip(target.names, target.pieces, strict=True))
        if not piece and name in by_name
    }


def _paired_ends(
    common: CommonVocabulary, target: SpecialTokens, draft: SpecialTokens
) -> dict[int, int]:
    """Return the end tokens with the same names, and the usual ends if both are unmatched."""
    by_name = {common.draft.names[token]: token for token in draft.end_tokens}
    names = {token: common.target.names[token] for token in target.end_tokens}
    paired = {token: by_name[name] for token, name in names.items() if name in by_name}
    for token, other in zip(target.usual_ends(), draft.usual_ends(), strict=True):
        is_left = token not in paired and other not in paired.values()
        if is_left and token in target.end_tokens and other in draft.end_tokens:
            paired[token] = other
    return paired
