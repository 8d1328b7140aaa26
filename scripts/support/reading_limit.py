"""The speed at which the weights of a pair can be read, and tables that compare answers with it."""

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from specchat.gguf.reader import read_header

EMBEDDINGS = "token_embd.weight"
"""Not read as a whole: one row per token."""
HEADINGS = ("decoding", "tokens/s", "speedup", "tokens per target pass", "limit", "share of limit")


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer's tokens per second, and what it took."""

    rate: float
    tokens: int
    steps: int
    drafted: int

    @property
    def tokens_per_step(self) -> float:
        """Tokens per target pass."""
        return self.tokens / self.steps


@dataclass(frozen=True, slots=True)
class Limit:
    """The bytes that a pass of each model reads, and the memory's bandwidth in bytes per second."""

    target: int
    draft: int
    bandwidth: float

    def rate(self, answer: Answer) -> float:
        """Return the tokens per second at which reading the weights takes all of the time."""
        step = self.target + self.draft * answer.drafted / answer.steps
        return answer.tokens_per_step * self.bandwidth / step


def limit_of(folder: Path, bandwidth: float) -> Limit:
    """Return the limit of a pair."""

    def read(name: str) -> int:
        tensors = read_header(folder / name).tensors
        return sum(each.num_bytes for key, each in tensors.items() if key != EMBEDDINGS)

    return Limit(read("target.gguf"), read("draft.gguf"), bandwidth)


def table(answers: dict[str, list[Answer]], limit: Limit) -> Iterator[str]:
    """Yield the lines of a table: medians over the rounds."""
    yield f"| {' | '.join(HEADINGS)} |"
    yield f"| --- |{' ---: |' * (len(HEADINGS) - 1)}"
    plain = statistics.median(each.rate for each in answers["plain"])
    for name, done in answers.items():
        rate = statistics.median(each.rate for each in done)
        per_step = statistics.median(each.tokens_per_step for each in done)
        most = statistics.median(map(limit.rate, done))
        limits = (f"{most:.1f}", f"{rate / most:.0%}") if most else ("unknown", "")
        cells = (name, f"{rate:.1f}", f"{rate / plain:.2f}", f"{per_step:.2f}", *limits)
        yield f"| {' | '.join(cells)} |"
