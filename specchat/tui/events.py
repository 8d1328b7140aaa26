"""What happens to engines and downloads, told by the threads that wait for them."""

from __future__ import annotations

from dataclasses import dataclass

from textual.message import Message

from specchat.decoding.chunk import Chunk, Finish
from specchat.decoding.statistics import Statistics
from specchat.engine.api import EngineFacts, Stage

__all__ = [
    "AnswerEnded",
    "AnswerFailed",
    "EngineLost",
    "EngineProgressed",
    "EngineReady",
    "PullEnded",
    "PullProgressed",
    "StepsArrived",
]


@dataclass
class EngineProgressed(Message):
    """Loading, or reading a prompt, has come so far."""

    stage: Stage
    share: float


@dataclass
class EngineReady(Message):
    """A pair is loaded."""

    facts: EngineFacts


@dataclass
class EngineLost(Message):
    """The engine of a session could not be loaded, or has ended."""

    reason: str
    session: object


@dataclass
class StepsArrived(Message):
    """An answer has grown by some steps."""

    number: int
    chunks: tuple[Chunk, ...]
    statistics: Statistics


@dataclass
class AnswerEnded(Message):
    """An answer is complete, or was stopped."""

    number: int
    finish: Finish
    statistics: Statistics


@dataclass
class AnswerFailed(Message):
    """An answer came to nothing more."""

    number: int
    reason: str


@dataclass
class PullProgressed(Message):
    """A pair that is being fetched has come so far."""

    name: str
    share: float
    words: str


@dataclass
class PullEnded(Message):
    """A pair is here, or `reason` says in one line why not; or the user wanted it no more."""

    name: str
    reason: str = ""
    is_cancelled: bool = False
