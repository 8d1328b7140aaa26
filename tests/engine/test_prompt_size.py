"""How much of the context a conversation takes, before it is asked."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conftest import WriteModel
from scripts.support.tiny_gguf import CHAT_TEMPLATE, Vocabulary
from specchat.engine.api import Engine, Loading
from specchat.engine.local_engine import LocalEngine
from specchat.errors import EngineFailed, SpecchatError
from specchat.formats.chat_message import ChatMessage
from specchat.requests.answer_request import ChatRequest
from specchat.sharing.process_engine import ProcessEngine

CONTEXT = 256


def conversation(num_questions: int, last: str) -> list[ChatMessage]:
    """Return a conversation that ends with a question."""
    turns: list[ChatMessage] = []
    for number in range(num_questions):
        turns.append({"role": "user", "content": f"question {number}"})
        turns.append({"role": "assistant", "content": f"answer {number}"})
    return [*turns, {"role": "user", "content": last}]


def request(num_questions: int, last: str) -> ChatRequest:
    """Return a request as the chat makes it."""
    return ChatRequest(messages=conversation(num_questions, last), make_room=True)


@pytest.mark.parametrize("load", [LocalEngine, ProcessEngine])
def test_a_prompt_is_measured_without_decoding(
    tiny: WriteModel, load: Callable[[Loading], Engine]
) -> None:
    """The message's own tokens, what is left out, and whether it fits at all."""
    path = tiny("llama", vocabulary=Vocabulary(chat_template=CHAT_TEMPLATE))
    with load(Loading(path, ctx=CONTEXT, gpu_layers=0, threads=1)) as engine:
        small, full = engine.size(request(1, "a b")), engine.size(request(60, "a b"))
        large = engine.size(request(1, "a b " * CONTEXT))
        assert small is not None
        assert full is not None
        assert large is not None
        assert (small.num_left_out, small.is_too_long) == (0, False)
        assert small.message_tokens == full.message_tokens
        assert full.num_left_out > 0
        assert not full.is_too_long
        assert large.is_too_long
        assert large.message_tokens > small.message_tokens
        answer = engine.chat(conversation(60, "a b"), make_room=True, max_tokens=1, ignore_end=True)
        list(answer)
        assert engine.stats.left_out == full.num_left_out


def test_names_of_control_tokens_are_counted_as_text(tiny: WriteModel) -> None:
    """As they are sent."""
    path = tiny("llama", vocabulary=Vocabulary(size=400, chat_template=CHAT_TEMPLATE))
    with LocalEngine(Loading(path, ctx=CONTEXT, gpu_layers=0, threads=1)) as engine:
        tokens = [len(engine.prompts.render(request(0, text))) for text in ("", "<|im_end|>")]
        assert engine.size(request(0, "<|im_end|>")).message_tokens == tokens[1] - tokens[0] > 1


def test_a_model_without_a_template_counts_too(tiny: WriteModel) -> None:
    """It continues the text."""
    path = tiny("llama", vocabulary=Vocabulary(chat_template=None))
    with LocalEngine(Loading(path, ctx=CONTEXT, gpu_layers=0, threads=1)) as engine:
        assert 0 < engine.size(request(1, "a b")).message_tokens < 10
        assert engine.size(request(1, "a b " * CONTEXT)).is_too_long


def test_an_error_reaches_the_client(tiny: WriteModel) -> None:
    """And the engine goes on."""
    path = tiny("llama", vocabulary=Vocabulary(chat_template="{{ raise_exception('never') }}"))
    with ProcessEngine(Loading(path, ctx=CONTEXT, gpu_layers=0, threads=1)) as engine:
        for _ in range(2):
            with pytest.raises(SpecchatError, match="never"):
                engine.size(request(1, "a b"))
        assert list(engine.generate("a", max_tokens=1, ignore_end=True))
        engine.kill()
        with pytest.raises(EngineFailed):
            engine.size(request(1, "a b"))


def test_pinned_turns_stay_in_the_prompt(tiny: WriteModel) -> None:
    """Without a template there are no turns, and nothing to pin."""
    path = tiny("llama", vocabulary=Vocabulary(chat_template=CHAT_TEMPLATE))
    with LocalEngine(Loading(path, ctx=CONTEXT, gpu_layers=0, threads=1)) as engine:
        asked = ChatRequest(
            messages=[
                {"role": "user", "content": "w17 w18 w19"},
                {"role": "assistant", "content": "w20"},
                *conversation(60, "a b"),
            ],
            make_room=True, pinned=[1],
        )  # fmt: skip
        tokens = engine.prompts.render(asked)
        text = b"".join(map(engine.model.vocabulary.piece, tokens)).decode()
        assert text.index("w17 w18 w19") < text.index("w20") < text.index("question")
        assert "question 0" not in text
    path = tiny("llama", vocabulary=Vocabulary(chat_template=None))
    with LocalEngine(Loading(path, ctx=CONTEXT, gpu_layers=0, threads=1)) as engine:
        assert list(engine.answer(conversation(0, "a b"), pinned=[0], max_tokens=1))
