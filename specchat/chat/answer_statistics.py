"""The statistics of a conversation: a row for each answer, and what they come to together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from specchat.chat.conversation import Message

__all__ = [
    "HEADINGS",
    "AnswerRow",
    "Totals",
    "add_up",
    "answer_rows",
    "cells",
    "in_words",
    "together",
    "total_cells",
]

HEADINGS = ("#", "tokens", "/s", "times", "kept", "/step", "first", "drafter")
"""What stands above the cells of a row."""

OF_THE_PROMPT = ("prompt_tokens", "cached_tokens", "prompt_s", "time_to_first_token_s")
ADDED = (
    "generated_tokens", "steps", "drafted", "accepted",
    "decode_s", "draft_s", "verify_s", "overhead_s",
)  # fmt: skip
ADDED_BY_PLACE = ("acceptance_histogram", "drafted_by_position")


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """One answer: `number` counts the answers of the branch, `statistics` are as they were kept."""

    number: int
    message: int
    statistics: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Totals:
    """What answers come to together; a figure that none of them has is None.

    `tokens_per_second` is all tokens over all seconds of decoding, and so for the other rates.
    `speedup` is the seconds that plain decoding would have taken over those it took, of the
    answers whose speedup is known. `kept_by_position[i]` is the share kept of all tokens that
    were drafted at that place of a step.
    """

    answers: int
    tokens: int
    decode_s: float
    tokens_per_second: float | None
    speedup: float | None
    acceptance_rate: float | None
    tokens_per_step: float | None
    kept_by_position: tuple[float, ...]


def answer_rows(branch: Iterable[Message]) -> list[AnswerRow]:
    """Return a row for each answer of a branch that has statistics."""
    told = [message for message in branch if message.statistics.get("generated_tokens")]
    return [AnswerRow(n, each.id, each.statistics) for n, each in enumerate(told, 1)]


def add_up(rows: Iterable[AnswerRow]) -> Totals:
    """Return what some answers come to together."""
    stats = [row.statistics for row in rows]
    stepped = [each for each in stats if each.get("steps")]
    timed = [each for each in stats if each.get("speedup")]
    tokens, seconds = _sum(stats, "generated_tokens"), _sum(stats, "decode_s")
    return Totals(
        answers=len(stats),
        tokens=int(tokens),
        decode_s=seconds,
        tokens_per_second=_share(tokens, seconds),
        speedup=_share(
            sum(each["speedup"] * each["decode_s"] for each in timed), _sum(timed, "decode_s")
        ),
        acceptance_rate=_share(_sum(stats, "accepted"), _sum(stats, "drafted")),
        tokens_per_step=_share(_sum(stepped, "generated_tokens"), _sum(stepped, "steps")),
        kept_by_position=_kept_by_position(stats),
    )


def together(first: Mapping[str, Any], then: Mapping[str, Any]) -> dict[str, Any]:
    """Return the statistics of an answer that was stopped and continued, from those of its parts.

    Counts and seconds add up and the rates follow from them; the prompt is the first part's, which
    is what the user waited for.
    """
    if not (first.get("generated_tokens") and then.get("generated_tokens")):
        return dict(first if first.get("generated_tokens") else then)
    whole = {**then, **{name: first[name] for name in OF_THE_PROMPT if name in first}}
    for name in ADDED:
        whole[name] = first.get(name, 0) + then.get(name, 0)
    for name in ADDED_BY_PLACE:
        pairs = zip_longest(first.get(name, []), then.get(name, []), fillvalue=0)
        whole[name] = [a + b for a, b in pairs]
    totals = add_up([AnswerRow(1, 0, first), AnswerRow(2, 0, then)])
    whole["tokens_per_second"] = totals.tokens_per_second or 0.0
    whole["acceptance_rate"] = totals.acceptance_rate or 0.0
    whole["tokens_per_step"] = totals.tokens_per_step or 0.0
    whole["accepted_by_position"] = list(totals.kept_by_position)
    whole["speedup"] = totals.speedup or 0.0
    return whole


def in_words(statistics: Mapping[str, Any]) -> str:
    """Return an answer's own line of statistics, empty where there are none."""
    if not statistics.get("generated_tokens"):
        return ""
    parts = [
        f"{statistics.get('tokens_per_second', 0.0):.1f} tokens/s",
        f"{statistics['generated_tokens']} tokens",
    ]
    if drafted := statistics.get("drafted"):
        accepted = statistics.get("acceptance_rate", 0.0)
        parts.append(f"{accepted:.0%} of {drafted} drafted accepted")
        parts.append(f"{statistics.get('tokens_per_step', 0.0):.2f} tokens per step")
        if speedup := statistics.get("speedup"):
            parts.append(f"{speedup:.2f} times plain")
    if "time_to_first_token_s" in statistics:
        parts.append(f"first after {statistics['time_to_first_token_s']:.2f} s")
    return " · ".join(parts)


def cells(row: AnswerRow) -> tuple[str, ...]:
    """Return a row as it is shown under the headings."""
    stats = row.statistics
    return (
        str(row.number),
        *_figures(
            int(stats["generated_tokens"]),
            stats.get("tokens_per_second"),
            stats.get("speedup"),
            stats.get("acceptance_rate") if stats.get("drafted") else None,
            stats.get("tokens_per_step"),
        ),
        f"{stats['time_to_first_token_s']:.2f}" if "time_to_first_token_s" in stats else "-",
        str(stats.get("drafter", "-")).replace("+", ", "),
    )


def total_cells(totals: Totals) -> tuple[str, ...]:
    """Return the last row: what the answers come to."""
    return (
        "all",
        *_figures(
            totals.tokens,
            totals.tokens_per_second,
            totals.speedup,
            totals.acceptance_rate,
            totals.tokens_per_step,
        ),
        "",
        "",
    )


def _figures(
    tokens: int,
    rate: float | None,
    speedup: float | None,
    acceptance: float | None,
    per_step: float | None,
) -> tuple[str, ...]:
    return (
        str(tokens),
        f"{rate:.1f}" if rate else "-",
        f"{speedup:.2f}" if speedup else "-",
        "-" if acceptance is None else f"{acceptance:.0%}",
        f"{per_step:.2f}" if per_step else "-",
    )


def _kept_by_position(stats: Iterable[Mapping[str, Any]]) -> tuple[float, ...]:
    """Add up, place by place, what was drafted and kept; answers that do not say are left out."""
    drafted: list[int] = []
    kept: list[int] = []
    for each in stats:
        at_places = each.get("drafted_by_position", [])
        histogram = each.get("acceptance_histogram", [])
        kept_here = [sum(histogram[place + 1 :]) for place in range(len(at_places))]
        drafted = [a + b for a, b in zip_longest(drafted, at_places, fillvalue=0)]
        kept = [a + b for a, b in zip_longest(kept, kept_here, fillvalue=0)]
    return tuple(a / b for a, b in zip(kept, drafted, strict=True))


def _sum(stats: Iterable[Mapping[str, Any]], name: str) -> float:
    return sum(each.get(name) or 0 for each in stats)


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None
