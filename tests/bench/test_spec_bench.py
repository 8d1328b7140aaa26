"""Spec-Bench: its file, its conversations, and that a measurement continues where it stopped."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.fake_engine import FakeEngine
from conftest import WriteModel
from in_process import say_here
from specchat.bench.measurement import BenchmarkPlan, measure
from specchat.bench.results import Arm, Results
from specchat.bench.spec_bench import LARGEST_FILE, read_spec_bench
from specchat.bench.tasks import Task
from specchat.cli import main
from specchat.decoding.statistics import Statistics
from specchat.engine.api import Engine
from specchat.errors import InvalidOption
from specchat.requests.answer_request import AnswerRequest
from specchat.requests.answer_update import Update
from specchat.sharing import process_engine
from specchat.system.private_files import FOLDERS
from tables import table

CATEGORIES = ("writing", "coding", "translation", "qa")


def write_questions(path: Path, rounds: int = 2, **more: Any) -> Path:
    """Write a file with `rounds` questions of each category; those of MT-bench have two turns."""
    questions = [
        {
            "question_id": 81 + number,
            "category": category,
            "turns": [f"{category} {number}", "again"][: 1 + (category in {"writing", "coding"})],
            **more,
        }
        for category in CATEGORIES
        for number in range(rounds)
    ]
    path.write_text("".join(json.dumps(each) + "\n" for each in questions), "utf-8")
    return path


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    """Return a small file in Spec-Bench's format."""
    return write_questions(tmp_path / "question.jsonl", reference=["not used"])


def test_the_categories_of_mt_bench_are_one_task(questions: Path) -> None:
    """The tasks have Spec-Bench's names and order, and each prompt once with all its turns."""
    tasks = read_spec_bench(questions)

    assert [task.name for task in tasks] == ["mt_bench", "translation", "qa"]
    assert sorted(tasks[0].prompts) == [
        ("coding 0", "again"), ("coding 1", "again"), ("writing 0", "again"), ("writing 1", "again")
    ]  # fmt: skip
    assert sorted(tasks[2].prompts) == [("qa 0",), ("qa 1",)]


@table(("limit", "sizes"), [(1, [1]), (3, [1, 1, 1]), (7, [3, 2, 2]), (100, [4, 2, 2])])
def test_a_sample_takes_evenly_of_all_tasks(questions: Path, limit: int, sizes: list[int]) -> None:
    """A sample is the same each time, and its prompts are the first ones of larger samples."""
    sample, whole = read_spec_bench(questions, limit), read_spec_bench(questions)

    assert [len(task.prompts) for task in sample] == sizes
    assert sample == read_spec_bench(questions, limit)
    for part, all_of_it in zip(sample, whole, strict=False):
        assert part.prompts == all_of_it.prompts[: len(part.prompts)]


def test_a_sample_does_not_follow_the_order_of_the_file(tmp_path: Path) -> None:
    """MT-bench's categories stand in blocks: the first prompts of a task would be of one."""
    task, *_ = read_spec_bench(write_questions(tmp_path / "many.jsonl", 40), 60)

    assert 5 <= sum(prompt[0].startswith("writing") for prompt in task.prompts) <= 15


