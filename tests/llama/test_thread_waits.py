"""How llama.cpp's threads wait: long, and short while another program crowds them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from conftest import WriteModel
from specchat.engine.api import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.llama import thread_waits
from specchat.llama.thread_waits import WINDOW_SECONDS, ThreadWaits
from specchat.planning.host_resources import affinity

PROCESSORS = list(range(4))
SLEEPS = """
import ctypes, sys, threading
from pathlib import Path
from time import perf_counter
from specchat.llama import library
from specchat.llama.thread_waits import ThreadWaits

PAUSES = 400
if "libgomp" not in Path("/proc/self/maps").read_text():
    sys.exit("no OpenMP")
waits = ThreadWaits(2)
nothing = ctypes.cast(ctypes.CDLL(None).free, ctypes.c_void_p)

def sleeps():
    '''Return how often all threads but this one have slept.'''
    count = 0
    for task in Path("/proc/self/task").iterdir():
        if int(task.name) != threading.get_native_id():
            text = (task / "status").read_text()
            count += int(text.split("voluntary_ctxt_switches:")[1].split()[0])
    return count

def count():
    '''Count how often OpenMP's second thread sleeps while the first works on its own.'''
    before = 0
    for number in range(-10, PAUSES):
        waits._libraries[0].GOMP_parallel(nothing, None, 2, 0)
        until = perf_counter() + 1e-4
        while perf_counter() < until:
            pass
        if number == 0:
            before = sleeps()
    return sleeps() - before

print(count())
waits.shorten()
print(count())
waits.close()
print(count())
"""


@pytest.mark.skipif(len(affinity()) < 2, reason="one processor: threads never look for work")
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says how often threads sleep")
def test_a_sleeping_team_shortens_the_waits_of_other_threads() -> None:
    """While waits are long, a thread sleeps only if another process takes the first one's place."""
    hidden = {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}
    done = subprocess.run(
        [sys.executable, "-c", SLEEPS],
        env={name: text for name, text in os.environ.items() if name not in hidden},
        capture_output=True,
        text=True,
        check=False,
    )
    if "no OpenMP" in done.stderr:
        pytest.skip("llama.cpp was not built with GCC's OpenMP")
    assert done.returncode == 0, done.stderr
    long, short, long_again = map(int, done.stdout.split())

    assert short > 300
    assert max(long, long_again) < short / 2


class World:
    """Four processors, a clock, and other programs that use some of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Start with nothing else running."""
        self.seconds, self.used = 0.0, 0.0
        self.teams: list[int] = []
        library: Any = SimpleNamespace(GOMP_parallel=lambda *given: self.teams.append(given[2]))
        for name, fake in {
            "perf_counter": lambda: self.seconds,
            "seconds_of_others": self._used_on,
            "affinity": lambda: PROCESSORS,
            "_openmp_libraries": lambda: [library],
        }.items():
            monkeypatch.setattr(thread_waits, name, fake)
        for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
            monkeypatch.delenv(name, raising=False)

    def _used_on(self, processors: list[int]) -> float:
        assert processors == PROCESSORS
        return self.used

    def run(self, waits: ThreadWaits, num_used: float, windows: int = 1) -> bool:
        """Decode while others use this many processors; return True if waits are short then."""
        for _ in range(windows):
            self.seconds += WINDOW_SECONDS
            self.used += WINDOW_SECONDS * num_used
            waits.follow()
        return waits.are_short


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Return a world to change."""
    return World(monkeypatch)


def test_waits_are_short_while_another_program_wants_a_processor(world: World) -> None:
    """Others get more beside short waits, so staying short needs more use."""
    waits = ThreadWaits(4)

    assert not world.run(waits, 0.5, windows=9)
    assert not world.run(waits, 0.6)  # it may only be starting
    assert world.run(waits, 0.6)
    assert world.run(waits, 0.8, windows=9)
    assert world.teams == [2]  # one team: with four threads that decode, a thread too many
    assert not world.run(waits, 0.7)
    assert not world.run(waits, 0.7)
    assert world.run(waits, 0.7)
    waits.close()
    assert not waits.are_short


def test_other_programs_may_have_the_processors_that_stay_idle(world: World) -> None:
    """Two threads of four processors are crowded only by a third program."""
    waits = ThreadWaits(2)

    assert not world.run(waits, 2.4, windows=9)
    assert world.run(waits, 2.7, windows=2)
    assert world.teams == [4]
    waits.close()


def test_what_ran_between_answers_does_not_count(world: World) -> None:
    """The window starts with the answer; a shorter one is too short to judge by."""
    waits = ThreadWaits(4)
    for _ in range(9):
        world.seconds += 60
        world.used += 240
        waits.begin()
        world.seconds += 0.9 * WINDOW_SECONDS
        world.used += WINDOW_SECONDS
        waits.follow()
        assert not waits.are_short


def test_a_crowded_answer_makes_the_next_one_quicker_to_judge(world: World) -> None:
    """The next one begins with long waits, which become short after one window, not two."""
    waits = ThreadWaits(4)
    assert world.run(waits, 0.9, windows=3)
    waits.close()
    waits.begin()

    assert world.run(waits, 0.9)
    waits.close()


def test_a_system_that_allows_no_more_threads_keeps_long_waits(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a container with few processes does."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)

    assert not world.run(ThreadWaits(4), 4.0, windows=9)


@pytest.mark.parametrize("name", ["GOMP_SPINCOUNT", "OMP_WAIT_POLICY"])
def test_the_user_decides_how_threads_wait(
    world: World, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """What the environment says is kept."""
    monkeypatch.setenv(name, "7")

    assert not world.run(ThreadWaits(4), 4.0, windows=9)


def test_a_system_that_hides_what_processors_do_keeps_long_waits(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As some sandboxes do: answers go on."""

    def refuse(_: list[int]) -> float:
        raise PermissionError(13, "Permission denied", "/proc/stat")

    monkeypatch.setattr(thread_waits, "seconds_of_others", refuse)

    assert not world.run(ThreadWaits(4), 4.0, windows=9)


