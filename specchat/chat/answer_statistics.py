"""The statistics of several answers: one row per answer, and the totals."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from math import hypot
from typing import Any

from specchat.chat.conversation import Message
from specchat.decoding.step_times import Gain, judged
from specchat.wording import percent, speedup_text

HEADINGS = ("#", "tokens", "t/s", "speedup", "accepted", "per pass", "first", "drafter")

PROMPT_FIELDS = (
    "prompt_tokens", "cached_tokens", "read_again", "prompt_s", "time_to_first_token_s",
    "image_tokens", "image_s",
)  # fmt: skip
SUMMED_FIELDS = (
    "generated_tokens", "steps", "drafted", "accepted", "nodes",
    "decode_s", "draft_s", "verify_s", "overhead_s", "reasoning_tokens", "reasoning_s",
    "repeated", "forced",
)  # fmt: skip
SUMMED_LISTS = ("acceptance_histogram", "drafted_by_position")
RATIOS = ("acceptance_rate", "tokens_per_step")
RACE = "race"
"""The key of the race in the statistics of a stored answer."""
UNKNOWN = "-"
NUM_MEASURED = 20
"""Answers that say how fast a pair is."""
LEAST_READ = 64
"""Tokens of prompts from which it is known how fast a pair reads."""
MIN_MEASURED_SECONDS, MIN_MEASURED_TOKENS = 1.0, 64
"""Seconds of decoding before anything is said of a pair's speed, and tokens: the first of them wait
for what a new process does once."""

Record = Mapping[str, Any]
"""The statistics of one answer, with the field names of `specchat ask --json`."""


@dataclass(frozen=True, slots=True)
class AnswerTotals:
    """The combined figures of several answers; None for a figure that no answer has.

    Rates are ratios of sums, not means of rates. Passages that an answer says over and over count
    neither in `tokens_per_second` nor in the speedup. `speedup` is the time that plain decoding
    would have taken divided by the time taken, over the steps whose speedup is known, and
    `speedup_error` its relative standard error.
    """

    answers: int
    tokens: int
    decode_s: float
    tokens_per_second: float | None
    speedup: float | None
    speedup_error: float | None
    acceptance_rate: float | None
    tokens_per_step: float | None
    accepted_by_position: tuple[float, ...]


def measured_answers(branch: Iterable[Message]) -> list[Message]:
    """Return the answers of a branch that have statistics."""
    return [message for message in branch if message.statistics.get("generated_tokens")]


def add_up(answers: Iterable[Record]) -> AnswerTotals:
    """Return the totals of some answers."""
    records = list(answers)
    stepped = [record for record in records if record.get("steps")]
    gain, counted = _summed(map(gain_of, records)), list(map(_counted, records))
    tokens, seconds = _sum(records, "generated_tokens"), _sum(records, "decode_s")
    return AnswerTotals(
        answers=len(records),
        tokens=int(tokens),
        decode_s=seconds,
        tokens_per_second=_ratio(sum(each for each, _ in counted), sum(s for _, s in counted)),
        speedup=gain.speedup or None,
        speedup_error=gain.error if gain.speedup else None,
        acceptance_rate=_ratio(_sum(records, "accepted"), _sum(records, "drafted")),
        tokens_per_step=_ratio(_sum(stepped, "generated_tokens"), _sum(stepped, "steps")),
        accepted_by_position=_accepted_by_position(records),
    )


def gain_of(record: Record) -> Gain:
    """Return the gain that an answer's statistics have."""
    speedup, error = record.get("speedup") or 0.0, record.get("speedup_error") or 0.0
    if speedup <= 0:
        return Gain("measuring" if record.get("drafted") else "plain")
    return over_the_answer(record, Gain(judged(speedup, error), speedup, error))


def over_the_answer(record: Record, gain: Gain) -> Gain:
    """Return a gain over the steps of an answer that count.

    Where their time is not known, that is the time of all tokens but those that repeat a passage.
    """
    generated, seconds = record.get("generated_tokens") or 0, record.get("decode_s") or 0.0
    num_tokens = generated - (record.get("repeated") or 0)
    if record.get("counted_s"):
        seconds, num_tokens = record["counted_s"], record.get("counted_tokens") or 0
    elif generated:
        seconds *= num_tokens / generated
    return replace(gain, plain_s=gain.speedup * seconds, own_s=seconds, num_tokens=num_tokens)


def _counted(record: Record) -> tuple[float, float]:
    """Return the tokens and the seconds of an answer without what repeats a passage."""
    if not record.get("repeated"):
        return record.get("generated_tokens") or 0, record.get("decode_s") or 0.0
    gain = over_the_answer(record, Gain())
    return gain.num_tokens, gain.own_s


def is_raced(record: Record) -> bool:
    """Return whether an answer's gain is from its race: those of older versions had none."""
    race = record.get(RACE)
    gain = race.get("gain") if isinstance(race, Mapping) else None
    return isinstance(gain, Mapping) and gain.get("kind") != "plain"


def record_of(gain: Gain) -> dict[str, Any]:
    """Return the statistics from which `gain_of` makes a gain again."""
    return {
        "speedup": gain.speedup if gain.is_sound else 0.0,
        "speedup_error": gain.error if gain.is_sound else 0.0,
        "saved_s": gain.saved_s,
        "counted_s": gain.own_s,
        "counted_tokens": gain.num_tokens,
    }


