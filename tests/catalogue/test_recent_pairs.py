"""The pairs that were loaded last, and what the names of files say of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from specchat.catalogue import recent_pairs as recent
from specchat.catalogue.model_names import (
    are_trained_alike,
    model_title,
    model_words,
    quantisation_in,
)
from specchat.catalogue.recent_pairs import recent_pairs, recent_pairs_path, remember_pair
from tables import table

pytestmark = pytest.mark.usefixtures("_state")


@pytest.fixture
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of its own for what the chat remembers, and a clock that moves."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    seconds = iter(range(1, 1000))
    monkeypatch.setattr(recent, "time", lambda: float(next(seconds)))


def test_the_pair_loaded_last_comes_first() -> None:
    """Also if it was loaded before; a pair without a draft model has none."""
    assert recent_pairs() == []
    remember_pair("one", Path("/models/one.gguf"), Path("/models/draft.gguf"))
    remember_pair("two", Path("/models/two.gguf"), None)
    assert [(each.name, each.draft) for each in recent_pairs()] == [
        ("two", None),
        ("one", "/models/draft.gguf"),
    ]
    remember_pair("one", Path("/models/one.gguf"), None)
    assert [(each.name, each.draft) for each in recent_pairs()] == [("one", None), ("two", None)]


def test_the_oldest_pairs_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file does not grow for ever."""
    monkeypatch.setattr(recent, "MAX_PAIRS", 3)
    for name in "abcde":
        remember_pair(name, Path(f"{name}.gguf"), None)
    assert [each.name for each in recent_pairs()] == ["e", "d", "c"]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"a": {"name": 3}}'])
def test_a_damaged_file_is_no_hindrance(content: str) -> None:
    """Nothing is known then, and the next pair is remembered."""
    recent_pairs_path().parent.mkdir(parents=True)
    recent_pairs_path().write_text(content)
    assert recent_pairs() == []
    remember_pair("one", Path("one.gguf"), None)
    assert [each.name for each in recent_pairs()] == ["one"]


@table(
    ("name", "title", "quantisation"),
    [
        ("org/repo/Qwen3-8B-Q4_K_M.gguf", "Qwen3-8B", "Q4_K_M"),
        ("Qwen3-8B-UD-Q4_K_XL.gguf", "Qwen3-8B", "Q4_K_XL"),
        ("SmolLM2-135M-Instruct.Q4_1.gguf", "SmolLM2-135M-Instruct", "Q4_1"),
        ("Qwen3-8B-BF16-00001-of-00003.gguf", "Qwen3-8B", "BF16"),
        ("llama3:8b-instruct-q4_K_M", "llama3:8b-instruct", "Q4_K_M"),
        ("gpt-oss-20b-mxfp4.gguf", "gpt-oss-20b", "MXFP4"),
        ("Qwen3-8B.i1-Q4_K_M.gguf", "Qwen3-8B", "Q4_K_M"),
        ("Qwen3-8B-fp16.gguf", "Qwen3-8B", "FP16"),
        ("tiny:latest", "tiny:latest", ""),
        ("qwen3.gguf", "qwen3", ""),
    ],
)
def test_a_files_name_says_model_and_quantization(name: str, title: str, quantisation: str) -> None:
    """By the conventions of the hub's publishers and of Ollama."""
    assert model_title(name) == title
    assert quantisation_in(name) == quantisation


