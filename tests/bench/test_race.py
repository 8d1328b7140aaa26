"""A race says what was measured, and draws it at any moment."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from bench.race_script import QUESTION, SPECULATIVE, RacingEngine, race_of
from specchat.bench.race_frame import chip_lines, chips, frame, lane_figures
from specchat.bench.race_record import Race, RacedAnswer, RaceStep, run_race
from specchat.decoding.chunk import Chunk
from specchat.decoding.step_times import Gain
from specchat.errors import Cancelled, SpecchatError
from tables import table


def raced(engine: RacingEngine) -> tuple[Race, list[Chunk], list[str]]:
    """Return a race, its answer as it came, and the progress that was reported."""
    answer: list[Chunk] = []
    progress: list[str] = []
    options = {"drafter": "auto"}
    race = run_race(engine, QUESTION, options, answer.append, progress.append)
    return race, answer, progress


def test_the_lanes_take_turns_with_the_answers_own_tokens() -> None:
    """A slice each, the first to begin changing; a step may go beyond, and is not decoded twice."""
    engine = RacingEngine()
    race, answer, progress = raced(engine)

    assert engine.parts[:6] == [
        ("none", 0, 32), ("auto", 0, 32),
        ("auto", 32, 64), ("none", 32, 64),
        ("none", 64, 70), ("auto", 64, 70),
    ]  # fmt: skip
    assert race.plain.text == race.speculative.text == "".join(chunk.text for chunk in answer)
    assert [lane.num_tokens for lane in race.lanes] == [70, 70]
    assert [len(lane.steps) for lane in race.lanes] == [70, 35]
    assert [lane.seconds for lane in race.lanes] == pytest.approx([0.7, 0.35])
    assert race.speculative.stats["accepted"] == 35
    assert race.gain.speedup == pytest.approx(2.0, rel=0.02)
    assert progress[:2] == ["racing: 0 of 70 tokens"] * 2
    assert "racing: 32 of 70 tokens, round 2" in progress


@table(("seconds", "rounds"), [(0.0005, 40), (0.001, 29), (0.01, 3), (0.05, 1), (0.5, 1)])
def test_a_race_is_repeated_until_it_says_something(seconds: float, rounds: int) -> None:
    """Up to forty times: an answer of some dozen tokens takes no time."""
    engine = RacingEngine()
    engine.seconds = seconds
    race, _, _ = raced(engine)

    assert len(engine.parts) == 6 * rounds
    assert race.gain.is_sound == (seconds > 0.0005)


def test_a_race_ends_where_the_answer_repeats_itself() -> None:
    """There drafts are always right."""
    said = [Chunk(f"{token} ", (token,), ("target",), (f"{token} ",)) for token in range(60)]
    answer = RacedAnswer([*said, *said[:4] * 100])
    lane, end = next(answer.turns)
    tokens = lane.options(end)["replay"].tokens
    assert 60 + 32 <= len(tokens) < 60 + 50


def test_the_figures_follow_from_the_times() -> None:
    """The rates are tokens per second of decoding, the speedup is their ratio."""
    race = race_of(gain=Gain("faster", 2.0, 0.01, 3.0, 1.5))

    assert race.plain.tokens_per_second == pytest.approx(1.0)
    assert race.speculative.tokens_per_second == pytest.approx(2.0)
    assert race.speedup == pytest.approx(2.0)
    assert race.seconds == pytest.approx(3.0)
    assert race.summary() == (
        "plain 1.0 tokens/s · speculative 2.0 tokens/s · 2.0x faster ±0.1"
        " · 50 % of 4 draft tokens accepted"
    )


def test_a_race_without_drafts_says_so() -> None:
    """Both lanes were plain, so their times are those of the machine."""
    race = race_of(gain=Gain())
    race = replace(race, speculative=replace(race.plain))

    assert race.summary() == "no speedup: the race drafted nothing"
    for seconds in (1.0, 3.0):
        assert not any("tokens/s" in line.plain for line in frame(race, seconds, 80, 12))


def test_a_record_is_read_back() -> None:
    """JSON holds all of it, and the figures that follow."""
    race = race_of()
    record = json.loads(json.dumps(race.as_record()))

    assert Race.of_record(record) == race
    assert record["speedup"] == race.speedup
    assert record["plain"]["tokens_per_second"] == race.plain.tokens_per_second
    assert record["speculative"]["steps"][0]["drafted"] == 3


OTHER_TEXT = race_of(speculative=SPECULATIVE[:1]).as_record()


@table("record", [{}, {"prompt": 3}, {"plain": {"steps": []}}, OTHER_TEXT])
def test_a_malformed_record_is_no_race(record: dict[str, object]) -> None:
    """A store may hold anything."""
    assert Race.of_record(record) is None


@table(
    ("facts", "reason"),
    [
        ({"speculation_off_reason": "it cannot roll back"}, r"speculate \(it cannot roll back\)"),
        ({"served_by": "vLLM at there"}, "vLLM at there runs the model"),
    ],
)
def test_what_cannot_race_says_why(facts: dict[str, Any], reason: str) -> None:
    """The reason is in the message, and nothing is decoded."""
    engine = RacingEngine()
    engine.facts = replace(engine.facts, **facts)

    with pytest.raises(SpecchatError, match=reason):
        raced(engine)
    assert engine.options == []


def test_a_stopped_race_is_cancelled() -> None:
    """Half an answer cannot be compared."""
    engine = RacingEngine()
    engine.finish = "cancelled"

    with pytest.raises(Cancelled):
        raced(engine)


@table(
    ("begun", "num_parts"),
    [(0, 0), (1, 0), (36, 1)],
    ids=["at once", "in the answer", "between slices"],
)
def test_a_stop_is_never_lost(begun: int, num_parts: int) -> None:
    """Also where the engine does not hear of it: each answer begins anew."""
    engine = RacingEngine()
    seen: list[Chunk] = []

    def is_stopped() -> bool:
        return len(seen) >= begun and len(engine.parts) >= num_parts

    with pytest.raises(Cancelled):
        run_race(engine, QUESTION, {"drafter": "auto"}, seen.append, lambda _: None, is_stopped)
    assert len(engine.parts) == num_parts


def test_a_titled_race_has_no_raw_name() -> None:
    """Nor in its draft's: that of a head begins with the target's."""
    engine = RacingEngine()
    engine.facts = replace(engine.facts, draft="t, trained head")
    race = run_race(engine, QUESTION, {"drafter": "auto"}, print, print, title="smollm2-135m")
    assert (race.target, race.draft) == ("smollm2-135m", "trained head")


def test_an_empty_answer_is_an_error() -> None:
    """There is nothing to compare."""
    with pytest.raises(SpecchatError, match="wrote nothing"):
        RacedAnswer([Chunk("", finish="stop")])


def test_a_lane_is_drawn_as_it_was_at_a_moment() -> None:
    """Steps appear at their own times."""
    race = race_of()
    lane = race.speculative

    assert lane_figures(race, lane.until(0.4), lane) == "starting"
    assert lane_figures(race, lane.until(0.5), lane) == "4.0 tokens/s · 2 tokens after 0.5 s"
    assert lane_figures(race, lane.until(1.5), lane) == "2.0 tokens/s · 3 tokens done in 1.5 s"


@table("seconds", [0.0, 0.5, 1.0, 2.5, 3.0, 9.0])
@table("size", [(20, 9), (61, 12), (100, 30)])
def test_a_frame_fills_its_size(size: tuple[int, int], seconds: float) -> None:
    """No line is wider, and the number of lines is always the same."""
    lines = frame(race_of(), seconds, *size)

    assert len(lines) == size[1]
    assert all(line.cell_len <= size[0] for line in lines)


def test_a_frame_shows_what_is_decoded_by_then() -> None:
    """At one second the plain answer has a token, the other one two; the end has the result."""
    race = race_of()
    now = "\n".join(line.plain for line in frame(race, 1.0, 80, 12))
    end = "\n".join(line.plain for line in frame(race, 3.0, 80, 12))

    assert "One" + " " * 38 + "One two" in now
    assert "1.0 tokens/s · 1 tokens after 1.0 s" in now
    assert "accepted: suffix lookup" in now
    assert "plain decoding" in now
    assert "with draft model and suffix lookup" in now
    assert end.count("One two three") == 2
    assert now.splitlines()[1] == ""
    assert race.verdict not in now
    assert end.splitlines()[1].startswith(f" {race.verdict} ")
    assert race.details() in end


def test_a_narrow_frame_names_both_drafters() -> None:
    """By their short names, rather than one of them and a part of the other."""
    titles = [line.plain for line in frame(race_of(), 3.0, 54, 12) if "with" in line.plain]
    assert [each.split("   ")[-1].strip() for each in titles] == ["with draft and suffix"]


def test_the_result_stands_at_the_top_in_its_colour() -> None:
    """Once both lanes have ended. A narrow screen leaves the middle out."""
    race = race_of(gain=Gain("faster", 1.5, 0.01, 3.0, 2.0))
    head, result, *_, details, legend = frame(race, 3.0, 120, 12)
    assert result.plain == f" 1.5x faster ±0.1   {race.details()}"
    assert str(result.spans[0].style).endswith("on #93dd9b")
    assert head.plain.rstrip() == race.prompt
    assert details.plain == ""
    assert "own token" in legend.plain
    *_, details, legend = frame(race, 3.0, 47, 12)
    assert [each.strip() for each in legend.plain.split("   ") if each.strip()] == [
        "draft model", "suffix lookup", "A own token",
    ]  # fmt: skip
    assert details.plain == "50 % of 4 draft tokens accepted"


def test_only_drafted_tokens_are_chips() -> None:
    """The target's own are text."""
    words = ("```python\n", "def", " twice", "():\n")
    origins = ("target", "target", "suffix", "target")
    step = RaceStep(1.0, words, origins)
    lines = chip_lines(race_of(speculative=[step]).speculative, 40, 9)
    spans = [(line.plain, each) for line in lines for each in line.spans]
    drawn = [(text[each.start : each.end], str(each.style)) for text, each in spans]
    assert [text for text, _ in drawn] == [" twice"]
    assert " on " in drawn[0][1]


