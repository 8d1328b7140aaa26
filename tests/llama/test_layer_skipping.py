"""Skipping layers: the same bits as a file without them, from one loaded model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from conftest import WriteModel
from specchat.errors import Cancelled, InvalidOption, SpecchatError
from specchat.llama import layer_skipping, tinyblas
from specchat.llama.layer_skipping import ForcedTexts
from specchat.llama.library import AbortFlag
from specchat.llama.model import Model
from specchat.llama.pruning import Copy, write_copy
from specchat.planning.context_shape import ModelOptions

OPTIONS = ModelOptions(gpu_layers=0, threads=1)
TEXTS = [(list(range(10, 70)), 40), (list(range(200, 230)), 7)]


@pytest.fixture(autouse=True)
def _usual_kernels() -> Iterator[None]:
    """Use the same kernels for all passes, whatever other engines of this process need."""
    with tinyblas.left_out(1):
        yield


def rows(path: Path, skipped: Collection[int] = ()) -> NDArray[np.float32]:
    """Return the logits along the texts, shape (47, vocabulary)."""
    with Model(path, OPTIONS) as model, ForcedTexts(model, TEXTS, OPTIONS) as forced:
        return np.array([row.copy() for row in forced.rows(skipped)])


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("skipped", [{1}, {2, 3}, {1, 4, 5}, {5}], ids=str)
@pytest.mark.parametrize("architecture", ["llama", "qwen3", "qwen3moe"])
def test_skipping_gives_the_bits_of_a_smaller_file(
    architecture: str, skipped: set[int], tiny: WriteModel, tmp_path: Path
) -> None:
    """Wherever the layers are, the last one included."""
    model = tiny(architecture, num_layers=6)
    write_copy(Copy(str(model), str(tmp_path / "draft.gguf"), tuple(skipped)))

    found = rows(model, skipped)
    assert found.shape[0] == 47
    assert np.array_equal(found, rows(tmp_path / "draft.gguf"))
    assert not np.array_equal(found, rows(model))


def test_one_context_evaluates_many_sets(tiny: WriteModel) -> None:
    """One after another, each as if it was the first."""
    path = tiny("llama", num_layers=6)
    with Model(path, OPTIONS) as model, ForcedTexts(model, TEXTS, OPTIONS) as forced:
        for skipped in ({2}, {1, 3}, (), {2}):
            found = np.array([row.copy() for row in forced.rows(skipped)])
            assert np.array_equal(found, rows(path, skipped))


def test_what_cannot_be_skipped_is_an_error(tiny: WriteModel) -> None:
    """A layer that llama.cpp does not show; Ctrl+C ends a pass."""
    path, abort = tiny("llama", num_layers=6), AbortFlag()
    with Model(path, OPTIONS) as model, ForcedTexts(model, TEXTS, OPTIONS, abort) as forced:
        with pytest.raises(SpecchatError, match="layers of llama cannot be skipped"):
            list(forced.rows({6}))
        abort.set()
        with pytest.raises(Cancelled):
            list(forced.rows({1}))


def test_no_more_tokens_count_than_can_be_rolled_back(tiny: WriteModel) -> None:
    """The logits of more could not be read from one pass."""
    path = tiny("llama", num_layers=6)
    with Model(path, OPTIONS) as model, pytest.raises(InvalidOption, match="rollback_length"):
        ForcedTexts(model, [(list(range(300)), 257)], OPTIONS)


def test_the_input_of_a_skipped_layer_must_have_been_seen(
    tiny: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise what happens to be beside it in memory would be copied."""
    copied: list[int] = []
    monkeypatch.setattr(layer_skipping, "_write", lambda *copy: copied.append(copy[-1]))
    path = tiny("llama", num_layers=6)
    with Model(path, OPTIONS) as model, ForcedTexts(model, TEXTS, OPTIONS) as forced:
        list(forced.rows({3}))  # which leaves an input behind
        copied.clear()
        monkeypatch.setattr(layer_skipping, "_name_of", without(b"l_out-1"))
        with pytest.raises(SpecchatError, match="layers of llama cannot be skipped"):
            list(forced.rows({2}))
    assert copied == []


def without(hidden: bytes) -> Callable[[int], bytes]:
    """Return a function that names results, but for one."""
    name_of = layer_skipping._name_of
    return lambda tensor: b"" if name_of(tensor) == hidden else name_of(tensor)
