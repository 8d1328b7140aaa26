"""The statistics of an answer that was stopped and continued."""

from __future__ import annotations

from typing import Any

import pytest

from specchat.chat.answer_statistics import (
    add_up,
    combine_parts,
    gain_of,
    reading_rate,
    record_of,
)


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


def test_passages_said_over_and_over_weigh_nothing_in_sums() -> None:
    """A speedup holds for the steps that it counts, in the sums of answers and of their parts."""
    looping = part(500, speedup=3.0, counted_s=2.0, counted_tokens=20, saved_s=4.0)
    usual = part(80, speedup=1.5, counted_s=8.0, counted_tokens=80, saved_s=4.0)

    assert add_up([looping, usual]).speedup == pytest.approx(18 / 10)
    whole = combine_parts(looping, usual)
    assert whole["speedup"] == pytest.approx(18 / 10)
    assert whole["saved_s"] == pytest.approx(8.0)
    assert gain_of(whole).rates == pytest.approx((100 / 18, 100 / 10))
    assert record_of(gain_of(whole)).items() <= whole.items()


def test_passages_said_over_and_over_make_no_answer_faster() -> None:
    """The rate of several answers leaves them out; that of one whose parts are joined has all."""
    looping = part(500, repeated=480, counted_s=10.0, counted_tokens=20)
    usual = part(80)

    assert add_up([looping]).tokens_per_second == pytest.approx(2.0)
    assert add_up([looping, usual]).tokens_per_second == pytest.approx(100 / 18)
    assert add_up([looping, usual]).tokens == 580
    assert combine_parts(looping, usual)["tokens_per_second"] == pytest.approx(10.0)


def test_an_older_answer_counts_the_tokens_that_repeat_nothing() -> None:
    """Their seconds are not known, so a token is taken to have lasted as long as any other."""
    gain = gain_of(part(500, speedup=3.0, repeated=480))
    assert (gain.own_s, gain.saved_s, gain.num_tokens) == pytest.approx((2.0, 4.0, 20))


def test_a_part_whose_gain_is_not_known_has_no_part_in_it() -> None:
    """Neither its seconds nor its tokens."""
    known = part(80, speedup=1.5, counted_s=8.0, counted_tokens=80, saved_s=4.0)
    for parts in ((known, part(300, drafted=9)), (part(300, drafted=9), known)):
        whole = combine_parts(*parts)
        assert (whole["speedup"], whole["saved_s"]) == pytest.approx((1.5, 4.0))


def test_how_fast_a_pair_reads_is_known_once_it_has_read_enough() -> None:
    """From what its answers did not have in memory; other pairs and servers do not count."""
    read = {"pair": "a", "prompt_tokens": 500, "cached_tokens": 440, "prompt_s": 0.5}
    other = {"pair": "b", "prompt_tokens": 9000, "cached_tokens": 0, "prompt_s": 1.0}
    server = {"pair": "a", "prompt_tokens": 9000}
    assert reading_rate([read, other, server], "a") is None
    assert reading_rate([read, other, read, server], "a") == 120.0


def test_encoding_images_is_no_reading() -> None:
    """It takes as long whatever the text beside them."""
    read = {
        "pair": "a",
        "prompt_tokens": 600,
        "cached_tokens": 0,
        "prompt_s": 34.0,
        "image_s": 30.0,
    }
    assert reading_rate([read], "a") == 150.0


def test_a_part_that_continues_an_answer_reads_no_image_again() -> None:
    """The time of the image stays beside that of the prompt; what was forced adds up."""
    first = part(60) | {"prompt_s": 4.0, "image_s": 3.2, "image_tokens": 64, "forced": 40}
    second = part(5) | {"prompt_s": 0.1, "image_s": 0.0, "image_tokens": 0, "forced": 2}
    whole = combine_parts(first, second)
    names = ("prompt_s", "image_s", "image_tokens", "forced")
    assert [whole[name] for name in names] == [4.0, 3.2, 64, 42]
