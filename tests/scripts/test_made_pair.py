"""The pairs with random weights that speed is measured with."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader
from numpy.typing import NDArray

from scripts.support import made_pair
from scripts.support.made_pair import (
    BLOCKS,
    BYTES,
    Report,
    Shape,
    all_tensors,
    make_pair,
    rescale,
    write_model,
)
from specchat.llama import library

SHAPE = Shape(
    layers=3, width=64, heads=2, kv_heads=1, feed_forward=96, vocabulary=600, draft_layers=1
)
OUTPUT = "output.weight"


def blocks_of(path: Path) -> dict[str, NDArray[np.void]]:
    """Return the blocks of a model's matrices, by name, as gguf's own reader finds them."""
    tensors = GGUFReader(path).tensors
    return {each.name: each.data.view(BLOCKS).copy() for each in tensors if each.data.ndim == 2}


def test_the_draft_has_the_targets_first_tensors(tmp_path: Path) -> None:
    """Bit for bit: threads draw them, and each matrix has a stream of its own."""
    target, draft = tmp_path / "target.gguf", tmp_path / "draft.gguf"
    write_model(target, SHAPE, SHAPE.layers, seed=1)
    write_model(draft, SHAPE, SHAPE.draft_layers, seed=1)
    of_target, of_draft = blocks_of(target), blocks_of(draft)
    assert len(of_target) == 2 + 7 * SHAPE.layers
    assert len(of_draft) == 2 + 7 * SHAPE.draft_layers
    assert all(np.array_equal(of_target[name], data) for name, data in of_draft.items())
    assert len({data["levels"].tobytes() for data in of_target.values()}) == len(of_target)


def test_rescaling_changes_the_scales_alone(tmp_path: Path) -> None:
    """Of the tensors named; the end token's logit stays 0."""
    path = tmp_path / "model.gguf"
    write_model(path, SHAPE, SHAPE.layers, seed=1)
    before = blocks_of(path)
    rescaled = [each for each in all_tensors(SHAPE) if each.name in (OUTPUT, "blk.1.ffn_up.weight")]
    rescale(path, rescaled, 0.25)
    after = blocks_of(path)
    for tensor in rescaled:
        expected = np.full(before[tensor.name].shape, tensor.scale(0.25))
        if tensor.name == OUTPUT:
            expected[BYTES] = 0
        assert np.array_equal(after[tensor.name]["scale"], expected)
        assert np.array_equal(after[tensor.name]["levels"], before[tensor.name]["levels"])
        del before[tensor.name]
    assert all(np.array_equal(after[name], data) for name, data in before.items())


def test_a_pair_that_is_there_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless anything else is wanted."""
    wanted = {
        "shape": asdict(SHAPE),
        "agreement": 0.7,
        "top_probability": 0.45,
        "threads": 2,
        "tokens": 128,
        "seed": 1,
        "gpu_layers": 99,
    }
    report = Report("target.gguf", "draft.gguf", 9, wanted, agreement=0.69)
    (tmp_path / "pair.json").write_text(json.dumps(asdict(report)))

    def write_anew(*_: object) -> None:
        raise InterruptedError

    monkeypatch.setattr(made_pair, "write_model", write_anew)
    assert make_pair(tmp_path, SHAPE, agreement=0.7, tokens=128, gpu_layers=99) == report
    with pytest.raises(InterruptedError):
        make_pair(tmp_path, SHAPE, agreement=0.6, tokens=128, gpu_layers=99)
    assert not (tmp_path / "pair.json").exists()  # the files are no longer that pair's


def test_specchat_still_hears_llama_cpp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that silenced it took the reasons out of every later message of the process."""
    library.start()

    def write_nothing(*_: object) -> None:
        raise InterruptedError

    monkeypatch.setattr(made_pair, "write_model", write_nothing)
    with pytest.raises(InterruptedError):
        make_pair(tmp_path, SHAPE)
    library.last_errors()
    parameters = library.api.llama_model_default_params()
    assert library.api.llama_model_load_from_file(b"missing.gguf", parameters) is None
    assert "missing.gguf" in " ".join(library.last_errors())
