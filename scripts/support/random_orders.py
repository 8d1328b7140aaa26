"""Requests to a shared engine that arrive in random orders, some of which are given up."""

import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from specchat.decoding.chunk import Finish
from specchat.requests.answer_request import GenerateRequest
from specchat.sharing.shared_engine import SharedEngine
from specchat.sharing.tickets import Ticket
from specchat.structured.structure import Structure

SECONDS = 300.0
"""The longest time until all requests of an order are over."""
MOST_APART_S = 0.05
"""The longest time between two requests, and until one is given up."""
SHARE_GIVEN_UP = 0.15
COMMON = [3 + 11 * place % 240 for place in range(70)]
"""The beginning that every other prompt has."""
SCHEMA = '{"type": "object", "properties": {"a": {"type": "integer", "maximum": 99}}}'
WAYS: Sequence[dict[str, Any]] = (
    {"temperature": 0.0, "drafter": "none"},
    {"temperature": 0.0, "draft_length": 3},
    {"temperature": 0.9, "seed": 5, "draft_length": 2},
    {"temperature": 0.9, "seed": 6, "drafter": "none"},
    {"temperature": 0.7, "seed": 7, "structure": Structure("json_schema", SCHEMA)},
    {"temperature": 0.0, "drafter": "suffix"},
    {"temperature": 0.0, "structure": Structure("json_schema", SCHEMA), "draft_length": 4},
    {"temperature": 0.9, "seed": 8, "drafter": "suffix"},
)
"""The options of the requests: greedy and with seeds, with and without drafts and a grammar."""


def requests(count: int) -> list[GenerateRequest]:
    """Return up to eight requests of different prompts, which always have the same answers."""
    found = []
    for number, way in enumerate(WAYS[:count]):
        own = [3 + (7 * place + 31 * number) % 240 for place in range(12 + 25 * number)]
        prompt = [*COMMON, *own] if number % 2 else own
        ignores_end = "structure" not in way
        found.append(
            GenerateRequest(
                prompt=prompt, max_tokens=16 + 3 * number, ignore_end=ignores_end, **way
            )
        )
    return found


@dataclass
class Asked:
    """A request, what it was answered, and when it is over."""

    ticket: Ticket
    is_given_up: bool = False
    tokens: list[int] = field(default_factory=list)
    finish: Finish | None = None
    error: str = ""


def ask(engine: SharedEngine, request: GenerateRequest, client: str) -> tuple[Asked, Any]:
    """Submit a request; return it and a thread that collects its answer."""
    changed = threading.Event()
    asked = Asked(Ticket(request, client, changed.set))

    def collect() -> None:
        while changed.wait(SECONDS):
            changed.clear()
            update = asked.ticket.take()
            asked.tokens += [token for chunk in update.chunks for token in chunk.tokens]
            if update.is_over:
                asked.finish, asked.error = update.finish, str(update.error or "")
                return
        asked.error = "no end"

    engine.submit(asked.ticket)
    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    return asked, thread


def alone(engine: SharedEngine, asked: Sequence[GenerateRequest]) -> list[list[int]]:
    """Return the tokens of each answer by itself, in a memory that holds nothing."""
    texts = []
    for request in asked:
        engine.call(lambda owned: owned.forget())
        one, thread = ask(engine, request, "alone")
        thread.join(SECONDS)
        if one.error:
            raise RuntimeError(one.error)
        texts.append(one.tokens)
    return texts


def in_random_order(
    engine: SharedEngine,
    requests: Sequence[GenerateRequest],
    wanted: Sequence[Sequence[int]],
    chance: random.Random,
) -> Counter[str]:
    """Ask in one order, at random times; return how many answers are as wanted, and what is wrong.

    An answer that is given up must be the beginning of what is wanted.
    """
    order = list(range(len(requests)))
    chance.shuffle(order)
    asked: dict[int, tuple[Asked, Any]] = {}
    leaving: list[threading.Timer] = []
    for number in order:
        asked[number] = one, _ = ask(engine, requests[number], f"client {number}")
        if chance.random() < SHARE_GIVEN_UP:
            one.is_given_up = True
            leaving.append(threading.Timer(chance.uniform(0, MOST_APART_S), one.ticket.cancel))
            leaving[-1].start()
        time.sleep(chance.choice((0.0, chance.uniform(0, MOST_APART_S))))
    for _, thread in asked.values():
        thread.join(SECONDS)
    for timer in leaving:
        timer.join()
    return Counter(_outcome(one, wanted[number]) for number, (one, _) in asked.items())


def _outcome(one: Asked, wanted: Sequence[int]) -> str:
    """Return how an answer ended, in words."""
    if one.error or one.finish is None:
        return one.error or "no end"
    if one.finish == "cancelled" and not one.is_given_up:
        return "cancelled by nobody"
    if one.finish == "cancelled":
        wanted = wanted[: len(one.tokens)]
    if one.tokens != list(wanted):
        return "another text"
    return "given up" if one.finish == "cancelled" else "the same"
