"""The memory of real contexts under every operation, in any order."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import pytest

from conftest import WriteModel
from memory_bench import TOLERANCE, Bench, bench
from scripts.support.tiny_gguf import ARCHITECTURES
from specchat.errors import Cancelled
from specchat.llama.text_memory import LONGEST_REPLAY
from tables import table

TEXT = [int(token) for token in np.random.default_rng(1).integers(3, 250, 900)]
DRAFT = [50, 60, 70, 80, 90]
RECURRENT = ["mamba", "granitehybrid", "lfm2", "qwen35"]


@pytest.mark.slow
@table("lengths", [(34, 33), (33, 31), (34, 32, 32, 31), (32, 30), (31, 21, 3)])
@table("architecture", ARCHITECTURES)
def test_going_back_several_times_without_a_pass_between(
    tiny: WriteModel, architecture: str, lengths: Sequence[int]
) -> None:
    """Each rollback is right, also beyond the last mark and beyond the prompt's end."""
    with bench(tiny, architecture) as it:
        it.memory.prefill(TEXT[:30])
        it.memory.mark()
        it.memory.evaluate(DRAFT, 5)
        for length in lengths:
            it.memory.rollback(length)
            assert it.memory.tokens == [*TEXT[:30], *DRAFT][:length]
        it.require_right()


@table("architecture", ARCHITECTURES)
def test_going_back_to_where_it_is_changes_nothing(tiny: WriteModel, architecture: str) -> None:
    """Nothing is evaluated again, and what follows is right."""
    with bench(tiny, architecture) as it:
        it.memory.prefill(TEXT[:30])
        it.memory.mark()
        it.memory.evaluate(DRAFT, 5)
        it.memory.rollback(35)
        it.memory.rollback(35)

        assert it.memory.prefill([*TEXT[:30], *DRAFT]) == 35
        it.require_right()


@table("architecture", ARCHITECTURES)
def test_going_back_to_nothing_empties_the_memory(tiny: WriteModel, architecture: str) -> None:
    """The next text shares nothing with the last one."""
    with bench(tiny, architecture) as it:
        it.memory.prefill(TEXT[:30])
        it.memory.rollback(0)

        assert it.memory.length == 0
        assert it.memory.prefill(TEXT[:5]) == 0
        it.require_right()


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("batch", [18, 33])
@pytest.mark.parametrize("architecture", RECURRENT)
def test_every_row_is_right_however_many_tokens_are_replayed(
    tiny: WriteModel, architecture: str, batch: int
) -> None:
    """After steps that reject most of their draft the next pass has all its rows."""
    with bench(tiny, architecture, batch=batch) as it:
        it.memory.prefill(TEXT[:30])
        for step in range(25):
            drafted = [TEXT[100 + step], *DRAFT]
            it.memory.mark()
            rows = np.array(it.memory.evaluate(drafted, 6))
            text = list(it.memory.tokens)
            assert rows == pytest.approx(it.expected(text, 6), abs=TOLERANCE)
            it.memory.rollback(len(text) - 5 + step % 5)


