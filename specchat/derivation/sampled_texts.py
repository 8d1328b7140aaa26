"""Texts to measure agreement on: a target's own answers to a few questions."""

from typing import Any, TypeAlias

from specchat.drafter_registry import PLAIN
from specchat.engine.local_engine import LocalEngine
from specchat.errors import SpecchatError
from specchat.formats.chat_message import ChatMessage
from specchat.requests.answer_request import ChatRequest, GenerateRequest

QUESTIONS = (
    "Explain in a few sentences why the sky is blue.",
    "Write a Python function that returns the n largest numbers of a list, with a docstring.",
    "List eight things to pack for a week of hiking, with a reason for each.",
    "Summarize the story of Cinderella in one paragraph.",
    "Write a polite email that asks a landlord to repair the heating.",
    "A train leaves at 9:40 and arrives at 13:05. How long is the journey? Show your steps.",
    "Describe how bread is made, step by step.",
    "Write a short dialogue between a cat and a dog about the weather.",
    "Give a JSON object that describes a book, with title, author, year and three subjects.",
    "What are the advantages and disadvantages of working from home?",
    "Rewrite this in a formal tone: hey, can't make it tomorrow, something came up, sorry!",
    "Write a SQL query that lists the ten customers with the highest total of orders.",
)
NUM_TOKENS = 48
"""The tokens sampled of each answer."""
LEAST_PLACES = 24
"""The least tokens in all that say anything."""

Text: TypeAlias = tuple[list[int], int]
"""The tokens of a question and its answer, and how many of them are the answer's."""


def sample_texts(engine: LocalEngine, options: dict[str, Any]) -> list[Text]:
    """Return the target's answers to the questions, sampled with the given options.

    Raises SpecchatError if they are too short to measure anything on.
    """
    texts: list[Text] = []
    for number, question in enumerate(QUESTIONS):
        messages: list[ChatMessage] = [{"role": "user", "content": question}]
        has_template = engine.facts.has_chat_template
        asked = ChatRequest(messages) if has_template else GenerateRequest(question)
        prompt = engine.prompts.render(asked)
        own = {**options, "seed": number, "drafter": PLAIN, "max_tokens": NUM_TOKENS}
        chunks = engine.generate(prompt, **own)
        answer = [token for chunk in chunks for token in chunk.tokens]
        texts += [([*prompt, *answer], len(answer))] if answer else []
    if sum(count for _, count in texts) < LEAST_PLACES:
        raise SpecchatError("the target's answers are too short to compare a draft with")
    return texts
