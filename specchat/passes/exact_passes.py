"""Which passes over several tokens give the same bits as passes over one.

Kernels change with the number of tokens in a pass, and then add up in another order: the logits
differ in their last bits, and a near tie may fall the other way. Which lengths are exact depends on
the build, the types of the weights, flash attention and the depth of the context, so it is
measured.
"""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from time import perf_counter
from typing import Protocol

import numpy as np

from specchat.decoding.distribution import Logits
from specchat.decoding.ports import LanguageModel

LONGEST_COMPARED = 33
COMPARED_LENGTHS = (2, 3, 4, 7, 8, 15, 16, LONGEST_COMPARED)
"""Passes to compare. llama.cpp's kernels change at 2, 4, 8 and perhaps 16 tokens."""
FIRST_OF_KERNEL = (2, 4, 5, 8, 16)
"""If one length is inexact, so is every length of its kernel: most of their sums agree by chance,
as activations are rounded to 8 bits."""
MAX_STARTS, LONGEST_AT_STARTS, NUM_TEXTS = 4, 8, 4
"""Passes are compared at several places of a text, longer ones than LONGEST_AT_STARTS at one, and
in as many texts as a third of the time allows."""
DEPTHS = (16, 300, 1500)
"""Tokens in the memory: flash attention takes another path from 257 on, where llama.cpp reads 512
cells of the cache."""
NUM_COPIED = 60
"""Deeper memories are filled with copies of this many tokens, which takes no passes."""
SPREAD = 7919
"""A prime: neighbouring tokens are far apart in the vocabulary, as experts differ by token."""


class MemoryCopies(Protocol):
    """The operations of a memory that the comparison needs."""

    @property
    def can_speculate(self) -> bool:
        """Whether tokens can be removed from its end without emptying it."""

    def repeat(self, num_times: int) -> bool:
        """Make it hold its text this many times, without a pass; False if it cannot."""


class ComparedModel(LanguageModel, Protocol):
    """A model whose passes are compared."""

    @property
    def vocabulary_size(self) -> int:
        """The number of tokens in the vocabulary."""

    @property
    def longest_draft(self) -> int:
        """The number of tokens a step may draft and roll back."""

    @property
    def rollback_kind(self) -> MemoryCopies:
        """How the memory is rolled back."""


class InexactKernels(Protocol):
    """Fast kernels that round passes over several tokens differently, as tinyBLAS does."""

    def is_optional(self) -> bool:
        """Whether passes can be computed with or without them."""

    def longest_without(self) -> int:
        """Return the longest pass that these kernels do not compute."""

    def left_out(self, longest: int) -> AbstractContextManager[None]:
        """Disable these kernels in passes of up to `longest` tokens inside a `with` block."""


def depths_of(model: ComparedModel) -> list[int]:
    """Return the depths at which a model's passes are compared; none if they cannot be."""
    if not model.rollback_kind.can_speculate:
        return []
    return [depth for depth in DEPTHS if depth + 2 * LONGEST_COMPARED <= model.capacity]


def fill(model: ComparedModel, depth: int, deadline: float) -> bool:
    """Fill the memory with `depth` tokens; False if that takes too long."""
    model.prefill([])
    began = perf_counter()
    model.prefill(text_of(model, 0, min(depth, NUM_COPIED)))
    took = perf_counter() - began
    if depth <= NUM_COPIED or model.rollback_kind.repeat(depth // NUM_COPIED):
        return True
    model.prefill([])
    if perf_counter() + took * depth / NUM_COPIED > deadline:
        return False
    model.prefill(text_of(model, 0, depth))
    return True


def text_of(model: ComparedModel, start: int, stop: int) -> list[int]:
    """Return the tokens of a text that is the same at every depth."""
    return [1 + place * SPREAD % (model.vocabulary_size - 1) for place in range(start, stop)]


def longest_here(
    model: ComparedModel, most: int, deadline: float, on_pass: Callable[[], None]
) -> tuple[int, int]:
    """Return the longest pass, up to `most`, whose logits are those of single tokens.

    So are the logits of the token after it, and those of all shorter passes; 1 means that no pass
    over several tokens is exact. Passes are made after the present memory, the shortest first: what
    is not reached counts as inexact. The second value is the longest pass that may be exact: longer
    ones were found inexact. `on_pass` is called before each.
    """
    depth, began = model.length, perf_counter()
    longest, bound = _Comparison(model, depth, on_pass).longest(most, deadline)
    for number in range(1, NUM_TEXTS):
        if perf_counter() < began + (deadline - began) / 3:
            model.rollback(depth)
            further = _Comparison(model, depth + number * LONGEST_COMPARED, on_pass)
            proved, _ = further.longest(longest, math.inf)
            if proved < longest:
                longest = bound = proved
    return longest, bound


class _Comparison:
    """Passes of several lengths at one depth, compared with the rows of single tokens."""

    def __init__(self, model: ComparedModel, first: int, on_pass: Callable[[], None]) -> None:
        """Compare passes after the current memory, over the text from its token `first` on.

        `on_pass` is called before each.
        """
        self._model = model
        self._on_pass = on_pass
        self._base = model.length
        self._tokens = text_of(model, first, first + LONGEST_COMPARED + 1)
        self._rows: list[Logits] = []

    def longest(self, most: int, deadline: float) -> tuple[int, int]:
        """Return the longest pass of up to `most` tokens proved exact, and the longest that may be.

        They differ where the time was too short.
        """
        proved, bound = 1, most
        for length in (*[length for length in COMPARED_LENGTHS if length < most], most):
            if perf_counter() > deadline:
                return proved, bound
            self._know(length + 1, proved)
            if not self._is_exact(0, length):
                proved = min(proved, _below(length))
                return proved, proved
            proved = length
        for start in range(1, MAX_STARTS):
            for length in COMPARED_LENGTHS:
                is_known = start + length < len(self._rows)
                if length > min(proved, LONGEST_AT_STARTS) or perf_counter() > deadline:
                    break
                if is_known and not self._is_exact(start, length):
                    proved = bound = min(proved, _below(length))
        return proved, bound

    def _know(self, num_rows: int, proved: int) -> None:
        """Get more rows, by passes of a length known to be exact."""
        self._model.rollback(self._base + len(self._rows))
        while (missing := num_rows - len(self._rows)) > 0:
            self._rows += self._evaluate(len(self._rows), min(proved, missing))

    def _is_exact(self, start: int, length: int) -> bool:
        """Compare a pass, and the token after it, with the known rows."""
        self._model.rollback(self._base)
        if start:
            self._evaluate(0, start)
        found = self._evaluate(start, length) + self._evaluate(start + length, 1)
        return all(map(np.array_equal, found, self._rows[start:]))

    def _evaluate(self, start: int, length: int) -> list[Logits]:
        self._on_pass()
        tokens = self._tokens[start : start + length]
        return [row.copy() for row in self._model.evaluate(tokens, length)]


def _below(length: int) -> int:
    """Return the longest pass that does not use the kernel of an inexact one."""
    return max(first for first in FIRST_OF_KERNEL if first <= length) - 1
