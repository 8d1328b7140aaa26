"""Vocabularies compared by their files: the same verdicts as llama.cpp's once they are loaded."""

import re
from pathlib import Path
from typing import Any

import pytest

from conftest import WriteModel
from specchat.errors import IncompatibleDraft, ModelWontLoad
from specchat.gguf.reader import read_header
from specchat.gguf.vocabulary_facts import mismatch, token_texts, vocabulary_of
from specchat.llama.model import Model, ModelOptions
from specchat.llama.tokenizer import require_compatible
from tiny_gguf import Vocabulary

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
    """Both checks agree, with the same reason."""
    options = dict(DRAFTS[kind])
    paths = tiny("llama"), tiny(options.pop("architecture", "llama"), **options)
    ours, theirs = (read_header(path) for path in paths)
    texts = zip(token_texts(ours), token_texts(theirs), strict=False)
    reason = mismatch(vocabulary_of(ours), vocabulary_of(theirs), texts)

    load = ModelOptions(gpu_layers=0)
    with Model(paths[0], load) as target, Model(paths[1], load) as draft:
        if reason is None:
            require_compatible(target.vocabulary, draft.vocabulary)
        else:
            with pytest.raises(IncompatibleDraft, match=re.escape(f": {reason}; choose")):
                require_compatible(target.vocabulary, draft.vocabulary)


def test_the_facts_are_those_of_the_loaded_vocabulary(tiny: WriteModel) -> None:
    """Size and added tokens agree; the names are the file's."""
    path = tiny("llama")
    facts = vocabulary_of(read_header(path))

    with Model(path, ModelOptions(gpu_layers=0)) as model:
        assert facts.size == model.vocabulary.size == 320
        assert (facts.bos, facts.eos) == (model.vocabulary.bos(), model.vocabulary.eos())
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
