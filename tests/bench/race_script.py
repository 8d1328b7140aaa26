"""A race of known times: three tokens plainly in 3 s, speculatively in 1.5 s."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from bench.fake_engine import FakeEngine
from specchat.bench.race_record import Lane, Race, RaceStep
from specchat.decoding.chunk import Chunk
from specchat.decoding.statistics import Statistics
from specchat.decoding.step_times import Gain
from specchat.formats.chat_message import ChatMessage
from specchat.requests.answer_request import AnswerRequest
from specchat.requests.answer_update import Update

TEXTS = ("One", " two", " three")
PLAIN = tuple(RaceStep(place + 1.0, (text,), ("target",)) for place, text in enumerate(TEXTS))
SPECULATIVE = (
    RaceStep(0.5, TEXTS[:2], ("suffix", "draft"), 3),
    RaceStep(1.5, TEXTS[2:], ("target",), 1),
)


def race_of(
    plain: Sequence[RaceStep] = PLAIN,
    speculative: Sequence[RaceStep] = SPECULATIVE,
    gain: Gain = Gain("measuring", 2.0, 0.1, 3.0, 1.5),  # noqa: B008  # never changed
) -> Race:
    """Return a race of these steps."""
    drafted = Statistics()
    drafted.count_step(3, 2, 2)
    drafted.count_step(1, 0, 1)
    lanes = Lane("none", tuple(plain)), Lane("suffix+model", tuple(speculative), drafted.as_dict())
    return Race("Count to three.", "t", None, *lanes, gain)


QUESTION: list[ChatMessage] = [{"role": "user", "content": "Count to three."}]


class RacingEngine(FakeEngine):
    """Answers with 70 tokens, two in a step that has drafts, one without."""

    finish: Any = "stop"
    seconds = 0.01
    """Of each step."""

    def __init__(self) -> None:
        """Remember how far each answer or part of a race went."""
        super().__init__()
        self.parts: list[tuple[str, int, int]] = []

    def _answer(self, request: AnswerRequest) -> Generator[Update]:
        """Answer, or go on from the beginning of the answer as far as asked for."""
        drafts, statistics = request.drafter != "none", Statistics(drafter=request.drafter)
        statistics.prompt_tokens = 5
        first = sum(len(step.tokens) for step in request.begun)
        for step in request.begun:
            yield Update((step,), statistics)
        end = request.replay.end if request.replay else 70
        done = first
        while done < end:
            count = min(70 - done, 1 + drafts)
            statistics.count_step(count - 1, count - 1, count)
            statistics.decode_s += self.seconds
            statistics.step_times.add(count - 1, count, self.seconds)
            origins = ("draft",) * (count - 1) + ("target",)
            tokens = tuple(range(done, done + count))
            texts = tuple(f"{token} " for token in tokens)
            done += count
            chunk = Chunk("".join(texts), tokens, origins, texts, seconds=statistics.decode_s)
            yield Update((chunk,), statistics)
        if request.replay:
            self.parts.append((request.drafter, first, done))
        yield Update((Chunk("", finish=self.finish),), statistics, finish=self.finish)
