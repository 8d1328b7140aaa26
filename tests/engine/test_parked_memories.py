"""Texts take turns in one memory: none is read twice, and none changes."""

from __future__ import annotations

from itertools import cycle, islice
from typing import Any

import pytest

from conftest import WriteModel
from engine.test_heads import KINDS, LAYERS, WriteHead, heads, opened  # noqa: F401  # a fixture
from engine.test_lossless import EXACT
from scripts.support.tiny_gguf import ARCHITECTURES
from specchat import Engine
from specchat.decoding.chunk import Chunk
from specchat.engine.api import Loading
from specchat.engine.local_engine import LocalEngine
from tables import table

TEXTS = [[3 + (7 * place + 31 * number) % 240 for place in range(300)] for number in range(3)]
GREEDY: dict[str, Any] = {"temperature": 0.0, "max_tokens": 24}


def tokens_of(engine: Engine, prompt: list[int], **options: Any) -> list[int]:
    """Decode an answer and return its tokens."""
    return [
        token for chunk in engine.generate(prompt, **GREEDY | options) for token in chunk.tokens
    ]


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_texts_in_turn_are_read_once(shallow: WriteModel, architecture: str) -> None:
    """Ten rounds of two growing conversations, each with the tokens that it has alone."""
    files = shallow(architecture), shallow(architecture, "half right")
    alone: list[list[int]] = []
    for text in TEXTS[:2]:
        with Engine.load(*files, **{**EXACT, "ctx": 1024}) as engine:
            prompt = list(text)
            for _ in range(5):
                prompt += [*tokens_of(engine, prompt, max_tokens=8), 9]
            alone.append(prompt)
    with Engine.load(*files, **{**EXACT, "ctx": 1024}) as engine:
        prompts = [list(text) for text in TEXTS[:2]]
        for number, prompt in islice(enumerate(cycle(prompts)), 10):
            answer = tokens_of(engine, prompt, max_tokens=8)
            if number >= 2:
                assert engine.stats.cached_tokens >= len(prompt) - 3
            prompt += [*answer, 9]
        assert prompts == alone


@pytest.mark.slow
@table("architecture", ["llama", "qwen35", "mamba", "lfm2"])
def test_an_interrupted_answer_goes_on_as_if_it_had_not_been(
    shallow: WriteModel, architecture: str
) -> None:
    """Stopped after every few steps and continued after another text: tokens and bits are equal."""
    files = shallow(architecture), shallow(architecture, "half right")
    options: dict[str, Any] = {"temperature": 0.9, "seed": 5, "draft_length": 3, "ignore_end": True}
    with LocalEngine(Loading(*files, **{**EXACT, "ctx": 1024})) as engine:
        whole = tokens_of(engine, TEXTS[0], **options, max_tokens=60)
        engine.forget()
        begun: list[Chunk] = []
        while sum(len(step.tokens) for step in begun) < 60:
            count = sum(len(step.tokens) for step in begun)
            fresh: list[Chunk] = []
            asked: dict[str, Any] = {**GREEDY, **options, "max_tokens": 60 - count}
            for chunk in engine.generate(TEXTS[0], begun=begun, **asked):
                fresh.append(chunk)
                if len(fresh) == len(begun) + 4:
                    engine.stop()
            begun = [chunk for chunk in fresh if chunk.tokens]
            if begun[-1].finish is None:
                tokens_of(engine, TEXTS[1], max_tokens=2)
                assert engine.stats.cached_tokens in {0, len(TEXTS[1]) - 1}
        assert [token for step in begun for token in step.tokens] == whole


@pytest.mark.slow(keep=3)
@pytest.mark.parametrize("kind", KINDS)
def test_a_head_goes_on_with_what_it_had(heads: WriteHead, kind: str) -> None:  # noqa: F811
    """After another text its drafts are accepted as often as without one, and the text is right."""
    files = heads(kind, noise=0.01, num_layers=LAYERS[kind])
    with opened(files, ctx=1024) as engine:
        second = [*TEXTS[0], *tokens_of(engine, TEXTS[0], drafter="head", draft_length=3), 9, 99]
        expected = tokens_of(engine, second, drafter="head", draft_length=3)
        accepted = engine.stats.accepted
        engine.forget()
        tokens_of(engine, TEXTS[0], drafter="head", draft_length=3)
        tokens_of(engine, TEXTS[1], drafter="head", draft_length=3)
        assert tokens_of(engine, second, drafter="head", draft_length=3) == expected
        assert engine.stats.cached_tokens >= len(TEXTS[0])
        assert engine.stats.accepted == accepted > 0


def test_a_text_set_aside_loses_most_states_before_it_goes(shallow: WriteModel) -> None:
    """Going back to it reads nothing again, and to a place in it only what follows a state."""
    with LocalEngine(Loading(shallow("mamba"), **{**EXACT, "ctx": 1024})) as engine:
        for end in range(30, 300, 30):
            tokens_of(engine, TEXTS[0][:end], max_tokens=1)
        tokens_of(engine, TEXTS[0], max_tokens=1)
        engine.parked.limit = engine.context.snapshot().num_bytes - 1
        tokens_of(engine, TEXTS[1], max_tokens=1)
        assert len(engine.parked) == 1
        assert engine.parked.num_bytes <= engine.parked.limit
        tokens_of(engine, TEXTS[0], max_tokens=1)
        assert engine.stats.cached_tokens == len(TEXTS[0]) - 1
        tokens_of(engine, [*TEXTS[0][:250], 9, 9], max_tokens=1)
        assert 30 < engine.stats.cached_tokens < 250


def test_texts_are_set_aside_within_the_limit(shallow: WriteModel) -> None:
    """The least recently used one goes first, and with a limit of 0 nothing is kept."""
    path = shallow("llama")
    with LocalEngine(Loading(path, **{**EXACT, "ctx": 1024})) as engine:
        for text in TEXTS:
            tokens_of(engine, text)
        assert len(engine.parked) == 2
        engine.parked.limit = engine.parked.num_bytes + 1
        tokens_of(engine, TEXTS[0])  # sets the third aside, and the second stays
        tokens_of(engine, TEXTS[1])
        assert engine.stats.cached_tokens == len(TEXTS[1]) - 1
        engine.parked.limit = 1
        tokens_of(engine, TEXTS[2])
        assert len(engine.parked) == 0
        engine.forget()
        tokens_of(engine, TEXTS[0])
        assert engine.stats.cached_tokens == 0
    with LocalEngine(Loading(path, **{**EXACT, "cache_ram": 0})) as engine:
        for text in TEXTS[:2]:
            tokens_of(engine, text)
        assert len(engine.parked) == 0
