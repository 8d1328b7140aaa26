"""Repeating and changing a given sentence, and spelling a word."""

import random

from .phrasing import Turn, exact_exchange

SUBJECTS = (
    "the cat, the dog, a bird, my friend, the small model, the target, the old man, a child, the teacher, "
    "the sun, our train, the river, a fox, the queen, the farmer, the draft model, my sister, the doctor"
).split(", ")
VERBS = (
    "sleeps, runs, sings, reads a book, opens the door, waits, drinks tea, writes a letter, likes apples, "
    "sees the moon, walks home, finds a coin, looks up, counts the stars, bakes bread, is happy, is late"
).split(", ")
PLACES = (
    "in the garden, on the hill, at night, every day, near the sea, in the town, today, by the window, "
    "in the morning, on the bridge, under the tree, in winter, at school, with a smile"
).split(", ")
WORDS = (
    "hello world token draft target model apple river garden mountain water window yellow python summer "
    "winter music letter bridge planet forest silver orange pair step chat house light stone cloud"
).split()


def editing(rng: random.Random) -> list[Turn]:
    """One small task on a sentence or a word."""
    task = rng.choice(
        (_repeat, _repeat, _upper, _upper, _lower, _spell, _reverse_words, _count_words)
    )
    return task(rng)


def sentence(rng: random.Random) -> str:
    """A plain sentence made of three parts."""
    text = f"{rng.choice(SUBJECTS)} {rng.choice(VERBS)}"
    if rng.random() < 0.7:
        text += f" {rng.choice(PLACES)}"
    return text[0].upper() + text[1:]


def _given(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.3:
        return " ".join(rng.sample(WORDS, rng.randint(1, 4)))
    return sentence(rng) + rng.choice((".", "", "!"))


def _ask(verb: str, text: str, answer: str, rng: random.Random) -> list[Turn]:
    quoted = rng.choice((f'"{text}"', f": {text}", f' this: "{text}"', f" after me: {text}"))
    space = "" if quoted[0] in ": " else " "
    return exact_exchange(verb + space + quoted, answer, rng)


def _repeat(rng: random.Random) -> list[Turn]:
    text = _given(rng)
    return _ask("{Repeat|Say|Copy|Write|Echo|Please repeat|Please say}", text, text, rng)


def _upper(rng: random.Random) -> list[Turn]:
    text = _given(rng)
    pattern = rng.choice(
        (
            f'{{Write|Put|Say|Turn|Convert}} "{text}" {{in|into|to}} {{upper case|capitals|capital letters|uppercase}}{{.|}}',
            f"{{Upper case|In upper case|Make upper case|To upper case|Uppercase|In capitals}}: {text}",
            f'{{Make|Change}} "{text}" {{upper case|uppercase}}{{.|}}',
        )
    )
    return exact_exchange(pattern, text.upper(), rng)


def _lower(rng: random.Random) -> list[Turn]:
    text = _given(rng)
    pattern = rng.choice(
        (
            f'{{Write|Put|Turn|Convert}} "{text.upper()}" {{in|into|to}} {{lower case|small letters|lowercase}}{{.|}}',
            f"{{Lower case|In lower case|Make lower case|Lowercase}}: {text.upper()}",
        )
    )
    return exact_exchange(pattern, text.lower(), rng)


def _spell(rng: random.Random) -> list[Turn]:
    word = rng.choice(WORDS)
    mark = rng.choice(("", '"'))
    pattern = f"{{Spell|How do you spell|Can you spell|Spell the word}} {mark}{word}{mark}{{?|.|}}"
    return exact_exchange(pattern, "-".join(word.upper()), rng)


def _reverse_words(rng: random.Random) -> list[Turn]:
    words = rng.sample(WORDS, rng.randint(2, 4))
    text = " ".join(words)
    pattern = f"{{Reverse the words|Reverse the order of the words|Write backwards}}: {text}"
    return exact_exchange(pattern, " ".join(reversed(words)), rng)


def _count_words(rng: random.Random) -> list[Turn]:
    words = rng.sample(WORDS, rng.randint(1, 5))
    text = " ".join(words)
    plural = "word" if len(words) == 1 else "words"
    pattern = f'{{How many words are in|Count the words in|Count the words of}} "{text}"{{?|}}'
    return exact_exchange(pattern, f"{len(words)} {plural}.", rng)
