"""How figures are written: the same on screen, in commands, in messages and in exports."""

from collections.abc import Mapping, Sequence
from math import log
from typing import Any

UNITS = ("bytes", "kB", "MB", "GB")
SAME_SPEED, FASTER, SLOWER = "same speed", " faster", " slower"
SPEEDUP_TOLERANCE = 0.05
"""A speedup that differs from 1 by less than this is called the same speed."""
NUM_ERRORS = 2.0
"""So is one that is within as many standard errors of it."""
FINE = 1.5
"""Smaller speedups have two decimals: 1.06 would be "1.1x"."""
WITH_REPEATS, WITHOUT_REPEATS = "with repeats", "without repeats"
"""What figures are of, where passages that an answer says over and over count in some of them."""
LEAST_SAVED = 0.1
"""Seconds."""
NOTABLE_COST = 1.01
"""Smaller costs of exact passes are not worth mentioning."""


def percent(share: float) -> str:
    """Return a share as "83 %"; only 0 is "0 %", and only 1 is "100 %"."""
    rounded = round(100 * share)
    if 0 < share < 1:
        rounded = min(max(rounded, 1), 99)
    return f"{rounded} %"


def progress_percent(share: float) -> str:
    """Return how much of some work is done, rounded down: "100 %" is all of it, never nearly."""
    return f"{int(100 * share + 1e-9)} %"


