"""The tiny models that the tests write load in llama.cpp, decode, and are fit to test with."""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llama_cpp import llama_cpp
from numpy.typing import NDArray

from scripts.support.tiny_gguf import (
    ARCHITECTURES,
    HALF_RIGHT,
    Piece,
    Quantisation,
    Vocabulary,
    Words,
    bytes_of,
    pieces_of,
    truncate,
    write_big_vocabulary,
    write_model,
    write_parrot,
)
from specchat import Engine

PROMPT = [40, 75, 111, 260, 90, 33, 201, 150]
MARKS = ("<think>", "</think>", "<|im_end|>")
UTTERANCE = "<think>\nIt is 5: it is. 🦙 it is.\n</think>\n\nIt is 5, is it?"
Write = Callable[..., Path]


@pytest.fixture(scope="session")
def write(tmp_path_factory: pytest.TempPathFactory) -> Write:
    """Write a tiny model to a folder of this session; each call gets a file of its own."""
    folder = tmp_path_factory.mktemp("tiny")

    def write_numbered(architecture: str, **options: Any) -> Path:
        return write_model(folder / f"{len(list(folder.iterdir()))}.gguf", architecture, **options)

    return write_numbered


@contextmanager
def loaded(path: Path) -> Iterator[Any]:
    """A model loaded on the CPU."""
    options = llama_cpp.llama_model_default_params()
    options.n_gpu_layers = 0
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), options)
    if not model:
        raise OSError(f"llama.cpp cannot load {path}")
    yield model
    llama_cpp.llama_model_free(model)


def logits_of(path: Path, tokens: list[int]) -> NDArray[np.float32]:
    """The logits after each of `tokens`, shape (tokens, vocabulary), decoded in one batch."""
    with loaded(path) as model:
        options = llama_cpp.llama_context_default_params()
        options.n_ctx, options.n_threads, options.n_threads_batch = 512, 1, 1
        options.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
        context = llama_cpp.llama_init_from_model(model, options)
        batch = llama_cpp.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for row, token in enumerate(tokens):
            batch.token[row], batch.pos[row], batch.logits[row] = token, row, 1
            batch.n_seq_id[row], batch.seq_id[row][0] = 1, 0
        assert llama_cpp.llama_decode(context, batch) == 0
        size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
        logits = np.ctypeslib.as_array(llama_cpp.llama_get_logits(context), (len(tokens), size))
        kept = logits.copy()
        llama_cpp.llama_batch_free(batch)
        llama_cpp.llama_free(context)
        return kept


def greedy(path: Path, count: int) -> list[int]:
    """The prompt and `count` greedy tokens after it, by decoding everything anew each time."""
    tokens = list(PROMPT)
    for _ in range(count):
        tokens.append(int(logits_of(path, tokens)[-1].argmax()))
    return tokens


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_decodes_to_choices_that_are_clear_but_not_certain(
    write: Write, architecture: str
) -> None:
    """Logits are finite, and the most probable token has neither almost all nor almost nothing."""
    logits = logits_of(write(architecture), list(range(10, 80))).astype(np.float64)

    probabilities = np.exp(logits - logits.max(axis=1, keepdims=True))
    top = (probabilities / probabilities.sum(axis=1, keepdims=True)).max(axis=1)

    assert np.isfinite(logits).all()
    assert 0.4 < np.median(top) < 0.8
    assert len(set(logits.argmax(axis=1).tolist())) > 20


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_perturbed_draft_agrees_about_half_the_time_and_another_seed_hardly_ever(
    write: Write, architecture: str
) -> None:
    """`perturb` at its half-right value and `seed` give the drafts their names promise."""
    tokens = np.random.default_rng(0).integers(3, 270, 200).tolist()

    def choices(**options: Any) -> Any:
        return logits_of(write(architecture, **options), tokens).argmax(axis=1)

    target = choices()

    assert 0.3 < (choices(perturb=HALF_RIGHT[architecture]) == target).mean() < 0.7
    assert (choices(seed=1) == target).mean() < 0.1


def test_greedy_text_varies(write: Write) -> None:
    """A tiny model does not fall into a loop at once."""
    assert len(set(greedy(write("llama"), 40)[len(PROMPT) :])) > 15


