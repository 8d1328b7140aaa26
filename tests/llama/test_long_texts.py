"""Long prompts are tokenized in pieces, with the same tokens as in one."""

from __future__ import annotations

import random

import pytest

from conftest import WriteModel
from scripts.support.tiny_gguf import Vocabulary as Words
from specchat.llama import long_texts, tokenizer
from specchat.llama.long_texts import Cuts, PieceTokens
from specchat.llama.model import Model
from specchat.planning.context_shape import ModelOptions
from tables import table

PIECES = ("hello", " world", "\n", "\n\n", "  ", "a", "<", "<|", "|>", "é", "🙂", "<|im", "start|>")


@pytest.fixture(scope="module", params=["byte pairs", "SentencePiece"])
def model(request: pytest.FixtureRequest, tiny: WriteModel) -> Model:
    """Return the vocabulary of a tiny model."""
    words = Words(sentencepiece=request.param == "SentencePiece")
    return Model(tiny("llama", vocabulary=words), ModelOptions(gpu_layers=0, vocabulary_only=True))


def texts(names: list[str]) -> list[str]:
    """Return long texts of words and special tokens' names, in any order."""
    chance = random.Random(1)
    kinds = [names, PIECES]
    return [
        "".join(
            chance.choice(kinds[chance.random() < 0.7]) for _ in range(chance.randint(600, 900))
        )
        for _ in range(50)
    ]


def test_pieces_have_the_tokens_of_the_whole(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the tokens that a text begins and ends with, too."""
    vocabulary = model.vocabulary
    names = [vocabulary.name(token) for token in range(3)]
    for special in (False, True):
        for text in texts(names):
            assert len(text) > long_texts.WHOLE
            cut = vocabulary.tokenize(text, add_special=special, parse_special=True)
            with monkeypatch.context() as patch:
                patch.setattr(tokenizer, "WHOLE", len(text))
                assert cut == vocabulary.tokenize(text, add_special=special, parse_special=True)


def test_no_call_has_many_special_tokens(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """llama.cpp would take minutes for them; what was read before is not read again."""
    vocabulary, asked = model.vocabulary, list[str]()
    read = vocabulary._tokenize

    def note(text: str, **options: bool) -> list[int]:
        asked.append(text)
        return read(text, **options)

    monkeypatch.setattr(vocabulary, "_pieces", PieceTokens(lambda text: note(
        text, add_special=False, parse_special=True
    )))  # fmt: skip
    text = "".join(f"<|im_start|>user\n{number % 26}<|im_end|>\n" for number in range(2000))
    tokens = vocabulary.tokenize(text, add_special=False, parse_special=True)
    assert len(tokens) >= 4000
    assert max(part.count("<|im_") for part in asked) == 1
    assert len(asked) <= 28
    asked.clear()
    assert vocabulary.tokenize(text + "so", add_special=False, parse_special=True)
    assert asked == ["<|im_end|>\nso"]


@table(
    "names, text, parts",
    [
        (["<a>", "<b>"], "x<a>y<b>", ["x", "<a>y", "<b>"]),
        (["<a>", "x<a"], "x<a>y", ["x<a>y"]),  # the other one may begin before it
        (["<a>", "<<a>>"], "<<a>>y", ["<<a>>y"]),  # or contain it
        (["<a>", ">yes!"], "x<a>yes!", ["x<a>yes!"]),  # or hide its end
        (["<a>", "<a><a>"], "x<a>y", ["x<a>y"]),
    ],
)
def test_a_text_is_cut_only_where_nothing_hides_the_name(
    names: list[str], text: str, parts: list[str]
) -> None:
    """Longer names are found first."""
    assert list(Cuts(names, []).parts(text)) == parts


def test_no_file_makes_cutting_take_all_memory() -> None:
    """A name of megabytes, or very many of them: texts are tokenized in one piece then."""
    for names in (["<" + "a" * 1_000_000], [f"<{number:030}>" for number in range(20_000)]):
        text = names[0] + "x" + names[-1]
        assert list(Cuts(names, []).parts(text)) == [text]


def test_a_token_that_takes_the_spaces_before_it_is_no_cut() -> None:
    """They belong to it."""
    assert list(Cuts(["<a>"], ["<a>"]).parts("x  <a>")) == ["x  <a>"]


def test_the_oldest_pieces_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Conversations end, and texts come from anyone."""
    monkeypatch.setattr(long_texts, "REMEMBERED", 10 + 2 * long_texts.ENTRY)
    asked = list[str]()

    def note(text: str) -> list[int]:
        asked.append(text)
        return [len(text)]

    pieces = PieceTokens(note)
    for text in ("aaaa", "bbbb", "aaaa", "cccc", "bbbb", "aaaa"):
        assert list(pieces.of(text)) == [4]
    assert asked == ["aaaa", "bbbb", "cccc", "bbbb", "aaaa"]
