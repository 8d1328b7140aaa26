"""What of a prompt was read again, and why: the text before it changed, or nothing was kept."""

from __future__ import annotations

from typing import Any

from conftest import WriteModel
from engine.test_conversations import OPENING, chunks_of
from scripts.support.tiny_gguf import Vocabulary
from specchat.engine.api import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.formats.chat_message import ChatMessage
from specchat.requests.answer_request import ChatRequest
from tables import table

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
QUESTION: ChatMessage = {"role": "user", "content": "And now?"}
SHORT: ChatMessage = {"role": "user", "content": "Short."}


def text(number: int) -> str:
    """Return a text of a hundred tokens or two that no other number has."""
    return " ".join(WORDS[(place * (number + 3) + number) % len(WORDS)] for place in range(40))


def conversation(number: int, turns: int) -> list[ChatMessage]:
    """Return turns that end with an answer."""
    messages: list[ChatMessage] = [{"role": "system", "content": text(50 * number)}]
    for turn in range(turns):
        messages += [
            {"role": "user", "content": text(50 * number + 2 * turn + 1)},
            {"role": "assistant", "content": text(50 * number + 2 * turn + 2)},
        ]
    return messages


class Reader:
    """An engine, with what each of its prompts read and read again."""

    def __init__(self, engine: LocalEngine) -> None:
        """Begin with nothing read."""
        self.engine = engine
        self.num_read = self.num_new = 0

    def ask(self, messages: list[ChatMessage], **options: Any) -> dict[str, int]:
        """Answer a conversation; return what was read again of it."""
        chunks_of(self.engine, messages, max_tokens=2, ignore_end=True, **options)
        stats = self.engine.stats
        self.num_read = stats.prompt_tokens - stats.cached_tokens
        self.num_new = self.num_read - sum(stats.read_again.values())
        assert self.num_new > 0
        return stats.read_again


@table("architecture", ["llama", "qwen35", "mamba", "gemma3"])
def test_an_answer_says_what_was_read_again_and_why(tiny: WriteModel, architecture: str) -> None:
    """Nothing on ordinary turns; what follows an edit; what has lost its place in memory.

    Nothing of a first prompt either: the answers in it may be examples.
    """
    path = tiny(architecture, vocabulary=Vocabulary(chat_template=OPENING))
    loading = Loading(path, ctx=8192, threads=1, learn=False, cache_ram=0)
    with LocalEngine(loading) as engine:
        reader = Reader(engine)
        whole = conversation(0, 3)
        assert reader.ask([*whole, QUESTION]) == {}

        engine.forget()
        for end in (2, 4, 6):
            assert reader.ask(whole[:end]) == {}
        assert reader.ask([*whole, QUESTION]) == {}

        rewritten = [*whole[:3], SHORT, *whole[4:], QUESTION]
        again = reader.ask(rewritten)
        assert again["edited"] > 500
        assert ("forgotten" in again) == (architecture != "llama")
        assert sum(again.values()) >= reader.num_read - len(SHORT["content"]) - 20

        reader.ask([*conversation(1, 3), QUESTION])
        assert reader.ask(rewritten).keys() == {"forgotten"}
        assert reader.ask(rewritten) == {}


def test_an_answer_with_a_seed_says_what_it_read_again_for_that(tiny: WriteModel) -> None:
    """The answer before, which other passes read; a drawn one has it from memory."""
    path = tiny("llama", vocabulary=Vocabulary(chat_template=OPENING))
    with LocalEngine(Loading(path, ctx=8192, threads=1, learn=False)) as engine:
        assert engine.prepare(only_exactness=True)
        reader, whole = Reader(engine), conversation(0, 2)
        reader.ask(whole[:2])
        assert reader.ask(whole[:4]) == {}
        again = reader.ask([*whole, QUESTION], seed=3)
        assert again == {"seed": again["seed"]}


@table("architecture", ["llama", "qwen35", "mamba", "gemma3"])
def test_what_will_be_read_again_is_known_before_it_is_asked(
    tiny: WriteModel, architecture: str
) -> None:
    """A size says how much the memory has of a prompt, also in a text that was set aside."""
    path = tiny(architecture, vocabulary=Vocabulary(chat_template=OPENING))
    with LocalEngine(Loading(path, ctx=8192, threads=1, learn=False, cache_ram=64)) as engine:
        reader = Reader(engine)
        first, second = [*conversation(0, 3), QUESTION], [*conversation(1, 3), QUESTION]
        system: ChatMessage = {"role": "system", "content": text(99)}
        edited = [system, *first[1:]]
        for messages in (first, second, first, edited, second):
            size = engine.size(ChatRequest(messages=messages))
            reader.ask(messages)
            assert size.kept_tokens is not None
            assert abs(size.kept_tokens - engine.stats.cached_tokens) <= 1
            assert size.prompt_tokens == engine.stats.prompt_tokens
