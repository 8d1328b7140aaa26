"""Vocabularies compared by their files: the same verdicts as llama.cpp's once they are loaded."""

import re
from dataclasses import replace
from pathlib import Path
from struct import Struct
from typing import Any

import pytest

from conftest import WriteModel
from scripts.support.tiny_gguf import Vocabulary
from specchat.catalogue.pairs import find_pair
from specchat.errors import IncompatibleDraft, ModelWontLoad
from specchat.gguf import reader
from specchat.gguf.common_vocabulary import CommonVocabulary, common_vocabulary, read_tokens
from specchat.gguf.cursor import Cursor
from specchat.gguf.header import Header, LongArray, Value
from specchat.gguf.reader import read_header
from specchat.gguf.vocabulary_facts import (
    FIRST_COMPARED_TOKEN,
    VocabularyFacts,
    mismatch,
    vocabulary_of,
)
from specchat.llama.library import api
from specchat.llama.model import Model
from specchat.planning.context_shape import ModelOptions
from tables import table

KINDS = ("none", "SPM", "BPE", "WPM", "UGM", "RWKV", "PLaMo")
"""Names of llama.cpp's vocabulary types, by number (enum llama_vocab_type)."""

DRAFTS: dict[str, dict[str, Any]] = {
    "the same": {},
    "another architecture": {"architecture": "qwen3"},
    "a few tokens more": {"vocabulary": 448},
    "too many more": {"vocabulary": 449},
    "another token": {"vocabulary": Vocabulary(changed_token=270)},
    "another token among the first five": {"vocabulary": Vocabulary(changed_token=4)},
    "another token among the shared ones": {"vocabulary": Vocabulary(size=400, changed_token=319)},
    "another token after them": {"vocabulary": Vocabulary(size=400, changed_token=320)},
    "another end": {"vocabulary": Vocabulary(eos=0)},
    "no tokenizer": {"tokenizer": False},
}


@table("kind", DRAFTS)
def test_a_draft_fits_by_its_file_where_it_fits_once_loaded(tiny: WriteModel, kind: str) -> None:
    """What llama.cpp says of both once they are loaded gives the same verdict and reason."""
    options = dict(DRAFTS[kind])
    paths = tiny("llama"), tiny(options.pop("architecture", "llama"), **options)

    load = ModelOptions(gpu_layers=0)
    with Model(paths[0], load) as target, Model(paths[1], load) as draft:
        texts = zip(loaded_texts(target), loaded_texts(draft), strict=False)
        reason = mismatch(loaded_facts(target), loaded_facts(draft), texts)

    headers = [read_header(path) for path in paths]
    if kind == "no tokenizer":
        with pytest.raises(IncompatibleDraft, match=re.escape(f": {reason}, and they have only")):
            common_vocabulary(*headers)
    else:
        assert (common_vocabulary(*headers) is None) == (reason is None)


def loaded_facts(model: Model) -> VocabularyFacts:
    """Return the facts that llama.cpp finds in a loaded model's vocabulary."""
    vocab = model.vocabulary._vocab
    kind = KINDS[api.llama_vocab_type(vocab)]
    eos = api.llama_vocab_eos(vocab) if api.llama_vocab_get_add_eos(vocab) else None
    return VocabularyFacts(kind, model.vocabulary.size, model.vocabulary.bos(), eos)


def loaded_texts(model: Model) -> list[bytes]:
    """Return the texts of a loaded model's tokens from id 5 on, as llama.cpp has them."""
    vocabulary = model.vocabulary
    tokens = range(FIRST_COMPARED_TOKEN, vocabulary.size if vocabulary.has_tokenizer else 0)
    return [vocabulary.text(token) for token in tokens]


def test_the_facts_are_those_of_the_loaded_vocabulary(tiny: WriteModel) -> None:
    """Size and added tokens agree; the names are the file's."""
    path = tiny("llama")
    facts = vocabulary_of(read_header(path))

    with Model(path, ModelOptions(gpu_layers=0)) as model:
        assert facts.size == model.vocabulary.size == 320
        loaded = loaded_facts(model)
        assert (facts.kind, facts.bos, facts.eos) == (loaded.kind, loaded.bos, loaded.eos)
    assert (facts.model, facts.pre, facts.kind) == ("gpt2", "gpt-2", "BPE")


def test_digests_are_equal_for_equal_texts_alone(tiny: WriteModel) -> None:
    """The weights do not matter, any token from id 5 on and the size do."""

    def digest(**options: Any) -> str:
        return vocabulary_of(read_header(tiny("llama", **options))).digest

    same = digest()
    assert digest(seed=9) == same
    assert digest(vocabulary=Vocabulary(changed_token=2)) == same
    assert digest(vocabulary=Vocabulary(changed_token=5)) != same
    assert digest(vocabulary=321) != same
    assert digest(tokenizer=False) != same


def test_a_damaged_file_between_two_reads_is_an_error_of_ours(
    tiny: WriteModel, tmp_path: Path
) -> None:
    """The texts are read later than the header."""
    path = tmp_path / "changing.gguf"
    path.write_bytes(tiny("llama").read_bytes())
    header = read_header(path)
    path.write_bytes(path.read_bytes()[:400])

    with pytest.raises(ModelWontLoad, match=r"unfinished download .ends within"):
        vocabulary_of(header)


