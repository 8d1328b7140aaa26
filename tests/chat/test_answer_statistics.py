"""The statistics of an answer that was stopped and continued."""

from __future__ import annotations

from typing import Any

from specchat.chat.answer_statistics import combine_parts


def part(tokens: int, **more: Any) -> dict[str, Any]:
    """Return the statistics of a part of an answer."""
    return {"generated_tokens": tokens, "steps": tokens, "decode_s": tokens / 10, **more}


def test_reasoning_adds_up() -> None:
    """Tokens and seconds of reasoning are those of both parts, like all other counts."""
    first = part(20, reasoning_tokens=20, reasoning_s=2.0, prompt_tokens=7)
    second = part(30, reasoning_tokens=5, reasoning_s=0.5, prompt_tokens=27)
    whole = combine_parts(first, second)

    assert (whole["reasoning_tokens"], whole["reasoning_s"]) == (25, 2.5)
    assert (whole["generated_tokens"], whole["tokens_per_second"]) == (50, 10.0)
    assert whole["prompt_tokens"] == 7


def test_a_part_of_an_older_version_counts_no_reasoning() -> None:
    """What is not known of it adds nothing."""
    known = part(30, reasoning_tokens=5, reasoning_s=0.5)

    for parts in ((part(20), known), (known, part(20))):
        whole = combine_parts(*parts)
        assert (whole["reasoning_tokens"], whole["reasoning_s"]) == (5, 0.5)
