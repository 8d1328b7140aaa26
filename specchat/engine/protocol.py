"""The messages between the engine process and its client.

Once the pair is loaded the process sends `EngineFacts`, or the error that prevented it.
The numbers of answers to stop take a connection of their own, so that they wait for nothing.
"""

from dataclasses import dataclass
from enum import Enum

from specchat.decoding.chunk import Chunk
from specchat.decoding.statistics import Statistics
from specchat.engine.api import ChatRequest, GenerateRequest, Stage


@dataclass(frozen=True, slots=True)
class Decode:
    """To the process: decode an answer."""

    number: int
    request: GenerateRequest | ChatRequest


class Command(Enum):
    """To the process: forget every text, or exit."""

    FORGET = "forget"
    CLOSE = "close"


@dataclass(frozen=True, slots=True)
class Progress:
    """From the process: progress of loading or of an answer's prompt."""

    stage: Stage
    share: float


@dataclass(frozen=True, slots=True)
class Part:
    """From the process: the chunks of some steps and the statistics after them.

    The last part of an answer has the error it failed with, if any.
    """

    number: int
    stats: Statistics
    chunks: tuple[Chunk, ...] = ()
    is_last: bool = False
    error: Exception | None = None
