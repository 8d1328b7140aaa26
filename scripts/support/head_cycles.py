"""Rounds that close, switch and crash engines with prediction heads, and what they leave."""

import gc
import signal
import threading
from collections import Counter
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import psutil

from scripts.support.chat_terminal import Failed
from scripts.support.faults.engine_faults import engines
from scripts.support.tiny_gguf import write_with_head
from specchat.decoding.chunk import Finish
from specchat.decoding.statistics import Statistics
from specchat.engine.api import EngineFacts, Loading
from specchat.formats.template import TEMPLATES
from specchat.requests.progress import Stage
from specchat.tui.controllers.session import Question, Session

KINDS = ("qwen35", "glm4moe", "qwen35moe")
WAYS = ("answered", "closed in an answer", "SIGKILL", "answered", "SIGSEGV")
"""How the rounds end. With four pairs, each pair meets each of them."""
MOST_SECONDS = 60.0
MOST_GROWTH = 8 << 20
"""Bytes of memory that this process may gain in the second half of the rounds."""
QUESTION: Any = [{"role": "user", "content": "Say something."}]


def pairs(folder: Path) -> list[dict[str, Any]]:
    """Write the models; return what to load, by the names of the fields of `Loading`."""
    whole = [{"target": write_with_head(folder / f"{kind}.gguf", kind)} for kind in KINDS]
    names = {"target": "trunk", "draft": "head"}
    parts = {
        role: write_with_head(folder / f"{part}.gguf", part=part) for role, part in names.items()
    }
    return [*whole, parts]


class Follower:
    """Waits for a session to load its pair, and for the end of its answer."""

    def __init__(self, files: dict[str, Any], before: Session | None) -> None:
        """Load a pair, once the session before it has ended, and ask it a long question."""
        self.has_begun, self.has_ended = threading.Event(), threading.Event()
        self.finish, self.reason, self.text = "", "", ""
        self.stats = Statistics()
        loading = Loading(**files, ctx=1024, threads=1, learn=False)
        self.session = Session(loading, self, _post, before=before)

    def ask(self, num_tokens: int) -> None:
        """Ask for a greedy answer that the head drafts."""
        options = {"temperature": 0.0, "drafter": "head", "draft_length": 3, "ignore_end": True}
        options["max_tokens"] = num_tokens
        self.session.ask(Question(QUESTION, options, self._on_steps, self._on_end))

    def progressed(self, stage: Stage, share: float) -> None:
        """Do nothing."""

    def loaded(self, facts: EngineFacts) -> None:
        """Check that the head is there."""
        if facts.draft_kind != "head":
            self.lost("loaded without its head")

    def measured(self, facts: EngineFacts) -> None:
        """Do nothing."""

    def lost(self, reason: str) -> None:
        """Keep the reason."""
        self.reason = reason
        self.has_begun.set()
        self.has_ended.set()

    def _on_steps(self) -> None:
        chunks, _ = self.session.take_steps()
        self.text += "".join(chunk.text for chunk in chunks)
        self.has_begun.set()

    def _on_end(self, finish: Finish | str, statistics: Statistics, reason: str) -> None:
        self._on_steps()
        self.finish, self.stats, self.reason = finish, statistics, reason
        self.has_ended.set()


def _post(function: Callable[..., object], *arguments: object) -> None:
    function(*arguments)


def play(way: str, files: dict[str, Any], before: Session | None) -> Follower:
    """Switch to a pair and end its answer in one of the WAYS; raise Failed if it did not."""
    follower = Follower(files, before)
    follower.ask(40 if way == "answered" else 900)
    event = follower.has_ended if way == "answered" else follower.has_begun
    if not event.wait(MOST_SECONDS):
        raise Failed(f"{way}: nothing happened for {MOST_SECONDS} s")
    if way.startswith("SIG"):
        for process in engines():
            process.send_signal(signal.Signals[way])
        if not follower.has_ended.wait(MOST_SECONDS) or way not in follower.reason:
            raise Failed(f"{way} is not named: {follower.reason or follower.finish}")
    elif way == "answered" and not (follower.finish == "length" and follower.stats.accepted):
        raise Failed(f"{way}: {follower.finish}, {follower.reason}")
    if len(engines()) > 1:
        raise Failed(f"{way}: {len(engines())} engines")
    return follower


def counts() -> tuple[int, int, int]:
    """Return this process's open files, threads and bytes of memory."""
    TEMPLATES.close()  # whatever else runs here may have started it, or not
    gc.collect()
    process = psutil.Process()
    return process.num_fds(), process.num_threads(), process.memory_info().rss


def run(rounds: int, folder: Path) -> Counter[str]:
    """Play all rounds; return how many ended in which way. Raises Failed for what is left."""
    known: dict[Path, str] = {}
    ended: Counter[str] = Counter()
    session: Session | None = None
    half, later = (0, 0, 0), (0, 0, 0)
    ways = cycle(WAYS)
    for number, files in enumerate(islice(cycle(pairs(folder)), rounds)):
        way = next(ways)
        follower = play(way, files, session)
        session = follower.session
        expected = known.setdefault(files["target"], follower.text) if way == "answered" else ""
        if expected and follower.text != expected:
            raise Failed(f"another answer in round {number + 1}")
        session.close()
        ended[way] += 1
        if number == rounds // 2 - 1:
            half = _settled(session)
    if session:
        later = _settled(session)
    gained = [after - before for before, after in zip(half, later, strict=True)]
    print(f"gained in the second half: {gained[0]} files, {gained[1]} threads, {gained[2]} bytes")
    if gained[0] > 0 or gained[1] > 0 or gained[2] > MOST_GROWTH:
        raise Failed("this process has grown")
    return ended


def _settled(session: Session) -> tuple[int, int, int]:
    """Return the counts once a closed session has ended."""
    session.wait(MOST_SECONDS)
    if engines():
        raise Failed("a process is left")
    return counts()
