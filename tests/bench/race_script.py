"""A race of known times: three tokens plainly in 3 s, speculatively in 1.5 s."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from bench.fake_engine import FakeEngine
from specchat.bench.race_record import Lane, Race
from specchat.decoding.chunk import Chunk
from specchat.decoding.statistics import Statistics
from specchat.formats.chat_message import ChatMessage
from specchat.requests.answer_request import AnswerRequest
from specchat.requests.answer_update import Update

TEXTS = ("One", " two", " three")
PLAIN = tuple(
    Chunk(text, (place,), ("target",), (text,), seconds=place + 1.0)
    for place, text in enumerate(TEXTS)
)
SPECULATIVE = (
    Chunk("One two", (0, 1), ("suffix", "draft"), TEXTS[:2], (0, 1, 9), (" no",), seconds=0.5),
    Chunk(" three", (2,), ("target",), TEXTS[2:], (8,), (" four",), seconds=1.5),
)


def race_of(plain: Sequence[Chunk] = PLAIN, speculative: Sequence[Chunk] = SPECULATIVE) -> Race:
    """Return a race of these steps."""
    drafted = Statistics(drafter="suffix+model")
    drafted.count_step(3, 2, 2)
    drafted.count_step(1, 0, 1)
    lanes = Lane.of(plain, Statistics()), Lane.of(speculative, drafted)
    return Race("Count to three.", "t", None, *lanes)


class RacingEngine(FakeEngine):
    """Answers by the script, plainly or speculatively."""

    finish: Any = "stop"

    def _answer(self, request: AnswerRequest) -> Generator[Update]:
        """Answer three tokens, or as many as are allowed."""
        statistics = Statistics(drafter=request.drafter, generated_tokens=3)
        steps = PLAIN if request.drafter == "none" else SPECULATIVE
        for chunk in (*steps, Chunk("", finish=self.finish)):
            yield Update((chunk,), statistics, finish=chunk.finish)


QUESTION: list[ChatMessage] = [{"role": "user", "content": "Count to three."}]
