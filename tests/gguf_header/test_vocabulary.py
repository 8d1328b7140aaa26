"""Vocabularies compared by their files: the same verdicts as llama.cpp's once they are loaded."""

import re
from pathlib import Path
from typing import Any

import pytest

from conftest import WriteModel
from specchat.errors import IncompatibleDraft, ModelWontLoad
from specchat.gguf.reader import read_header
from specchat.gguf.vocabulary_facts import (
    FIRST_COMPARED_TOKEN,
    VocabularyFacts,
    mismatch,
    require_compatible,
    vocabulary_of,
)
from specchat.llama.library import api
from specchat.llama.model import Model
from specchat.planning.context_shape import ModelOptions
from tiny_gguf import Vocabulary

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


@pytest.mark.parametrize("kind", DRAFTS)
def test_a_draft_fits_by_its_file_where_it_fits_once_loaded(tiny: WriteModel, kind: str) -> None:
    """What llama.cpp says of both once they are loaded gives the same verdict and reason."""
    options = dict(DRAFTS[kind])
    paths = tiny("llama"), tiny(options.pop("architecture", "llama"), **options)

    load = ModelOptions(gpu_layers=0)
    with Model(paths[0], load) as target, Model(paths[1], load) as draft:
        texts = zip(loaded_texts(target), loaded_texts(draft), strict=False)
        reason = mismatch(loaded_facts(target), loaded_facts(draft), texts)

    if reason is None:
        require_compatible(*map(read_header, paths))
    else:
        with pytest.raises(IncompatibleDraft, match=re.escape(f": {reason}; choose")):
            require_compatible(*map(read_header, paths))


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

    with pytest.raises(ModelWontLoad, match="damaged or incomplete"):
        vocabulary_of(header)


UNFIT = [
    (Vocabulary(size=320, changed_token=280), "token 280"),
    (Vocabulary(size=460), "more than 128 apart"),
    (Vocabulary(size=320, tokenizer=False), "its tokenizer is none"),
]


@pytest.mark.parametrize(("vocabulary", "reason"), UNFIT)
def test_an_unfit_draft_is_refused_with_the_rule_that_failed(
    tiny: WriteModel, vocabulary: Vocabulary, reason: str
) -> None:
    """llama.cpp's own rule, in words."""
    target, draft = tiny("llama"), tiny("llama", vocabulary=vocabulary)
    with pytest.raises(IncompatibleDraft, match=reason):
        require_compatible(read_header(target), read_header(draft))


@pytest.mark.parametrize("size", [300, 320, 448])
def test_sizes_up_to_128_apart_fit(tiny: WriteModel, size: int) -> None:
    """Padded vocabularies of one family differ like this."""
    target, draft = tiny("llama"), tiny("qwen3", vocabulary=size)
    require_compatible(read_header(target), read_header(draft))
