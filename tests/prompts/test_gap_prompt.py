"""Prompts that ask a model to fill a gap."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from scripts.support.tiny_gguf import Words, write_parrot
from specchat.errors import ContextFull, InvalidOption
from specchat.llama.model import Model
from specchat.llama.text_memory import count_common
from specchat.planning.context_shape import ModelOptions
from specchat.prompts.preparing import Preparation
from specchat.requests.gap import ContextFile, Gap

MARKS = ("<fim_prefix>", "<fim_suffix>", "<fim_middle>")
NAMES = ("<|repo_name|>", "<|file_sep|>")
CAPACITY = 4096
Load: TypeAlias = Callable[..., Preparation]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Return a function that loads the vocabulary of a model with these special tokens."""

    def made(*marks: str, **words: Any) -> Preparation:
        control = ("<s>", "</s>", *marks)
        path = write_parrot(
            tmp_path / "coder.gguf", ["x", "</s>"], Words(control, eos="</s>", **words)
        )
        model = Model(path, ModelOptions(gpu_layers=0, vocabulary_only=True))
        return Preparation(model, CAPACITY, foresees_next=False)

    return made


def written(preparation: Preparation, gap: Gap) -> str:
    """Return a prompt as text."""
    return b"".join(preparation.detokenize(preparation.fill(gap))).decode()


@pytest.mark.parametrize("sentencepiece", [False, True])
def test_a_prompt_has_both_sides_of_the_gap(load: Load, *, sentencepiece: bool) -> None:
    """As they are: no space is added, and names of special tokens stay text."""
    preparation = load(*MARKS, sentencepiece=sentencepiece, normal=(" ",), bos="<s>", add_bos=True)
    gap = Gap("a <fim_middle>", " b</s>")
    assert (
        written(preparation, gap) == "<s><fim_prefix>a <fim_middle><fim_suffix> b</s><fim_middle>"
    )
    special = preparation.tokenize("<fim_middle>", special=True, begins=False)
    tokens = preparation.fill(gap)
    assert tokens[-1:] == special
    assert tokens.count(special[0]) == 1


def test_files_have_the_marks_that_the_model_knows(load: Load) -> None:
    """Their names, or a line between them; the text begins once, and first."""
    files = [ContextFile("a.py", "one"), ContextFile("b.py", "two")]
    gap = Gap("x", "y", files, makes_room=True)
    end = "<fim_prefix>x<fim_suffix>y<fim_middle>"
    snippet = "\n\n--- snippet ---\n\n"
    assert written(load(*MARKS, bos="<s>", add_bos=True), gap) == (
        f"<s>{snippet}one{snippet}two{end}"
    )
    assert written(load(*MARKS, *NAMES), gap) == (
        "<|repo_name|>myproject\n<|file_sep|>a.py\none<|file_sep|>b.py\ntwo<|file_sep|>filename\n"
        + end
    )


def test_the_newest_files_that_fit_are_read(load: Load) -> None:
    """Whole, and the same ones however much there is around the gap."""
    preparation = load(*MARKS)
    files = [ContextFile("", "q" * 1500) for _ in range(9)]
    for before in ("", "a" * 9000):
        gap = Gap(before, "b" * 9000, files, max_tokens=100, makes_room=True)
        text = written(preparation, gap)
        assert text.count("q" * 1500) == 1
        assert CAPACITY - 1500 - 1536 < len(preparation.fill(gap)) <= CAPACITY - 100
    huge = ContextFile("", "q" * 10**7)
    assert "q" not in written(preparation, Gap("", "", [*files, huge], makes_room=True))


def test_what_is_cut_stays_while_one_types(load: Load) -> None:
    """So that nearly all of it is known from the keystroke before."""
    preparation = load(*MARKS)
    text = "".join(map(chr, range(97, 123))) * 400
    prompts = [
        preparation.fill(Gap(text[:length], "end", makes_room=True)) for length in range(9000, 9200)
    ]
    sizes = [len(prompt) for prompt in prompts]
    assert max(sizes) < 1550
    assert min(sizes) > 1100
    shared = [count_common(prompt, following) for prompt, following in pairwise(prompts)]
    assert sum(each > 1000 for each in shared) >= len(shared) - 1


def test_a_text_that_is_all_wanted_is_never_cut(load: Load) -> None:
    """It is refused if it is far too long."""
    preparation = load(*MARKS)
    assert len(preparation.fill(Gap("a" * 4000, "b" * 4000))) == 8003
    for gap in (Gap("a" * 10**6, ""), Gap("", "a" * 10**6)):
        with pytest.raises(ContextFull):
            preparation.fill(gap)


def test_a_model_without_the_tokens_is_refused(load: Load) -> None:
    """By its name."""
    with pytest.raises(InvalidOption, match="parrot cannot fill in the middle"):
        load(*MARKS[:2]).fill(Gap("", ""))
