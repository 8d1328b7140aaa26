"""The stages of an engine's work, and the callbacks that report them."""

from collections.abc import Callable
from time import monotonic
from typing import Literal, NamedTuple, TypeAlias

from specchat.errors import Cancelled

Stage: TypeAlias = Literal["target", "draft", "comparing", "measuring", "prompt", "worker"]
"""A stage of work: loading the target or the draft model, comparing a new target's passes,
measuring a new pair's passes, or evaluating the prompt. Measuring waits until it is asked for. With
workers, "worker" comes between when nothing else has been reported for some seconds."""

STAGES: dict[Stage, str] = {
    "target": "loading the target",
    "draft": "loading the draft model",
    "comparing": "testing a new model",
    "measuring": "timing a new model",
    "prompt": "reading the prompt",
    "worker": "waiting for the worker",
}
"""The stages in words."""


class Progress(NamedTuple):
    """The share of a stage of work that is done, from 0 to 1."""

    stage: Stage
    share: float


ProgressCallback: TypeAlias = Callable[[Stage, float], bool | None]
"""Called with the stage and the share done; return False to stop loading or measuring."""

ProgressReport: TypeAlias = Callable[[Stage, float], None]
"""Called with the stage and the share done; raises Cancelled to stop loading."""


class StageClock:
    """Counts the seconds of the present stage of work."""

    def __init__(self) -> None:
        """Begin without a stage."""
        self._stage, self._since = "", 0.0

    def seconds(self, stage: Stage) -> float:
        """Return for how long this stage lasts, 0.0 the first time it is named."""
        if stage != self._stage:
            self._stage, self._since = stage, monotonic()
        return monotonic() - self._since

    @property
    def is_running(self) -> bool:
        """Whether there is a present stage."""
        return bool(self._stage)

    def reset(self) -> None:
        """End the present stage."""
        self._stage = ""


def stopping_report(on_progress: ProgressCallback | None) -> ProgressReport:
    """Return a function that calls a user's callback and raises Cancelled if that returns False."""

    def report(stage: Stage, share: float) -> None:
        if on_progress is not None and on_progress(stage, share) is False:
            raise Cancelled("loading was stopped")

    return report