def test_another_openmp_is_left_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build without GCC's has nothing to change, as on a Mac."""
    monkeypatch.setattr(thread_waits, "_openmp_libraries", list)

    assert not world.run(ThreadWaits(4), 4.0, windows=9)


def test_threads_give_way_where_their_number_may_change(world: World) -> None:
    """As many as others want processors, at most all but one; waits stay long."""
    numbers: list[int] = []
    waits = ThreadWaits(4, numbers.append)

    world.run(waits, 0.5, windows=9)
    world.run(waits, 0.9)
    assert numbers == []
    assert not waits.notice
    for num_used in (0.9, 2.1, 9.0, 0.8, 0.7):
        assert not world.run(waits, num_used)
    assert numbers == [3, 2, 1, 3, 4]


def test_an_answer_begins_with_as_many_threads_as_are_free(world: World) -> None:
    """As its first pass, over the prompt, is its longest one."""
    waits = ThreadWaits(4, lambda _: None)
    world.seconds, world.used = 60, 120
    waits.begin()

    assert waits.num_threads == 2
    assert not waits.notice
    world.run(waits, 2.0)
    assert waits.num_threads == 2
    assert "fewer threads" in waits.notice
    world.seconds += 60
    waits.begin()
    assert waits.num_threads == 4


@pytest.mark.parametrize(
    ("options", "is_notice"),
    [
        ({"flash_attention": "off"}, True),
        ({}, False),
        ({"threads": 2, "flash_attention": "off"}, False),
    ],
)
def test_threads_change_where_that_changes_no_bit(
    world: World, tiny: WriteModel, monkeypatch: pytest.MonkeyPatch, options: Any, is_notice: bool
) -> None:
    """Flash attention adds up in another order, and a number that the user chose is kept."""
    monkeypatch.setattr("specchat.planning.host_resources.num_cores", lambda: 2)
    texts, notices = list[list[int]](), list[bool]()
    for num_used in (0.0, 4.0):
        with LocalEngine(Loading(target=tiny("llama"), exact="off", **options)) as engine:
            world.seconds += 60
            world.used += 60 * num_used
            chunks = engine.generate([5, 6, 7], max_tokens=8, ignore_end=True, temperature=0.0)
            texts.append([])
            for chunk in chunks:
                texts[-1] += chunk.tokens
                world.seconds += WINDOW_SECONDS
                world.used += WINDOW_SECONDS * num_used
            notices.append("fewer threads" in " ".join(engine.stats.notices))

    assert texts[0] == texts[1]
    assert notices == [False, is_notice]


def test_an_answer_follows_other_programs(world: World, tiny: WriteModel) -> None:
    """From its first token on, and waits are long again when it is over."""
    with LocalEngine(Loading(target=tiny("llama"), threads=4, exact="off")) as engine:
        states = []
        for _ in engine.generate([5, 6, 7], max_tokens=8, ignore_end=True, temperature=0.0):
            states.append(engine._waits.are_short)
            world.seconds += WINDOW_SECONDS
            world.used += WINDOW_SECONDS

        assert states == sorted(states)
        assert (states[0], states[-1]) == (False, True)
        assert not engine._waits.are_short