@pytest.mark.parametrize("architecture", RECURRENT)
def test_a_step_costs_no_more_the_longer_the_answer(
    tiny: WriteModel, architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of tokens evaluated per step is bounded, replays included."""
    evaluated: list[int] = []

    with bench(tiny, architecture) as it:
        decode = it.memory._decode

        def counted(tokens: Sequence[int], num_rows: int) -> None:
            evaluated.append(len(tokens))
            decode(tokens, num_rows)

        it.memory.prefill(TEXT[:30])
        monkeypatch.setattr(it.memory, "_decode", counted)
        for step in range(60):
            evaluated.clear()
            it.memory.mark()
            it.memory.evaluate([TEXT[100 + step], *DRAFT], 6)
            it.memory.rollback(it.memory.length - 4)
            assert sum(evaluated) <= 2 * (LONGEST_REPLAY + 6)


@pytest.mark.slow
def test_tokens_beyond_a_window_are_evaluated_again(tiny: WriteModel) -> None:
    """After a rollback far beyond a window of 24, into it and to its edge the logits are right."""
    with bench(tiny, "gemma3", batch=18) as it:
        for length in (699, 680, 677, 676, 675, 674, 660, 500, 100, 24, 23, 1):
            it.memory.prefill(TEXT[:700])
            it.memory.rollback(length)
            it.require_right()


@table("architecture", ARCHITECTURES)
def test_a_stopped_prompt_continues_where_it_was(tiny: WriteModel, architecture: str) -> None:
    """Tokens evaluated before the stop stay; the rest follows."""
    with bench(tiny, architecture, batch=32) as it:

        def stop_half_way(done: int, total: int) -> None:
            if done >= total // 2:
                it.abort.set()

        with pytest.raises(Cancelled):
            it.memory.prefill(TEXT[:200], stop_half_way)
        assert it.memory.tokens == TEXT[: it.memory.length]
        assert it.memory.length < 200
        it.abort.clear()
        num_cached = it.memory.prefill(TEXT[:200])

        assert num_cached <= 128
        if architecture not in RECURRENT:
            assert num_cached >= 96
        it.require_right()


@pytest.mark.slow
@table("architecture", ["llama", "gemma3", "mamba", "granitehybrid", "lfm2"])
def test_a_pass_stopped_by_another_thread_leaves_the_memory_right(
    tiny: WriteModel, architecture: str
) -> None:
    """Whenever the flag is raised, the memory matches its tokens."""
    with bench(tiny, architecture, batch=128) as it:
        num_stopped = 0
        for attempt in range(12):
            it.memory.prefill(TEXT[:40])
            timer = threading.Timer(0.002 * attempt, it.abort.set)
            timer.start()
            try:
                it.memory.prefill(TEXT)
                it.memory.rollback(40)
            except Cancelled:
                num_stopped += 1
            timer.join()
            it.abort.clear()
            assert it.memory.tokens == TEXT[: it.memory.length]
            it.require_right()
        assert num_stopped > 0


class Player:
    """Applies random operations to a memory and keeps track of the text."""

    def __init__(self, it: Bench, seed: int) -> None:
        """Start with an empty text and a seeded random generator."""
        self.it = it
        self.text: list[int] = []
        self._random = np.random.default_rng(seed)
        self._mark = 0

    def play(self) -> None:
        """Apply one operation and compare the texts."""
        deeds = [self.draft, self.draft_singly, self.ask, self.ask_further, self.stop, self.jump]
        chances = [0.45, 0.2, 0.05, 0.1, 0.1, 0.1]
        self._random.choice(np.array(deeds, dtype=object), p=chances)()
        assert self.it.memory.tokens == self.text
        assert self.it.memory.length == len(self.text)

    def draft(self) -> None:
        """Evaluate a draft in one pass and keep some of it."""
        drafted = self._tokens(1, self.it.memory.longest_draft + 1)
        self.it.memory.mark()
        self.it.memory.evaluate(drafted, len(drafted))
        self._keep(drafted)

    def draft_singly(self) -> None:
        """Evaluate a draft token by token and keep some of it."""
        drafted = self._tokens(1, 17)
        for token in drafted:
            self.it.memory.mark()
            self.it.memory.evaluate([token], 1)
        self._keep(drafted)

    def ask(self) -> None:
        """Begin another text that shares a prefix with this one."""
        shared = int(self._random.integers(0, len(self.text) + 1))
        self.text = [*self.text[:shared], *self._tokens(0, 60)]
        self.it.memory.prefill(self.text)

    def ask_further(self) -> None:
        """Ask the next question of the conversation."""
        self.text += self._tokens(1, 40)
        if len(self.text) > 500:
            self.text = self._tokens(1, 40)
        self.it.memory.prefill(self.text)

    def stop(self) -> None:
        """Stop a pass before it is done."""
        self.it.memory.mark()
        self.it.abort.set()
        with pytest.raises(Cancelled):
            self.it.memory.evaluate(self._tokens(1, 17), 1)
        self.it.abort.clear()

    def jump(self) -> None:
        """Roll back to any length."""
        self.text = self.text[: int(self._random.integers(0, len(self.text) + 1))]
        self.it.memory.rollback(len(self.text))

    def _keep(self, drafted: Sequence[int]) -> None:
        self.text += drafted[: int(self._random.integers(0, len(drafted) + 1))]
        self.it.memory.rollback(len(self.text))

    def _tokens(self, least: int, most: int) -> list[int]:
        size = int(self._random.integers(least, most + 1))
        return [int(token) for token in self._random.integers(3, 250, size)]


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("batch", [24, 512])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_any_order_of_use_leaves_the_memory_right(
    tiny: WriteModel, architecture: str, batch: int
) -> None:
    """After random drafts, questions, stops and jumps the text and the logits are right."""
    with bench(tiny, architecture, batch=batch) as it:
        player = Player(it, seed=batch)
        for move in range(120):
            player.play()
            if move % 4 == 0:
                it.require_right()
