"""How figures are worded, wherever they are shown."""

from __future__ import annotations

import re
from pathlib import Path

import specchat
from specchat.chat.answer_statistics import add_up
from specchat.gguf.origin import DraftOrigin
from specchat.wording import (
    answer_line,
    drafting_text,
    duration_text,
    gain_text,
    positions_text,
    short_line,
    size_text,
    speculation_line,
    speedup_range,
    speedup_text,
)
from tables import table


@table(
    ("speedup", "text"),
    [
        (3.56, "3.6x faster"),
        (1.5, "1.5x faster"),
        (1.494, "1.49x faster"),
        (1.06, "1.06x faster"),
        (1.04, "same speed"),
        (1.0, "same speed"),
        (0.96, "same speed"),
        (0.95, "5 % slower"),
        (0.73, "27 % slower"),
    ],
)
def test_a_speedup_is_a_factor_above_1_and_a_percentage_below(speedup: float, text: str) -> None:
    """Differences of less than 5 % count as the same speed; a small one is not rounded away."""
    assert speedup_text(speedup) == text


@table(
    ("speedup", "error", "text"),
    [
        (2.42, 0.05, "2.4x faster ±0.2"),
        (2.42, 0.01, "2.4x faster ±0.1"),
        (1.36, 0.02, "1.36x faster ±0.05"),
        (1.06, 0.01, "1.06x faster ±0.02"),
        (1.06, 0.04, "same speed"),
        (1.36, 0.0, "1.36x faster"),
        (0.73, 0.04, "27 % slower ±6 %"),
    ],
)
def test_a_gain_has_its_error_in_as_many_decimals(speedup: float, error: float, text: str) -> None:
    """A small one is not rounded away, and within two errors of 1 it is the same speed."""
    assert gain_text(speedup, error) == text


@table(
    ("low", "high", "text"),
    [
        (1.2, 1.434, "1.20x to 1.43x faster"),
        (0.93, 1.12, "7 % slower to 1.12x faster"),
        (0.88, 0.93, "12 % to 7 % slower"),
        (0.9, 1.0, "10 % slower to same speed"),
        (0.97, 1.04, "same speed"),
    ],
)
def test_a_range_of_speedups_says_what_both_ends_share_once(
    low: float, high: float, text: str
) -> None:
    """A range that crosses 1 names both."""
    assert speedup_range(low, high) == text


@table("text", ["nan", "inf", "-inf", "-2", "0", "", "fast", "1e999"])
def test_a_file_that_predicts_no_real_speedup_predicts_none(text: str) -> None:
    """Anyone may have written it, and it is shown and sorted by."""
    assert DraftOrigin("", "", "", "", text).speedup == 0.0


def test_speedups_are_written_in_one_place() -> None:
    """Elsewhere a number with an x is what a pass costs, compared with another."""
    package = Path(specchat.__file__).parent
    strangers = [
        f"{path.relative_to(package)}: {line.strip()}"
        for path in package.rglob("*.py")
        if path.name != "wording.py"
        for line in path.read_text("utf-8").splitlines()
        if re.search(r"\}\s?[x\xd7](?![\w]| checking)|(?<!\w)\d+(\.\d+)?x (?!checking)", line)
    ]
    assert strangers == []


@table(("num_bytes", "text"), [(512, "512 bytes"), (5 * 10**9, "5.00 GB"), (123_456, "123 kB")])
def test_a_size_has_three_digits(num_bytes: int, text: str) -> None:
    """Sizes are in units of 1000, as on the hub."""
    assert size_text(num_bytes) == text


@table(("seconds", "text"), [(41.7, "42 s"), (185, "3 min 5 s"), (7800, "2 h 10 min")])
def test_a_duration_has_its_two_largest_units(seconds: float, text: str) -> None:
    """Less than a minute is given in seconds."""
    assert duration_text(seconds) == text


def test_a_line_has_only_what_is_known() -> None:
    """Without drafts there is no acceptance, and without a generated token no line."""
    plain = {"generated_tokens": 12, "tokens_per_second": 24.0, "drafted": 0, "speedup": 1.0}

    assert answer_line(plain) == "24.0 tokens/s · 12 tokens"
    assert answer_line({**plain, "time_to_first_token_s": 0.25}).endswith(" · first token 0.25 s")
    assert answer_line({}) == ""


def test_a_line_counts_the_tokens_of_reasoning() -> None:
    """They are among the tokens of the answer; without any they are not mentioned."""
    stats = {"generated_tokens": 412, "tokens_per_second": 24.0, "reasoning_tokens": 305}

    assert answer_line(stats) == "24.0 tokens/s · 412 tokens (305 reasoning)"
    assert answer_line({**stats, "reasoning_tokens": 0}) == "24.0 tokens/s · 412 tokens"


def test_a_line_has_the_speedup_of_a_speculative_answer() -> None:
    """Acceptance and tokens per target pass stand before it."""
    stats = {
        "generated_tokens": 30, "tokens_per_second": 50.0, "drafted": 40, "acceptance_rate": 0.5,
        "tokens_per_step": 3.0, "speedup": 1.44,
    }  # fmt: skip

    assert answer_line(stats) == (
        "50.0 tokens/s · 30 tokens · 50 % of 40 draft tokens accepted · 3.00 tokens per target pass"
        " · 1.44x faster"
    )


def test_a_line_has_the_rate_that_its_speedup_was_measured_by() -> None:
    """Without what repeats a passage, as the chat and tables show it."""
    stats = {
        "generated_tokens": 500, "tokens_per_second": 27.8, "drafted": 40, "acceptance_rate": 0.5,
        "speedup": 0.91, "repeated": 300, "counted_s": 10.0, "counted_tokens": 181,
    }  # fmt: skip

    for line in (answer_line(stats), short_line(stats)):
        assert line.startswith("18.1 tokens/s · ")
    assert answer_line({**stats, "repeated": 0}).startswith("27.8 tokens/s · ")
    assert f"{add_up([stats]).tokens_per_second:.1f}" == "18.1"


def test_a_line_says_how_large_trees_were() -> None:
    """Only where drafts had branches: an older answer does not say, and chains have none."""
    stats = {"drafted": 40, "acceptance_rate": 0.5, "tokens_per_step": 3.0, "steps": 10}
    chain = "50 % of 40 draft tokens accepted · 3.00 tokens per target pass"

    assert drafting_text(stats) == drafting_text({**stats, "nodes": 40}) == chain
    assert drafting_text({**stats, "nodes": 95}) == f"{chain} · trees of 9.5 tokens"


def test_positions_are_counted_from_1() -> None:
    """Each position has its acceptance rate."""
    assert positions_text([0.875, 0.75]) == "1: 88 %, 2: 75 %"


def test_a_reason_follows_what_was_used() -> None:
    """The line says what drafted, and why the draft model did not; or why nothing did."""
    used = {
        "on": True, "drafter": "suffix+model", "draft_length": "auto", "drafted_per_step": 3.25,
        "off": "", "draft_off": "", "short_drafts": "",
    }  # fmt: skip

    line = "speculation by suffix and model: 3.2 tokens drafted per target pass (draft length auto)"
    assert speculation_line(used) == line
    assert speculation_line({**used, "draft_off": "too slow"}) == f"{line}; too slow"
    short = "checking 4 tokens costs 3.1x checking one"
    assert speculation_line({**used, "short_drafts": short}) == f"{line}; drafts are short: {short}"
    off = {**used, "on": False, "off": "switched off"}
    assert speculation_line(off) == "speculation is off: switched off"
