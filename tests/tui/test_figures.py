"""The figures beside the chat say what the statistics say."""

from __future__ import annotations

import pytest

from specchat.decoding.statistics import Statistics
from specchat.decoding.step_times import Gain, StepTimes
from specchat.tui.texts.cards import figure_texts
from specchat.tui.texts.figure_words import (
    gain_words,
    off_reason,
    savings,
    spark,
    verdict,
    why,
)
from specchat.tui.texts.figures import Figures
from specchat.tui.texts.strip_text import strip_line
from specchat.wording import answer_line
from tables import table
from timed_steps import timed


def stats(**fields: object) -> Statistics:
    """Return statistics of an answer that has begun."""
    usual = {"generated_tokens": 100, "decode_s": 1.0, "drafter": "model", "drafted": 80}
    speedup = fields.pop("speedup", 0.0)
    return Statistics(**usual | fields, step_times=timed(float(speedup)))  # type: ignore[arg-type]


@table(
    ("given", "words"),
    [
        ({"speculation_off_reason": "switched off"}, "Speculation is off: switched off."),
        ({"speedup": 2.0}, "Speculation helps: 2.0x faster ±0.1."),
        ({"speedup": 1.0}, "Speculation makes no difference here."),
        ({"speedup": 0.5}, "Speculation is slowing this answer down: 50 % slower ±2 %."),
        ({"drafted": 0, "draft_off_reason": "no draft"}, "No drafts: no draft."),
        ({"drafted": 0, "speedup": 0.8}, "Plain speed: no drafts so far."),
        ({"generated_tokens": 0}, ""),
    ],
)
def test_the_verdict_is_a_sentence(given: dict[str, object], words: str) -> None:
    """The sentence says whether speculation helps, and if not, why."""
    assert verdict(Figures(stats(**given))).startswith(words)


def test_short_drafts_are_explained_even_where_they_help() -> None:
    """They would help more with the whole target on the GPU."""
    reason = "checking 4 tokens costs 3.1x checking one, because 3 of 9 layers are on the CPU"
    helped = Figures(stats(speedup=2.0, short_drafts_reason=reason))
    assert why(helped) == f"Drafts are short: {reason}."
    assert f"Drafts are short: {reason}." in figure_texts(helped, None, 40)["speculation"].plain


def test_a_server_that_reports_no_drafts_is_not_called_plain() -> None:
    """It may draft all the same. The verdict names it; the strip says so once."""
    served = Figures(stats(drafted=0, served_by="LM Studio", unreported=("drafted",)))
    assert verdict(served) == "LM Studio has not reported any drafts."
    assert off_reason(served) == ""
    assert strip_line(served, 200).plain == "100.0 tokens/s · drafts not reported"
    reporting = Figures(stats(drafted=0, served_by="LM Studio"))
    assert off_reason(reporting) == "no drafts so far"
    assert off_reason(Figures(stats(speculation_off_reason="switched off"))).startswith("spec")


def test_a_slow_answer_is_called_slow() -> None:
    """Its own plain steps show it; within the error it is as fast."""
    slow = Figures(stats(speedup=0.5))
    assert (slow.tone, gain_words(slow)) == ("bad", "50 % slower")
    assert slow.gain.saved_s == pytest.approx(-2.0, rel=0.02)
    slow.compare({"speedup": 0.92, "speedup_error": 0.045})
    assert (slow.tone, gain_words(slow)) == ("", "same speed")
    slow.compare({"speedup": 0.9, "speedup_error": 0.03})
    assert (slow.tone, gain_words(slow)) == ("bad", "10 % slower")


def test_a_race_that_cannot_tell_leaves_no_estimate() -> None:
    """It knows better than the answer's own steps."""
    fast = Figures(stats(speedup=2.0))
    assert fast.speedup == pytest.approx(2.0, rel=0.02)
    fast.compare({"speedup": 0.0, "drafted": 8, "race": {"gain": {"kind": "measuring"}}})
    assert (fast.kind, fast.speedup, fast.gain.saved_s) == ("measuring", 0.0, 0.0)
    assert fast.rates_compared()[0] == 0.0


def test_the_seconds_saved_add_up() -> None:
    """This answer's, and those of today; those of ever where there are none of today."""
    fast = Figures(stats(speedup=2.0), saved_before=(60.0, 3600.0))
    assert savings(fast) == ["4.0 s saved", "saved today 1 min 4 s"]
    assert savings(Figures(stats(speedup=2.0))) == ["4.0 s saved"]
    assert savings(Figures(stats(speedup=1.0))) == []
    stored = Figures.stored({**stats(drafted=8).as_dict(), "speedup": 2.0, "counted_s": 3.0}, [])
    stored.saved_before = (0.0, 90.0)
    assert savings(stored) == ["3.0 s saved", "saved in all 1 min 30 s"]


