"""Answers with a seed repeat: the same bits, whatever is drafted and whatever the memory holds."""

from __future__ import annotations

from typing import Any

import pytest

from conftest import WriteModel
from specchat import Engine
from specchat.decoding.chunk import Alternative, Chunk
from specchat.engine.answer_starts import NO_EXACT_DRAFT
from specchat.engine.api import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.passes import exactness_measurement
from specchat.structured.structure import Structure

PROMPT = [(40 + 7 * number * number) % 250 for number in range(150)]
OTHERS = (PROMPT[:140], [*PROMPT[:60], 9, 8, 7], [*PROMPT, 3, 4, 5], PROMPT[20:])
"""Texts that leave parts of the prompt in the memory, read in other passes."""
USUAL: dict[str, Any] = {"ctx": 512, "threads": 1, "learn": False, "gpu_layers": 0}
SEEDED: dict[str, Any] = {
    "seed": 11, "temperature": 0.9, "max_tokens": 40, "alternatives": 3, "ignore_end": True,
}  # fmt: skip
"""Alternatives show the logits, in which any difference is seen."""


def chunks_of(engine: Engine, prompt: list[int], **options: Any) -> list[Chunk]:
    """Decode an answer with a seed and return its chunks."""
    return list(engine.generate(prompt, **{**SEEDED, **options}))


def bits_of(chunks: list[Chunk]) -> list[tuple[Alternative, ...]]:
    """Return the likely tokens at each index, with their probabilities."""
    return [likely for chunk in chunks for likely in chunk.alternatives]


@pytest.fixture(params=["q8_0", "f16"])
def pair(shallow: WriteModel, request: pytest.FixtureRequest) -> Loading:
    """Return a pair whose usual kernels round passes over several tokens differently."""
    options: dict[str, Any] = {"quantisation": request.param, "width": 256, "feed_forward": 256}
    return Loading(shallow("llama", **options), shallow("llama", "half right"), **USUAL)


def test_an_answer_with_a_seed_has_the_same_bits_however_it_is_drafted(pair: Loading) -> None:
    """Chains of any length and paced ones, drafted by a model or copied, and plain decoding."""
    with LocalEngine(pair) as engine:
        assert engine.prepare(only_exactness=True)
        assert engine.facts.repeatable_draft
        plain = bits_of(chunks_of(engine, PROMPT, drafter="none"))
        assert len(plain) == SEEDED["max_tokens"]
        for length in (1, 2, 3, 5, 8, 16, "auto"):
            for drafter in ("auto", "suffix", "model"):
                options = {"drafter": drafter, "draft_length": length}
                assert bits_of(chunks_of(engine, PROMPT, **options)) == plain, options
                assert drafter != "model" or length == "auto" or engine.stats.drafted


@pytest.mark.parametrize("drafter", ["none", "auto"])
def test_an_answer_with_a_seed_has_the_same_bits_whatever_was_read_before(
    pair: Loading, drafter: str
) -> None:
    """A cached prompt, one of which a part is cached, and a conversation that is read anew."""
    with LocalEngine(pair) as engine:
        assert engine.prepare(only_exactness=True)
        first = chunks_of(engine, PROMPT, drafter=drafter)
        assert bits_of(chunks_of(engine, PROMPT, drafter=drafter)) == bits_of(first)
        assert engine.stats.cached_tokens == len(PROMPT) - 1
        for other in OTHERS:
            for options in ({"seed": None}, {"drafter": "none"}):
                chunks_of(engine, other, **options)
                assert bits_of(chunks_of(engine, PROMPT, drafter=drafter)) == bits_of(first)
        longer = [*PROMPT, *(token for chunk in first for token in chunk.tokens), 17, 18, 19]
        decoded = bits_of(chunks_of(engine, longer, drafter=drafter))
        engine.forget()
        assert bits_of(chunks_of(engine, longer, drafter=drafter)) == decoded


def test_an_interrupted_answer_with_a_seed_goes_on_with_the_same_bits(pair: Loading) -> None:
    """Whether its memory was set aside or is lost, and after tokens that a grammar forces."""
    structure = Structure("regex", "and so on and so forth [a-z ]{40} and [xy]")
    for options in ({}, {"structure": structure, "ignore_end": False}):
        with LocalEngine(pair) as engine:
            assert engine.prepare(only_exactness=True)
            whole = chunks_of(engine, PROMPT, **options)
            for number in (1, 4, len(whole) - 2):
                for is_lost in (False, True):
                    chunks_of(engine, OTHERS[1], seed=None)
                    begun = list[Chunk]()
                    for chunk in engine.generate(PROMPT, **{**SEEDED, **options}):
                        begun.append(chunk)
                        if len(begun) == number:
                            break
                    done = sum(len(chunk.tokens) for chunk in begun)
                    chunks_of(engine, OTHERS[1], seed=None)
                    if is_lost:
                        engine.forget()
                    left = SEEDED["max_tokens"] - done
                    if not left:  # drafts of another length: the break was at the end
                        continue
                    rest = chunks_of(engine, PROMPT, begun=begun, max_tokens=left, **options)
                    assert bits_of(rest) == bits_of(whole), (number, is_lost)


def test_without_exact_drafts_a_seed_keeps_drafts_and_exact_answers_do_without(
    shallow: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The statistics of the latter say why."""
    monkeypatch.setattr(exactness_measurement, "longest_here", lambda *_: (1, 1))
    path = shallow("llama")
    with LocalEngine(Loading(path, path, **USUAL)) as engine:
        assert engine.prepare(only_exactness=True)
        assert engine.facts.repeatable_draft == 0
        chunks_of(engine, PROMPT, draft_length=3)
        assert engine.stats.drafted
        chunks_of(engine, PROMPT, draft_length=3, is_exact=True)
        assert not engine.stats.drafted
        assert engine.stats.speculation_off_reason == NO_EXACT_DRAFT
