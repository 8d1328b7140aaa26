"""The text that the demo pair learns from: written by this project, made anew from a seed."""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from .drills import copying, reword, small_sums
from .editing import editing
from .functions import functions
from .lists import capitals, json_objects, lists, opposites
from .outside import outside
from .phrasing import Topic, Turn, exchange, read_topics, roughen
from .stories import plain_story, stories
from .sums import arithmetic, counting

TURN_START, TURN_END = "<|im_start|>", "<|im_end|>"
CONTROL_TOKENS = [TURN_START, TURN_END]

SYSTEM_PROMPTS = (
    "You are a helpful assistant.",
    "You are a friendly assistant.",
    "You are specchat's demo model.",
    "Answer briefly.",
    "Be concise and polite.",
    "You are a helpful assistant. Answer in English.",
)
MORE_PATTERNS = (
    "{Tell me more|More|More about that|Explain more|Go on|Can you say more|Give me more details}{.|, please|}",
    "{Can you explain that|Why is that|How so|What does that mean|An example, please|For example}{?|}",
)
AGAIN_PATTERNS = ("{Another one|One more|Again|Another|Do it again|Next}{.|, please|!|}",)
UPPER_PATTERNS = (
    "{And|Now|} {in upper case|in capital letters|in capitals|uppercase}{.|, please|}",
)
TEXTS = Path(__file__).parent / "text"

Generator = Callable[[random.Random], list[Turn]]

GENERATORS: tuple[tuple[Generator, float], ...] = (
    (counting, 5),
    (arithmetic, 6),
    (lists, 6),
    (capitals, 2),
    (opposites, 1),
    (json_objects, 5),
    (stories, 12),
    (functions, 8),
    (editing, 7),
    (outside, 9),
)
FILES = (("manners", 8), ("specchat", 17), ("words", 15), ("knowledge", 6))


DRILLS: dict[Generator, float] = {copying: 10, small_sums: 14, counting: 3}
EXACT_KINDS = (editing, copying, json_objects, stories, small_sums, arithmetic)


class Corpus:
    """All topics, mixed by weight, as an endless stream of texts."""

    def __init__(
        self, seed: int, held_out: frozenset[str] = frozenset(), wordings: tuple[str, ...] = ()
    ) -> None:
        self._rng = random.Random(seed)
        self._held_out = held_out
        self._topics = {name: read_topics(TEXTS / f"{name}.txt") for name, _ in FILES}
        self._kinds: list[Generator] = [kind for kind, _ in GENERATORS]
        self._kinds += [self._from_file(name) for name, _ in FILES]
        self._weights = [weight for _, weight in GENERATORS] + [weight for _, weight in FILES]
        self._drilled = bool(wordings)
        if wordings:
            self._add_drills(wordings)

    def dialogues(self) -> Iterator[list[Turn]]:
        """Conversations of one to four exchanges, some with a system prompt."""
        while True:
            turns: list[Turn] = []
            if self._rng.random() < 0.15:
                turns.append(Turn("system", self._rng.choice(SYSTEM_PROMPTS)))
            for _ in range(self._rng.choices((1, 2, 3, 4), (55, 25, 14, 6))[0]):
                turns += self._exchanges()
            if not any(normalised(turn.content) in self._held_out for turn in turns):
                yield turns

    def plain_texts(self) -> Iterator[str]:
        """Passages without any chat around them, for raw continuation."""
        answers = [t.answer for n in ("words", "knowledge", "specchat") for t in self._topics[n]]
        while True:
            yield plain_story(self._rng) if self._rng.random() < 0.7 else self._rng.choice(answers)

    def _add_drills(self, wordings: tuple[str, ...]) -> None:
        known = {p: t for topics in self._topics.values() for t in topics for p in t.patterns}
        self._kinds += DRILLS
        self._weights += DRILLS.values()
        for name in wordings:
            self._topics[name] = [
                replace(known[topic.same_as], patterns=topic.patterns) if topic.same_as else topic
                for topic in read_topics(TEXTS / f"{name}.txt")
            ]
            self._kinds.append(self._from_file(name))
            self._weights.append(12)

    def _from_file(self, name: str) -> Generator:
        topics = self._topics[name]
        return lambda rng: self._tell(rng.choice(topics), rng)

    def _exchanges(self) -> list[Turn]:
        kind = self._rng.choices(self._kinds, self._weights)[0]
        turns = kind(self._rng)
        if self._drilled and kind not in EXACT_KINDS:
            turns = [
                Turn(t.role, reword(t.content, self._rng)) if t.role == "user" else t for t in turns
            ]
        if kind in (stories, arithmetic) and self._rng.random() < 0.1:
            turns += [_follow_up(AGAIN_PATTERNS, self._rng), kind(self._rng)[1]]
        elif kind in (editing, counting, lists) and self._rng.random() < 0.06:
            turns += [_follow_up(UPPER_PATTERNS, self._rng)]
            turns.append(Turn("assistant", turns[-2].content.upper()))
        return turns

    @staticmethod
    def _tell(topic: Topic, rng: random.Random) -> list[Turn]:
        turns = exchange(rng.choice(topic.patterns), topic.answer, rng)
        if topic.more and rng.random() < 0.25:
            turns += [_follow_up(MORE_PATTERNS, rng), Turn("assistant", topic.more)]
        return turns


def _follow_up(patterns: tuple[str, ...], rng: random.Random) -> Turn:
    return exchange(rng.choice(patterns), "", rng)[0]


def normalised(question: str) -> str:
    """A question without case and closing marks, to compare wordings."""
    return question.lower().strip(" ?!.")


def render(turns: list[Turn], add_generation_prompt: bool = False) -> str:
    """A conversation as the chat template writes it."""
    text = "".join(f"{TURN_START}{t.role}\n{t.content}{TURN_END}\n" for t in turns)
    return text + f"{TURN_START}assistant\n" if add_generation_prompt else text


__all__ = [
    "CONTROL_TOKENS",
    "TURN_END",
    "TURN_START",
    "Corpus",
    "Turn",
    "normalised",
    "render",
    "roughen",
]