UNFIT = [
    (Vocabulary(size=900, endings=("x",)), "token 276 is"),
    (Vocabulary(size=1060, endings=("x",)), "more than 128 apart"),
    (Vocabulary(size=900, tokenizer=False), "its tokenizer is none"),
]


@table(("vocabulary", "reason"), UNFIT)
def test_an_unfit_draft_is_refused_with_the_rule_that_failed(
    tiny: WriteModel, vocabulary: Vocabulary, reason: str
) -> None:
    """llama.cpp's own rule, in words, where too little is in common."""
    target, draft = tiny("llama", vocabulary=900), tiny("llama", vocabulary=vocabulary)
    with pytest.raises(IncompatibleDraft, match=reason):
        common_vocabulary(read_header(target), read_header(draft))


@table("size", [300, 320, 448])
def test_sizes_up_to_128_apart_fit(tiny: WriteModel, size: int) -> None:
    """Padded vocabularies of one family differ like this."""
    target, draft = tiny("llama"), tiny("qwen3", vocabulary=size)
    common_vocabulary(read_header(target), read_header(draft))


# --- what each token stands for -----------------------------------------------------------------


@table(
    "vocabulary",
    [
        Vocabulary(),
        Vocabulary(sentencepiece=True),
        Vocabulary(size=700, endings=("é", "\n", "😀", "")),
        Vocabulary(size=5000),  # whose types are left in the file
    ],
)
def test_tokens_stand_for_what_llama_cpp_writes(tiny: WriteModel, vocabulary: Vocabulary) -> None:
    """Bytes behind stand-ins, spaces and names of bytes; nothing behind control tokens."""
    path = tiny("llama", vocabulary=vocabulary)
    tokens = read_tokens(read_header(path))

    with Model(path, ModelOptions(gpu_layers=0)) as model:
        assert list(tokens.pieces) == texts_of(model)
        assert list(tokens.names) == [
            model.vocabulary.text(token) for token in range(vocabulary.size)
        ]


def texts_of(model: Model) -> list[bytes]:
    """Return the text that each token stands for; llama.cpp prints control tokens by name."""
    known = model.vocabulary
    return [b"" if known.is_control(token) else known.piece(token) for token in range(known.size)]


def test_the_demo_models_tokens_stand_for_what_llama_cpp_writes() -> None:
    """On a vocabulary that was learned from text."""
    path = find_pair("demo").target
    pieces = read_tokens(read_header(path)).pieces

    with Model(path, ModelOptions(gpu_layers=0)) as model:
        assert list(pieces) == texts_of(model)


KEYS = "tokenizer.ggml"


@table(
    ("metadata", "pieces"),
    [
        ({f"{KEYS}.token_type": (1, 6, 6, 4, 3)}, [b"a", b"\n", b"", "Ġ".encode(), b""]),
        ({f"{KEYS}.token_type": (1,)}, [b"a", b"<0x0A>", b"<0xZZ>", b" ", b""]),
        ({f"{KEYS}.token_type": "no array"}, [b"a", b"<0x0A>", b"<0xZZ>", b" ", b""]),
        ({f"{KEYS}.model": "rwkv"}, [b""] * 5),
        ({f"{KEYS}.model": "llama"}, [b"a", b"<0x0A>", b"<0xZZ>", "Ġ".encode(), b"x y"]),
        ({f"{KEYS}.pre": "gemma4"}, [b"a", b"<0x0A>", b"<0xZZ>", "Ġ".encode(), b"x y"]),
    ],
)
def test_odd_files_are_read_as_far_as_they_make_sense(
    metadata: dict[str, Value], pieces: list[bytes]
) -> None:
    """Types may be missing, and names may be malformed or of another tokenizer."""
    names = ("a", "<0x0A>", "<0xZZ>", "Ġ", "x\u2581y")
    known: dict[str, Value] = {f"{KEYS}.model": "gpt2", f"{KEYS}.tokens": names}

    assert read_tokens(Header((), {**known, **metadata}, {}, 0)).pieces == pieces


def test_of_tokens_for_the_same_bytes_the_last_counts() -> None:
    """SentencePiece lists single bytes first, which texts are rarely made of."""
    known: dict[str, Value] = {f"{KEYS}.model": "llama", f"{KEYS}.token_type": (6, 1, 1)}
    ours = read_tokens(Header((), {**known, f"{KEYS}.tokens": ("<0x61>", "a", "b")}, {}, 0))
    theirs = read_tokens(Header((), {**known, f"{KEYS}.tokens": ("<0x62>", "c", "a")}, {}, 0))
    common = CommonVocabulary(ours, theirs)

    assert common.pairs == {1: 2, 2: 0}
    assert common.share == 1.0


def test_no_more_types_are_read_than_there_are_tokens(
    tiny: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file may list millions, each of which would take eight bytes of memory."""
    monkeypatch.setattr(reader, "MOST_NUMBERS_KEPT", 4)
    header = read_header(tiny("llama"))
    types = header.metadata[f"{KEYS}.token_type"]
    assert isinstance(types, LongArray)
    longer = replace(types, length=types.length + 10**6)
    changed = replace(header, metadata={**header.metadata, f"{KEYS}.token_type": longer})
    read: list[int] = []
    numbers = Cursor.numbers

    def count(cursor: Cursor, number: Struct, length: int) -> tuple[float | bool, ...]:
        read.append(length)
        return numbers(cursor, number, length)

    monkeypatch.setattr(Cursor, "numbers", count)
    assert read_tokens(changed) == read_tokens(header)
    assert max(read) == types.length
