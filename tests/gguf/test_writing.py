"""Writing a small GGUF file with the vocabulary of another one."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

from specchat.catalogue.pairs import load_pairs
from specchat.gguf.reader import raw_metadata, read_header
from specchat.gguf.vocabulary_facts import vocabulary_of
from specchat.gguf.writer import Value, gguf_bytes, quantized, quantized_well

RANDOM = np.random.default_rng(0)


def restored(
    weights: np.ndarray[tuple[int, ...], np.dtype[np.float32]],
) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Return a matrix after quantization, read by the reference implementation."""
    data = np.frombuffer(quantized(weights), np.uint8).reshape(len(weights), -1)
    return gguf.quants.dequantize(data, gguf.GGMLQuantizationType.Q4_0).astype(np.float32)


def test_quantization_is_at_least_as_close_as_the_reference() -> None:
    """The error is below that of the usual scales; zeros stay zeros."""
    weights = RANDOM.normal(size=(50, 96)).astype(np.float32)
    weights[3] = 0
    kind = gguf.GGMLQuantizationType.Q4_0
    usual = gguf.quants.dequantize(gguf.quants.quantize(weights, kind), kind)
    error = float(((restored(weights) - weights) ** 2).mean())
    assert error < 0.97 * float(((usual - weights) ** 2).mean())
    assert not restored(weights)[3].any()


def test_a_file_has_its_metadata_tensors_and_the_other_vocabulary(tmp_path: Path) -> None:
    """The header and the reference reader find what was written."""
    source = load_pairs()["demo"].target
    matrix, vector = RANDOM.normal(size=(5, 64)).astype(np.float32), np.arange(7, dtype=np.float32)
    metadata: dict[str, Value] = {
        "general.architecture": "llama",
        "general.name": "né",
        "llama.block_count": 3,
        "llama.rope.freq_base": 1e4,
        "llama.is_so": True,
        "llama.layers": (2, -1, 7),
    }
    numbers = np.array([3, 2**40, -1])
    tensors = {"a": vector, "b": matrix, "d2t": numbers, "e": matrix}
    place = tmp_path / "written.gguf"
    entries = raw_metadata(source, "tokenizer.")
    place.write_bytes(gguf_bytes(metadata, entries, tensors, fine={"e"}))
    header = read_header(place)
    assert {key: header.metadata[key] for key in metadata} == metadata
    assert header.tensors["b"].shape == (64, 5)
    assert vocabulary_of(header).digest == vocabulary_of(read_header(source)).digest
    assert header.chat_template == read_header(source).chat_template
    found = {each.name: each for each in gguf.GGUFReader(place).tensors}
    assert found["a"].data.tolist() == vector.tolist()
    assert found["d2t"].data.tolist() == numbers.tolist()
    assert header.tensors["d2t"].stored == gguf.GGMLQuantizationType.I64
    assert found["b"].data.tobytes() == quantized(matrix)
    assert found["e"].data.tobytes() == quantized_well(matrix)


def test_eight_bits_are_those_of_the_reference() -> None:
    """As the Python package gguf quantizes, up to its rounding of halves; zeros stay zeros."""
    weights = RANDOM.normal(size=(40, 96)).astype(np.float32)
    weights[3] = 0.0
    kind = gguf.GGMLQuantizationType.Q8_0
    ours = np.frombuffer(quantized_well(weights), np.uint8).reshape(40, -1)
    restored_well = gguf.quants.dequantize(ours, kind)
    usual = gguf.quants.dequantize(gguf.quants.quantize(weights, kind), kind)
    assert abs(restored_well - weights).max() <= 1.01 * abs(usual - weights).max()
    assert not restored_well[3].any()
