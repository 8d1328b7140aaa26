"""Prompts to train a draft on: of this project's own writing, and the user's."""

import random
import re
import tomllib
from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import Any

from specchat.formats.chat_message import ChatMessage

LEAST_PASSAGE, LONGEST_PASSAGE = 120, 700
"""The most characters of a text quoted in a prompt."""
MOST_KEPT = 2000
LONGEST_CHAT = 3
"""The most messages of a conversation that is continued."""
OWN_SHARE = 0.3
"""Of prompts that ask one of the user's questions, and of passages from the user's files."""
SLOT = re.compile(r"{(\w+)}")

Conversation = list[ChatMessage]


class ExamplePrompts:
    """An endless stream of conversations that end with a question.

    Each is a random template filled with random words, one of the user's `questions`, or a question
    given to `ask`, each of which is used once. Some quote a passage or continue a conversation,
    both from earlier answers, which `learn` collects, and from the user's `texts`.
    """

    def __init__(self, seed: int, texts: Sequence[str] = (), questions: Sequence[str] = ()) -> None:
        """Read the templates."""
        source = files("specchat.derivation").joinpath("prompts.toml")
        tables: dict[str, Any] = tomllib.loads(source.read_text("utf-8"))
        self._slots: dict[str, list[str]] = tables["slots"]
        self._kinds: dict[str, dict[str, Any]] = tables["kinds"]
        self._system: dict[str, Any] = tables["system"]
        self._random = random.Random(seed)  # noqa: S311  # chooses words
        self._texts, self._questions = texts, questions
        self._asked: list[str] = []
        self._answered: list[tuple[Conversation, str]] = []

    def __iter__(self) -> Iterator[Conversation]:
        """Yield conversations without end."""
        weights = [kind["weight"] for kind in self._kinds.values()]
        while True:
            (kind,) = self._random.choices(list(self._kinds), weights)
            template = self._random.choice(self._kinds[kind]["templates"])
            if self._asked:
                yield self._opened(self._asked.pop())
            elif self._questions and self._random.random() < OWN_SHARE:
                yield self._opened(self._random.choice(self._questions))
            elif question := self._filled(template):
                if kind != "following":
                    yield self._opened(question)
                elif earlier := self._earlier():
                    yield [*earlier, {"role": "user", "content": question}]

    def ask(self, question: str) -> None:
        """Use this question in one of the next conversations."""
        self._asked.append(question)

    def learn(self, conversation: Conversation, answer: str) -> None:
        """Keep an answer, to be quoted and continued."""
        if len(self._answered) < MOST_KEPT:
            self._answered.append((conversation, answer))
        else:
            self._answered[self._random.randrange(MOST_KEPT)] = (conversation, answer)

    def _opened(self, question: str) -> Conversation:
        """Return a conversation of one question, sometimes with a system prompt."""
        asked: Conversation = [{"role": "user", "content": question}]
        if self._random.random() >= self._system["share"]:
            return asked
        system = self._filled(self._random.choice(self._system["prompts"]))
        return [{"role": "system", "content": system}, *asked]

    def _earlier(self) -> Conversation:
        """Return an answered conversation, empty if it is too long to continue."""
        if not self._answered:
            return []
        earlier, answer = self._random.choice(self._answered)
        if len(earlier) > LONGEST_CHAT or len(answer) > 2 * LONGEST_PASSAGE:
            return []
        return [*earlier, {"role": "assistant", "content": answer}]

    def _filled(self, template: str) -> str:
        """Return a template with words in its slots; "" if it lacks a passage to quote."""
        passage = self._passage() if "{passage}" in template else ""
        if "{passage}" in template and not passage:
            return ""
        if len(template) < LEAST_PASSAGE and not passage:
            template = f"{{greeting}}{template}{{polite}}"
        fillings = {"passage": [passage], **self._slots}
        return SLOT.sub(lambda slot: self._random.choice(fillings[slot[1]]), template)

    def _passage(self) -> str:
        """Return the first sentences of one of the user's texts or of an answer; "" if short."""
        texts = self._texts
        if not texts or self._random.random() >= OWN_SHARE:
            texts = [self._random.choice(self._answered)[1]] if self._answered else []
        if not texts:
            return ""
        text = self._random.choice(texts)
        start = self._random.randrange(max(1, len(text) - LONGEST_PASSAGE))
        first = text.rfind(". ", 0, start) + 2 if ". " in text[:start] else 0
        longest = self._random.randint(LEAST_PASSAGE, LONGEST_PASSAGE)
        passage = text[first : first + longest + 1].rpartition(". ")[0]
        return f"{passage}." if len(passage) >= LEAST_PASSAGE // 2 else ""
