"""Requests to a shared engine that arrive in random orders, some of which are given up.

Many begin alike, some are longer than a window's cells, and answers are followed by two questions
at once, whose prompts contain them.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from queue import Empty, Queue
from typing import Any

from scripts.support.lone_answers import LoneAnswers, prompt_of
from specchat.decoding.chunk import Finish
from specchat.errors import SpecchatError
from specchat.requests.answer_request import GenerateRequest
from specchat.sharing.shared_engine import SharedEngine
from specchat.sharing.tickets import Ticket
from specchat.structured.structure import Structure

SECONDS = 300.0
"""The longest time until the next request of an order is over."""
MOST_APART_S = 0.05
"""The longest time between two requests, and until one is given up."""
SHARE_GIVEN_UP = 0.15
SHARE_SERVED = 0.8
"""The share of requests of other programs; those of this one's user go first."""
SHARE_FOLLOWED = 0.4
"""The share of answers that are followed by two questions."""
COMMON = [3 + 11 * place % 240 for place in range(120)]
"""The beginning that most prompts have; one is little else, so that states are saved there."""
LONG = [3 + 17 * place % 241 for place in range(400)]
"""What makes a prompt longer than a window and a pass."""
SCHEMA = '{"type": "object", "properties": {"a": {"type": "integer", "maximum": 99}}}'
FREE: dict[str, Any] = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
"""What lets every token be drawn, so that a difference can be traced to logits."""
WAYS: Sequence[dict[str, Any]] = (
    {"temperature": 0.0, "drafter": "none"},
    {"temperature": 0.0, "draft_length": 3},
    {"temperature": 0.9, "seed": 5, "draft_length": 2, **FREE},
    {"temperature": 0.9, "seed": 6, "drafter": "none", **FREE},
    {"temperature": 0.7, "seed": 7, "structure": Structure("json_schema", SCHEMA), **FREE},
    {"temperature": 0.0, "drafter": "suffix"},
    {"temperature": 0.0, "structure": Structure("json_schema", SCHEMA), "draft_length": 4},
    {"temperature": 0.9, "seed": 8, "drafter": "suffix", **FREE},
)
"""The options of the requests: greedy and with seeds, with and without drafts and a grammar."""
QUESTIONS = ([5, 9, 14], [7, 21, 35, 49, 63])
"""What follows an answer, twice at once."""
FINE = frozenset({"the same", "given up"})
NEAR_TIE = "a near tie"
"""A text that rounding explains: fine unless answers must be exact."""


def requests(count: int) -> list[GenerateRequest]:
    """Return up to eight requests of different prompts, which always have the same answers."""
    found = []
    for number, way in enumerate(WAYS[:count]):
        own = [3 + (7 * place + 31 * number) % 240 for place in range(1 + 25 * number)]
        prompt = [*(COMMON if number != 2 else ()), *(LONG if number % 3 == 1 else ()), *own]
        found.append(_request(prompt, way, 16 + 3 * number))
    return found


def _request(prompt: list[int], way: dict[str, Any], num_tokens: int) -> GenerateRequest:
    ignores_end = "structure" not in way
    return GenerateRequest(prompt=prompt, max_tokens=num_tokens, ignore_end=ignores_end, **way)


@dataclass
class Asked:
    """A request, what it was answered, and when it is over."""

    ticket: Ticket
    request: GenerateRequest
    is_followed: bool = False
    is_given_up: bool = False
    tokens: list[int] = field(default_factory=list)
    finish: Finish | None = None
    error: str = ""


class RandomOrder:
    """Requests that are asked in one order, at random times, and their answers."""

    def __init__(self, engine: SharedEngine, chance: random.Random) -> None:
        self._engine, self._chance = engine, chance
        self._ended = Queue[Asked]()
        self._leaving: list[threading.Timer] = []
        self._num_asked = 0

    def answers(self, requests: Sequence[GenerateRequest]) -> list[Asked]:
        """Return the answers to requests, and to what follows some of them."""
        chance, over = self._chance, list[Asked]()
        for request in chance.sample(requests, len(requests)):
            self._ask(request, is_followed=chance.random() < SHARE_FOLLOWED)
            time.sleep(chance.choice((0.0, chance.uniform(0, MOST_APART_S))))
        while len(over) < self._num_asked:
            try:
                one = self._ended.get(timeout=SECONDS)
            except Empty:
                raise SpecchatError(f"{self._num_asked - len(over)} answers do not end") from None
            over.append(one)
            if one.is_followed:
                text = [*prompt_of(one.request), *one.tokens]
                for question, way in zip(QUESTIONS, chance.sample(WAYS[:4], 2), strict=True):
                    self._ask(_request([*text, *question], way, 12))
        for timer in self._leaving:
            timer.join()
        return over

    def _ask(self, request: GenerateRequest, *, is_followed: bool = False) -> None:
        changed = threading.Event()
        is_served = self._chance.random() < SHARE_SERVED
        client = f"client {self._num_asked}"
        ticket = Ticket(request, client, changed.set, is_served=is_served)
        asked = Asked(ticket, request, is_followed)
        self._num_asked += 1

        def collect() -> None:
            while True:
                changed.wait()
                changed.clear()
                update = ticket.take()
                asked.tokens += [token for chunk in update.chunks for token in chunk.tokens]
                if update.is_over:
                    asked.finish, asked.error = update.finish, str(update.error or "")
                    self._ended.put(asked)
                    return

        self._engine.submit(ticket)
        threading.Thread(target=collect, daemon=True).start()
        if self._chance.random() < SHARE_GIVEN_UP:
            asked.is_given_up = True
            timer = threading.Timer(self._chance.uniform(0, MOST_APART_S), ticket.cancel)
            self._leaving.append(timer)
            timer.start()


def in_random_order(
    engine: SharedEngine,
    requests: Sequence[GenerateRequest],
    alone: LoneAnswers,
    chance: random.Random,
) -> Counter[str]:
    """Ask in one order, at random times; return how many answers are as alone, and what is wrong.

    An answer that is given up must be the beginning of the one alone.
    """
    answers = RandomOrder(engine, chance).answers(requests)
    # by the engine's owner, which else might measure with other kernels meanwhile
    return engine.call(lambda _: Counter(_outcome(one, alone) for one in answers))


def _outcome(one: Asked, alone: LoneAnswers) -> str:
    """Return how an answer ended, in words."""
    if one.error or one.finish is None:
        return one.error or "no end"
    if one.finish == "cancelled" and not one.is_given_up:
        return "cancelled by nobody"
    wanted = alone.tokens(one.request)
    if one.finish == "cancelled":
        wanted = wanted[: len(one.tokens)]
    if one.tokens == wanted:
        return "given up" if one.finish == "cancelled" else "the same"
    parting = alone.parting(one.request, wanted, one.tokens)
    return NEAR_TIE if parting.is_rounding else f"ANOTHER TEXT ({parting})"
