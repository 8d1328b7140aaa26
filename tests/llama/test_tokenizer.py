"""Texts that follow another one, as tokens."""

from __future__ import annotations

from pathlib import Path

from scripts.support.tiny_gguf.parrot import Words, write_parrot
from specchat.llama.model import Model
from specchat.planning.context_shape import ModelOptions


def test_a_text_that_follows_another_begins_as_it_would_there(tmp_path: Path) -> None:
    """Rules that split texts at punctuation see nothing before it: `_in` stays one token."""
    words = Words(pre="qwen2", merges=("i n", "_ in"), normal=("in", "_in"))
    write_parrot(tmp_path / "parrot.gguf", ["a"], words)
    with Model(tmp_path / "parrot.gguf", ModelOptions()) as model:
        vocabulary = model.vocabulary
        whole = vocabulary.tokenize("a_in_in", add_special=False, parse_special=False)
        rest = vocabulary.tokenize_more("_in_in", parse_special=False)
        assert [vocabulary.piece(token) for token in rest] == [b"_in"] * 2
    assert whole[-2:] == rest
