"""The answer being written: its parts so far, and what to do when it ends."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from specchat.chat.answer_statistics import combine_parts, record_of
from specchat.chat.conversation import Message
from specchat.decoding.chunk import Chunk
from specchat.decoding.statistics import Statistics
from specchat.tui.answer_parts import AnswerParts
from specchat.tui.controllers.chat_view import AnswerDisplay
from specchat.tui.controllers.session import Question
from specchat.tui.texts.figures import (
    ASKED_WITH,
    ORIGINS,
    OWN,
    REPEATING,
    SERVED_BY,
    UNREPORTED,
    Figures,
)
from specchat.tui.texts.ghost_text import Ghost
from specchat.wording import waited

DRAFT = "draft"
"""The key of an answer's draft in its statistics."""
WAITING = "waiting for the first token"
SEED = "seed"
"""The key of the seed in the statistics of a stored answer, which others lack."""


@dataclass(slots=True)
class Writing:
    """The answer being written, or a part of a race, which has no message of its own."""

    message: int | None = None
    display: AnswerDisplay | None = None
    parts: AnswerParts = field(default_factory=AnswerParts)
    steps: list[Chunk] = field(default_factory=list)
    before: Mapping[str, Any] = field(default_factory=dict)
    """The statistics from before the answer was continued."""
    finish: str | None = None
    """How the answer ended before it was continued."""
    drawn_with: int | None = None
    """The seed."""
    asked_with: Mapping[str, Any] = field(default_factory=dict)
    """The options that decide its text and its speed."""
    own: Sequence[str] = ()
    """The names of the sampling options that were chosen for this answer alone."""
    words: str = ""
    """The progress text of a race."""
    measures_first: bool = False
    """Whether the pair is measured before it."""
    then: "Callable[[Writing, Statistics], None] | None" = None
    """Called at the end of a lane that was not stopped."""
    stored: Message | None = None
    """The message as it was when the engine was asked, and below it the conversation's number."""
    conversation: int | None = None
    figures: Figures = field(default_factory=Figures)
    begun: Sequence[Chunk] = ()
    """The steps that the answer begins with; the engine repeats them first."""
    shown_before: int | None = None
    """The end of the branch that was shown until this version of an answer was asked for."""
    is_joined: bool = False
    """Whether it continues an answer by its text, so that its tokens may not follow its steps."""
    is_stopped: bool = False
    """Whether the user has stopped it, perhaps too late for the engine."""
    is_repeating: bool = False
    """Whether it says a passage over and over just now."""
    has_begun: bool = False
    """Whether a step has arrived, or the answer has ended without one."""
    question: Question | None = None
    """How the engine was asked for it."""

    @property
    def is_over(self) -> bool:
        """Whether the engine has nothing more to say of it."""
        ticket = self.question.ticket if self.question else None
        return ticket is not None and ticket.is_over

    @property
    def is_lane(self) -> bool:
        """Whether this is a lane of a race, which is not shown as a message."""
        return self.message is None

    def add(self, chunks: list[Chunk], statistics: Statistics) -> None:
        """Add new steps, which `show` shows."""
        if not self.has_begun:
            self.parts.go_on()
        self.parts.add(chunks, statistics)
        self.steps += chunks
        if self.display is not None and not self.is_lane and not self.has_begun:
            self.display.say("")
        self.has_begun = True

    def show(self, drafted: Ghost | None = None) -> None:
        """Show what has been written, and what was drafted behind it, unless this is a lane."""
        if self.display is not None and not self.is_lane:
            self.display.show(self.parts, drafted)

    def end(self) -> None:
        """Mark the answer as ended, and show that."""
        self.parts.is_growing, self.has_begun = False, True
        self.show()

    def wait(
        self,
        later: Callable[[float, Callable[[], None]], None],
        is_timed_elsewhere: Callable[[], bool],
        seconds: int = 0,
    ) -> None:
        """Show that the answer waits for its first step, and for how long unless that is shown."""
        if self.display is not None and not self.has_begun:
            since = "" if is_timed_elsewhere() else waited(seconds)
            self.display.say(f"{WAITING}{since}")
            later(1.0, lambda: self.wait(later, is_timed_elsewhere, seconds + 1))

    def statistics(self, pair: str, draft: str | None) -> dict[str, Any]:
        """Return the answer's statistics, including those from before it was continued."""
        stats = self.figures.statistics
        fields = {
            **(_known(stats) if stats.generated_tokens else {}),
            **record_of(self.figures.gain),
            "pair": pair,
            DRAFT: draft,
            ASKED_WITH: dict(self.asked_with),
            **({} if self.drawn_with is None else {SEED: self.drawn_with}),
            **({OWN: list(self.own)} if self.own else {}),
            **({} if "drafter" in stats.unreported else {"drafter": stats.drafter}),
            "drafted_by_position": stats.drafted_by_position,
            "reasoning_s": stats.reasoning_s,
            **({REPEATING: stats.repeating} if stats.repeating else {}),
        }
        if stats.served_by:
            fields |= {SERVED_BY: stats.served_by, UNREPORTED: list(stats.unreported)}
        whole = _joined(self.before, fields) if self.before else fields
        return {**whole, ORIGINS: dict(self.parts.origins)}


def _joined(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the statistics of both parts of an answer.

    What a server did not report of one of them is not known of the whole.
    """
    whole = combine_parts(before, after)
    served = [each for each in (after, before) if each.get(SERVED_BY)]
    if not served:
        return whole
    missing = {name for each in served if each.get("generated_tokens") for name in each[UNREPORTED]}
    known = {name: value for name, value in whole.items() if name not in missing}
    return {**known, SERVED_BY: served[0][SERVED_BY], UNREPORTED: sorted(missing)}


def _known(stats: Statistics) -> dict[str, Any]:
    """Return the statistics without those that a server did not report."""
    return {name: value for name, value in stats.as_dict().items() if value is not None}