@table(
    ("head", "target"),
    [
        ("Qwen3-8B-DFlash-b16.gguf", "Qwen3-8B-Q4_K_M.gguf"),
        ("Qwen3-8B_dspark_block7.gguf", "Qwen3-8B.i1-Q4_K_M.gguf"),
        ("EAGLE3-LLaMA3.1-Instruct-8B.gguf", "Meta-Llama-3.1-8B-Instruct-Q8_0.gguf"),
        ("gpt-oss-20b-eagle3-specforge.fp16.gguf", "gpt-oss-20b-mxfp4.gguf"),
        ("mtp-Qwen3.6-27B-Q8_0.gguf", "Qwen3.6-27B-UD-Q4_K_XL-00001-of-00002.gguf"),
        ("gemma-4-31B-it-assistant.Q4_0.gguf", "gemma-4-31B-it-qat-Q4_0.gguf"),
        ("Qwen3-8B-speculator.eagle3.gguf", "Qwen3-8B-BF16.gguf"),
        ("gpt-oss-120b-Eagle3-throughput.gguf", "gpt-oss-120b-mxfp4.gguf"),
        ("gpt-oss-120b-Eagle3-long-context-Q8_0.gguf", "gpt-oss-120b-mxfp4.gguf"),
        ("gpt-oss-120b-Eagle3-v2.gguf", "gpt-oss-120b-mxfp4.gguf"),
        ("SGLang-EAGLE3-Qwen3-30B-A3B-SpecForge.gguf", "Qwen3-30B-A3B-Q4_K_M.gguf"),
        ("Qwen3-8B-DFlash-bs16-v2.gguf", "Qwen3-8B-Q4_K_M.gguf"),
        ("MTP_Qwen3.6-27B_Q8_0.gguf", "Qwen3.6-27B-Q4_K_M.gguf"),
        ("GLM-4.5-Air-106B-NextN-Q8_0.gguf", "GLM-4.5-Air-106B-Q4_K_M.gguf"),
        ("DeepSeek-V3-671B-NextN.gguf", "DeepSeek-V3-671B-Q4_K_M.gguf"),
    ],
)
def test_a_published_head_is_named_after_its_target(head: str, target: str) -> None:
    """But for the words of its kind, its blocks, and its quantization."""
    assert model_words(head) == model_words(target)
    size = next(word for word in model_words(target) if word.endswith("b"))
    newer = target.lower().replace(size, f"{size}-2507")
    assert model_words(newer) == {*model_words(target), "2507"}


@table(
    ("head", "target", "is_alike"),
    [
        ("Qwen3-8B-DFlash-b16.gguf", "Qwen3-8B-Q4_K_M.gguf", True),
        ("Qwen3-8B-DFlash-b16.gguf", "Qwen3-8B-Base-Q4_K_M.gguf", False),
        ("Qwen3-Coder-30B-A3B-DFlash.gguf", "Qwen3-Coder-30B-A3B-Instruct-Q4_K_M.gguf", True),
        ("LFM2.5-2.6B-DSpark-Q8_0.gguf", "LFM2.5-2.6B-Base-Q8_0.gguf", False),
        ("EAGLE3-LLaMA3.1-Instruct-8B.gguf", "Llama-3.1-8B-Q4_K_M.gguf", False),
        ("EAGLE3-LLaMA3.1-Instruct-8B.gguf", "Meta-Llama-3.1-8B-Instruct-Q8_0.gguf", True),
        ("EAGLE3-LLaMA3.1-Instruct-8B.gguf", "Hermes-3-Llama-3.1-8B-Q8_0.gguf", True),
        ("EAGLE3-LLaMA3.1-Instruct-8B.gguf", "library/llama3.1:8b-instruct-q4_0", True),
        ("EAGLE3-LLaMA3.1-Instruct-8B.gguf", "library/llama3.1:8b-text-q4_0", False),
        ("mtp-gemma-4-12B-it.gguf", "gemma-4-12B-Q4_K_M.gguf", False),
        ("mtp-gemma-4-12B-it.gguf", "gemma-4-12B-pt-Q4_K_M.gguf", False),
        ("mtp-gemma-4-12B-it.gguf", "gemma-4-12B-it-qat-UD-Q4_K_XL.gguf", True),
        ("mtp-gemma-4-12B-it.gguf", "gemma-4-12B-it-pt-br.gguf", True),
        ("mtp-gemma-4-12B-it.gguf", "org/gemma-4-12B-it-GGUF/gemma-4-12B.gguf", True),
        ("mtp-GLM-4.5-Air-Base.gguf", "GLM-4.5-Air-Q4_K_M.gguf", False),
        ("mtp-GLM-4.5-Air-Base.gguf", "GLM-4.5-Air-Base-Q4_K_M.gguf", True),
        ("base/GLM-4.5-Air-GGUF/mtp-GLM-4.5-Air.gguf", "GLM-4.5-Air-Q4_K_M.gguf", True),
        ("org/GLM-4.5-Air-Base-GGUF/mtp-GLM-4.5-Air.gguf", "GLM-4.5-Air.gguf", False),
        ("SmolLM2-135M-Instruct-eagle3.gguf", "SmolLM2-135M-Q4_1.gguf", False),
        ("SmolLM2-135M-Instruct-eagle3.gguf", "Qwen3-8B-Base-Chat-Q4_1.gguf", True),
    ],
)
def test_a_head_of_a_trained_model_is_not_one_for_its_base_model(
    head: str, target: str, *, is_alike: bool
) -> None:
    """Nor the other way; a fine-tuned version is another model's kin, a requantized one the same.

    A name that has the words of both says neither.
    """
    assert are_trained_alike([head], [target]) is is_alike
