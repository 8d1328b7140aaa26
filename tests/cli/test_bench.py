"""`specchat bench`, as people and scripts use it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from bench.fake_engine import FakeEngine
from bench.race_script import race_of
from conftest import WriteModel
from in_process import say_here
from specchat.bench.race_record import Race
from specchat.bench.tasks import TASKS
from specchat.cli import main
from specchat.cli.arguments import BENCH_TASKS
from specchat.errors import EngineFailed
from specchat.requests.answer_request import AnswerRequest
from specchat.requests.answer_update import Update
from specchat.sharing import process_engine
from tables import table

ROOT = Path(__file__).parents[2]


def words(tiny: WriteModel, *more: str) -> list[str]:
    """Return a command line that measures a tiny pair."""
    pair = ["--target", str(tiny("llama")), "--draft", str(tiny("llama", "half right"))]
    return ["bench", *pair, "--threads", "1", *more]


def run(tiny: WriteModel, *more: str) -> subprocess.CompletedProcess[str]:
    """Run it to the end."""
    return say_here(*words(tiny, *more))


@pytest.mark.slow
def test_json_keeps_the_contract(tiny: WriteModel, tmp_path: Path) -> None:
    """The object has the machine and a record per answer with its speedup; the plot is written."""
    plot = tmp_path / "bench.svg"
    done = run(
        tiny, "--json", "--rounds", "1", "--max-tokens", "8", "--task", "chat", "--task", "json",
        "--plot", str(plot),
    )  # fmt: skip
    record = json.loads(done.stdout)

    assert (done.returncode, done.stderr) == (0, "")
    assert record["complete"]
    assert record["machine"]["processor"]
    assert record["machine"]["gpu"] == ""
    assert len(record["runs"]) == 8
    needed = {
        "drafter", "draft_length", "temperature", "prompt", "tokens_per_second", "speedup",
        "acceptance_rate", "tokens_per_step", "overhead_s", "speculation",
    }  # fmt: skip
    assert all(needed <= set(each) for each in record["runs"])
    assert {each["drafter"] for each in record["runs"]} == {"none", "auto"}
    assert all(r["speedup"] == 1.0 for r in record["runs"] if r["drafter"] == "none")
    assert set(record["speedup"]["tasks"]) == {"chat", "json"}
    assert all(t["low"] <= t["speedup"] <= t["high"] for t in record["speedup"]["tasks"].values())
    assert record["relative_pass_costs"]["1"] == 1.0
    assert (record["compared_at_temperature_0"], record["different_at_temperature_0"]) == (2, 0)
    texts = [element.text for element in ET.parse(plot).iter()]  # noqa: S314  # our own
    assert {"chat", "json", "speedup by task", "acceptance by draft position"} <= set(texts)


@pytest.mark.slow
def test_several_pairs_are_measured_and_saved_as_one_card(tmp_path: Path) -> None:
    """A table for each, one object a line with --json; the card has each race and benchmark."""
    card = tmp_path / "models.json"
    pairs = ["bench", "--pair", "demo", "--pair", "demo", "--ctx", "512", "--threads", "1"]
    short = ["--task", "chat", "--rounds", "1", "--temperature", "0", "--max-tokens", "8"]
    done = say_here(*pairs, *short, "--save", str(card))
    races = [Race.of_record(json.loads(line)) for line in card.read_text("utf-8").splitlines()]

    assert done.returncode == 0
    assert done.stdout.count("demo on ") == done.stdout.count("\nchat ") == 2
    assert f"saved to {card}" in done.stderr
    assert len(races) == 2
    for race in races:
        assert race is not None
        assert race.prompt == TASKS[0].prompts[0][0]
        assert race.plain.num_tokens == 8
        assert race.benchmark.startswith("whole benchmark, 1 answer: ")
    records = say_here(*pairs, *short, "--json").stdout.splitlines()
    assert [set(json.loads(each)) >= {"machine", "runs"} for each in records] == [True, True]


def test_a_pair_that_cannot_be_raced_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line says why; without any race there is no card, and that is a failure."""
    engine = FakeEngine()
    engine.facts = replace(engine.facts, speculation_off_reason="no memory to roll back")
    monkeypatch.setattr("specchat.cli.bench.open_answerer", lambda *_: nullcontext(engine))
    card = tmp_path / "models.svg"
    short = ["--task", "chat", "--rounds", "1", "--temperature", "0"]

    assert main(["bench", "--pair", "demo", *short, "--save", str(card)]) == 1
    error = capsys.readouterr().err
    assert "demo is not on the card: no race: this pair cannot speculate" in error
    assert "models.svg was not saved" in error
    assert not card.exists()


