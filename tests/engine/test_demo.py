"""The demo pair: right answers, ended turns, and a draft that is mostly right."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from specchat import Engine
from specchat.catalogue.catalogue_file import DEMO
from specchat.catalogue.pairs import find_pair
from specchat.decoding.chunk import Chunk
from specchat.tui.widgets.welcome import QUESTIONS as OFFERED

QUESTIONS = {
    "What is speculative decoding?": ["draft", "target"],
    "what does specchat do": ["terminal", "model"],
    "How do I get a real model?": ["specchat pull"],
    "How do I prove that a pair is lossless?": ["specchat check"],
    "What is the acceptance rate?": ["accepted", "drafted"],
    "What does exit code 130 mean?": ["interrupted"],
    "Count from 1 to 10.": ["1, 2, 3, 4, 5, 6, 7, 8, 9, 10"],
    "List the days of the week.": ["Monday", "Sunday"],
    "Hello!": ["demo model"],
    "Write a Python function that adds two numbers.": ["def ", "return"],
    "Write a Python function that reverses a string.": ["def ", "[::-1]"],
    "Why is the sky blue?": ["scatters"],
}


@pytest.fixture(scope="module")
def demo() -> Iterator[Engine]:
    """The demo pair as `specchat ask` loads it."""
    pair = find_pair(DEMO)
    with Engine.load(pair.target, pair.draft, threads=1) as engine:
        yield engine


def ask(engine: Engine, question: str, drafter: str = "model") -> list[Chunk]:
    """Ask one question at temperature 0, draft length 4."""
    chunks = engine.chat(
        [{"role": "user", "content": question}],
        temperature=0.0,
        draft_length=4,
        max_tokens=300,
        drafter=drafter,
    )
    return list(chunks)


@pytest.mark.parametrize(("question", "parts"), QUESTIONS.items())
def test_it_answers_and_ends_its_turn(demo: Engine, question: str, parts: list[str]) -> None:
    """The answer contains what it should, and the model ends its turn."""
    chunks = ask(demo, question)
    text = "".join(chunk.text for chunk in chunks)

    assert chunks[-1].finish == "stop"
    for part in parts:
        assert part in text


def test_it_answers_what_the_start_screen_offers() -> None:
    """Each offered question is among those whose answers are checked."""
    assert set(OFFERED) <= set(QUESTIONS)


def test_most_of_its_draft_is_accepted(demo: Engine) -> None:
    """At least 0.6 over the questions, at draft length 4 and temperature 0."""
    drafted = accepted = 0
    for question in QUESTIONS:
        ask(demo, question)
        drafted += demo.stats.drafted
        accepted += demo.stats.accepted

    assert accepted / drafted >= 0.6


def test_a_follow_up_question_is_understood(demo: Engine) -> None:
    """A second turn is answered, and only its own tokens are evaluated."""
    first = "".join(chunk.text for chunk in ask(demo, "What is specchat?"))
    chunks = demo.chat(
        [
            {"role": "user", "content": "What is specchat?"},
            {"role": "assistant", "content": first},
            {"role": "user", "content": "Count from 1 to 5."},
        ],
        temperature=0.0,
    )

    assert "1, 2, 3, 4, 5" in "".join(chunk.text for chunk in chunks)
    assert demo.stats.cached_tokens > demo.stats.prompt_tokens / 2
