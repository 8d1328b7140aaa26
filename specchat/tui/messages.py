"""What happens to an engine, told to the application from the thread that waits for it."""

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
    """The engine could not be loaded, or has ended."""

    reason: str


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