@pytest.mark.parametrize(("end", "code"), [(EngineFailed("gone"), 1), (KeyboardInterrupt(), 130)])
def test_what_ends_a_later_pair_takes_nothing_back(
    end: BaseException, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """The card has the first pair's race, and its answers are not measured again."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (prompts := tmp_path / "prompts.jsonl").write_text(
        '{"category": "chat", "turns": ["Hi"]}\n', "utf-8"
    )
    ends: list[BaseException | None] = [None, end]
    engines = list[FakeEngine]()

    @contextmanager
    def opened(*_: object) -> Iterator[FakeEngine]:
        if error := ends.pop(0):
            raise error
        engines.append(FakeEngine())
        yield engines[-1]

    monkeypatch.setattr("specchat.cli.bench.open_answerer", opened)
    monkeypatch.setattr("specchat.cli.bench.run_race", lambda *_: race_of())
    card = tmp_path / "models.json"
    command = ["bench", *("--pair", "demo") * 2, "--spec-bench", str(prompts), "--save", str(card)]

    assert main(command) == code
    shown = capsys.readouterr()
    assert "\nchat " in shown.out
    assert f"saved to {card}\nthe same command continues where this was stopped\n" in shown.err
    (line,) = card.read_text("utf-8").splitlines()
    assert Race.of_record(json.loads(line))

    ends += [None, None]
    assert main(command) == 0
    shown = capsys.readouterr()
    assert "resuming after 1 comparisons" in shown.err
    assert [len(engine.asked) for engine in engines] == [3, 1, 1]
    assert len(card.read_text("utf-8").splitlines()) == 2
    assert not list((tmp_path / "state").rglob("*.jsonl"))


def test_a_card_is_of_pairs_on_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    """It is refused before anything is asked of the server."""
    assert main(["bench", "--connect", "http://127.0.0.1:9", "--save", "models.svg"]) == 2
    assert "--save races pairs on this machine" in capsys.readouterr().err


def test_a_chart_is_of_one_pair(capsys: pytest.CaptureFixture[str]) -> None:
    """The error says what draws several."""
    assert main(["bench", "--pair", "demo", "--pair", "demo", "--plot", "bench.svg"]) == 2
    assert "use --save" in capsys.readouterr().err


@pytest.mark.slow
def test_the_table_names_the_drafters(tiny: WriteModel) -> None:
    """The table has a row per task and temperature; the conclusions name the drafters."""
    done = run(tiny, "--rounds", "1", "--max-tokens", "8", "--task", "code", "--temperature", "0")

    assert done.returncode == 0
    assert "code" in done.stdout
    assert "95 % interval" in done.stdout
    assert "a single answer has no interval: use --rounds 2 or more" in done.stdout
    assert "temperature 0: 0 of 1 answers differ" in done.stdout
    assert "prompts, not counted above: " in done.stdout
    assert "speculation by suffix and model: " in done.stdout


ANNOUNCING = """
import sys
from specchat.cli import bench, main

def announcing(*arguments, **options):
    for state in measure(*arguments, **options):
        if len(state.runs) == 2:
            print("compared", flush=True)
        yield state

if __name__ == "__main__":
    measure, bench.measure = bench.measure, announcing
    raise SystemExit(main())
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent otherwise there")
def test_an_interrupt_keeps_the_results(tiny: WriteModel) -> None:
    """Ctrl+C ends the answer in progress and prints the table so far, with exit code 130."""
    command = words(tiny, "--rounds", "400", "--max-tokens", "60", "--task", "chat")
    process = subprocess.Popen(
        [sys.executable, "-c", ANNOUNCING, *command],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "compared\n"
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=30)

    assert (process.returncode, stderr) == (130, "")
    assert "stopped early" in stdout
    assert "chat" in stdout


class Interrupted(FakeEngine):
    """Raises KeyboardInterrupt in an answer, as a second Ctrl+C does."""

    def __init__(self, at: int) -> None:
        """Store the number of the interrupted answer; the first one is the warm-up."""
        super().__init__()
        self._at = at

    def begin(self, request: AnswerRequest) -> Generator[Update]:
        """Answer, or raise KeyboardInterrupt."""
        if len(self.asked) == self._at:
            raise KeyboardInterrupt
        return super().begin(request)


@pytest.mark.parametrize("at", [0, 1, 2])
def test_an_interrupt_before_a_comparison_prints_no_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], at: int
) -> None:
    """The exit code is 130, and one line on stderr says what happened."""
    monkeypatch.setattr(process_engine, "ProcessEngine", lambda *_, **__: Interrupted(at))

    assert main(["bench", "--task", "chat"]) == 130
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("interrupted before anything was compared")
    assert shown.err.count("\n") == 1


