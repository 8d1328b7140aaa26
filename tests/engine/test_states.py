"""Wherever a conversation is edited, its answer is that of a text that is read from the start."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import WriteModel
from engine.test_conversations import OPENING
from engine.test_lossless import EXACT
from scripts.support.tiny_gguf import Vocabulary
from specchat.engine.api import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.formats.chat_message import ChatMessage

NUM_EDITS = 40
"""Of each architecture: 200 of all."""
NEAR = 1e-4
"""Passes of other lengths change probabilities by less than a hundredth of this."""
LONGEST = 12
"""Messages of a conversation."""


def said(draw: random.Random, role: str) -> ChatMessage:
    """Return a message of 10 to 200 tokens."""
    letters = "".join(draw.choices("abcdefgh ", k=draw.choice([10, 60, 200])))
    return ChatMessage(role=role, content=letters)  # type: ignore[typeddict-item]


def edited(draw: random.Random) -> Iterator[list[ChatMessage]]:
    """Yield conversations, each of which is another one with an edit of any kind anywhere."""
    talks = [[said(draw, "system"), said(draw, "user")] for _ in range(2)]
    while True:
        number = draw.randrange(4) // 3  # mostly the first one
        whole = talks[number]
        places = [place for place, each in enumerate(whole) if each["role"] != "system"]
        place = draw.choice(places[-3:] if draw.random() < 0.5 else places)
        kind = draw.choice(["goes on", "goes on", "branches", "is rewritten", "is the same"])
        if kind == "goes on" and len(whole) < LONGEST:
            whole = [*whole, said(draw, "assistant"), said(draw, "user")]
        elif kind == "branches":
            end = place + 1 if whole[place]["role"] == "user" else place
            whole = [*whole[: end - 1], said(draw, "user")]
        elif kind == "is rewritten":
            whole = [*whole[:place], said(draw, str(whole[place]["role"])), *whole[place + 1 :]]
        talks[number] = whole
        yield whole


def likely(engine: LocalEngine, messages: list[ChatMessage]) -> list[tuple[int, float]]:
    """Return the likely tokens at each place of a greedy answer, with their probabilities.

    Tiny models often write the same token, whatever they read.
    """
    options: dict[str, Any] = {"temperature": 0.0, "max_tokens": 4, "ignore_end": True}
    chunks = list(engine.chat(messages, alternatives=3, **options))
    places = [place for chunk in chunks for place in chunk.alternatives]
    return [(token, probability) for place in places for token, _, probability in place]


def num_wrong(path: Path, cache_ram: int, *, is_spoiled: bool = False) -> tuple[int, int]:
    """Return how many answers differ from those of an empty memory, and the tokens not read.

    A memory that is spoiled keeps the states of texts that gave way.
    """
    options = {**EXACT, "ctx": 4096}
    wrong = num_cached = 0
    conversations = edited(random.Random(cache_ram))
    with (
        LocalEngine(Loading(path, **{**options, "cache_ram": cache_ram})) as engine,
        LocalEngine(Loading(path, **{**options, "cache_ram": 0})) as fresh,
    ):
        if is_spoiled:
            vars(engine.context.rollback_kind)["_drop_prompts"] = lambda _: None
        for _ in range(NUM_EDITS):
            messages = next(conversations)
            found = likely(engine, messages)
            num_cached += engine.stats.cached_tokens
            fresh.forget()
            expected = likely(fresh, messages)
            wrong += [token for token, _ in found] != [token for token, _ in expected] or any(
                abs(one - other) > NEAR
                for (_, one), (_, other) in zip(found, expected, strict=True)
            )
    return wrong, num_cached


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("architecture", ["qwen35", "lfm2", "granitehybrid", "mamba", "gemma3"])
def test_answers_after_edits_are_those_of_a_text_read_from_the_start(
    shallow: WriteModel, architecture: str
) -> None:
    """Whether there is memory for many states or for few; a wrong state would be found."""
    path = shallow(architecture, vocabulary=Vocabulary(chat_template=OPENING))
    for cache_ram in (0, 64):
        wrong, num_cached = num_wrong(path, cache_ram)
        assert wrong == 0
        assert num_cached > 100 * NUM_EDITS
    assert num_wrong(path, 64, is_spoiled=True)[0] > 0