def test_chips_stay_where_they_are() -> None:
    """What a longer answer begins with is laid out as before, so that nothing jumps."""
    text = "a long token,", "\n", " and", "日本語", "\n\nx"
    steps = [RaceStep(n, (each,), ("suffix",)) for n, each in enumerate(text)]
    whole = race_of(speculative=steps).speculative
    laid_out = list(chips(whole, 8))

    assert [(chip.row, chip.column, chip.text) for chip in laid_out] == [
        (0, 0, "a long t"),
        (1, 0, "oken,"),
        (1, 5, "⏎"),
        (2, 0, " and"),
        (3, 0, "日本語"),
        (3, 6, "⏎"),
        (4, 0, "⏎"),
        (5, 0, "x"),
    ]
    for seconds in range(5):
        part = list(chips(whole.until(seconds), 8))
        assert part == laid_out[: len(part)]


def test_what_a_model_writes_does_not_reach_the_terminal_as_it_is() -> None:
    """Escape sequences and marks that reorder a line are replaced, in prompts too."""
    evil = "\x1b[2J\u202e\u200f\r\x9b"
    steps = [replace(SPECULATIVE[0], texts=(evil, evil))]
    race = replace(race_of(speculative=steps), prompt=evil)
    drawn = "\n".join(line.plain for line in frame(race, 3.0, 60, 12))

    assert "[2J" in drawn
    assert not set(drawn) & set("\x1b\u202e\u200f\r\x9b")


def test_without_colours_chips_are_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Underlines show the origins where NO_COLOR is set."""
    styles = [str(span.style) for line in frame(race_of(), 3.0, 80, 12) for span in line.spans]
    assert not any("underline" in style for style in styles)

    monkeypatch.setenv("NO_COLOR", "1")
    styles = [str(span.style) for line in frame(race_of(), 3.0, 80, 12) for span in line.spans]
    assert any("underline italic" in style for style in styles)
    assert any(style.endswith("underline") for style in styles)
