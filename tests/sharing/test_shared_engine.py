"""A shared engine: who is served when, and that sharing changes no text."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from conftest import WriteModel
from engine.test_lossless import EXACT
from scripts.support.eager_engine import EagerEngine
from scripts.support.tiny_gguf import ARCHITECTURES
from specchat.engine.api import Engine, Loading
from specchat.engine.local_engine import LocalEngine
from specchat.errors import InvalidOption
from specchat.requests.answer_request import GenerateRequest
from specchat.sharing.shared_engine import SharedEngine
from specchat.sharing.ticket_line import MOST_IN_TURN
from specchat.sharing.tickets import QueueFull, Ticket

PROMPTS = [[3 + (7 * place + 31 * number) % 240 for place in range(90)] for number in range(4)]
SEEDED: dict[str, Any] = {"temperature": 0.9, "seed": 5, "max_tokens": 60, "ignore_end": True}


class Waiter:
    """A client's side of a request: collects its steps until it is over."""

    def __init__(
        self, engine: SharedEngine, prompt: list[int], client: str, **options: Any
    ) -> None:
        """Submit a request."""
        self._changed = threading.Event()
        request = GenerateRequest(prompt=prompt, **SEEDED | options)
        self.ticket = Ticket(request, client, self._changed.set, is_served=True)
        engine.submit(self.ticket)
        self.tokens: list[int] = []
        self.update = self.ticket.take()

    def wait(self, until: Callable[[], bool] = lambda: False) -> Waiter:
        """Wait for the end, or until something holds."""
        while not (self.update.is_over or until()):
            assert self._changed.wait(60)
            self._changed.clear()
            self.update = self.ticket.take()
            self.tokens += [token for step in self.update.chunks for token in step.tokens]
        return self


@contextmanager
def shared(loading: Loading, **options: Any) -> Iterator[SharedEngine]:
    """Share an engine in this process."""
    engine = SharedEngine(lambda _: EagerEngine(loading), **options)
    try:
        engine.wait_until_loaded()
        yield engine
    finally:
        engine.close()


