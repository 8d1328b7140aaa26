"""Prompts that are far too long are refused before all of them is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from conftest import WriteModel
from specchat.errors import ContextFull
from specchat.llama.model import Model
from specchat.planning.context_shape import ModelOptions
from specchat.prompts.preparing import Preparation
from specchat.requests.answer_request import ChatRequest, GenerateRequest
from tables import table

CAPACITY = 64
ENDLESS = 200_000


def chat(content: str) -> ChatRequest:
    """Return a request with one message."""
    return ChatRequest(messages=[{"role": "user", "content": content}])


@pytest.fixture
def preparation(tiny: WriteModel, monkeypatch: pytest.MonkeyPatch) -> Preparation:
    """Return what prepares prompts, which may read some thousands of characters at most."""
    model = Model(tiny("llama"), ModelOptions(gpu_layers=0, vocabulary_only=True))
    left, read = 60_000, model.vocabulary._tokenize

    def count(text: str, **options: bool) -> list[int]:
        nonlocal left
        left -= len(text)
        assert left > 0, "too much was read"
        return read(text, **options)

    monkeypatch.setattr(model.vocabulary, "_tokenize", count)
    return Preparation(model, CAPACITY, foresees_next=False)


@table(
    "ask",
    [
        lambda with_: with_.check(chat("x" * ENDLESS)),
        lambda with_: with_.check(chat("<|im_start|>" * ENDLESS)),
        lambda with_: with_.check(ChatRequest(messages=[*chat("").messages] * ENDLESS)),
        lambda with_: with_.check(GenerateRequest("x" * ENDLESS)),
        lambda with_: with_.check(GenerateRequest("<|im_end|>" * ENDLESS)),
        lambda with_: with_.tokenize("x" * ENDLESS, special=True, begins=True),
    ],
)
def test_endless_texts_are_refused_at_once(
    preparation: Preparation, ask: Callable[[Preparation], Any]
) -> None:
    """The error says how much was seen and how much there is room for."""
    with pytest.raises(ContextFull, match="more than") as raised:
        ask(preparation)
    assert raised.value.num_tokens > 4 * CAPACITY
    assert raised.value.capacity == CAPACITY


def test_an_endless_message_is_too_long_while_it_is_written(preparation: Preparation) -> None:
    """So is one after an endless conversation whose turns must stay."""
    pinned = ChatRequest([*chat("x" * ENDLESS).messages, *chat("so").messages], pinned=[0])
    for request in (chat("x" * ENDLESS), pinned):
        assert preparation.size(request, len).is_too_long


def test_all_tokens_of_a_prompt_are_counted_that_is_a_little_too_long(
    preparation: Preparation,
) -> None:
    """Agents shorten the conversation by that number."""
    request = chat("x" * (CAPACITY + 10))
    with pytest.raises(ContextFull) as raised:
        preparation.check(request)
    assert raised.value.num_tokens == len(preparation.render(request))


def test_room_is_made_in_an_endless_conversation(preparation: Preparation) -> None:
    """What is clearly too long counts as that, and the newest turns stay."""
    messages = [*chat("word " * 20).messages] * 200 + [*chat("so").messages]
    request = ChatRequest(messages=messages, make_room=True)
    assert preparation.check(request) <= CAPACITY


def test_an_endless_prediction_is_cut(preparation: Preparation) -> None:
    """No more of it can be drafted than there is room."""
    request = GenerateRequest("so", prediction="x" * ENDLESS)
    assert len(preparation.prepare(request).predicted) <= 8 * CAPACITY
