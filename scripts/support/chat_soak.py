"""The chat in use for many turns, and what its processes hold meanwhile."""

import asyncio
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path

import psutil
from textual.events import Key
from textual.pilot import Pilot
from textual.widget import Widget

from scripts.support.chat_terminal import Failed, is_engine
from specchat.catalogue.catalogue_file import DEMO
from specchat.catalogue.pairs import find_pair
from specchat.engine.api import Loading
from specchat.tui.app import ChatApp
from specchat.tui.setup import Offer, PairChoice, Setup
from specchat.tui.widgets.composer import Composer
from specchat.tui.widgets.message_views import AnswerView, QuestionView

CYCLE = ("ask", "edit", "regenerate", "stop", "go_on", "ask", "ask", "ask", "ask", "ask")
QUESTIONS = ("What is specchat?", "What is a draft model?", "Write a long story about a fox.")
SUBJECTS = ("a fox", "drafts", "a small program", "the sea", "speculation", "llama.cpp")
OTHER = "other"
"""The pair that is switched to: the demo target without its draft model."""
SHORT, STOPPED = 12, 800
"""Tokens of an answer, and of one that is stopped before it has them."""
OPTIONS = {"temperature": 0.0, "max_tokens": SHORT, "ignore_end": True}
SIZE = 80, 24
CONVERSATION = 5
"""Turns of each conversation."""
NUM_SWITCHES, NUM_SAMPLES = 10, 120
MEBIBYTE = 1 << 20
MOST_GROWTH = 0.05
MOST_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Sample:
    """What both processes hold after a turn."""

    turn: int
    engine_turns: int
    """Turns that this engine process has answered."""
    chat_mib: float
    chat_descriptors: float
    chat_threads: float
    engine_mib: float
    engine_descriptors: float
    engine_threads: float


class Soak:
    """A chat that is used for many turns."""

    def __init__(self, app: ChatApp, pilot: Pilot[None], seed: int) -> None:
        """Use a chat that is open."""
        self.app, self.pilot, self.chance = app, pilot, random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.samples: list[Sample] = []
        self.turn = self.engine_turns = 0

    async def take(self, kind: str) -> None:
        """Do one turn."""
        question = f"{self.chance.choice(QUESTIONS)} Mention {self.chance.choice(SUBJECTS)}."
        if kind == "go_on" and self._last_end() != "cancelled":
            kind = "ask"
        if kind == "edit":
            await self._edit()
        elif kind in {"regenerate", "go_on"}:
            await self._keys("f5" if kind == "regenerate" else "ctrl+g")
        else:
            self.app.state.options.changed["max_tokens"] = STOPPED if kind == "stop" else SHORT
            await self._send(question)
        if kind == "stop":
            await asyncio.sleep(self.chance.uniform(0, 0.3))
            await self._keys("escape")
        await self._until_answered()
        self.app.state.options.changed["max_tokens"] = SHORT
        if kind == "regenerate" and self.counts[kind] % 3 == 0:
            await self._turn_versions()
        self.counts[kind] += 1
        self.counts["cancelled"] += self._last_end() == "cancelled"
        self.turn += 1
        self.engine_turns += 1

    async def begin_conversation(self) -> None:
        """Start a new conversation."""
        await self._keys("ctrl+n")
        await self.until(lambda: not self.app.conversations.branch, "an empty conversation")

    async def switch(self) -> None:
        """Switch to the other pair, which ends the engine and starts another."""
        controller = self.app.pair_controller
        wanted = DEMO if controller.pair.name == OTHER else OTHER
        await self._send(f"/models {wanted}", is_question=False)
        await self.until(lambda: controller.pair.name == wanted, "another pair")
        await self.until(lambda: controller.facts is not None, "a loaded pair")
        self.engine_turns = 0
        self.counts["switch"] += 1

    async def reference(self) -> list[str]:
        """Return the answers to the same questions in a conversation of their own."""
        await self.begin_conversation()
        for question in QUESTIONS:
            await self._send(question)
            await self._until_answered()
        return [each.text for each in self.app.conversations.branch if each.role == "assistant"]

    async def measure(self) -> None:
        """Note what both processes hold, between two turns."""
        await asyncio.sleep(0.2)
        chat = psutil.Process()
        (engine,) = filter(is_engine, chat.children())
        found: list[float] = []
        for each in (chat, engine):
            memory = each.memory_full_info().uss / MEBIBYTE
            found += [memory, each.num_fds(), each.num_threads()]
        self.samples.append(Sample(self.turn, self.engine_turns, *found))

    async def until(self, holds: Callable[[], object], what: str) -> None:
        """Wait until something holds; Failed if it does not."""
        end = time.monotonic() + MOST_SECONDS
        while not holds():
            if time.monotonic() > end:
                raise Failed(f"turn {self.turn}: not seen: {what}")
            await asyncio.sleep(0.03)

    def _last_end(self) -> str | None:
        last = self.app.conversations.last
        return last.finish if last else None

    async def _send(self, text: str, *, is_question: bool = True) -> None:
        """Write something into the composer and send it."""
        composer, answered = self.app.query_one(Composer), len(self.app.conversations.tree)
        composer.focus()
        await self.until(lambda: composer.has_focus, "the composer's focus")
        composer.text = text
        await self._keys("enter")
        if is_question:
            await self.until(
                lambda: len(self.app.conversations.tree) >= answered + 2, "the question"
            )

    async def _edit(self) -> None:
        await self._keys("shift+up")
        await self._until_focused(AnswerView)
        await self._keys("up")
        await self._until_focused(QuestionView)
        await self._keys("e")
        await self.until(lambda: self.app.state.questions.editing, "an edited question")
        await self._send(f"{self.app.query_one(Composer).text} Again.")

    async def _turn_versions(self) -> None:
        """Turn to the version before and back, and return to the composer."""
        leaf = self.app.conversations.leaf
        await self._keys("shift+up")
        await self._until_focused(AnswerView)
        await self._keys("left")
        await self.until(lambda: self.app.conversations.leaf != leaf, "the version before")
        await self._until_focused(AnswerView)
        await self._keys("right")
        await self.until(lambda: self.app.conversations.leaf == leaf, "the last version")
        await self._until_focused(AnswerView)
        await self._keys("escape")

    async def _until_focused(self, kind: type[Widget]) -> None:
        await self.until(lambda: isinstance(self.app.focused, kind), f"a focused {kind.__name__}")

    async def _until_answered(self) -> None:
        answers = self.app.answers
        await self.until(lambda: answers.current is None and self._last_end(), "an answer")

    async def _keys(self, *keys: str) -> None:
        for key in keys:
            self.app.post_message(Key(key, None))
            await self.pilot.pause(0)


