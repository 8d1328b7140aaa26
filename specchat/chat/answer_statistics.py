"""The statistics of several answers: a row for each, and their totals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from specchat.chat.conversation import Message
from specchat.chat.figure_text import drafter_text, percent

__all__ = [
    "HEADINGS",
    "AnswerRow",
    "Totals",
    "add_up",
    "answer_rows",
    "cells",
    "combine_parts",
    "total_cells",
]

HEADINGS = ("#", "tokens", "t/s", "speedup", "accepted", "per pass", "first", "drafter")
"""The headings of a row's cells."""

PROMPT_FIELDS = ("prompt_tokens", "cached_tokens", "prompt_s", "time_to_first_token_s")
SUMMED_FIELDS = (
    "generated_tokens", "steps", "drafted", "accepted",
    "decode_s", "draft_s", "verify_s", "overhead_s",
)  # fmt: skip
SUMMED_LISTS = ("acceptance_histogram", "drafted_by_position")
UNKNOWN = "-"

Record = Mapping[str, Any]
"""The statistics of one answer, with the field names of `specchat ask --json`."""


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """One answer of a branch: its place among the answers, its message and its statistics."""

    number: int
    message: int
    statistics: Record


@dataclass(frozen=True, slots=True)
class Totals:
    """The figures of several answers together; a figure that no answer has is None.

    Rates are sums over sums, not means of rates. `speedup` counts the answers whose speedup is
    known: the seconds plain decoding would have taken over the seconds they took.
    """

    answers: int
    tokens: int
    decode_s: float
    tokens_per_second: float | None
    speedup: float | None
    acceptance_rate: float | None
    tokens_per_step: float | None
    accepted_by_position: tuple[float, ...]


def answer_rows(branch: Iterable[Message]) -> list[AnswerRow]:
    """Return a row for each answer of a branch that has statistics."""
    measured = [message for message in branch if message.statistics.get("generated_tokens")]
    return [AnswerRow(n, each.id, each.statistics) for n, each in enumerate(measured, 1)]


def add_up(answers: Iterable[Record]) -> Totals:
    """Return the totals of some answers."""
    records = list(answers)
    stepped = [each for each in records if each.get("steps")]
    timed = [each for each in records if each.get("speedup")]
    tokens, seconds = _sum(records, "generated_tokens"), _sum(records, "decode_s")
    return Totals(
        answers=len(records),
        tokens=int(tokens),
        decode_s=seconds,
        tokens_per_second=_ratio(tokens, seconds),
        speedup=_ratio(
            sum(each["speedup"] * each["decode_s"] for each in timed), _sum(timed, "decode_s")
        ),
        acceptance_rate=_ratio(_sum(records, "accepted"), _sum(records, "drafted")),
        tokens_per_step=_ratio(_sum(stepped, "generated_tokens"), _sum(stepped, "steps")),
        accepted_by_position=_accepted_by_position(records),
    )


def combine_parts(first: Record, second: Record) -> dict[str, Any]:
    """Return the statistics of an answer that was stopped and then continued.

    Counts and seconds add up and the rates follow from them. The prompt's figures are the first
    part's, which is what the user waited for.
    """
    if not (first.get("generated_tokens") and second.get("generated_tokens")):
        return dict(first if first.get("generated_tokens") else second)
    whole = {**second, **{name: first[name] for name in PROMPT_FIELDS if name in first}}
    for name in SUMMED_FIELDS:
        whole[name] = first.get(name, 0) + second.get(name, 0)
    for name in SUMMED_LISTS:
        whole[name] = _added(first.get(name, []), second.get(name, []))
    totals = add_up([first, second])
    for name in ("tokens_per_second", "acceptance_rate", "tokens_per_step", "speedup"):
        whole[name] = getattr(totals, name) or 0.0
    whole["accepted_by_position"] = list(totals.accepted_by_position)
    return whole


def cells(row: AnswerRow) -> tuple[str, ...]:
    """Return a row's cells, in the order of the headings."""
    first_token = row.statistics.get("time_to_first_token_s")
    return (
        str(row.number),
        *_figures(add_up([row.statistics])),
        UNKNOWN if first_token is None else f"{first_token:.2f} s",
        drafter_text(str(row.statistics.get("drafter", UNKNOWN))),
    )


def total_cells(totals: Totals) -> tuple[str, ...]:
    """Return the cells of the row of totals."""
    return ("all", *_figures(totals), "", "")


def _figures(totals: Totals) -> tuple[str, ...]:
    rate, speedup, per_pass = totals.tokens_per_second, totals.speedup, totals.tokens_per_step
    accepted = totals.acceptance_rate
    return (
        str(totals.tokens),
        f"{rate:.1f}" if rate else UNKNOWN,
        f"{speedup:.2f}x" if speedup else UNKNOWN,
        UNKNOWN if accepted is None else percent(accepted),
        f"{per_pass:.2f}" if per_pass else UNKNOWN,
    )


def _accepted_by_position(records: Iterable[Record]) -> tuple[float, ...]:
    """Return accepted / drafted at each draft position, over the answers that recorded both."""
    drafted: list[int] = []
    accepted: list[int] = []
    for each in records:
        here = each.get("drafted_by_position", [])
        histogram = each.get("acceptance_histogram", [])
        drafted = _added(drafted, here)
        accepted = _added(accepted, [sum(histogram[n + 1 :]) for n in range(len(here))])
    return tuple(a / d for a, d in zip(accepted, drafted, strict=True))


def _added(first: Sequence[int], second: Sequence[int]) -> list[int]:
    return [a + b for a, b in zip_longest(first, second, fillvalue=0)]


def _sum(records: Iterable[Record], name: str) -> float:
    return sum(each.get(name) or 0 for each in records)


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
