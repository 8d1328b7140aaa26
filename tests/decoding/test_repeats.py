"""Only what is said over and over is a loop."""

from __future__ import annotations

import random

from specchat.decoding.repeats import LEAST_TOKENS, Repeats, TextRepeats
from specchat.options.declarations import ChatOptions
from tables import table

CHANCE = random.Random(1)
TEXT = [CHANCE.randrange(40) for _ in range(200)]


def places(tokens: list[int], *, at_once: int = 1) -> list[int]:
    """Return where the steps are that repeat, by the number of tokens before them."""
    repeats, steps = Repeats(), range(0, len(tokens), at_once)
    return [place for place in steps if repeats.add(tokens[place : place + at_once])]


@table("length", [1, 2, 7, 40])
@table("at_once", [1, 5])
def test_a_loop_repeats_once_it_has_said_a_passage_three_times(length: int, at_once: int) -> None:
    """From then on every step does, until the text goes on."""
    passage = list(range(100, 100 + length))
    loop = TEXT + passage * (200 // length + 5) + TEXT[::-1]
    said = len(TEXT) + max(3 * length, LEAST_TOKENS + length)
    ends = len(loop) - len(TEXT)

    found = places(loop, at_once=at_once)

    assert abs(found[0] - said) <= 6 + at_once
    assert found == list(range(found[0], found[-1] + 1, at_once))
    assert ends - 2 * at_once <= found[-1] < ends


def test_what_is_said_once_or_twice_again_is_no_loop() -> None:
    """Such as an edited text, a list whose entries differ, or the lines of a table."""
    assert places(TEXT * 2) == []
    assert places(TEXT + TEXT[:150] + [41] + TEXT[151:] + [42] + TEXT) == []
    entries = [token for number in range(60) for token in (1, 2, 3, 50 + number, 4, 5)]
    assert places(entries) == []
    assert places(TEXT + [7, 8] * 14 + TEXT[::-1]) == []


def test_a_passage_that_repeats_a_part_of_itself_is_found() -> None:
    """The last place where some words were said need not be where the passage was."""
    passage = [1, 2, 3, 4, 5, 1, 2, 3, 4, 6, 7, 1, 2, 3, 4, 8]
    found = places(TEXT + passage * 12)
    assert found[0] <= len(TEXT) + 6 * len(passage)
    assert found[-1] == len(TEXT) + 12 * len(passage) - 1


@table("size", [1, 3, 1000])
def test_a_loop_is_found_in_a_text_without_tokens(size: int) -> None:
    """Wherever its parts are cut; words count about as tokens do."""
    text = "The fox went home. " + "It was late, so it slept.\n" * 30
    repeats = TextRepeats()
    found = [repeats.add(text[place : place + size]) for place in range(0, len(text), size)]

    assert 29 * 8 - 16 < found[-1] <= 29 * 8
    assert repeats.add("Then the morning came") == 0


ON_PURPOSE = {
    "table": "| yes | no | n/a | 0 |\n" * 40,
    "zeros": ", ".join(["0"] * 256),
    "matrix": "[" + ",\n ".join(["[" + ", ".join(["0"] * 16) + "]"] * 16) + "]",
    "board": ("+---" * 8 + "+\n" + "|   " * 8 + "|\n") * 8,
    "wall": "___|___|___|___|___|___\n_|___|___|___|___|___|_\n" * 12,
    "code": "grid.append([0] * 8)\n" * 50,
    "song": "Na na na na, na na na na, hey hey hey, goodbye\n" * 20,
    "drums": "H|x-x-x-x-x-x-x-x-|\nS|----o-------o---|\nB|o-------o-------|\n" * 8,
    "lines": "I will not talk in class.\n" * 100,
    "mantra": "Om mani padme hum\n" * 108,
}
"""Texts that people ask for, and that repeat a passage."""


@table("name", ON_PURPOSE)
def test_what_repeats_on_purpose_stays_below_the_limit(name: str) -> None:
    """Of the chat, which stops an answer there."""
    repeats = TextRepeats()
    found = max(repeats.add(letter) for letter in ON_PURPOSE[name])
    assert 0 < found < ChatOptions().repeat_limit
