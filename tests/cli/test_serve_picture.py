"""What `specchat serve` shows of requests: rows for every width, totals, lines of a log."""

from __future__ import annotations

from dataclasses import replace
from time import time
from typing import Any

from specchat.cli.serve_picture import (
    Line,
    Style,
    columns_for,
    head_line,
    log_line,
    request_line,
    totals_line,
)
from specchat.decoding.statistics import Statistics
from specchat.decoding.step_times import Gain
from specchat.server.activity import Activity, ServedRequest, Totals
from tables import table
from timed_steps import timed

SECRET = "a text of someone's"


STATISTICS = Statistics(
    prompt_tokens=9804, cached_tokens=4, generated_tokens=87, steps=30, drafted=80, accepted=57,
    decode_s=0.73, step_times=timed(2.0),
)  # fmt: skip
SPEEDUP = f"{STATISTICS.gain.speedup:.2f}x"
WRITING = ServedRequest(15, "codex", "responses", "demo", time(), "writing", statistics=STATISTICS)


def done(**changed: Any) -> ServedRequest:
    """Return a request that is over."""
    return replace(WRITING, **{"state": "over", "finish": "stop", **changed})


def row(progress: ServedRequest, width: int = 100, rank: int = 0) -> str:
    """Return the text of a request's row."""
    return request_line(progress, columns_for(width), rank).text


def test_a_row_has_the_figures_of_a_request() -> None:
    """Who asks what, how much is read and written, how fast, and what drafts bring."""
    assert row(WRITING).split() == [
        ">", "15", "codex", "respond", "9,804", ">", "87", "119", "▰▰▰▰▱▱", "71", "%", "2.9",
        SPEEDUP,
    ]  # fmt: skip
    titles = head_line(columns_for(100)).text.split()
    assert titles == [
        "#",
        "client",
        "request",
        "tokens",
        "t/s",
        "accepted",
        "per",
        "step",
        "speedup",
    ]


@table("width", range(40, 121))
def test_rows_fit_into_every_width(width: int) -> None:
    """Columns go one after the other; those for who asks, how much and how fast stay."""
    columns = columns_for(max(width, 50))
    shown = {column.title for column in columns}
    assert shown >= {"#", "client", "tokens", "t/s", "accepted"}
    lines = [head_line(columns), request_line(WRITING, columns), totals_line(total_of(WRITING))]
    for line in lines:
        assert len(line.painted(width, has_colours=False)) <= width
    if width >= 50:
        assert "…" not in request_line(WRITING, columns).painted(width, has_colours=False)


def total_of(*requests: ServedRequest) -> Totals:
    """Return the totals of requests."""
    totals = Totals()
    for each in requests:
        totals.add(replace(each, state="over", finish="stop"))
    return totals


def test_requests_without_tokens_say_what_they_wait_for() -> None:
    """A place in the queue, or how much of the prompt is read."""
    waiting = replace(WRITING, state="waiting", statistics=Statistics(), began=time() - 2.2)
    assert row(waiting, rank=1).endswith("waiting 2 s, next")
    assert row(waiting, rank=3, width=60).endswith("waiting 2 s, place 3")
    reading = replace(waiting, state="reading", share=0.42)
    assert row(reading).endswith("reading the prompt, 42 %")


def test_how_a_request_ended_is_seen() -> None:
    """A finished one has no mark, a cancelled one has its own, a failed one says why."""
    assert row(done()).startswith("  ")
    assert row(done(finish="cancelled")).startswith("x ")
    nothing = row(done(finish="cancelled", statistics=Statistics(prompt_tokens=12)))
    assert nothing.split() == ["x", "15", "codex", "respond", "12", ">", "0", "-", "-", "-"]
    failed = request_line(done(finish="failed", error="no\x1b[2Jroom"), columns_for(80))
    assert failed.text.endswith("failed: no\x1b[2Jroom")
    assert "\x1b" not in failed.painted(80, has_colours=False)
    assert failed.style is Style.TROUBLE


def test_colours_go_around_the_text() -> None:
    """With NO_COLOR there are none."""
    line = Line("some text", Style.DIM)
    assert line.painted(80, has_colours=True) == "\x1b[2msome text\x1b[0m"
    assert line.painted(80, has_colours=False) == "some text"


def test_totals_say_what_was_saved() -> None:
    """The shorter forms leave out what matters less."""
    line = totals_line(total_of(WRITING, WRITING))
    assert line.text == (
        f"2 requests   174 tokens   71 % accepted   2.9 per step   {SPEEDUP}"
        "   saved 8 s of 16 s against plain decoding"
    )
    shorter = f"2 requests   71 % accepted   {SPEEDUP}   saved 8 s of 16 s"
    assert line.painted(60, has_colours=False) == shorter
    assert totals_line(Totals()).text == "no requests yet"


def test_totals_say_how_many_answers_share_a_pass() -> None:
    """Where any did."""
    numbers = {4: "2.5 answers, 8.5 rows a pass", 10: ""}
    for passes, said in numbers.items():
        statistics = replace(WRITING.statistics, steps=10, passes=float(passes), nodes=24)
        text = totals_line(total_of(replace(WRITING, statistics=statistics))).text
        assert said in text
        assert ("answers" in text) == bool(said)
        assert "faster" not in text
    statistics = replace(statistics, passes=4.0, joint_s=2.0, apart_s=3.0)
    text = totals_line(total_of(replace(WRITING, statistics=statistics))).text
    assert "2.5 answers, 8.5 rows a pass, 1.50x faster   " in text


def test_totals_say_how_many_are_in_progress() -> None:
    """Those that run and those that wait."""
    waiting = replace(WRITING, state="waiting")
    assert totals_line(Totals(), [WRITING, waiting, waiting]).text == "1 running, 2 waiting"
    assert totals_line(total_of(WRITING), [WRITING]).text.startswith("1 request   1 running   87 ")


def test_totals_within_their_error_are_the_same_speed() -> None:
    """As the row of each request says it."""
    gain = Gain("same", 1.08, 0.05, 10.8, 10.0, 100)
    request = replace(WRITING, statistics=replace(WRITING.statistics, reported_gain=gain))

    assert "same" in row(replace(request, state="over", finish="stop"))
    assert "   same   " in totals_line(total_of(request)).text
    assert "1.08x" in totals_line(total_of(*[request] * 9)).text


def test_a_log_has_no_text_of_anyone() -> None:
    """An error may quote a request, so its words stay out of a log."""
    line = log_line(done(finish="failed", error=SECRET))
    assert line == (
        "15 codex responses: 9,804 > 87 tokens, 119 tokens/s, 71 % accepted, 2.9 per step,"
        f" {SPEEDUP}, failed"
    )


def test_activity_shows_requests_as_they_were_when_it_was_asked() -> None:
    """What a screen draws does not change under its hands; a request counts once it is over."""
    activity, progress = Activity(), replace(WRITING)
    activity.observe(progress)
    (shown,) = activity.live()
    progress.state = "over"
    assert shown.state == "writing"
    assert activity.totals().num_requests == 0
    activity.observe(progress)
    assert activity.live() == ()
    assert activity.totals().finishes == {("responses", "cancelled"): 1}
    assert activity.totals_by_model()["demo"].sums.generated_tokens == 87
