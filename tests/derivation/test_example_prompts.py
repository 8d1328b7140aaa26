"""The prompts that drafts are trained on."""

from __future__ import annotations

import itertools
import re
import tomllib
from collections import Counter
from pathlib import Path

from specchat.derivation.example_prompts import Conversation, ExamplePrompts

HELD_OUT = Path(__file__).with_name("held_out.toml")
"""Prompts that drafts were measured with: training must know neither their words nor topics."""
ANSWER = "The first sentence of an answer is here. " * 6


def taken(prompts: ExamplePrompts, count: int = 3000) -> list[Conversation]:
    """Return some conversations, each answered."""
    found = []
    for conversation in itertools.islice(prompts, count):
        prompts.learn(conversation, ANSWER)
        found.append(conversation)
    return found


def test_prompts_are_complete_and_varied() -> None:
    """Each ends with a question without an open slot; hardly any occurs twice."""
    found = taken(ExamplePrompts(1))
    questions = Counter(each[-1]["content"] for each in found)
    assert len(questions) > 2400
    assert all(each[-1]["role"] == "user" for each in found)
    assert not [text for text in questions if not text or re.search(r"{\w+}", text)]
    assert {each[0]["role"] for each in found} == {"user", "system"}


def test_answers_are_quoted_and_continued() -> None:
    """Some prompts hold sentences of an earlier answer, others follow it."""
    found = taken(ExamplePrompts(1))
    assert not any(len(each) > 2 for each in found[:1])
    assert sum("first sentence" in each[-1]["content"] for each in found) > 200
    assert sum(len(each) >= 3 for each in found) > 100
    assert max(map(len, found)) <= 6


def test_a_seed_gives_the_same_prompts() -> None:
    """The stream is a function of its seed."""
    one, same, other = (taken(ExamplePrompts(seed), 50) for seed in (4, 4, 5))
    assert one == same != other


def test_own_texts_and_questions_take_part() -> None:
    """The user's questions are asked and their files quoted, beside the others."""
    own = ExamplePrompts(
        1, ["Zanzibar has a harbor, and ships call there every day. " * 5], ["qqq?"]
    )
    found = [each[-1]["content"] for each in taken(own)]
    assert 0.2 < found.count("qqq?") / len(found) < 0.4
    assert any("Zanzibar" in text for text in found)


def test_given_questions_are_asked_once() -> None:
    """They come before others."""
    prompts = ExamplePrompts(1)
    prompts.ask("one?")
    prompts.ask("two?")
    found = [each[-1]["content"] for each in taken(prompts, 50)]
    assert (found.count("one?"), found.count("two?")) == (1, 1)
    assert {"one?", "two?"} == set(found[:2])


def test_the_held_out_prompts_are_different() -> None:
    """None has the wording of a template, and none a topic of the training prompts."""
    kinds = tomllib.loads(HELD_OUT.read_text("utf-8"))
    held_out = [text for texts in kinds.values() for text in texts]
    assert len(held_out) == len(set(held_out)) == 40
    prompts = ExamplePrompts(1)
    words = {
        text.lower()
        for name in (
            "topic",
            "skill",
            "dish",
            "group",
            "pair",
            "task",
            "object",
            "record",
            "sentence",
            "story",
        )
        for text in prompts._slots[name]
    }
    generic = {
        "the sun",
        "a list",
        "trees",
        "trade",
        "fear",
        "light",
        "sound",
        "heat",
        "maps",
        "laws",
        "music",
    }
    found = {
        (word, text)
        for text in held_out
        for word in words - generic
        if re.search(rf"\b{re.escape(word)}\b", text.lower())
    }
    assert not found
    templates = [t for kind in prompts._kinds.values() for t in kind["templates"]]
    slot = r"[^.?!:\n]{1,60}"
    patterns = [re.sub(r"\\{\w+\\}", lambda _: slot, re.escape(each)) for each in templates]
    assert not [text for text in held_out for each in patterns if re.fullmatch(each, text)]
