"""A real context beside one that evaluates every text from scratch: what a rollback must equal."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from conftest import WriteModel
from specchat.llama.context import Context
from specchat.llama.library import AbortFlag
from specchat.llama.model import Model
from specchat.planning.context_shape import ModelOptions

EXACT = ModelOptions(ctx=1024, flash_attention="off", cache_type="f32", threads=1)
TOLERANCE, DEVICE_TOLERANCE = 0.02, 0.1
"""Logits of the tiny models have a standard deviation of about 5; wrong ones are off by 5 to 24.
CUDA's kernels for one token and for several differ by up to 0.03."""


class Bench:
    """A context, and another one of the same model that evaluates whole texts from scratch."""

    def __init__(self, model: Model, options: ModelOptions, fresh_batch: int) -> None:
        """Create both contexts; the second evaluates up to `fresh_batch` tokens per pass."""
        self.abort = AbortFlag()
        self.is_on_device = False
        self.memory = Context(model, options, self.abort)
        self._fresh = Context(model, replace(options, batch=fresh_batch))

    def expected(self, tokens: Sequence[int], num_rows: int) -> npt.NDArray[np.float32]:
        """Return the logits after each of the last tokens, shape (rows, vocabulary)."""
        self._fresh.prefill([])
        self._fresh.prefill(tokens[:-num_rows])
        return np.array(self._fresh.evaluate(tokens[-num_rows:], num_rows))

    def require_right(self) -> None:
        """Assert that the logits after one more token are right; leave the memory unchanged."""
        text = list(self.memory.tokens)
        found = np.array(self.memory.evaluate([42], 1))
        assert self.memory.tokens == [*text, 42]
        tolerance = DEVICE_TOLERANCE if self.is_on_device else TOLERANCE
        assert found == pytest.approx(self.expected([*text, 42], 1), abs=tolerance)
        self.memory.rollback(len(text))
        assert self.memory.tokens == text

    def close(self) -> None:
        """Free both."""
        self.memory.close()
        self._fresh.close()


@contextmanager
def bench(
    tiny: WriteModel, architecture: str, *, fresh_batch: int = 512, **options: Any
) -> Iterator[Bench]:
    """Load a tiny model and return a bench for it."""
    chosen = replace(EXACT, **options)
    with Model(tiny(architecture, num_layers=2), chosen) as model:
        made = Bench(model, chosen, fresh_batch)
        made.is_on_device = "gpu_layers" in options
        try:
            yield made
        finally:
            made.close()
