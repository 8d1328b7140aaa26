"""Short texts beside a conversation, such as its title: they cost the conversation nothing."""

from __future__ import annotations

import pytest

from conftest import WriteModel
from scripts.support.tiny_gguf import CHAT_TEMPLATE, Vocabulary
from specchat.engine.api import Engine, Loading
from specchat.engine.local_engine import LocalEngine
from specchat.errors import InvalidOption
from specchat.formats.chat_message import ChatMessage
from specchat.sharing.process_engine import ProcessEngine

ASKED: list[ChatMessage] = [{"role": "user", "content": "w1 w2 w3 w4 w5 w6 w7 w8"}]
ASIDE = {"is_aside": True, "temperature": 0, "max_tokens": 6, "drafter": "none"}


def answered(
    engine: Engine, turns: list[ChatMessage], token: int | None = None
) -> list[ChatMessage]:
    """Return the turns with an answer, which may repeat a token, and another question."""
    bias = {} if token is None else {token: 1000.0}
    chunks = engine.chat(
        turns, max_tokens=12, temperature=0, seed=1, drafter="none", logit_bias=bias
    )
    text = "".join(chunk.text for chunk in chunks)
    return [
        *turns, {"role": "assistant", "content": text}, {"role": "user", "content": "w9 w10"},
    ]  # fmt: skip


def repeatable(engine: LocalEngine) -> int:
    """Return a token of which twelve in a row are also the tokens of their text."""
    vocabulary = engine.model.vocabulary
    for token in range(vocabulary.size):
        text = vocabulary.piece(token).decode("utf-8", "replace") * 12
        found = vocabulary.tokenize(text, add_special=False, parse_special=False)
        if list(found) == [token] * 12 and token not in vocabulary.end_tokens:
            return token
    raise AssertionError("there is none")


def second_answer(
    engine: LocalEngine, *, has_aside: bool, is_repeatable: bool
) -> tuple[str, int, int]:
    """Return a second answer, and how many tokens its prompt has and how many were cached."""
    turns = answered(engine, ASKED, repeatable(engine) if is_repeatable else None)
    if has_aside:
        aside: ChatMessage = {"role": "user", "content": "w11 w12 w13"}
        assert list(engine.chat([*turns[:-1], aside], **ASIDE))  # type: ignore[arg-type]
    text = "".join(
        chunk.text for chunk in engine.chat(turns, max_tokens=12, temperature=0, drafter="none")
    )
    stats = engine.stats
    return text, stats.prompt_tokens, stats.cached_tokens


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("is_repeatable", [False, True])
@pytest.mark.parametrize("architecture", ["llama", "gemma3", "mamba", "lfm2", "granitehybrid"])
def test_the_next_question_finds_its_memory(
    tiny: WriteModel, architecture: str, is_repeatable: bool
) -> None:
    """The same text as without the aside, and at least as many tokens need not be read again.

    There may be more: an answer whose tokens differ from those of its text is read with the aside.
    """
    path = tiny(architecture, vocabulary=Vocabulary(chat_template=CHAT_TEMPLATE))
    found = []
    for has_aside in (False, True):
        with LocalEngine(Loading(path, ctx=512, gpu_layers=0, threads=1)) as engine:
            found.append(second_answer(engine, has_aside=has_aside, is_repeatable=is_repeatable))

    (text, num_tokens, num_cached), (text_after, num_tokens_after, num_cached_after) = found
    assert (text, num_tokens) == (text_after, num_tokens_after)
    assert num_cached_after >= num_cached > 0
    if is_repeatable:
        assert num_cached > num_tokens - 30  # all of the first answer


FORGETFUL = (
    "{{ messages[-1]['content'] }}"
    "{% for message in messages %}[{{ message['role'] }}]{{ message['content'] }}{% endfor %}"
)
"""The last message comes first, so that another one changes all tokens."""


@pytest.mark.parametrize("load", [LocalEngine, ProcessEngine])
def test_an_aside_that_would_cost_the_memory_is_refused(
    tiny: WriteModel, load: type[LocalEngine | ProcessEngine]
) -> None:
    """The engine goes on; a memory that holds nothing of it has nothing to lose."""
    path = tiny("llama", vocabulary=Vocabulary(chat_template=FORGETFUL))
    with load(Loading(path, ctx=512, gpu_layers=0, threads=1)) as engine:
        asked: list[ChatMessage] = [{"role": "user", "content": "."}]
        turns = answered(engine, asked)[:2]
        aside: ChatMessage = {"role": "user", "content": "w11 w12"}
        with pytest.raises(InvalidOption, match="read the conversation again"):
            list(engine.chat([*turns, aside], **ASIDE))  # type: ignore[arg-type]
        engine.forget()
        assert list(engine.chat([*turns, aside], **ASIDE))  # type: ignore[arg-type]
