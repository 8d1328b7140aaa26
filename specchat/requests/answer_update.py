"""The one kind of message about an answer, from the process that decodes it to its reader."""

from dataclasses import dataclass, field

from specchat.decoding.chunk import Chunk, Finish
from specchat.decoding.statistics import Statistics
from specchat.errors import SpecchatError
from specchat.requests.progress import Progress


@dataclass(frozen=True, slots=True)
class Update:
    """The progress of an answer since the last update.

    `chunks` are the new steps, `statistics` those of all steps so far. Before the first step
    `place` counts the answers that come first, 0 once it is this one's turn, and `progress` says
    how far the work is that precedes it, such as reading the prompt. The last update has the
    `finish`, or the `error` that the answer failed with.
    """

    chunks: tuple[Chunk, ...] = ()
    statistics: Statistics = field(default_factory=Statistics)
    progress: Progress | None = None
    place: int = 0
    finish: Finish | None = None
    error: SpecchatError | None = None

    @property
    def is_over(self) -> bool:
        """Whether this is the last update."""
        return self.finish is not None or self.error is not None
