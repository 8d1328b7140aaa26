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
from collections.abc import Callable
from time import perf_counter

import numpy as np

from specchat.decoding.distribution import Logits
from specchat.llama.context import Context
from specchat.llama.library import api
from specchat.options.declarations import LONGEST_DRAFT

MIN_COLUMNS: dict[str, int] = {"on": LONGEST_DRAFT + 2, "auto": 4, "off": 2}
"""Where tinyBLAS begins. Without it passes over 2 tokens cost nothing more at most depths, but over
4 and more after 1500 tokens 5 to 40 %; `specchat help speculation` has the figures."""
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


def choose_kernels(exact: str) -> None:
    """Set where tinyBLAS begins, in this process; keep what another engine in it needs."""
    columns = _columns()
    if columns is not None:
        columns.value = max(columns.value, MIN_COLUMNS[exact])


def longest_without_tinyblas() -> int:
    """Return the longest pass that tinyBLAS has no part in, LONGEST_DRAFT + 1 without it."""
    system = api.llama_print_system_info() or b""
    if b"LLAMAFILE = 1" not in system or api.llama_supports_gpu_offload():
        return LONGEST_DRAFT + 1
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
) -> int:
    """Return the longest pass whose logits, and those after it, are those of single tokens.

    All shorter ones are exact too; 1 means that none of several tokens is. Lengths are compared
    from the shortest on, at several depths, for up to `most_seconds`: what is not reached counts as
    inexact. The memory is empty afterwards.
    """
    began = perf_counter()
    longest = min(context.longest_draft + 1, LENGTHS[-1], longest_without_tinyblas())
    if not context.rollback_kind.can_speculate:
        return 1
    depths = depths_of(context)
    for number, depth in enumerate(depths, 1):
        if longest == 1:
            break
        deadline = began + most_seconds * number / len(depths)
        if _fill(context, depth, deadline):
            longest = _longest_here(context, longest, deadline)
        if on_share:
            on_share(number / len(depths))
    context.prefill([])
    return longest


def depths_of(context: Context) -> list[int]:
    """Return the depths at which a context's passes are compared."""
    return [depth for depth in DEPTHS if depth + 2 * LENGTHS[-1] <= context.capacity]


def _fill(context: Context, depth: int, deadline: float) -> bool:
    """Fill the memory with `depth` tokens; False if that takes too long."""
    context.prefill([])
    began = perf_counter()
    context.prefill(_tokens(context, 0, min(depth, NUM_COPIED)))
    took = perf_counter() - began
    if depth <= NUM_COPIED or context.rollback_kind.repeat(depth // NUM_COPIED):
        return True
    context.prefill([])
    if perf_counter() + took * depth / NUM_COPIED > deadline:
        return False
    context.prefill(_tokens(context, 0, depth))
    return True


def _tokens(context: Context, start: int, stop: int) -> list[int]:
    """Return the tokens of a text that is the same at every depth."""
    return [
        1 + place * SPREAD % (context.model.vocabulary.size - 1) for place in range(start, stop)
    ]


def _longest_here(context: Context, most: int, deadline: float) -> int:
    """Return the longest exact pass at the present depth, in the texts that the time allows."""
    depth, began = context.length, perf_counter()
    longest = _Comparison(context, depth).longest(most, deadline)
    for number in range(1, NUM_TEXTS):
        if perf_counter() < began + (deadline - began) / 3:
            context.rollback(depth)
            further = _Comparison(context, depth + number * LENGTHS[-1])
            longest = further.longest(longest, math.inf)
    return longest


class _Comparison:
    """Passes of several lengths at one depth, compared with the rows of single tokens."""

    def __init__(self, context: Context, first: int) -> None:
        """Compare after what is in the memory, with the text from its token `first` on."""
        self._context = context
        self._base = context.length
        self._tokens = _tokens(context, first, first + LENGTHS[-1] + 1)
        self._rows: list[Logits] = []

    def longest(self, most: int, deadline: float) -> int:
        """Return the longest exact pass of up to `most` tokens that the time allows to prove."""
        proved = 1
        for length in (*[length for length in LENGTHS if length < most], most):
            if perf_counter() > deadline:
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
