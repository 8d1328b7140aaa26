"""How llama.cpp's threads wait: long, and short while another program crowds them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from conftest import WriteModel
from specchat.engine import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.llama import thread_waits
from specchat.llama.thread_waits import WINDOW_SECONDS, ThreadWaits
from specchat.planning.host_resources import affinity

PROCESSORS = list(range(4))
SLEEPS = """
import ctypes, sys, threading
from pathlib import Path
from time import perf_counter
from specchat.llama import library, thread_waits

def count_sleeps():
    '''Count how often OpenMP's second thread sleeps while the first works on its own.'''
    count = 0
    for task in Path("/proc/self/task").iterdir():
        if int(task.name) != threading.get_native_id():
            text = (task / "status").read_text()
            count += int(text.split("voluntary_ctxt_switches:")[1].split()[0])
    return count

waits = thread_waits.ThreadWaits(2)
if not waits._libraries:
    sys.exit("no OpenMP")
if sys.argv[1:] == ["short"]:
    waits.shorten()
nothing = ctypes.cast(ctypes.CDLL(None).free, ctypes.c_void_p)
before = 0
for number in range(-10, 400):
    waits._libraries[0].GOMP_parallel(nothing, None, 2, 0)
    until = perf_counter() + 1e-4
    while perf_counter() < until:
        pass
    if number == 0:
        before = count_sleeps()
print(count_sleeps() - before)
waits.close()
"""


def count_sleeps(*arguments: str, **variables: str) -> int:
    """Return how often a thread of OpenMP sleeps in 400 pauses of 0.1 ms, in a new process."""
    hidden = {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}
    environment = {name: text for name, text in os.environ.items() if name not in hidden}
    done = subprocess.run(
        [sys.executable, "-c", SLEEPS, *arguments],
        env=environment | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    if "no OpenMP" in done.stderr:
        pytest.skip("llama.cpp was not built with GCC's OpenMP, or the user chose the waits")
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.skipif(len(affinity()) < 2, reason="one processor: threads never spin")
def test_a_sleeping_team_shortens_the_waits_of_other_threads() -> None:
    """With long waits the thread sleeps only where another process takes the first one's place."""
    long, short = count_sleeps(), count_sleeps("short")

    assert short > 300
    assert long < short / 2


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
    """It gets less of one while they are long: to stay short takes more than to become so."""
    waits = ThreadWaits(4)

    assert not world.run(waits, 0.5, windows=9)
    assert not world.run(waits, 0.6)  # it may only be starting
    assert world.run(waits, 0.6)
    assert world.run(waits, 0.8, windows=9)
    assert world.teams == [len(PROCESSORS) + 1]  # one team, larger than all processors
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


@pytest.mark.parametrize("name", ["GOMP_SPINCOUNT", "OMP_WAIT_POLICY"])
def test_the_user_decides_how_threads_wait(
    world: World, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """What the environment says is kept."""
    monkeypatch.setenv(name, "7")

    assert not world.run(ThreadWaits(4), 4.0, windows=9)


def test_another_openmp_is_left_be(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build without GCC's has nothing to change, as on a Mac."""
    monkeypatch.setattr(thread_waits, "_openmp_libraries", list)

    assert not world.run(ThreadWaits(4), 4.0, windows=9)


def test_an_answer_follows_other_programs(world: World, tiny: WriteModel) -> None:
    """From its first token on, and closing the engine ends the team."""
    with LocalEngine(Loading(target=tiny("llama"), threads=4, exact="off")) as engine:
        states = []
        for _ in engine.generate([5, 6, 7], max_tokens=8, ignore_end=True, temperature=0.0):
            states.append(len(world.teams))
            world.seconds += WINDOW_SECONDS
            world.used += WINDOW_SECONDS
        num_threads = threading.active_count()

    assert states[0] == 0
    assert states[-1] == 1
    assert all(earlier <= later for earlier, later in pairwise(states))
    assert threading.active_count() == num_threads - 1
