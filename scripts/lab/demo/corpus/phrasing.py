"""Turn patterns such as ``{What is|What's} a draft{?|}`` into many wordings of a question.

Topics are kept as text files. ``T:`` names a thing and stands for the usual ways of asking what it is,
``Q:`` is a pattern, ``A:`` begins the answer, ``M:`` the answer to "tell me more"; ``---`` ends a topic. ``S:`` repeats a pattern of
another topic, whose answer is then meant.
"""

import random
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

CHOICE = re.compile(r"\{([^{}]*)\}")

DEFINITION_PATTERNS = (
    "{What is|What's|What are} THING{?|}",
    "{What does|What do} THING mean{?|}",
    "{Explain|Define|Describe} THING{.|, please|}",
    "{Can you explain|Could you explain|Please explain} THING{?| to me?|}",
    "{Tell me about|Tell me what is|I want to know about} THING{.|}",
    "{I do not understand|I don't understand|I have a question about} THING{.|}",
    "{What do you mean by|What is meant by|What is the meaning of} THING{?|}",
    "{THING|the word THING|meaning of THING}{?|}",
    "{What exactly is|How do you define|What is the definition of|Can you define} THING{?|}",
    "{Can you tell me what|Do you know what} THING {is|means}{?|}",
    "What is THING {in specchat|here|in simple words|in speculative decoding}{?|}",
)
ARTICLES = ("a ", "an ", "the ")
LEADS = (
    "Hi, ",
    "Hello! ",
    "Hey, ",
    "Please tell me: ",
    "So, ",
    "Ok, ",
    "And ",
    "One question: ",
    "Now, ",
)
TAILS = (" Please.", " Thanks!", " Thank you.", " I am new here.", " Keep it short.", " Be brief.")


@dataclass(frozen=True, slots=True)
class Turn:
    """One thing said, by the user, the assistant or the system."""

    role: str
    content: str


@dataclass(slots=True)
class Topic:
    """The ways of asking one question, its answer, and perhaps more about it."""

    patterns: list[str] = field(default_factory=list)
    answer: str = ""
    more: str = ""
    same_as: str = ""


def expand(pattern: str, rng: random.Random) -> str:
    """Choose one alternative in every pair of braces, the innermost first."""
    while match := CHOICE.search(pattern):
        choice = rng.choice(match.group(1).split("|"))
        pattern = pattern[: match.start()] + choice + pattern[match.end() :]
    return pattern


def exchange(pattern: str, answer: str, rng: random.Random) -> list[Turn]:
    """A question in one wording, with its answer."""
    return [Turn("user", roughen(expand(pattern, rng), rng)), Turn("assistant", answer)]


def exact_exchange(pattern: str, answer: str, rng: random.Random) -> list[Turn]:
    """The same, for questions whose every letter matters."""
    return [Turn("user", expand(pattern, rng).strip()), Turn("assistant", answer)]


def roughen(question: str, rng: random.Random) -> str:
    """Now and then a greeting before, a word after, lower case or a slip of the finger."""
    if rng.random() < 0.08 and question[:1].isupper():
        question = rng.choice(LEADS) + _lower_first(question)
    if rng.random() < 0.04:
        question += rng.choice(TAILS)
    if rng.random() < 0.22:
        question = question.lower()
    if rng.random() < 0.10:
        question = slip(question, rng)
    return question.strip()


def slip(text: str, rng: random.Random) -> str:
    """One typing error: a letter lost, doubled or swapped with its neighbour."""
    places = [i for i in range(1, len(text) - 1) if text[i : i + 2].isalpha()]
    if not places:
        return text
    place = rng.choice(places)
    here, after = text[place], text[place + 1]
    return text[:place] + rng.choice(("", here + here, after + here[:0])) + text[place + 1 :]


@cache
def read_topics(path: Path) -> list[Topic]:
    """The topics of one text file."""
    blocks = re.split(r"^---\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [_parse_topic(block) for block in blocks]


def _lower_first(text: str) -> str:
    return text if text.startswith("I ") else text[0].lower() + text[1:]


def _parse_topic(block: str) -> Topic:
    topic = Topic()
    parts: dict[str, list[str]] = {"A": [], "M": []}
    current = ""
    for line in block.splitlines():
        if line.startswith("T: "):
            for thing in line[3:].split(" | "):
                named = thing if thing.startswith(ARTICLES) else f"{{|the |a }}{thing}"
                topic.patterns += [p.replace("THING", named) for p in DEFINITION_PATTERNS]
        elif line.startswith("S: "):
            topic.same_as = line[3:]
        elif line.startswith("Q: "):
            topic.patterns.append(line[3:])
        elif line in ("A:", "M:"):
            current = line[0]
        else:
            parts[current].append(line)
    topic.answer = "\n".join(parts["A"]).strip()
    topic.more = "\n".join(parts["M"]).strip()
    return topic
