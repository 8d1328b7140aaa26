"""Measure the chat's screen alone: opening, streaming, stopping, resting.

The engine is one that recites a text at a steady rate, so that all time is the screen's own.
The screen is drawn as in a terminal of 120 x 40, but for the writing itself.

    python scripts/measure/measure_screen.py
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import threading
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter, process_time, sleep
from typing import Any

from scripts.support.counts import positive
from scripts.support.machine_line import machine_line
from specchat.chat.store import Store
from specchat.decoding.chunk import Chunk, Finish, Origin
from specchat.decoding.statistics import Statistics
from specchat.engine.api import Engine, EngineFacts, Loading
from specchat.options.declarations import ScreenOptions
from specchat.requests.answer_request import AnswerRequest
from specchat.requests.answer_update import Update
from specchat.requests.progress import Stage
from specchat.tui.app import ChatApp
from specchat.tui.setup import PairChoice, Setup

SIZE = (120, 40)
PASSAGE = """## A part

Some **words** about `code`, with a [link](https://example.org) and a list:

- one item of it, long enough to be broken into two lines on a terminal that is not very wide
- another

```python
def answer(question: str) -> str:
    return question.upper()  # loud
```

| column | another |
| --- | --- |
| value | 12 |

"""
STEP_TOKENS = 4
FACTS = EngineFacts("Reciter", None, 32768, True, None, "no draft model is loaded", 32)


@dataclass
class Reciter(Engine):
    """Recites passages at a given number of tokens per second; a token is four letters."""

    num_tokens: int
    rate: float
    facts: EngineFacts = FACTS
    _stopped: threading.Event = field(default_factory=threading.Event)

    def begin(self, request: AnswerRequest) -> Generator[Update]:
        """Recite."""
        del request
        self._stopped.clear()
        statistics = Statistics(drafter="none", pass_costs={1: 1 / self.rate})
        for chunk in self._chunks_with(statistics):
            yield Update((chunk,), statistics, finish=chunk.finish)

    def _chunks_with(self, statistics: Statistics) -> Iterator[Chunk]:
        text = PASSAGE * (1 + self.num_tokens * 4 // len(PASSAGE))
        begun = perf_counter()
        for place in range(0, self.num_tokens, STEP_TOKENS):
            sleep(max(0.0, begun + place / self.rate - perf_counter()))
            if self._stopped.is_set():
                yield Chunk(text="", finish="cancelled")
                return
            pieces = tuple(
                text[start : start + 4] for start in range(4 * place, 4 * (place + STEP_TOKENS), 4)
            )
            statistics.count_step(0, 0, STEP_TOKENS)
            statistics.decode_s = perf_counter() - begun
            finish: Finish | None = "stop" if place + STEP_TOKENS >= self.num_tokens else None
            origins: list[Origin] = ["target"] * STEP_TOKENS
            yield Chunk("".join(pieces), (1,) * STEP_TOKENS, tuple(origins), pieces, (), (), finish)

    def stop(self) -> None:
        """Stop reciting."""
        self._stopped.set()

    def forget(self) -> None:
        """Nothing is remembered."""

    def close(self) -> None:
        """Nothing is held."""


def chat(engine: Engine, history: Path | None = None) -> ChatApp:
    """Return the chat around an engine."""

    def load(loading: Loading, on_progress: Callable[[Stage, float], bool]) -> Engine:
        del loading
        on_progress("target", 1.0)
        return engine

    pair = PairChoice("reciter", "", Loading(Path("target.gguf")))
    screen = ScreenOptions(model_titles=False)  # it would recite those, too
    return ChatApp(Setup(pair, list, history, screen=screen), load=load)


async def until_answering(app: ChatApp, *, is_answering: bool) -> None:
    """Wait until an answer has begun, or has ended."""
    while (app.answers.current is not None) is not is_answering:  # noqa: ASYNC110
        await asyncio.sleep(0.001)


def megabytes() -> float:
    """Return the memory of this process, in MB."""
    for line in Path("/proc/self/status").read_text("ascii").splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1000
    return 0.0


async def measure_opening(num_messages: int) -> float:
    """Return the seconds until a long conversation shows its newest message."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "history.db"
        with Store(path) as store:
            conversation, parent = store.begin(), None
            for number in range(num_messages):
                role: Any = "assistant" if number % 2 else "user"
                parent = store.add(conversation.id, role, f"{PASSAGE}{number}", parent).id
        app = chat(Reciter(4, 100.0), path)
        async with app.run_test(size=SIZE) as pilot:
            await pilot.pause()
            begun = perf_counter()
            await app.actions.conversations.open(conversation.id)
            await pilot.pause()
            return perf_counter() - begun


async def measure_streaming(num_tokens: int, rate: float) -> None:
    """Print what the screen uses in the first and the last tenth of a long answer."""
    app = chat(Reciter(num_tokens, rate))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("h", "i", "enter")
        await until_answering(app, is_answering=True)
        shares, memory = [], []
        tenth = num_tokens / rate / 10
        for _ in range(10):
            used, begun = process_time(), perf_counter()
            await asyncio.sleep(tenth)
            shares.append((process_time() - used) / (perf_counter() - begun))
            memory.append(megabytes())
        await until_answering(app, is_answering=False)
        await asyncio.sleep(1.0)
        used, begun = process_time(), perf_counter()
        await asyncio.sleep(10)
        idle = (process_time() - used) / (perf_counter() - begun)
    print(
        f"an answer of {num_tokens} tokens at {rate:.0f} a second: {shares[0]:.1%} of a core in its"
        f" first tenth, {shares[-1]:.1%} in its last; {memory[0]:.0f} MB and {memory[-1]:.0f} MB"
    )
    print(f"at rest: {idle:.2%} of a core")


async def measure_stopping(rounds: int) -> list[float]:
    """Return the seconds from Esc until an answer has ended."""
    app = chat(Reciter(100_000, 200.0))
    took = []
    async with app.run_test(size=SIZE) as pilot:
        for _ in range(rounds):
            await pilot.press("h", "i", "enter")
            await asyncio.sleep(1.0)
            begun = perf_counter()
            await pilot.press("escape")
            await until_answering(app, is_answering=False)
            took.append(perf_counter() - begun)
    return took


def main() -> None:
    """Measure everything, in words."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--messages", type=int, default=5000)
    parser.add_argument("--tokens", type=int, default=20_000)
    parser.add_argument("--rate", type=float, default=500.0)
    parser.add_argument("--rounds", type=positive, default=5)
    options = parser.parse_args()
    print(machine_line())
    opening = [asyncio.run(measure_opening(options.messages)) for _ in range(options.rounds)]
    print(
        f"a conversation of {options.messages} messages opens in"
        f" {statistics.median(opening):.2f} s ({max(opening):.2f} at most)"
    )
    stopping = asyncio.run(measure_stopping(options.rounds))
    print(f"Esc ends an answer in {1e3 * statistics.median(stopping):.0f} ms"
          f" ({1e3 * max(stopping):.0f} at most)")  # fmt: skip
    asyncio.run(measure_streaming(options.tokens, options.rate))


if __name__ == "__main__":
    main()