def size_text(num_bytes: float) -> str:
    """Return a size as "1.24 GB", in units of 1000 as on the hub."""
    power = min(3, max(0, len(str(int(num_bytes))) - 1) // 3)
    size = num_bytes / 1000**power
    decimals = max(0, 3 - len(str(int(size)))) if power else 0
    return f"{size:.{decimals}f} {UNITS[power]}"


def short_size(num_bytes: float) -> tuple[str, str]:
    """Return a size rounded to show beside another, and its unit: ("7.1", "GB") or ("39", "MB")."""
    is_large = num_bytes >= 0.995e9
    return (f"{num_bytes / 1e9:.1f}", "GB") if is_large else (f"{num_bytes / 1e6:.0f}", "MB")


def duration_text(seconds: float) -> str:
    """Return a duration as "42 s", "3 min 5 s" or "2 h 10 min"."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds // 60:.0f} min {seconds % 60:.0f} s"
    return f"{seconds // 3600:.0f} h {seconds % 3600 // 60:.0f} min"


def rate_text(tokens_per_second: float) -> str:
    """Return a decode rate as "24.0 tokens/s"."""
    return f"{tokens_per_second:.1f} tokens/s"


def is_same_speed(speedup: float, error: float = 0.0) -> bool:
    """Return True if a speedup, with its relative standard error, may be none."""
    is_close = 1 - SPEEDUP_TOLERANCE < speedup < 1 + SPEEDUP_TOLERANCE
    return is_close or abs(log(speedup)) < NUM_ERRORS * error


def speedup_text(speedup: float, decimals: int = 1, *, error: float = 0.0) -> str:
    """Return a speedup over plain decoding as "2.4x faster", "1.36x faster" or "27 % slower".

    What is small or was measured over several rounds has two decimals. `error` is its relative
    standard error.
    """
    if is_same_speed(speedup, error):
        return SAME_SPEED
    if speedup > 1:
        return f"{speedup:.{max(decimals, _decimals(speedup))}f}x{FASTER}"
    return f"{percent(1 - speedup)}{SLOWER}"


def _decimals(speedup: float) -> int:
    return 2 if speedup < FINE else 1


def gain_text(speedup: float, error: float) -> str:
    """Return a speedup with twice its standard error: "1.36x faster ±0.05", "27 % slower ±6 %"."""
    words, margin = speedup_text(speedup, error=error), NUM_ERRORS * error * speedup
    if not error or words == SAME_SPEED:
        return words
    if speedup > 1:
        decimals = _decimals(speedup)
        return f"{words} ±{max(10**-decimals, margin):.{decimals}f}"
    return f"{words} ±{percent(max(0.01, margin))}"


def speedup_cell(speedup: float, error: float = 0.0) -> str:
    """Return a speedup as "1.36x", for a narrow column with a heading that says what it is."""
    return "same" if is_same_speed(speedup, error) else f"{speedup:.2f}x"


def speedup_range(low: float, high: float) -> str:
    """Return a range of speedups: "1.20x to 1.43x faster", "7 % slower to 1.12x faster"."""
    first, last = (speedup_text(each, 2) for each in (low, high))
    if first == last:
        return first
    for word in (FASTER, SLOWER):
        if last.endswith(word):
            first = first.removesuffix(word)
    return f"{first} to {last}"


def saved_text(seconds: float) -> str:
    """Return the time saved as "3.4 s saved"; empty if it is too short to name."""
    if seconds < LEAST_SAVED:
        return ""
    return f"{seconds:.1f} s saved" if seconds < 10 else f"{duration_text(seconds)} saved"


def tokens_text(generated: int, reasoning: int = 0) -> str:
    """Return the number of tokens of an answer, with those of reasoning if there are any."""
    words = f"{generated} token{'s' * (generated != 1)}"
    return f"{words} ({reasoning} reasoning)" if reasoning else words


def positions_text(accepted_by_position: Sequence[float]) -> str:
    """Return the acceptance rate of each draft position: "1: 88 %, 2: 75 %"."""
    return ", ".join(f"{n}: {percent(share)}" for n, share in enumerate(accepted_by_position, 1))


def accepted_share(rate: float, repeated: int | None) -> str:
    """Return the acceptance rate of an answer, and whether passages that repeat are part of it.

    Speedups leave those out, so that beside one it looks too high.
    """
    return f"{percent(rate)} accepted" + f" {WITH_REPEATS}" * bool(repeated)


def short_line(statistics: Mapping[str, Any]) -> str:
    """Return the speed, the speedup and the acceptance of an answer; empty without tokens."""
    if not statistics.get("generated_tokens"):
        return ""
    parts = _rate(statistics)
    if statistics.get("drafted"):
        parts += _gain_texts(statistics)
        rate = statistics.get("acceptance_rate", 0.0)
        parts.append(accepted_share(rate, statistics.get("repeated")))
    return " · ".join(parts)


def counts_line(statistics: Mapping[str, Any]) -> str:
    """Return how long an answer is and how long it took to begin; empty without tokens."""
    if not statistics.get("generated_tokens"):
        return ""
    tokens = tokens_text(statistics["generated_tokens"], statistics.get("reasoning_tokens", 0))
    return " · ".join([tokens, *_first_token(statistics)])


def _rate(statistics: Mapping[str, Any]) -> list[str]:
    """Return the decode rate; a server that sends an answer as a whole shows none.

    It leaves out passages that repeat, as the speedup beside it does.
    """
    rate = statistics.get("tokens_per_second")
    if statistics.get("repeated") and (seconds := statistics.get("counted_s")):
        rate = (statistics.get("counted_tokens") or 0) / seconds
    return [rate_text(rate)] if rate else []


def _first_token(statistics: Mapping[str, Any]) -> list[str]:
    """Return the seconds to the first token, if they are known."""
    seconds = statistics.get("time_to_first_token_s")
    return [] if seconds is None else [f"first token {seconds:.2f} s"]


def _gain_texts(statistics: Mapping[str, Any]) -> list[str]:
    """Return the speedup and the seconds saved, as far as they are known."""
    speedup, error = statistics.get("speedup"), statistics.get("speedup_error") or 0.0
    if not speedup:
        return []
    if is_same_speed(speedup, error):
        return [SAME_SPEED]
    texts = [speedup_text(speedup, error=error), saved_text(statistics.get("saved_s") or 0.0)]
    return [text for text in texts if text]


def accepted_text(statistics: Mapping[str, Any]) -> str:
    """Return how many of an answer's draft tokens were accepted."""
    drafted = statistics.get("drafted")
    if not drafted:
        return "nothing drafted"
    accepted = percent(statistics.get("acceptance_rate", 0.0))
    repeats = f" {WITH_REPEATS}" * bool(statistics.get("repeated"))
    return f"{accepted} of {drafted} draft tokens accepted{repeats}"


def drafting_text(statistics: Mapping[str, Any]) -> str:
    """Return the same with the tokens per target pass, for an answer with drafts."""
    line = accepted_text(statistics)
    if per_pass := statistics.get("tokens_per_step"):
        line += f" · {per_pass:.2f} tokens per target pass"
    nodes = nodes_per_step(statistics)
    return f"{line} · trees of {nodes:.1f} tokens" if nodes else line


def nodes_per_step(statistics: Mapping[str, Any]) -> float:
    """Return the tokens verified per step, where drafts had branches; else 0.0.

    An answer from before there were branches does not say.
    """
    nodes, steps = statistics.get("nodes") or 0, statistics.get("steps")
    return nodes / steps if steps and nodes > (statistics.get("drafted") or 0) else 0.0


def answer_line(statistics: Mapping[str, Any]) -> str:
    """Return an answer's statistics in one line; empty if nothing was generated.

    The fields are those of `specchat ask --json`, with `speedup` where it is known.
    """
    if not statistics.get("generated_tokens"):
        return ""
    parts = [
        *_rate(statistics),
        tokens_text(statistics["generated_tokens"], statistics.get("reasoning_tokens", 0)),
    ]
    if forced := statistics.get("forced"):
        parts.append(f"{forced} of them forced by the grammar")
    if statistics.get("drafted"):
        parts.append(drafting_text(statistics))
        parts += _gain_texts(statistics)
    return " · ".join([*parts, *_first_token(statistics)])


READ_AGAIN = {
    "edited": "the text before changed",
    "forgotten": "no longer in memory",
    "seed": "so that the seed repeats",
}
"""Why tokens of a prompt were read again, by the reason in `read_again` of an answer's figures."""


def read_again_texts(counts: Mapping[str, int]) -> list[str]:
    """Return how many tokens of a prompt were read again, a line for each reason."""
    return [f"{count} read again: {READ_AGAIN.get(name, name)}" for name, count in counts.items()]


def speculation_line(speculation: Mapping[str, Any]) -> str:
    """Return what an answer was drafted with, or the reason nothing was drafted.

    The fields are those of `speculation` in `specchat ask --json`.
    """
    if server := speculation.get("served_by"):
        drafted = speculation["drafted_per_step"]
        words = f", {drafted:.1f} tokens drafted per target pass" if drafted else ""
        return f"answered by {server}{words}"
    if not speculation["on"]:
        return f"speculation is off: {speculation['off']}"
    line = (
        f"speculation by {speculation['drafter'].replace('+', ' and ')}: "
        f"{speculation['drafted_per_step']:.1f} tokens drafted per target pass"
        f" (draft length {speculation['draft_length']})"
    )
    short = speculation["short_drafts"]
    reason = speculation["draft_off"] or (f"drafts are short: {short}" if short else "")
    return f"{line}; {reason}" if reason else line


def exact_drafts(longest: int, cost: float | None) -> str:
    """Return which draft lengths are exact, and how much longer exact passes take."""
    if not longest:
        return "no drafts"
    if not cost or cost < NOTABLE_COST:
        return f"drafts up to {longest}"
    return f"drafts up to {longest}, verified in up to {percent(cost - 1)} more time"


def waited(seconds: float) -> str:
    """Return for how long a stage of work lasts, to stand behind it; empty within a second."""
    return f" · {int(seconds)} s so far" if seconds >= 1 else ""