@pytest.mark.parametrize("quantisation", ["f16", "q8_0", "q4_0"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_quantisation_loads(
    write: Write, architecture: str, quantisation: Quantisation
) -> None:
    """Tensors are stored as asked wherever llama.cpp takes them so."""
    assert np.isfinite(logits_of(write(architecture, quantisation=quantisation), PROMPT)).all()


def test_kept_layers_are_those_of_the_whole_model(write: Write) -> None:
    """A model of two layers is bit for bit the larger one's first two."""
    kept, short = write("llama", num_kept_layers=2), write("llama", num_layers=2)

    assert kept.read_bytes() == short.read_bytes()


def test_text_survives_the_tokenizer(write: Write) -> None:
    """Characters of several bytes split over byte tokens, and control tokens are whole."""
    text = "<|im_start|>the naïve 🦙\n".encode()
    with loaded(write("llama")) as model:
        vocabulary = llama_cpp.llama_model_get_vocab(model)
        ids = (llama_cpp.llama_token * 64)()
        count = llama_cpp.llama_tokenize(vocabulary, text, len(text), ids, 64, False, True)
        buffer = ctypes.create_string_buffer(256)
        size = llama_cpp.llama_detokenize(vocabulary, ids, count, buffer, 256, False, True)
        template = llama_cpp.llama_model_chat_template(model, None)

        assert buffer.raw[:size] == text
        assert ids[0] == 1
        assert count == len(text) - len("<|im_start|>") + 1 - len("the") + 1
        assert llama_cpp.llama_vocab_eos(vocabulary) == 2
        assert b"<|im_start|>" in template


@pytest.mark.parametrize(
    "vocabulary", [Vocabulary(changed_token=270), Vocabulary(size=500), Vocabulary(eos=0)]
)
def test_unfit_vocabularies_load(write: Write, vocabulary: Vocabulary) -> None:
    """A draft that does not fit its target is a good file on its own."""
    logits = logits_of(write("llama", vocabulary=vocabulary), PROMPT)

    assert vocabulary.size == logits.shape[1]


def test_a_model_without_a_tokenizer_loads(write: Write) -> None:
    """Of its vocabulary, the file holds only the size."""
    assert logits_of(write("qwen3", vocabulary=300, tokenizer=False), PROMPT).shape == (8, 300)


@pytest.mark.slow
def test_a_big_vocabulary_loads(tmp_path: Path) -> None:
    """A model for measuring what the size of the vocabulary costs."""
    logits = logits_of(write_big_vocabulary(tmp_path / "big.gguf"), PROMPT)

    assert logits.shape == (8, 152_000)


@pytest.mark.parametrize("fraction", [0.0, 0.001, 0.3, 0.99])
def test_a_truncated_file_does_not_load(write: Write, fraction: float) -> None:
    """llama.cpp refuses it and stays alive."""
    with pytest.raises(OSError, match="cannot load"), loaded(truncate(write("llama"), fraction)):
        pass


def uttered(engine: Engine, **options: Any) -> str:
    """The text of an answer, as printed."""
    chunks = engine.generate("Hi\nassistant\n", max_tokens=200, min_p=0.0, top_k=0, **options)
    return "".join(chunk.text for chunk in chunks)


def parrot_pieces(kind: str) -> list[Piece]:
    """The utterance and an end token, in words or byte by byte."""
    return (bytes_of if kind == "bytes" else pieces_of)(f"{UTTERANCE}<|im_end|>", MARKS)


@pytest.mark.parametrize("sentencepiece", [False, True])
@pytest.mark.parametrize("kind", ["bytes", "words"])
def test_a_parrot_utters_its_text_as_target_and_as_draft(
    tmp_path: Path, kind: str, sentencepiece: bool
) -> None:
    """Whatever the sampling and the drafter, the text is whole and ends; its own draft is right."""
    words = Words(user=("<think>", "</think>"), sentencepiece=sentencepiece)
    after = bytes_of("assistant\n") if kind == "bytes" else ()
    path = write_parrot(tmp_path / "parrot.gguf", parrot_pieces(kind), words, after=after)

    with Engine.load(path, path, ctx=512, threads=1, learn=False) as engine:
        for temperature in (0.0, 1.0):
            for drafter in ("none", "suffix", "model"):
                options = {"temperature": temperature, "drafter": drafter, "draft_length": 3}
                assert uttered(engine, **options) == UTTERANCE
            assert engine.stats.acceptance_rate == 1.0


def test_a_looping_parrot_begins_again(tmp_path: Path) -> None:
    """Its sequence has no end, and a piece may be part of a character."""
    pieces: list[Piece] = [b"\xf0\x9f", b"\xa6\x99", " and "]
    path = write_parrot(tmp_path / "parrot.gguf", pieces, loop=True)

    with Engine.load(path, ctx=512, threads=1, learn=False) as engine:
        chunks = engine.generate("Hi", max_tokens=9, temperature=0.0)

        assert "".join(chunk.text for chunk in chunks) == "🦙 and " * 3


@pytest.mark.parametrize("pre", [None, "made-up"])
def test_a_parrot_names_its_pre_tokenizer_as_asked(tmp_path: Path, pre: str | None) -> None:
    """The key may be missing, and the name may be one that llama.cpp does not know."""
    path = write_parrot(tmp_path / "parrot.gguf", ["Hi", "<|im_end|>"], Words(pre=pre))

    assert (b"tokenizer.ggml.pre" in path.read_bytes()) == (pre is not None)


def test_a_sequence_that_repeats_itself_too_much_is_refused(tmp_path: Path) -> None:
    """A parrot does not count: what follows must be known from a few pieces."""
    with pytest.raises(ValueError, match="cut it into other pieces"):
        write_parrot(tmp_path / "parrot.gguf", [*("a" for _ in range(20)), "b"])