async def run(turns: int, seed: int, folder: Path) -> Soak:
    """Use a chat for a number of turns; Failed if it gets stuck or an answer changes."""
    demo = find_pair(DEMO)
    pairs = [
        PairChoice(name, "", Loading(demo.target, draft, threads=1), OPTIONS)
        for name, draft in ((DEMO, demo.draft), (OTHER, None))
    ]
    offers = [Offer(each.name, "", choose=partial(replace, each)) for each in pairs]
    app = ChatApp(Setup(pairs[0], lambda: offers, folder / "history.db"))
    async with app.run_test(size=SIZE) as pilot:
        soak = Soak(app, pilot, seed)
        await soak.until(lambda: app.pair_controller.facts, "the loaded pair")
        first = await soak.reference()
        await _turns(soak, turns)
        if await soak.reference() != first:
            raise Failed("an answer changed")
    return soak


async def _turns(soak: Soak, turns: int) -> None:
    """Do all turns, switching pairs in their first half; the demo pair is loaded at the end."""
    switches = {turns * part // (2 * NUM_SWITCHES) for part in range(1, NUM_SWITCHES + 1)}
    interval = max(turns // NUM_SAMPLES, 1)
    while soak.turn < turns:
        if soak.turn % CONVERSATION == 0:
            await soak.begin_conversation()
        if soak.turn in switches:
            await soak.switch()
        await soak.take(CYCLE[soak.turn % len(CYCLE)])
        if soak.turn % interval == 0:
            await soak.measure()
            print(soak.samples[-1], file=sys.stderr, flush=True)


def growths(samples: list[Sample]) -> Iterator[tuple[str, float, float, float]]:
    """Yield each figure's name, its medians after the warm-up and at the end, and its growth.

    The warm-up is the first tenth of the turns: of all, or for the engine's process of those that
    the last one answered.
    """
    last = max(samples, key=lambda each: each.turn)
    of_last = [each for each in samples if last.turn - each.turn < last.engine_turns]
    for column in fields(Sample)[2:]:
        is_engine_s = column.name.startswith("engine")
        used, most = (of_last, last.engine_turns) if is_engine_s else (samples, last.turn)
        ages = [each.engine_turns if is_engine_s else each.turn for each in used]
        values = [getattr(each, column.name) for each in used]
        parts = ((0.1, 0.2), (0.9, 1.0))
        before, after = (
            statistics.median(
                value
                for age, value in zip(ages, values, strict=True)
                if begin * most <= age <= end * most
            )
            for begin, end in parts
        )
        yield column.name, before, after, after / before - 1