def loading_of(write: WriteModel, architecture: str) -> Loading:
    """Return how to load a target and a draft with enough room for the texts."""
    draft = write(architecture, "half right")
    return Loading(write(architecture), draft, **{**EXACT, "ctx": 1024})


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_answers_that_take_turns_are_those_they_would_be_alone(
    shallow: WriteModel, architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With turns of one step, drafts and a seed; all of the prompt is read once."""
    with shared(loading_of(shallow, architecture)) as engine:
        alone = [Waiter(engine, each, "a", draft_length=3).wait().tokens for each in PROMPTS]
        engine.call(lambda owned: owned.forget())
        monkeypatch.setattr("specchat.sharing.answer_turn.SLICE_SECONDS", 0.0)
        waiters = [Waiter(engine, each, str(each[0]), draft_length=3) for each in PROMPTS]
        for waiter, tokens in zip(waiters, alone, strict=True):
            waiter.wait()
            assert waiter.tokens == tokens
            assert waiter.update.finish == "length"
            stats = waiter.update.statistics
            assert (
                stats.generated_tokens
                == len(tokens)
                == sum(
                    kept * count + count for kept, count in enumerate(stats.acceptance_histogram)
                )
            )
            assert (stats.prompt_tokens, stats.cached_tokens) == (len(PROMPTS[0]), 0)
        assert engine.facts.takes_turns == (architecture != "gemma3")


def test_what_cannot_be_kept_is_not_interrupted_again(
    shallow: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without room to set texts aside, long prompts still get on, one after the other."""
    long = [[3 + (7 * place + 31 * number) % 240 for place in range(900)] for number in range(2)]
    loading = replace(loading_of(shallow, "llama"), batch=32)
    monkeypatch.setattr("specchat.sharing.answer_turn.SLICE_SECONDS", 0.0)
    with shared(loading) as engine:

        def leave_no_room(owned: Engine) -> None:
            assert isinstance(owned, LocalEngine)
            owned.parked.limit = 1

        engine.call(leave_no_room)
        waiters = [Waiter(engine, each, str(each[0]), max_tokens=20) for each in long]
        for waiter in waiters:
            assert waiter.wait().update.finish == "length"
            assert len(waiter.tokens) == 20
        assert not all(each.ticket.may_be_interrupted for each in waiters)


def test_clients_are_served_in_turn(shallow: WriteModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """One with many requests does not hold up another with one, and places say who is next."""
    monkeypatch.setattr("specchat.sharing.ticket_line.MOST_IN_TURN", 1)
    with shared(loading_of(shallow, "llama")) as engine:
        first = Waiter(engine, PROMPTS[0], "many", max_tokens=600)
        first.wait(lambda: bool(first.tokens))
        others = [Waiter(engine, PROMPTS[1], "many", max_tokens=5) for _ in range(3)]
        single = Waiter(engine, PROMPTS[2], "one", max_tokens=5)
        assert single.ticket.place == 1
        assert [each.ticket.place for each in others] == [2, 3, 4]
        first.ticket.cancel()
        assert first.wait().update.finish == "cancelled"
        single.wait()
        assert not others[-1].ticket.is_over or len(single.tokens) == 5
        for each in others:
            assert each.wait().update.finish == "length"


def test_a_short_answer_does_not_wait_for_a_long_one(
    shallow: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is over while the long one goes on."""
    monkeypatch.setattr("specchat.sharing.answer_turn.SLICE_SECONDS", 0.05)
    with shared(loading_of(shallow, "llama")) as engine:
        long = Waiter(engine, PROMPTS[0], "a", max_tokens=900)
        long.wait(lambda: bool(long.tokens))
        short = Waiter(engine, PROMPTS[1], "a", max_tokens=4).wait()
        assert short.update.finish == "length"
        assert not long.ticket.is_over
        long.ticket.cancel()
        assert long.wait().update.finish == "cancelled"


def test_too_many_are_refused_and_mistakes_are_reported(shallow: WriteModel) -> None:
    """The queue is bounded beside the free turns, and a wrong request fails alone."""
    with shared(loading_of(shallow, "llama"), most_waiting=2) as engine:
        long = Waiter(engine, PROMPTS[0], "a", max_tokens=900)
        long.wait(lambda: bool(long.tokens))
        engine.call(lambda _: None)
        wrong = Waiter(engine, [10**6], "b").wait()
        assert isinstance(wrong.update.error, InvalidOption)
        started, is_full = threading.Event(), threading.Event()

        def hold(_: Engine) -> None:
            started.set()
            is_full.wait(60)

        holder = threading.Thread(target=engine.call, args=(hold,))
        holder.start()
        assert started.wait(60)
        taken = list[Waiter]()
        with suppress(QueueFull):
            while len(taken) < 20:
                taken.append(Waiter(engine, PROMPTS[1], "b", max_tokens=2))
        assert len(taken) - MOST_IN_TURN in (1, 2)  # a turn is free if the long one has ended
        is_full.set()
        holder.join()


def loading_of_several(write: WriteModel, architecture: str) -> Loading:
    """Return how to load a pair that decodes several answers together."""
    return replace(loading_of(write, architecture), at_once=3)


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_answers_that_arrive_at_any_time_are_those_they_would_be_alone(
    shallow: WriteModel, architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five requests at random times, more than are decoded at once; some are given up."""
    random = np.random.default_rng(7)
    with shared(loading_of_several(shallow, architecture)) as engine:
        assert engine.facts.at_once == 3
        asked = [*PROMPTS, PROMPTS[0][:40]]
        alone = [Waiter(engine, each, "a", draft_length=3).wait().tokens for each in asked]
        engine.call(lambda owned: owned.forget())
        monkeypatch.setattr("specchat.sharing.answer_turn.SLICE_SECONDS", 0.02)
        for _ in range(3):
            waiters: dict[int, Waiter] = {}
            for number in random.permutation(len(asked)).tolist():
                time.sleep(random.random() * 0.02)
                waiters[number] = Waiter(engine, asked[number], f"{number}", draft_length=3)
            given_up = int(random.integers(len(asked)))
            waiters[given_up].ticket.cancel()
            for number, waiter in waiters.items():
                waiter.wait()
                if number == given_up:
                    assert waiter.tokens == alone[number][: len(waiter.tokens)]
                else:
                    assert waiter.update.finish == "length"
                    assert waiter.tokens == alone[number]


@pytest.mark.parametrize("architecture", ["llama", "qwen35", "granitehybrid"])
def test_a_turn_of_several_answers_gives_way_to_a_third(
    shallow: WriteModel, architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two are decoded at once; the third has a turn with one of them before they have ended."""
    groups: list[list[int]] = []
    begin = LocalEngine.begin_together

    def noted(self: LocalEngine, requests: Any) -> Any:
        groups.append(sorted(PROMPTS.index(each.prompt) for each in requests))
        return begin(self, requests)

    monkeypatch.setattr(LocalEngine, "begin_together", noted)
    monkeypatch.setattr("specchat.sharing.answer_turn.SLICE_SECONDS", 0.02)
    lengths = (300, 300, 40)
    with shared(replace(loading_of(shallow, architecture), at_once=2)) as engine:
        alone = [
            Waiter(engine, prompt, "a", draft_length=3, max_tokens=length).wait().tokens
            for prompt, length in zip(PROMPTS, lengths, strict=False)
        ]
        engine.call(lambda owned: owned.forget())
        waiters = [
            Waiter(engine, PROMPTS[number], f"{number}", draft_length=3, max_tokens=lengths[number])
            for number in (0, 1)
        ]
        for waiter in waiters:
            waiter.wait(lambda waiter=waiter: bool(waiter.tokens))  # type: ignore[misc]
        third = Waiter(engine, PROMPTS[2], "c", draft_length=3, max_tokens=lengths[2]).wait()
        assert not all(waiter.ticket.is_over for waiter in waiters)
        assert [each.wait().tokens for each in (*waiters, third)] == alone
    assert groups[0] == [0, 1]
    assert any(2 in group and len(group) == 2 for group in groups)


def test_answers_are_decoded_together(shallow: WriteModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that arrive while others write join them, and a comparison of speeds is alone."""
    groups: list[int] = []
    begin = LocalEngine.begin_together

    def noted(self: LocalEngine, requests: Any) -> Any:
        groups.append(len(requests))
        return begin(self, requests)

    monkeypatch.setattr(LocalEngine, "begin_together", noted)
    with shared(loading_of_several(shallow, "llama")) as engine:
        first = Waiter(engine, PROMPTS[0], "a", max_tokens=800)
        first.wait(lambda: bool(first.tokens))
        second = Waiter(engine, PROMPTS[1], "b", max_tokens=700)
        second.wait(lambda: bool(second.tokens))
        third = Waiter(engine, PROMPTS[2], "c", max_tokens=20)
        assert third.wait().update.finish == "length"
        assert not first.ticket.is_over
        assert groups[:2] == [2, 3]
        first.ticket.cancel()
        second.ticket.cancel()
        first.wait()
        second.wait()
        groups.clear()
        changed = threading.Event()
        asked = GenerateRequest(prompt=PROMPTS[3], **SEEDED | {"max_tokens": 200})
        timed = Ticket(asked, "race", changed.set, is_timed=True)
        engine.submit(timed)
        other = Waiter(engine, PROMPTS[0], "a", max_tokens=5)
        other.wait()
        assert timed.is_over
        assert not groups