def test_a_stored_answer_without_a_verdict_says_so() -> None:
    """It was too short, or the machine was busy; it is not measured any more."""
    stored = Figures.stored({**stats(drafted=8).as_dict(), "speedup": 0.0}, [])
    assert verdict(stored) == "Not enough to tell what speculation brought."
    assert stored.tone == ""
    stored.statistics.decode_s = 0.5
    assert verdict(stored) == "Too short to tell what speculation brought."


def test_a_measured_comparison_counts_more_than_an_estimate() -> None:
    """Once the same was decoded plainly, the speedup is against that."""
    figures = Figures(stats(speedup=2.0))
    figures.compare({"speedup": 1.25, "race": {"gain": {"kind": "faster"}}})

    assert figures.speedup == pytest.approx(1.25)
    assert figures.is_raced


def test_a_race_of_an_older_version_is_none() -> None:
    """It decoded another text: what is shown is an estimate, as it is where nothing was raced."""
    figures = Figures(stats(speedup=2.0))
    figures.compare({"speedup": 1.25, "speedup_source": "in the race", "race": {"prompt": "Hi"}})
    assert not figures.is_raced
    assert "≈" in strip_line(figures, 80).plain
    assert figure_texts(figures, None, 40)["speedup"].plain.endswith("estimated")


def test_the_gain_is_found_once_for_each_update(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it is read: it takes a median of all steps."""
    num_found = 0
    found = StepTimes.gain

    def counting(times: StepTimes) -> Gain:
        nonlocal num_found
        num_found += 1
        return found(times)

    monkeypatch.setattr(StepTimes, "gain", counting)
    figures = Figures()
    for _ in range(2):
        figures.add([], stats(speedup=2.0))
        figure_texts(figures, None, 40)
        strip_line(figures, 80)
        assert figures.tone == "good"
    assert num_found == 2


def test_small_pictures() -> None:
    """A line of characters shows values against their maximum."""
    assert spark([0.0, 0.5, 1.0, 2.0], 1.0) == "▁▅██"
    assert spark([], 0.0) == ""


def test_an_answers_line_tells_of_drafts_only_where_there_were_some() -> None:
    """Plainly decoded answers have no acceptance."""
    drafted = {**stats(accepted=40, steps=60).as_dict(), "speedup": 1.5}

    assert "accepted" in answer_line(drafted)
    assert "1.5x faster" in answer_line(drafted)
    assert "accepted" not in answer_line({**stats(drafted=0).as_dict(), "speedup": 1.0})
    assert answer_line({}) == ""


def test_what_was_read_again_is_below_the_prompt() -> None:
    """With the reason; of a stored answer, too."""
    given = stats(prompt_tokens=900, cached_tokens=300, read_again={"edited": 420, "forgotten": 50})
    for figures in (Figures(given), Figures.stored(given.as_dict(), [])):
        lines = figure_texts(figures, None, 40)["prompt"].plain.splitlines()
        assert lines[0].split() == ["prompt", "900", "tokens", "(300", "cached)"]
        assert lines[1:] == [
            "420 read again: the text before changed",
            "50 read again: no longer in memory",
        ]


@table(
    ("given", "words"),
    [
        ({"speedup": 2.0, "accepted": 40, "steps": 50}, ""),
        (
            {"speedup": 0.5, "accepted": 8, "steps": 80},
            "A pass took as long as 2.5 plain ones.",
        ),
        (
            {"speedup": 0.5, "accepted": 8, "steps": 20, "pass_costs": {1: 0.02, 5: 0.06}},
            "Checking 5 tokens costs 3.0x checking one.",
        ),
        (
            {"speedup": 1.0, "drafted": 10, "accepted": 8, "steps": 92},
            "Little was drafted: drafting more would not help.",
        ),
        (
            {"speedup": 2.0, "accepted": 40, "steps": 50, "repeated": 30},
            "The speedup leaves out 30 tokens that repeat a passage; what was accepted does not.",
        ),
    ],
)
def test_the_verdict_has_a_reason(given: dict[str, object], words: str) -> None:
    """It names what drafts cost where they do not help, and what was left out."""
    assert why(Figures(stats(**given))) == words
    assert why(Figures(stats(speedup=2.0, drafted=0))) == ""