@table(
    ("content", "part"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (b"{", "line 1 is not a prompt"),
        (b"[]", "line 1 is not a prompt"),
        (b'{"category": "qa"}', "missing required field `turns`"),
        (b'{"turns": ["a"]}', "missing required field `category`"),
        (b'{"category": "qa", "turns": []}', "line 1 is not a prompt"),
        (b'{"category": "qa", "turns": [""]}', "line 1 is not a prompt"),
        (b'{"category": "qa", "turns": [1]}', "line 1 is not a prompt"),
        (b'{"category": "qa", "turns": "a"}', "line 1 is not a prompt"),
        (b'{"category": 1, "turns": ["a"]}', "line 1 is not a prompt"),
        (b'{"category": "' + b"a" * 41 + b'", "turns": ["a"]}', "line 1 is not a prompt"),
        (b'{"category": "qa", "turns": ["a"]}\n\xff', "line 2 is not a prompt"),
        (b'{"category": "qa", "turns": ["\\ud800"]}', "line 1 is not a prompt"),
        (b'{"category": "qa", "turns": ["\xff"]}', "line 1 is not a prompt"),
        (b'{"category": "qa", "turns": ' + b"[" * 100_000, "line 1 is not a prompt"),
        (b" " * (LARGEST_FILE + 1), "is larger than 16 MiB"),
    ],
)  # fmt: skip
def test_a_broken_file_is_refused_in_one_line(tmp_path: Path, content: bytes, part: str) -> None:
    """The error names the file and the line."""
    path = tmp_path / "question.jsonl"
    path.write_bytes(content)

    with pytest.raises(InvalidOption) as raised:
        read_spec_bench(path)
    assert str(raised.value).startswith(str(path))
    assert part in str(raised.value)
    assert "\n" not in str(raised.value)


class Counting(FakeEngine):
    """Every step of "auto" emits 1.5 tokens; KeyboardInterrupt comes after some answers."""

    def __init__(self, interrupted_after: int = 1000) -> None:
        """Store the number of answers, the warm-up among them."""
        super().__init__(has_chat_template=True)
        self._last = interrupted_after

    def begin(self, request: AnswerRequest) -> Generator[Update]:
        """Answer, or raise KeyboardInterrupt."""
        if len(self.asked) == self._last:
            raise KeyboardInterrupt
        for update in super().begin(request):
            steps = 3 if request.drafter == "none" else 2
            counted = Statistics(
                prompt_tokens=10, prompt_s=1.0, generated_tokens=3, steps=steps,
                decode_s=update.statistics.decode_s,
            )  # fmt: skip
            yield replace(update, statistics=counted)


def measured(engine: Engine, *tasks: Task) -> Results:
    """Measure each prompt once."""
    plan = BenchmarkPlan([Arm()], tasks, [0.0], None, 3, ends_answers=True)
    return list(measure(engine, plan, lambda *_: None))[-1]


def test_a_conversation_is_measured_as_a_whole() -> None:
    """The second turn follows the first one's answer, from the cache; the figures are sums."""
    engine = Counting()
    results = measured(engine, Task("mt_bench", (("first", "second"),)))

    assert engine.forgotten == [1, 3]
    assert engine.messages[1:3] == [
        [{"role": "user", "content": "first"}],
        [
            {"role": "user", "content": "first"},
            {"role": "assistant", "content": "abc"},
            {"role": "user", "content": "second"},
        ],
    ]
    assert len(results.runs) == 2
    run = next(results.of(Arm()))
    assert run.prompt == "first\n\nsecond"
    assert run.tokens == (1, 2, 3, 1, 2, 3)
    assert run.stats["generated_tokens"] == 6
    assert run.tokens_per_second == pytest.approx(15.0)
    assert results.prompt_rate() == 10.0


def test_answers_end_where_the_model_ends_them() -> None:
    """Text after the end is nobody's answer; each prompt is asked once, in tasks of any size."""
    engine = Counting()
    results = measured(engine, Task("qa", (("a",), ("b",), ("c",))), Task("rag", (("d",),)))

    assert not any("ignore_end" in each for each in engine.options[1:])
    asked = [prompt for prompt, *_ in engine.asked[1:]]
    assert asked == ["a", "a", "d", "d", "b", "b", "c", "c"]
    assert results.is_complete


def test_prompts_that_are_too_long_are_one_line_per_task() -> None:
    """The line has the first prompt's reason and how many there are."""
    engine = FakeEngine(too_long="long", has_chat_template=True)
    tasks = Task("qa", (("long",), ("long",), ("a", "long"))), Task("rag", (("b",),))
    results = measured(engine, *tasks)

    assert results.skipped == ["qa: too long (prompts left out: 3)"]
    assert {run.task for run in results.runs} == {"rag"}