def _summed(gains: Iterable[Gain]) -> Gain:
    """Return the gain of several answers, or parts of one, as far as it is known."""
    sound = [gain for gain in gains if gain.is_sound and gain.own_s]
    if not sound:
        return Gain("measuring")
    plain_s, own_s = sum(gain.plain_s for gain in sound), sum(gain.own_s for gain in sound)
    speedup = plain_s / own_s
    error = hypot(*(gain.plain_s * gain.error for gain in sound)) / plain_s
    num_tokens = sum(gain.num_tokens for gain in sound)
    return Gain(judged(speedup, error), speedup, error, plain_s, own_s, num_tokens)


def reading_rate(answers: Iterable[Record], pair: str) -> float | None:
    """Return how many tokens of prompts a pair reads per second; None before it has read many."""
    own = [each for each in answers if each.get("pair") == pair and each.get("prompt_s")]
    num_read = _sum(own, "prompt_tokens") - _sum(own, "cached_tokens")
    encoding = sum(min(each.get("image_s") or 0.0, each["prompt_s"]) for each in own)
    seconds = _sum(own, "prompt_s") - encoding
    return num_read / seconds if num_read >= LEAST_READ and seconds > 0 else None


def measured_pairs(answers: Iterable[Record]) -> dict[str, AnswerTotals]:
    """Return the totals of each pair's first `NUM_MEASURED` answers, by its name.

    Pairs that have not decoded for `MIN_MEASURED_SECONDS` and as many tokens yet are left out.
    """
    by_pair: dict[str, list[Record]] = {}
    for each in answers:
        own = by_pair.setdefault(str(each.get("pair", "")), [])
        if len(own) < NUM_MEASURED:
            own.append(each)
    totals = {name: add_up(own) for name, own in by_pair.items()}
    return {
        name: each
        for name, each in totals.items()
        if each.decode_s >= MIN_MEASURED_SECONDS and each.tokens >= MIN_MEASURED_TOKENS
    }


def combine_parts(first: Record, second: Record) -> dict[str, Any]:
    """Return the statistics of an answer that was stopped and then continued.

    Counts and seconds are added, and rates computed from the sums. The figures of the prompt are
    those of the first part, which is what the user waited for.
    """
    if not (first.get("generated_tokens") and second.get("generated_tokens")):
        return dict(first if first.get("generated_tokens") else second)
    whole = {**second, **{name: first[name] for name in PROMPT_FIELDS if name in first}}
    for name in SUMMED_FIELDS:
        whole[name] = first.get(name, 0) + second.get(name, 0)
    for name in SUMMED_LISTS:
        whole[name] = _added(first.get(name, []), second.get(name, []))
    totals = add_up([first, second])
    for name in RATIOS:
        whole[name] = getattr(totals, name) or 0.0
    whole["tokens_per_second"] = _ratio(totals.tokens, totals.decode_s) or 0.0
    whole["accepted_by_position"] = list(totals.accepted_by_position)
    return whole | record_of(_summed(map(gain_of, [first, second])))


def table_of(answers: Iterable[Message], totals: AnswerTotals) -> list[tuple[str, ...]]:
    """Return table rows: one per answer, and one for the totals."""
    rows = [_cells(str(number), each.statistics) for number, each in enumerate(answers, 1)]
    return [*rows, ("all", *_figures(totals), "", "")]


def _cells(number: str, statistics: Record) -> tuple[str, ...]:
    first_token = statistics.get("time_to_first_token_s")
    return (
        number,
        *_figures(add_up([statistics])),
        UNKNOWN if first_token is None else f"{first_token:.2f} s",
        str(statistics.get("drafter", UNKNOWN)).replace("+", ", "),
    )


def _figures(totals: AnswerTotals) -> tuple[str, ...]:
    rate, speedup, per_pass = totals.tokens_per_second, totals.speedup, totals.tokens_per_step
    accepted = totals.acceptance_rate
    return (
        str(totals.tokens),
        f"{rate:.1f}" if rate else UNKNOWN,
        speedup_text(speedup, error=totals.speedup_error or 0.0) if speedup else UNKNOWN,
        UNKNOWN if accepted is None else percent(accepted),
        f"{per_pass:.2f}" if per_pass else UNKNOWN,
    )


def _accepted_by_position(records: Iterable[Record]) -> tuple[float, ...]:
    """Return accepted / drafted for each draft position, over the answers that recorded both."""
    drafted: list[int] = []
    accepted: list[int] = []
    for record in records:
        here = record.get("drafted_by_position", [])
        histogram = record.get("acceptance_histogram", [])
        drafted = _added(drafted, here)
        accepted = _added(accepted, [sum(histogram[n + 1 :]) for n in range(len(here))])
    return tuple(a / d for a, d in zip(accepted, drafted, strict=True))


def _added(first: Sequence[int], second: Sequence[int]) -> list[int]:
    return [a + b for a, b in zip_longest(first, second, fillvalue=0)]


def _sum(records: Iterable[Record], name: str) -> float:
    return sum(record.get(name) or 0 for record in records)


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
