"""Faults of the engine's process, injected through the library while it loads and answers."""

import random
import resource
import signal
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

import psutil

from scripts.support.chat_terminal import Failed, is_engine
from scripts.support.processes import still_running
from specchat import Engine
from specchat.catalogue.catalogue_file import DEMO
from specchat.catalogue.pairs import find_pair
from specchat.errors import EngineFailed, ModelWontLoad, SpecchatError
from specchat.formats.chat_message import ChatMessage
from specchat.requests.progress import Stage
from specchat.sharing.process_engine import ProcessEngine

QUESTION: list[ChatMessage] = [{"role": "user", "content": "Write a long story about a fox."}]
SIGNALS = (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS)
MOST_SECONDS = 10.0
"""Seconds in which the error must come."""


def engines() -> list[psutil.Process]:
    """Return the engine processes below this one."""
    return list(filter(is_engine, psutil.Process().children(recursive=True)))


def load() -> ProcessEngine:
    """Load the demo pair into a process of its own."""
    pair = find_pair(DEMO)
    engine = Engine.load(pair.target, pair.draft, process=True, threads=1, ctx=2048)
    assert isinstance(engine, ProcessEngine)  # noqa: S101  # `process` says so
    return engine


def text_of(engine: Engine) -> str:
    """Return the greedy answer to the question."""
    chunks = engine.chat(QUESTION, temperature=0.0, max_tokens=64)
    return "".join(chunk.text for chunk in chunks)


def killed_while_loading(number: signal.Signals, chance: random.Random) -> str:
    """End the process at a random report of progress; return the error."""
    pair = find_pair(DEMO)
    place = chance.random()

    def end(stage: Stage, share: float) -> None:
        if stage == "draft" or share >= place:
            for process in engines():
                process.send_signal(number)

    try:
        Engine.load(pair.target, pair.draft, process=True, threads=1, on_progress=end).close()
    except ModelWontLoad as error:
        return str(error)
    raise Failed("loaded in spite of the signal")


def killed_while_answering(number: signal.Signals, chance: random.Random) -> str:
    """End the process before a random chunk, or in the prompt; return the error."""
    with load() as engine:
        place = chance.randrange(0, 20)
        kill = engine._process  # noqa: SLF001
        try:
            if not place:
                psutil.Process(kill.pid).send_signal(number)
            for count, _ in enumerate(engine.chat(QUESTION, ignore_end=True, max_tokens=3000), 1):
                if count == place:
                    time.sleep(chance.uniform(0, 0.02))
                    psutil.Process(kill.pid).send_signal(number)
        except EngineFailed as error:
            return str(error)
    raise Failed("answered in spite of the signal")


def out_of_memory(number: signal.Signals, chance: random.Random) -> str:
    """Take the process's memory away while it answers a long question; it may carry on or fail."""
    del number
    with load() as engine:
        with suppress(SpecchatError):
            pid = engine._process.pid or 0  # noqa: SLF001
            for count, _ in enumerate(engine.chat(QUESTION, ignore_end=True, max_tokens=400)):
                if count == 3:
                    left = chance.choice([1 << 20, 1 << 28, 1 << 30])
                    resource.prlimit(pid, resource.RLIMIT_AS, (left, left))
        return "out of memory, or none was needed"


FAULTS = {
    "engine killed while loading": killed_while_loading,
    "engine killed in an answer": killed_while_answering,
    "engine out of memory": out_of_memory,
}


@cache
def undisturbed() -> str:
    """Return the answer without faults, to which later ones must be equal."""
    with load() as engine:
        return text_of(engine)


def play(name: str, folder: Path, chance: random.Random) -> str:
    """Inject a fault; check the error, that no process is left, and the next answer."""
    del folder
    expected = undisturbed()
    number = chance.choice(SIGNALS)
    began = time.monotonic()
    message = FAULTS[name](number, chance)
    if FAULTS[name] is not out_of_memory and number.name not in message:
        raise Failed(f"{number.name} is not named: {message}")
    if time.monotonic() - began > 6 * MOST_SECONDS:
        raise Failed(f"it took {time.monotonic() - began:.0f} s")
    if still_running(engines(), timeout_s=MOST_SECONDS):
        raise Failed("a process is left")
    if chance.random() < 0.1:  # the next start is the start of the next round too
        with load() as engine:
            if text_of(engine) != expected:
                raise Failed("another answer after the fault")
    return message
