"""Disturb workers at random moments, and check what must hold: no hang, no lost text, one line.

    python scripts/check/check_workers.py [--rounds 100] [--seed 1] [--target FILE]
    python scripts/check/check_workers.py --equal FILE [--flash-attention auto] [--draft FILE]

Workers are killed or stopped while the target is loaded, in an answer or between answers, and
replaced by a server of another version. After each: the error comes within 10 s, is one line that
names the worker, and the answer so far is that of an undisturbed run. Prints a table, and exits
with 1 if anything did not hold.

With `--equal`, answers 10 prompts here, split over two workers, and over the CPU and two workers,
plainly and with a draft, at temperature 0; prints how many texts are equal. Where devices are
alike all are, with flash attention; `auto` leaves that out on a CPU, but not on workers.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from scripts.support.counts import positive
from scripts.support.held_out_prompts import held_out_prompts
from scripts.support.worker_process import (
    OtherServer,
    WorkerProcess,
    of_version,
)
from specchat.catalogue.catalogue_file import DEMO
from specchat.catalogue.pairs import find_pair
from specchat.engine import Loading
from specchat.errors import EngineFailed, SpecchatError, WorkerUnavailable
from specchat.sharing.process_engine import ProcessEngine

MOST_SECONDS = 10.0
QUESTION = "Write a long story about a fox."
LONGEST_ANSWER = 1500
NUM_COMPARED = 10


class Failed(Exception):
    """Raised when something does not hold."""


@dataclass
class Tally:
    """The rounds of one fault, the longest wait for its error, a message, and the problems."""

    rounds: int = 0
    longest: float = 0.0
    message: str = ""
    problems: Counter[str] = field(default_factory=Counter)


@dataclass
class Round:
    """One round: the target, a source of chance, and when the fault came."""

    target: Path
    chance: random.Random
    disturbed: float = 0.0

    def load(self, worker: WorkerProcess, **options: Any) -> ProcessEngine:
        """Load the target onto a worker."""
        on_progress = options.pop("on_progress", None)
        return ProcessEngine(_loading(self.target, (str(worker.address),)), on_progress)

    def disturb(self, worker: WorkerProcess, how: signal.Signals) -> None:
        """Send a signal to a worker."""
        self.disturbed = time.monotonic()
        worker.process.send_signal(how)

    def require_one_line(self, error: SpecchatError, worker: WorkerProcess) -> str:
        """Return the message of an error, which came in time, if it is as it must be."""
        seconds = time.monotonic() - self.disturbed
        message = str(error)
        if seconds > MOST_SECONDS:
            raise Failed(f"the error took {seconds:.1f} s")
        if "\n" in message or str(worker.address) not in message:
            raise Failed(f"the worker is not named in one line: {message}")
        if "SIGABRT" in message or "log" in message:
            raise Failed(f"a crash, not a lost worker: {message}")
        self.disturbed = seconds
        return message


def _loading(target: Path, workers: tuple[str, ...]) -> Loading:
    return Loading(target, workers=workers, ctx=2048, threads=1, learn=False, flash_attention="on")


def stream(engine: ProcessEngine, count: int = LONGEST_ANSWER) -> Any:
    """Yield the tokens of the answer."""
    options: dict[str, Any] = {"temperature": 0.0, "max_tokens": count, "ignore_end": True}
    for chunk in engine.chat([{"role": "user", "content": QUESTION}], drafter="none", **options):
        yield from chunk.tokens


@cache
def undisturbed(target: Path) -> list[int]:
    """Return the answer without workers."""
    with ProcessEngine(_loading(target, ())) as engine:
        return list(stream(engine))


def in_an_answer(each: Round, how: signal.Signals) -> str:
    """Disturb the worker before a random token."""
    expected, place = undisturbed(each.target), each.chance.randrange(0, 60)
    with WorkerProcess() as worker, each.load(worker) as engine:
        found: list[int] = []
        try:
            if not place:
                each.disturb(worker, how)
            for token in stream(engine):
                found.append(token)
                if len(found) == place:
                    time.sleep(each.chance.uniform(0, 0.02))
                    each.disturb(worker, how)
        except EngineFailed as error:
            message = each.require_one_line(error, worker)
        else:
            raise Failed("answered in spite of the fault")
        if len(found) < place or found != expected[: len(found)]:
            raise Failed(f"text is lost: {len(found)} tokens, {place} were there")
        return message


def while_loading(each: Round, how: signal.Signals) -> str:
    """Disturb the worker at a random moment after the start of loading."""
    with WorkerProcess() as worker:
        delay = each.chance.uniform(0.0, 1.2)
        timer = threading.Timer(delay, each.disturb, [worker, how])
        timer.start()
        began = time.monotonic()
        try:
            with each.load(worker) as engine:
                list(stream(engine))
        except (EngineFailed, WorkerUnavailable) as error:
            each.disturbed = max(began, each.disturbed)
            return each.require_one_line(error, worker)
        finally:
            timer.join()
        raise Failed("answered in spite of the fault")


def between_answers(each: Round, how: signal.Signals) -> str:
    """Disturb the worker while nobody asks anything."""
    with WorkerProcess() as worker, each.load(worker) as engine:
        list(stream(engine, 5))
        each.disturb(worker, how)
        deadline = time.monotonic() + 2 * MOST_SECONDS
        try:
            while time.monotonic() < deadline:
                engine.check()
                time.sleep(0.05)
        except EngineFailed as error:
            return each.require_one_line(error, worker)
        raise Failed("nothing was noticed")


def replaced(each: Round, how: signal.Signals) -> str:
    """Kill the worker in an answer; a server of another version is there when it is tried again."""
    with WorkerProcess() as worker:
        with each.load(worker) as engine:
            try:
                for number, _ in enumerate(stream(engine)):
                    if number == 20:
                        each.disturb(worker, how)
                        worker.kill()
            except EngineFailed as error:
                each.require_one_line(error, worker)
        with OtherServer(of_version(6, 2, 1), worker.address.port):
            each.disturbed = time.monotonic()
            try:
                each.load(worker).close()
            except WorkerUnavailable as error:
                message = each.require_one_line(error, worker)
                if "speaks version 6.2.1" not in message:
                    raise Failed(f"the version is not named: {message}") from None
                return message
        raise Failed("another version was used")


FAULTS: dict[str, tuple[float, Callable[[Round, signal.Signals], str], signal.Signals]] = {
    "killed in an answer": (0.25, in_an_answer, signal.SIGKILL),
    "stopped in an answer": (0.15, in_an_answer, signal.SIGSTOP),
    "killed while loading": (0.15, while_loading, signal.SIGKILL),
    "stopped while loading": (0.1, while_loading, signal.SIGSTOP),
    "killed between answers": (0.1, between_answers, signal.SIGKILL),
    "stopped between answers": (0.05, between_answers, signal.SIGSTOP),
    "replaced by another version": (0.1, replaced, signal.SIGKILL),
}
"""The share of the rounds, the function and the signal of each fault."""


def compare(given: argparse.Namespace) -> int:
    """Print how many texts are the same with and without workers."""
    prompts = [each for kind in held_out_prompts().values() for each in kind][:NUM_COMPARED]
    with WorkerProcess() as first, WorkerProcess() as second:
        workers = {"workers": (str(first.address), str(second.address))}
        part = {"gpu_layers": 10, "tensor_split": "1,1"}
        ways: dict[str, dict[str, Any]] = {"here": {}, "two workers": workers}
        ways["CPU and two workers"] = workers | part
        if given.draft:
            ways |= {"two workers, with a draft": workers | {"draft": given.draft}}
        texts = {name: _texts(given, prompts, options) for name, options in ways.items()}
    for name, found in texts.items():
        same = sum(map(str.__eq__, found, texts["here"]))
        print(f"{name}: {same} of {len(prompts)} texts are those of this machine alone")
    return int(any(found != texts["here"] for found in texts.values()))


def _texts(given: argparse.Namespace, prompts: list[str], options: dict[str, Any]) -> list[str]:
    usual = {"ctx": 4096, "threads": 1, "learn": False, "flash_attention": given.flash_attention}
    with ProcessEngine(Loading(given.equal, head=False, **usual, **options)) as engine:
        return [
            "".join(
                chunk.text
                for chunk in engine.chat(
                    [{"role": "user", "content": prompt}], temperature=0.0, max_tokens=60
                )
            )
            for prompt in prompts
        ]


def main() -> int:
    """Play all rounds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=positive, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", type=Path)
    parser.add_argument("--equal", type=Path, metavar="FILE")
    parser.add_argument("--draft", type=Path)
    parser.add_argument("--flash-attention", default="on", choices=["auto", "on", "off"])
    given = parser.parse_args()
    if given.equal:
        return compare(given)
    target, chance = given.target or find_pair(DEMO).target, random.Random(given.seed)
    tallies: dict[str, Tally] = {}
    for name, (share, play, how) in FAULTS.items():
        tally = tallies[name] = Tally()
        for _ in range(max(1, round(share * given.rounds))):
            each = Round(target, chance)
            try:
                tally.message = play(each, how)
                tally.longest = max(tally.longest, each.disturbed)
            except (Failed, SpecchatError, OSError) as problem:
                tally.problems[str(problem)] += 1
                print(f"{name}: {problem}", file=sys.stderr, flush=True)
            tally.rounds += 1
    print("| fault | rounds | held | longest wait | message |")
    print("| --- | ---: | ---: | ---: | --- |")
    for name, tally in tallies.items():
        held = tally.rounds - tally.problems.total()
        print(f"| {name} | {tally.rounds} | {held} | {tally.longest:.1f} s | {tally.message} |")
    return int(any(tally.problems for tally in tallies.values()))


if __name__ == "__main__":
    sys.exit(main())
