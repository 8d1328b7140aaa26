"""The parts of an answer, kept apart: reasoning, text for the user, and tool calls."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Self

from specchat.chat.conversation import Message
from specchat.decoding.chunk import Chunk, Kind, Piece, ToolCall, pieces_of
from specchat.decoding.statistics import Statistics
from specchat.formats.chat_message import ChatMessage
from specchat.tui.texts.figures import stored_origins


@dataclass(slots=True)
class AnswerParts:
    """An answer as far as it has been written.

    `reasoning_tokens` of its tokens were reasoning, which took `reasoning_s` seconds. `open_call`
    is the text so far of an incomplete tool call. `origins` counts all tokens, including those of
    the marks between the parts, which have no piece.
    """

    text: str = ""
    reasoning: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    open_call: str = ""
    reasoning_tokens: int = 0
    reasoning_s: float = 0.0
    origins: Counter[str] = field(default_factory=Counter)
    is_growing: bool = False
    """Whether the answer is still being written."""
    _kind: Kind = "answer"
    _before: tuple[int, float] = 0, 0.0
    """Reasoning tokens and seconds from before the answer was continued."""

    @classmethod
    def of(cls, message: Message) -> Self:
        """Return the parts of a stored answer."""
        figures = message.statistics
        parts = cls(
            message.text,
            message.reasoning,
            reasoning_tokens=figures.get("reasoning_tokens", 0),
            reasoning_s=figures.get("reasoning_s", 0.0),
            origins=stored_origins(figures, message.pieces),
        )
        parts._read(message.pieces, message.tool_calls)
        return parts

    @property
    def is_thinking(self) -> bool:
        """Whether the model is reasoning."""
        return self.is_growing and self._kind == "reasoning"

    @property
    def is_empty(self) -> bool:
        """Whether nothing has been written yet."""
        return not (self.text or self.reasoning or self.tool_calls or self.open_call)

    @property
    def turn(self) -> ChatMessage | None:
        """The turn for the model to continue, without tool calls; None if it would be empty."""
        if not self.text and not self.reasoning:
            return None
        turn: ChatMessage = {"role": "assistant", "content": self.text}
        if self.reasoning:
            turn["reasoning_content"] = self.reasoning
        return turn

    @property
    def text_so_far(self) -> tuple[str, tuple[Piece, ...]]:
        """The text and all pieces; an incomplete call counts as text: it may stay incomplete."""
        pieces, left = list(self.pieces), len(self.open_call)
        place = len(pieces)
        while left > 0 and place > 0:
            place -= 1
            text, origin, _ = pieces[place]
            cut = max(0, len(text) - left)
            left -= len(text)
            before = [pieces[place]._replace(text=text[:cut])] if cut else []
            pieces[place : place + 1] = [*before, Piece(text[cut:], origin)]
        return self.text + self.open_call, tuple(pieces)

    def go_on(self) -> None:
        """Prepare to continue after the end of the text (`turn`).

        Tool calls after the text are dropped, complete or not, because the model writes them again.
        """
        self.is_growing = True
        self._before = self.reasoning_tokens, self.reasoning_s
        said = [
            n for n, (text, _, kind) in enumerate(self.pieces) if kind == "answer" if text.strip()
        ]
        end = said[-1] + 1 if said else 0
        before, after = self.pieces[:end], self.pieces[end:]
        self.tool_calls = _calls_in(before, self.tool_calls)
        self.pieces = before + [each for each in after if each.kind != "call"]
        self.open_call = ""

    def add(self, chunks: Iterable[Chunk], statistics: Statistics) -> None:
        """Add the output of some steps; the statistics start where the answer was continued."""
        tokens, seconds = self._before
        self.reasoning_tokens = tokens + statistics.reasoning_tokens
        self.reasoning_s = seconds + statistics.reasoning_s
        for chunk in chunks:
            self.text += chunk.text
            self.reasoning += chunk.reasoning
            self.origins.update(chunk.origins)
            self._read(pieces_of(chunk), chunk.tool_calls)

    def _read(self, pieces: Sequence[Piece], calls: Sequence[ToolCall]) -> None:
        """Add pieces, and the calls that they complete.

        A call that cannot be parsed becomes text: a text piece follows its call pieces.
        """
        self.pieces += pieces
        self.tool_calls += calls
        for text, _, kind in pieces:
            if text:
                self._kind = kind
                self.open_call = self.open_call + text if kind == "call" else ""
        if calls:
            _, found, rest = self.open_call.rpartition(calls[-1].raw or "\0")
            self.open_call = rest if found else ""


def _calls_in(pieces: Iterable[Piece], calls: Sequence[ToolCall]) -> list[ToolCall]:
    """Return the calls of an answer that its first pieces complete.

    When several calls were written together, only the last one holds the text of all of them.
    """
    written = "".join(piece.text for piece in pieces if piece.kind == "call")
    count = place = 0
    for number, call in enumerate(calls, 1):
        if call.raw:
            found = written.find(call.raw, place)
            if found < 0:
                break
            count, place = number, found + len(call.raw)
    return list(calls[:count])
