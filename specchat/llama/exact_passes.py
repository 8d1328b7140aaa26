"""Which passes over several tokens give the same bits as passes over one.

Kernels change with the number of tokens in a pass, and then add up in another order: the logits
differ in their last bits, and a near tie may fall the other way. Which lengths are exact depends on
the build, the types of the weights, flash attention and the depth of the context, so it is
measured.

On CPUs, tinyBLAS takes over products of two columns and more, and adds up in another order. The
set-up builds llama.cpp with a variable for where it begins (scripts/setup_env/exact_kernels.py), so
that prompts still have its speed and verification does not need it. Other builds have none.
"""

import ctypes
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter

import numpy as np

from specchat.decoding.distribution import Logits
from specchat.llama.context import Context
from specchat.llama.library import api
from specchat.options.declarations import LONGEST_DRAFT

LONGEST_PASS = LONGEST_DRAFT + 1
LENGTHS = (2, 3, 4, 7, 8, 15, 16, 33)
"""Passes to compare. llama.cpp's kernels change at 2, 4, 8 and perhaps 16 tokens."""
FIRST_OF_KERNEL = (2, 4, 5, 8, 16)
"""If one length is inexact, so is every length of its kernel: most of their sums agree by chance,
as activations are rounded to 8 bits."""
ROUNDS, LONGEST_REPEATED, NUM_TEXTS = 4, 8, 4
"""Passes are compared at several places of a text, longer ones than LONGEST_REPEATED at one, and in
as many texts as a third of the time allows."""
DEPTHS = (16, 600, 1500)
"""Tokens in the memory: flash attention takes another way from 512 on."""
NUM_COPIED = 60
"""Deeper memories are filled with copies of this many tokens, which takes no passes."""
SPREAD = 7919
"""A prime: neighbouring tokens are far apart in the vocabulary, as experts differ by token."""


def leave_out_tinyblas(longest: int) -> None:
    """Compute passes of up to `longest` tokens without tinyBLAS, in this process.

    What another engine in it needs is kept.
    """
    columns = _columns()
    if columns is not None:
        columns.value = max(columns.value, longest + 1)


@contextmanager
def without_tinyblas(longest: int) -> Iterator[None]:
    """Compute passes of up to `longest` tokens without tinyBLAS for a while, longer ones with it.

    Only for measurements. It changes nothing in a build without the variable.
    """
    columns = _columns() or ctypes.c_int()
    before, columns.value = columns.value, longest + 1
    try:
        yield
    finally:
        columns.value = before


def has_choice() -> bool:
    """Whether this build can compute passes with or without tinyBLAS."""
    return _columns() is not None


def longest_without_tinyblas() -> int:
    """Return the longest pass that tinyBLAS has no part in, LONGEST_PASS without it."""
    system = api.llama_print_system_info() or b""
    if b"LLAMAFILE = 1" not in system or api.llama_supports_gpu_offload():
        return LONGEST_PASS
    columns = _columns()
    return columns.value - 1 if columns is not None else 1


def _columns() -> ctypes.c_int | None:
    """Return the variable; None in a build without it."""
    try:
        return ctypes.c_int.in_dll(api._lib, "specchat_min_columns")  # noqa: SLF001  # the one handle there is
    except ValueError:
        return None


def longest_exact_pass(
    context: Context, most_seconds: float, on_share: Callable[[float], None] | None = None
) -> tuple[int, bool]:
    """Return the longest pass whose logits, and those after it, are those of single tokens.

    All shorter ones are exact too; 1 means that none of several tokens is. Lengths are compared
    from the shortest on, at several depths, for up to `most_seconds`: what is not reached counts as
    inexact, and then the second value is False. The memory is empty afterwards.
    """
    began, has_reached_all = perf_counter(), True
    longest = min(context.longest_draft + 1, LENGTHS[-1], longest_without_tinyblas())
    depths = depths_of(context)
    if not depths or not context.rollback_kind.can_speculate:
        return 1, True
    for number, depth in enumerate(depths, 1):
        if longest == 1:
            break
        deadline = began + most_seconds * number / len(depths)
        if fill(context, depth, deadline):
            longest, is_all = _longest_here(context, longest, deadline)
            has_reached_all &= is_all
        if on_share:
            on_share(number / len(depths))
    context.prefill([])
    return longest, has_reached_all


