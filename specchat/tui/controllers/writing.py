"""The answer being written: what has come of it so far."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from specchat.chat.answer_statistics import combine_parts
from specchat.chat.conversation import Piece
from specchat.decoding.chunk import Chunk
from specchat.decoding.statistics import Statistics
from specchat.tui.controllers.chat_view import AnswerDisplay
from specchat.tui.figures import Figures


@dataclass(slots=True)
class Writing:
    """The answer being written.

    A comparison decodes the last answer again without speculation, and has no message.
    """

    message: int | None = None
    display: AnswerDisplay | None = None
    text: str = ""
    pieces: list[Piece] = field(default_factory=list)
    """The text of every token and its origin."""
    steps: list[Chunk] = field(default_factory=list)
    before: Mapping[str, Any] = field(default_factory=dict)
    """The statistics from before it was continued."""
    finish: str | None = None
    """How it ended before it was continued."""
    words: str = ""
    """What a comparison does."""
    then: "Callable[[Writing, Statistics], None] | None" = None
    """What follows a comparison that was not stopped."""
    has_begun: bool = False
    """Whether a step has arrived, or none will."""

    @property
    def is_comparison(self) -> bool:
        """Whether this only measures the speed without speculation."""
        return self.message is None

    def add(self, chunks: list[Chunk]) -> None:
        """Add new steps, and show them unless they are only compared."""
        text = "".join([chunk.text for chunk in chunks])
        pieces = [
            piece for chunk in chunks for piece in zip(chunk.texts, chunk.origins, strict=True)
        ]
        if self.display is not None and not self.is_comparison:
            if not self.has_begun:
                self.display.say("")
            self.display.add(text, pieces)
        self.has_begun = True
        self.steps += chunks
        self.text += text
        self.pieces += pieces

    def wait(self, later: Callable[[float, Callable[[], None]], None], seconds: int = 0) -> None:
        """Show for how long the first step has been waited for, until it arrives."""
        if self.display is not None and not self.has_begun:
            since = f" · {seconds} s" if seconds else ""
            self.display.say(f"waiting for the first token{since}")
            later(1.0, lambda: self.wait(later, seconds + 1))

    def statistics(self, figures: Figures, pair: str) -> dict[str, Any]:
        """Return the answer's statistics, including those from before it was continued."""
        stats = figures.statistics
        fields = {
            **(stats.as_dict() if stats.generated_tokens else {}),
            "speedup": figures.speedup,
            "pair": pair,
            "drafter": stats.drafter,
            "drafted_by_position": stats.drafted_by_position,
            "thought_s": self.display.thought_s if self.display else 0.0,
        }
        return combine_parts(self.before, fields) if self.before else fields