def test_a_second_interrupt_keeps_the_results_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The speedup of the one comparison made so far is printed."""
    monkeypatch.setattr(process_engine, "ProcessEngine", lambda *_, **__: Interrupted(3))

    assert main(["bench", "--task", "chat", "--temperature", "0"]) == 130
    out = capsys.readouterr().out
    assert re.search(r"^overall +10\.0 +15\.0 +1\.50x faster ", out, re.MULTILINE)
    assert "stopped early" in out


@pytest.mark.slow
def test_a_prompt_that_does_not_fit_is_skipped_with_a_line(tiny: WriteModel) -> None:
    """The other tasks are measured, and the exit code is 0."""
    done = run(
        tiny, "--ctx", "256", "--rounds", "1", "--max-tokens", "4", "--temperature", "0",
        "--task", "chat", "--task", "edit",
    )  # fmt: skip

    assert done.returncode == 0
    assert done.stdout.count("skipped edit: the prompt has") == 1
    assert "\nchat " in done.stdout


def test_the_command_line_names_every_task() -> None:
    """The parser has its own list, so that --help does not read the tasks."""
    assert [task.name for task in TASKS] == BENCH_TASKS


@pytest.mark.slow
@table(
    ("more", "part"),
    [
        (["--rounds", "0"], "--rounds must be"),
        (["--drafter", "none"], "plain decoding is always measured"),
        (["--temperature", "-1"], "--temperature must be"),
        (["--plot", "bench.png"], "must end in .svg"),
        (["--save", "bench.jpg"], "must end in .svg, .png, .gif"),
        (["--save", "/nowhere/bench.svg"], "no folder"),
        (["--plot", "/nowhere/bench.svg"], "no folder"),
        (["--max-tokens", "0"], "--max-tokens must be"),
        (["--limit", "6"], "--limit samples the prompts of --spec-bench FILE"),
        (["--spec-bench", "none.jsonl"], "none.jsonl is not a file: get question.jsonl from"),
        (["--spec-bench", "x", "--rounds", "2"], "leave --rounds out"),
        (["--spec-bench", "x", "--task", "chat"], "leave --task out"),
    ],
)
def test_what_cannot_be_measured_is_refused(tiny: WriteModel, more: list[str], part: str) -> None:
    """The error is one line, before anything is loaded."""
    done = run(tiny, *more)

    assert done.returncode == 2
    assert part in done.stderr
    assert done.stderr.count("\n") == 1
