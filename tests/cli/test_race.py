"""`specchat race`, as people and scripts use it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from bench.race_script import race_of
from pseudo_terminal import on_terminal
from specchat.bench.race_record import Race
from specchat.cli import main
from tables import table

ROOT = Path(__file__).parents[2]
DEMO = ["race", "What is a draft model?", "--pair", "demo", "--threads", "1", "--ctx", "512"]


@pytest.mark.slow
def test_a_race_of_the_demo_pair(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With --json stdout has every step with its time; --save writes the same race."""
    path = tmp_path / "race.json"
    code = main([*DEMO, "--max-tokens", "24", "--json", "--save", str(path)])

    done = capsys.readouterr()
    record = json.loads(done.out)
    race = Race.of_record(record)
    assert code == 0
    assert race is not None
    assert json.loads(path.read_text("utf-8")) == record
    assert path.stat().st_mode & 0o777 == 0o600  # it holds the prompt
    assert f"saved to {path}" in done.err
    assert record["prompt"] == "What is a draft model?"
    assert len(record["plain"]["steps"]) == record["plain"]["stats"]["steps"]
    assert race.plain.num_tokens == race.speculative.num_tokens == 24
    assert race.plain.stats["drafted"] == 0
    for lane in race.lanes:
        times = [step.seconds for step in lane.steps]
        assert times == sorted(times)
        assert lane.tokens_per_second == pytest.approx(lane.stats["tokens_per_second"])


def test_without_a_terminal_the_result_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both rates and the speedup are on stdout, and nothing else."""
    monkeypatch.setattr("specchat.cli.race._run", lambda _: race_of())

    assert main(DEMO) == 0
    assert capsys.readouterr() == (race_of().summary() + "\n", "")


@table(
    ("more", "part"),
    [
        (["--drafter", "none"], "no race, because speculation is switched off"),
        (["--save", "race.jpg"], "must end in "),
        (["--save", "/nowhere/race.json"], "no folder"),
        (["--save", "none/race.svg"], "no folder"),
        (["--save", f"{'x' * 300}/race.svg"], "File name too long"),
        (["--save", "~nobody-here/race.svg"], "~nobody-here/race.svg: "),
        (["--max-tokens", "0"], "max-tokens"),
    ],
)
def test_what_cannot_be_raced_is_refused(
    more: list[str], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error is one line, before anything is loaded."""
    assert main([*DEMO, *more]) == 2

    error = capsys.readouterr().err
    assert part in error
    assert error.count("\n") == 1


@table("ending", [".png", ".gif"])
def test_without_pillow_the_error_names_the_command(
    ending: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is loaded."""
    monkeypatch.setattr("specchat.bench.race_raster.importlib.util.find_spec", lambda _: None)

    assert main([*DEMO, "--save", f"race{ending}"]) == 2
    error = capsys.readouterr().err
    assert f"{ending} needs Pillow: run `{sys.executable} -m pip install pillow`" in error
    assert error.count("\n") == 1


@pytest.mark.slow
def test_a_terminal_plays_the_race() -> None:
    """It is drawn on the second screen; the first one keeps the last moment and the result."""
    shown = on_terminal([*DEMO, "--max-tokens", "12", "--draft-length", "4"])

    play, _, end = shown.partition("\x1b[?1049l")
    assert "\x1b[?1049h" in play
    assert "tokens/s" in play
    assert "plain decoding" in end
    assert " · speculative " in end
