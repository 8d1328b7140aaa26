"""What the threads of engines and downloads report to the chat; no Textual here."""

from dataclasses import dataclass
from typing import TypeAlias

from specchat.decoding.chunk import Finish
from specchat.decoding.statistics import Statistics
from specchat.engine.api import EngineFacts, Stage


@dataclass(frozen=True, slots=True)
class EngineProgressed:
    """Loading, or reading a prompt, has reached `share` of the whole."""

    session: object
    stage: Stage
    share: float


@dataclass(frozen=True, slots=True)
class EngineReady:
    """A pair is loaded."""

    session: object
    facts: EngineFacts


@dataclass(frozen=True, slots=True)
class EngineLost:
    """The engine could not be loaded, or has ended."""

    session: object
    reason: str


@dataclass(frozen=True, slots=True)
class StepsArrived:
    """An answer has grown; the session holds the new steps until they are taken."""

    session: object
    number: int


@dataclass(frozen=True, slots=True)
class AnswerEnded:
    """An answer is complete, or was stopped."""

    session: object
    number: int
    finish: Finish
    statistics: Statistics


@dataclass(frozen=True, slots=True)
class AnswerFailed:
    """An answer ended with an error."""

    session: object
    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class PullProgressed:
    """A download has reached `share` of a pair."""

    name: str
    share: float
    words: str


@dataclass(frozen=True, slots=True)
class PullEnded:
    """A pair is installed, or `reason` says why not, or the user cancelled the download."""

    name: str
    reason: str = ""
    is_cancelled: bool = False


AnswerEvent: TypeAlias = StepsArrived | AnswerEnded | AnswerFailed
"""An event of the answer of that number."""

SessionEvent: TypeAlias = EngineProgressed | EngineReady | EngineLost | AnswerEvent
"""An event of one loaded pair; one from a session that was replaced is out of date."""

Event: TypeAlias = SessionEvent | PullProgressed | PullEnded
