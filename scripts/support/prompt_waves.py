"""Waves of prompts for a target to answer, from which a draft is trained."""

import random
from collections.abc import Iterator

from specchat.derivation.answer_sampling import (
    ASKING_TEMPERATURE,
    LONGEST_PROMPT,
    TEMPERATURES,
    shared_beginning,
    tokenized,
)
from specchat.derivation.example_prompts import ExamplePrompts
from specchat.llama.batch_sampling import Answer
from specchat.llama.model import Model

PROMPTS_OF_A_WAVE, WAVES_SORTED_AT_ONCE = 512, 4
SELF_ASKED = 0.28
"""The share of questions that the target writes; fewer than the command's: they are long."""


def wanted(model: Model, prompts: ExamplePrompts, chance: random.Random) -> Iterator[list[Answer]]:
    """Yield prompts of similar lengths; with a chat template also beginnings of questions."""
    beginning, source = shared_beginning(model), iter(prompts)
    while True:
        found: list[Answer] = []
        while len(found) < WAVES_SORTED_AT_ONCE * PROMPTS_OF_A_WAVE:
            if len(beginning) > 1 and chance.random() < SELF_ASKED:
                found.append(Answer(list(beginning), ASKING_TEMPERATURE))
                continue
            conversation = next(source)
            tokens = tokenized(model, conversation)
            if 0 < len(tokens) <= LONGEST_PROMPT:
                found.append(Answer(tokens, chance.choice(TEMPERATURES), conversation))
        found.sort(key=lambda each: len(each.prompt))
        starts = list(range(0, len(found), PROMPTS_OF_A_WAVE))
        chance.shuffle(starts)
        for first in starts:
            yield found[first : first + PROMPTS_OF_A_WAVE]