Bench = Callable[..., int]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, questions: Path, tmp_path: Path) -> Bench:
    """Return a function that runs the command with an engine."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def run(engine: Engine, *more: str) -> int:
        monkeypatch.setattr(process_engine, "ProcessEngine", lambda *_, **__: engine)
        return main(["bench", "--spec-bench", str(questions), *more])

    return run


def test_the_table_has_the_tasks_and_the_whole_last(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    """Mean accepted tokens count the target's own, as Spec-Bench does: 3 tokens in 2 passes."""
    assert bench(Counting()) == 0

    lines = capsys.readouterr().out.splitlines()
    names = [line.split()[0] for line in lines[2:7]]
    assert names == ["task", "mt_bench", "translation", "qa", "overall"]
    assert lines[6].split()[1:5] == ["10.0", "15.0", "1.50x", "faster"]
    assert lines[6].split()[-1] == "1.50"


def test_json_has_the_mean_accepted_tokens(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are there for all tasks together and for each."""
    assert bench(Counting(), "--json", "--limit", "3") == 0

    record = json.loads(capsys.readouterr().out)
    tasks = dict.fromkeys(("mt_bench", "translation", "qa"), 1.5)
    assert record["tokens_per_step"] == {"all": 1.5, "tasks": tasks}
    assert len(record["runs"]) == 6


def test_what_was_compared_is_not_measured_again(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    """Interrupted within a comparison, the command measures the whole comparison again."""
    assert bench(Counting(interrupted_after=6), "--json") == 130  # within the second prompt
    first = capsys.readouterr()
    assert "the same command continues" in first.err
    again = Counting()
    assert bench(again, "--json") == 0
    second = capsys.readouterr()

    assert "resuming after 1 comparisons; to begin anew, delete " in second.err
    before, after = json.loads(first.out)["runs"], json.loads(second.out)["runs"]
    assert after[:2] == before[:2]
    assert len(after) == 16
    assert len([prompt for prompt, *_ in again.asked[1:]]) == 2 * (8 + 4) - 4


def test_a_finished_benchmark_begins_anew(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is kept of it, nor for other options."""
    assert bench(Counting(interrupted_after=6)) == 130
    others = Counting()
    assert bench(others, "--draft-length", "3") == 0
    assert len(others.asked) == 1 + 2 * 12
    for num_asked in (1 + 2 * 12 - 4, 1 + 2 * 12):
        engine = Counting()
        assert bench(engine) == 0
        assert len(engine.asked) == num_asked
    assert "resuming after 1 comparisons" in capsys.readouterr().err


def test_a_damaged_line_is_measured_again(bench: Bench) -> None:
    """A crash may cut the last line; the next answers go on new lines."""
    assert bench(Counting(interrupted_after=6)) == 130
    (path,) = (FOLDERS.user_state_path / "bench").iterdir()
    path.write_bytes(path.read_bytes()[:-20] + b"\n[]\n{")
    assert bench(Counting(interrupted_after=12)) == 130
    engine = Counting()
    assert bench(engine) == 0

    assert len(engine.asked) < 1 + 2 * 12


@pytest.mark.slow
def test_a_real_pair_is_measured(tiny: WriteModel, questions: Path) -> None:
    """Every answer of a tiny pair is that of plain decoding, in conversations too."""
    done = say_here(
        "bench", "--target", str(tiny("llama")), "--draft", str(tiny("llama", "half right")),
        "--threads", "1", "--draft-length", "3", "--max-tokens", "8",
        "--spec-bench", str(questions), "--json",
    )  # fmt: skip
    record = json.loads(done.stdout)

    assert (done.returncode, done.stderr) == (0, "")
    assert (record["compared_at_temperature_0"], record["different_at_temperature_0"]) == (8, 0)
    assert set(record["tokens_per_step"]["tasks"]) == {"mt_bench", "translation", "qa"}
    assert record["tokens_per_step"]["all"] > 1.0