def depths_of(context: Context) -> list[int]:
    """Return the depths at which a context's passes are compared."""
    return [depth for depth in DEPTHS if depth + 2 * LENGTHS[-1] <= context.capacity]


def fill(context: Context, depth: int, deadline: float) -> bool:
    """Fill the memory with `depth` tokens; False if that takes too long."""
    context.prefill([])
    began = perf_counter()
    context.prefill(text_of(context, 0, min(depth, NUM_COPIED)))
    took = perf_counter() - began
    if depth <= NUM_COPIED or context.rollback_kind.repeat(depth // NUM_COPIED):
        return True
    context.prefill([])
    if perf_counter() + took * depth / NUM_COPIED > deadline:
        return False
    context.prefill(text_of(context, 0, depth))
    return True


def text_of(context: Context, start: int, stop: int) -> list[int]:
    """Return the tokens of a text that is the same at every depth."""
    return [
        1 + place * SPREAD % (context.model.vocabulary.size - 1) for place in range(start, stop)
    ]


def _longest_here(context: Context, most: int, deadline: float) -> tuple[int, bool]:
    """Return the longest exact pass at the present depth, and if there was time for all lengths."""
    depth, began = context.length, perf_counter()
    comparison = _Comparison(context, depth)
    longest = comparison.longest(most, deadline)
    for number in range(1, NUM_TEXTS):
        if perf_counter() < began + (deadline - began) / 3:
            context.rollback(depth)
            further = _Comparison(context, depth + number * LENGTHS[-1])
            longest = further.longest(longest, math.inf)
    return longest, comparison.has_reached_all


class _Comparison:
    """Passes of several lengths at one depth, compared with the rows of single tokens."""

    def __init__(self, context: Context, first: int) -> None:
        """Compare after what is in the memory, with the text from its token `first` on."""
        self._context = context
        self._base = context.length
        self._tokens = text_of(context, first, first + LENGTHS[-1] + 1)
        self._rows: list[Logits] = []
        self.has_reached_all = True

    def longest(self, most: int, deadline: float) -> int:
        """Return the longest exact pass of up to `most` tokens that the time allows to prove."""
        proved = 1
        for length in (*[length for length in LENGTHS if length < most], most):
            if perf_counter() > deadline:
                self.has_reached_all = False
                return proved
            self._know(length + 1, proved)
            if not self._is_exact(0, length):
                return min(proved, _below(length))
            proved = length
        for start in range(1, ROUNDS):
            for length in LENGTHS:
                is_known = start + length < len(self._rows)
                if length > min(proved, LONGEST_REPEATED) or perf_counter() > deadline:
                    break
                if is_known and not self._is_exact(start, length):
                    proved = min(proved, _below(length))
        return proved

    def _know(self, num_rows: int, proved: int) -> None:
        """Get more rows, by passes of a length known to be exact."""
        self._context.rollback(self._base + len(self._rows))
        while (missing := num_rows - len(self._rows)) > 0:
            self._rows += self._evaluate(len(self._rows), min(proved, missing))

    def _is_exact(self, start: int, length: int) -> bool:
        """Compare a pass, and the token after it, with the known rows."""
        self._context.rollback(self._base)
        if start:
            self._evaluate(0, start)
        found = self._evaluate(start, length) + self._evaluate(start + length, 1)
        return all(map(np.array_equal, found, self._rows[start:]))

    def _evaluate(self, start: int, length: int) -> list[Logits]:
        tokens = self._tokens[start : start + length]
        return [row.copy() for row in self._context.evaluate(tokens, length)]


def _below(length: int) -> int:
    """Return the longest pass that does without the kernel of an inexact one."""
    return max(first for first in FIRST_OF_KERNEL if first <= length) - 1
