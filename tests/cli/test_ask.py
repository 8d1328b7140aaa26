"""`specchat ask` and `specchat check`, as people and scripts use them."""

from __future__ import annotations

import argparse
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from conftest import WriteModel
from in_process import on_terminal_here
from in_process import run_here as run
from pseudo_terminal import on_terminal
from scripts.support.tiny_gguf import write_model, write_with_head
from specchat.catalogue.catalogue_file import TRIAL, load_entries
from specchat.catalogue.fit import recommend
from specchat.cli import check, main, pass_measuring
from specchat.cli.ask import AnswerPainter
from specchat.cli.pass_measuring import measure_unknown
from specchat.decoding.request import Request
from specchat.decoding.verification import Verdict
from specchat.engine import loader as loading
from specchat.engine.api import Engine
from specchat.engine.local_engine import LocalEngine
from specchat.gguf.reader import read_header
from specchat.passes import exactness_measurement
from specchat.planning.context_shape import ContextShape
from specchat.planning.device import Device, find_machine
from specchat.planning.memory import Sizes, devices_of_layers
from specchat.requests.progress import Stage
from specchat.safe_text import harmless
from specchat.sharing import process_engine
from specchat.sharing.engine_process import start_process
from tables import table

ROOT = Path(__file__).parents[2]
FAST = ["--threads", "1", "--ctx", "512"]


@pytest.fixture(scope="module")
def pair(tiny: WriteModel) -> list[str]:
    """Return the options that name a tiny pair."""
    return ["--target", str(tiny("llama")), "--draft", str(tiny("llama", "half right")), *FAST]


@pytest.mark.slow
def test_checking_without_a_draft_is_refused(pair: list[str]) -> None:
    """A draft length of 0 is a usage error; the JSON has no NaN or infinity."""
    done = run("check", *pair, "--draft-length", "0")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"drafts nothing to check" in done.stderr
    done = run("check", *pair, "--max-tokens", "8", "--json")
    findings = json.loads(done.stdout, parse_constant=pytest.fail)["findings"]
    assert all(finding["drafted"] for finding in findings)


@pytest.mark.slow
def test_a_prediction_head_is_refused_in_one_line(tmp_path: Path) -> None:
    """llama.cpp would crash on it as a target; as a draft it is used where it fits."""
    head = write_model(tmp_path / "mtp.gguf", "qwen35", is_head_only=True)
    done = run("ask", "hi", "--target", head, *FAST)

    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.count(b"\n") == 1
    assert b"mtp.gguf holds only a prediction head, not a whole model" in done.stderr


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("drafter", "parts", "reason"),
    [
        ("model", ("whole",), "no draft model is loaded"),
        ("model", ("trunk", "head"), "no draft model is loaded"),
        ("head", ("trunk",), "tiny qwen35 trunk 0 has no prediction head"),
    ],
)
def test_a_drafter_without_its_model_is_refused_in_one_line(
    tmp_path: Path, drafter: str, parts: tuple[str, ...], reason: str
) -> None:
    """A head is not a draft model; nothing is decoded without drafts where one was named."""
    files = [write_with_head(tmp_path / f"{part}.gguf", part=part) for part in parts]
    named = [word for each in zip(("--target", "--draft"), files, strict=False) for word in each]
    done = run("ask", "hi", *named, "--drafter", drafter, *FAST)

    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode() == (
        f"specchat: drafter '{drafter}' cannot work here, {reason}: name another draft with"
        " --draft FILE, or choose --drafter auto\n"
    )


@pytest.mark.slow
def test_errors_are_reported_without_numpy() -> None:
    """Reporting an error does not import NumPy, which might be what is broken."""
    script = (
        "import sys; sys.modules['numpy'] = None\n"
        "from specchat.cli import main\n"
        "sys.exit(main(['ask', 'hi', '--target', 'none.gguf']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=ROOT
    )

    assert done.returncode == 1
    assert done.stderr.startswith("specchat: ")
    assert done.stderr.count("\n") == 1


def test_windows_line_ends_are_line_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if both characters come in separate pieces; a lone carriage return is replaced."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    painter = AnswerPainter(argparse.Namespace(show_drafts=False, show_reasoning=False))
    shown = "".join(map(painter._shown, ["a\r\nb\r", "\nc\r", "d"]))

    assert shown == "a\nb\nc\ufffdd"


def test_json_is_the_contract(pair: list[str]) -> None:
    """Stdout has one object with exactly the fields of the contract."""
    done = run("ask", "hi", *pair, "--json", "--temperature", "0", "--max-tokens", "20")

    answer = json.loads(done.stdout)
    assert list(answer) == [
        "text", "reasoning", "tool_calls", "tokens", "finish", "model", "drafter", "speculation",
        "stats",
    ]  # fmt: skip
    assert answer["speculation"]["on"]
    assert answer["speculation"]["draft_length"] == "auto"
    assert list(answer["model"]) == ["target", "draft"]
    assert answer["drafter"] == "suffix+model"
    assert answer["finish"] == "length"
    assert len(answer["tokens"]) == 20 == answer["stats"]["generated_tokens"]
    assert sum(answer["stats"]["acceptance_histogram"]) == answer["stats"]["steps"]
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.slow
def test_text_goes_to_stdout_and_ends_with_a_newline(pair: list[str]) -> None:
    """The same seed gives the same text, and without a terminal stderr stays empty."""
    words = ["ask", "hello", "there", *pair, "--seed", "3", "--max-tokens", "12"]
    first, second = run(*words), run(*words)

    assert first.stdout == second.stdout
    assert first.stdout.endswith(b"\n")
    assert (first.returncode, first.stderr) == (0, b"")


def prompt_tokens(done: subprocess.CompletedProcess[bytes]) -> int:
    """Return the number of prompt tokens."""
    return int(json.loads(done.stdout)["stats"]["prompt_tokens"])


def test_standard_input_is_added_to_the_prompt(pair: list[str]) -> None:
    """Standard input follows the words, or is the prompt; --raw leaves the template out."""
    words = [*pair, "--json", "--max-tokens", "1"]
    piped = prompt_tokens(run("ask", *words, stdin=b"twelve bytes"))
    both = prompt_tokens(run("ask", "say", *words, stdin=b"twelve bytes"))
    raw = prompt_tokens(run("ask", "--raw", *words, stdin=b"twelve bytes"))

    assert both > piped > raw
    assert raw <= 12


def test_a_missing_question_is_a_usage_error(pair: list[str]) -> None:
    """The error says how to give one."""
    done = run("ask", *pair, stdin=b"")

    assert done.returncode == 2
    assert done.stderr.startswith(b"specchat: no question given")


BAD = [
    (["--target", "none.gguf"], 1, "no such file"),
    (["--target", "README.md"], 1, "not a GGUF file"),
    (["--target", "specchat"], 1, "folder"),
    (["--pair", "nonsense"], 1, "no pair named"),
    (["--temperature", "-1"], 2, "temperature"),
    (["--top-p", "2"], 2, "--top-p must"),
    (["--draft-length", "99"], 2, "--draft-length must"),
    (["--max-tokens", "0"], 2, "--max-tokens must"),
    (["--ctx", "-5", "--target", "TINY"], 2, "ctx"),
    (["--threads", "0", "--target", "TINY"], 2, "threads"),
    (["--cache-type", "q3", "--target", "TINY"], 2, "--cache-type must be one of auto"),
    (["--drafter", "model", "--target", "TINY"], 2, "no draft model"),
    (["--target", "TINY", "--draft", "UNFIT"], 1, "does not fit"),
    (["--target", "TINY", "--pair", "demo"], 2, "--pair and --target"),
    (["--target", "TINY", "--ctx", "40", "--system", "many words " * 30], 1, "context holds"),
]


@pytest.mark.slow(keep=5)
@pytest.mark.parametrize(("words", "code", "part"), BAD, ids=lambda value: str(value)[:40])
def test_bad_input_is_one_clear_line(
    tiny: WriteModel,
    words: list[str],
    code: int,
    part: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The error names the cause on one line of stderr, with the right exit code."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "stdin", None)
    files = {"TINY": str(tiny("llama")), "UNFIT": str(tiny("llama", tokenizer=False))}
    exit_code = main(["ask", "hi", *[files.get(word, word) for word in words]])

    shown = capsys.readouterr()
    lines = shown.err.splitlines()
    assert (exit_code, len(lines)) == (code, 1)
    assert lines[0].startswith("specchat: ")
    assert part in lines[0]
    assert shown.out == ""


@table(
    ("words", "part"),
    [
        (["demo"], "no command 'demo': a model is named by --pair NAME or --target FILE; see "),
        (["sevre"], "no command 'sevre' (did you mean serve?); see specchat --help"),
        (["chat", "demo"], "unexpected argument 'demo': a model is named by --pair NAME or "),
        (["ask", "hi", "--bogus"], "unknown option --bogus; see specchat ask --help"),
        (
            ["ask", "hi", "--temperatrue=1"],
            "unknown option --temperatrue (did you mean --temperature?)",
        ),
        (
            ["--offlin3"],
            "unknown option --offlin3 (did you mean --offline?); see specchat chat --help",
        ),
        (
            ["ask", "hi", "--temperature", "warm"],
            '--temperature must be a number of at least 0, not "warm"',
        ),
        (["history", "show"], "required: ID; see specchat history show --help"),
        (["ask", "hi", "--\x1b[31m"], "unknown option --"),
        (
            ["show", "one", "\x1b[31mtwo"],
            "unexpected argument '\\x1b[31mtwo'; see specchat show --help",
        ),
    ],
)
def test_usage_errors_are_one_line(
    words: list[str], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line names the argument, the closest option and the help to read."""
    code = main(words)

    said = capsys.readouterr().err
    assert (code, said.count("\n")) == (2, 1)
    assert said.startswith("specchat: ")
    assert part in said
    assert said.rstrip("\n").isprintable()


def test_ctrl_c_keeps_the_partial_answer(tiny: WriteModel) -> None:
    """The first Ctrl+C ends the answer; its text stays, and the exit code is 130."""
    target = str(tiny("llama", context_length=100_000))
    words = ["--target", target, "--threads", "1", "--ctx", "100000", "--seed", "1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "specchat", "ask", "hi", *words],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT,
    )  # fmt: skip
    assert process.stdout is not None
    said = process.stdout.read(30)
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=60)

    assert process.returncode == 130
    assert (said + rest).endswith(b"\n")
    assert errors == b""


@pytest.mark.slow
def test_an_interrupted_answer_is_still_json(tiny: WriteModel) -> None:
    """The object has what was decoded, with finish "cancelled"."""
    words = ["--target", str(tiny("llama")), "--threads", "1", "--ctx", "100000", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-c", ANNOUNCING, "ask", "hi", *words],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)

    assert process.returncode == 130
    if out:  # otherwise the machine was too slow to begin within the time
        assert json.loads(out)["finish"] == "cancelled"


ANNOUNCING = """
import specchat.cli.ask
from specchat import cli

def announcing():
    print("up", flush=True)
    prepare_streams()

if __name__ == "__main__":
    prepare_streams, cli._prepare_streams = cli._prepare_streams, announcing
    raise SystemExit(cli.main())
"""


@pytest.mark.slow
@table("delay", [0.0, 0.05, 0.15, 0.3, 0.5])
def test_ctrl_c_at_any_moment_is_clean(tiny: WriteModel, delay: float) -> None:
    """While starting, loading or answering there is no traceback, and the exit code is 130."""
    words = ["ask", "hi", "--target", str(tiny("llama")), "--threads", "1", "--ctx", "100000"]
    process = subprocess.Popen(
        [sys.executable, "-c", ANNOUNCING, *words],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT,
        start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    time.sleep(delay)
    os.killpg(process.pid, signal.SIGINT)
    try:
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()  # else it would go on for long, and slow all others down

    assert b"Traceback" not in errors
    assert process.returncode in {130, -signal.SIGINT}


@pytest.mark.slow
def test_a_closed_or_full_stdout_is_no_traceback(pair: list[str]) -> None:
    """A closed pipe ends the command quietly; a full disk is an error on one line."""
    command = f"{sys.executable} -m specchat ask hi {' '.join(pair)} --max-tokens 200 --seed 1"
    shell = {"shell": True, "cwd": ROOT, "capture_output": True, "stdin": subprocess.DEVNULL}
    closed: Any = subprocess.run(f"{command} | head -c 1", check=False, **shell)  # type: ignore[call-overload]
    full: Any = subprocess.run(f"{command} > /dev/full", check=False, **shell)  # type: ignore[call-overload]

    assert closed.stderr == b""
    assert full.returncode == 1
    assert len(full.stderr.splitlines()) == 1


@pytest.mark.slow
def test_a_terminal_sees_drafts_and_statistics(pair: list[str]) -> None:
    """Accepted draft tokens are coloured, and a line of statistics follows the answer."""
    words = ["ask", "hi", *pair, "--temperature", "0", "--max-tokens", "40", "--draft-length", "3"]

    coloured = on_terminal([*words, "--show-drafts"])
    plain = on_terminal([*words, "--show-drafts"], NO_COLOR="1")

    assert "\x1b[32m" in coloured
    assert "draft tokens accepted" in coloured
    assert "\x1b[32m" not in plain
    assert "\x1b[4m" in plain


@pytest.mark.slow
def test_a_terminal_names_the_pairs_to_begin_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two lines after the demo pair's answer, and a key for each; none for scripts, or if off."""
    for name in ("CONFIG", "CACHE", "STATE", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))
    monkeypatch.delenv("HF_HOME", raising=False)
    words = ["ask", "hi", *FAST, "--max-tokens", "3"]

    text = on_terminal_here(words, key="\x1b[A")  # an arrow key chooses nothing
    shown = text.replace("\x1b[K", "").splitlines()
    named = [line for line in shown if "specchat pull " in line]
    assert shown[-1 - len(named) : -1] == named
    assert "downloads it now, any other key quits: " in shown[-1]
    assert named[-1].endswith("98.4 MB, to try things out")
    best = recommend(load_entries().values(), find_machine())
    if best and best.name != TRIAL:  # as on any machine with a few GB of free memory
        assert named[0].startswith(f"1  specchat pull {best.name} ")
        assert named[0].endswith("recommended for this machine")
    pulled = on_terminal_here(words, key=str(len(named)), HF_HUB_OFFLINE="1").splitlines()
    assert "offline" in pulled[-1]
    assert TRIAL in pulled[-1] or "SmolLM2" in pulled[-1]
    assert "specchat pull" not in on_terminal_here([*words, "--json"])
    assert "specchat pull" not in on_terminal_here(words, SPECCHAT_SCREEN_OFFER_MODELS="false")
    piped = run(*words)
    assert (piped.returncode, piped.stderr) == (0, b"")
    assert b"specchat pull" not in piped.stdout


@pytest.mark.slow
def test_a_terminal_shows_why_there_is_no_speculation(tiny: WriteModel) -> None:
    """Without a draft model the reason follows the answer."""
    words = ["ask", "hi", "--target", str(tiny("llama")), *FAST, "--max-tokens", "3"]

    assert "by suffix" in (said := on_terminal_here(words))
    assert "no draft model is loaded" in said
    assert "speculation is off: switched off" in on_terminal_here([*words, "--drafter", "none"])


def test_a_smaller_context_is_reported_on_stderr(
    tiny: WriteModel, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If memory is short, stderr says so and stdout has only the answer."""
    path = tiny("llama", context_length=8192)
    sizes = Sizes(read_header(path))
    (need,) = sizes.needs(ContextShape(4096), devices_of_layers(sizes.num_layers, 0, ()))
    machine = Device("CPU", "a processor", "cpu", need.total + need.cache // 4, 0)
    monkeypatch.setattr(loading, "list_devices", lambda: [machine])
    monkeypatch.setattr(process_engine, "ProcessEngine", LocalEngine)
    monkeypatch.setattr(sys, "stdin", None)

    words = ["ask", "the", "--raw", "--target", str(path), "--threads", "1", "--json"]
    code = main([*words, "--max-tokens", "4"])

    shown = capsys.readouterr()
    assert code == 0
    assert shown.err.startswith("memory is short: the context holds ")
    assert shown.err.endswith(" tokens instead of 8192\n")
    assert json.loads(shown.out)["finish"] == "length"


@pytest.mark.slow
def test_options_for_gpus_reach_the_engine(pair: list[str]) -> None:
    """Without a GPU they change nothing; a wrong value is a usage error with an example."""
    done = run(
        "ask", "the", *pair, "--json", "--gpu-layers", "3", "--draft-gpu-layers", "2",
        "--tensor-split", "3,1", "--max-tokens", "4",
    )  # fmt: skip
    assert json.loads(done.stdout)["stats"]["generated_tokens"] == 4
    done = run("ask", "the", *pair, "--tensor-split", "3;1")
    assert (done.returncode, done.stdout) == (2, b"")
    assert (
        b'--tensor-split must be the shares of up to 16 GPUs, such as "3,1", not "3;1"'
        in done.stderr
    )


def test_control_characters_are_harmless() -> None:
    """Escape sequences, bells and direction overrides become replacement characters."""
    assert harmless("a\x1b[2Jb\x07c\u202ed\te\n") == "a\ufffd[2Jb\ufffdc\ufffdd\te\n"


@table(("flag", "value"), [("--seed", "-1"), ("--seed", "random"), ("--temperature", "-1")])
def test_check_names_a_wrong_option_as_it_is_typed(
    flag: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With its dashes, before anything is loaded."""
    assert main(["check", flag, value]) == 2
    assert capsys.readouterr().err.startswith(f"specchat: {flag} must be a ")


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("options", [[], ["--seed", "3"], ["--temperature", "1.5"]])
@pytest.mark.usefixtures("engines_here")
def test_check_passes_on_a_right_build(
    pair: list[str], capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    """The answers are identical, or rounding explains the difference."""
    code = main(["check", *pair, "--max-tokens", "30", "--json", *options])

    findings = json.loads(capsys.readouterr().out)["findings"]
    assert code == 0
    assert len(findings) == 4
    assert all(finding["num_tokens"] == 30 for finding in findings)


@pytest.mark.parametrize(
    ("longest", "shown"),
    [
        (1, "no drafts; --exact on may allow some"),
        (3, "drafts up to 2, verified in up to 21 % more time"),
    ],
)
def test_check_shows_which_drafts_are_exact(
    pair: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    longest: int,
    shown: str,
) -> None:
    """Also where none is, on a build or a device that computes other bits in every batch."""
    monkeypatch.setattr(exactness_measurement, "longest_here", lambda *_: (longest, longest))
    monkeypatch.setattr(exactness_measurement, "costs_here", lambda *_: {2: 1.21})
    monkeypatch.setattr(exactness_measurement, "longest_cheap", lambda _, longest: longest)
    monkeypatch.setattr(check, "try_out", lambda *_: None)  # which would measure it elsewhere
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert main(["check", *pair, "--max-tokens", "12", "--exact", "auto"]) == 0

    assert capsys.readouterr().out.splitlines()[-1] == f"Bit-exact here: {shown}."


class Unmeasured:
    """An engine that notes how it is asked to measure."""

    def __init__(self, **facts: Any) -> None:
        """Know nothing but these facts."""
        self.facts = SimpleNamespace(
            **{"served_by": "", "knows_costs": False, "exact_draft": None} | facts
        )
        self.stages: dict[str, bool] = {}

    def prepare(self, report: Callable[[Stage, float], bool]) -> bool:
        """Report both stages, and note which may go on."""
        stages: tuple[Stage, ...] = ("measuring", "comparing")
        for stage in stages:
            self.stages[stage] = report(stage, 0.5)
        return True

    def stop(self) -> None:
        """Nothing goes on."""


@pytest.mark.parametrize(
    ("facts", "exact", "learn", "expected"),
    [
        ({}, "auto", True, {"measuring": True, "comparing": False}),
        ({"knows_costs": True}, "auto", True, {}),
        ({"knows_costs": True}, "on", True, {"measuring": True, "comparing": True}),
        ({"knows_costs": True, "exact_draft": 3}, "on", True, {}),
        ({}, "auto", False, {}),
        ({"served_by": "another program"}, "on", True, {}),
    ],
)
def test_an_answer_is_followed_by_measuring_what_is_not_known(
    facts: dict[str, Any], exact: str, learn: bool, expected: dict[str, bool]
) -> None:
    """What passes cost, and which are exact only where nothing is drafted without that."""
    engine = Unmeasured(**facts)
    measure_unknown(cast("Engine", engine), argparse.Namespace(exact=exact, learn=learn))
    assert engine.stages == expected


def test_measuring_after_an_answer_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a pass takes."""
    monkeypatch.setattr(pass_measuring, "SECONDS_TO_MEASURE", 0.0)
    engine = Unmeasured()
    measure_unknown(cast("Engine", engine), argparse.Namespace(exact="auto", learn=True))
    assert engine.stages["measuring"] is False


@pytest.mark.slow
def test_a_first_exact_answer_is_drafted(
    pair: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Which drafts are exact is measured before it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    words = ["--exact", "on", "--draft-length", "3", "--max-tokens", "20", "--json"]
    done = run("ask", "hi", *pair, *words)
    assert json.loads(done.stdout)["stats"]["drafted"], done.stderr


MEASURING_NOTHING = """
import sys
from specchat.cli import main
from specchat.engine import pair_pacing
if __name__ == "__main__":
    pair_pacing.measure_passes = lambda *_: False
    sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_check_measures_a_pair_once(
    pair: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In the process that tries it out, whose tokens teach pacing nothing."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    words = ["check", *pair, "--max-tokens", "8", "--exact", "off"]
    command = [sys.executable, "-c", MEASURING_NOTHING, *words]
    pairs: dict[str, Any] = {}
    for _ in range(10):  # what a busy machine takes is thrown away
        done = subprocess.run(command, capture_output=True, check=False, cwd=ROOT)
        assert (done.returncode, done.stderr) == (0, b"")
        (file,) = (tmp_path / "specchat" / "pacing").iterdir()
        pairs = json.loads(file.read_text("utf-8"))["pairs"]
        if pairs:
            break
    (learned,) = pairs.values()
    assert learned["target"]
    assert learned["recent"] == {}


@pytest.mark.usefixtures("engines_here")
def test_check_fails_for_a_broken_verifier(
    pair: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A verifier that accepts everything is reported as NOT lossless, with exit code 1."""

    def accept_always(draft: Any, target: Any, random: Any) -> Verdict:
        return Verdict(len(draft), target(len(draft)).best())

    monkeypatch.setattr(Request, "verifier_at", lambda *_: accept_always)

    assert main(["check", *pair, "--max-tokens", "30"]) == 1
    assert "NOT lossless" in capsys.readouterr().out


@pytest.mark.skipif(sys.platform == "win32", reason="signals are named otherwise there")
def test_a_crash_of_llama_cpp_does_not_end_check(
    pair: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It decodes in another process first, whose end is one line."""

    def crash(process: SpawnProcess) -> None:
        start_process(process)
        os.kill(process.pid or 0, signal.SIGSEGV)

    monkeypatch.setattr("specchat.sharing.process_link.start_process", crash)
    assert main(["check", *pair]) == 1
    assert "was ended by SIGSEGV while loading" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.usefixtures("engines_here")
def test_suffix_drafts_are_checked_without_a_draft_model(
    tiny: WriteModel, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tiny models repeat themselves, so that there is something to draft."""
    assert main(["check", "--target", str(tiny("llama")), *FAST, "--json"]) == 0
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert all(finding["drafted"] for finding in findings)


def test_an_internal_error_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line asks for a report and names the log, which has the traceback."""

    def fail(*_: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr("specchat.cli.ask.chosen_answerer", fail)
    monkeypatch.setattr("sys.stdin", io.StringIO())

    assert main(["ask", "hi"]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith("specchat: internal error (please report): RuntimeError: boom; ")
    log = Path(said.rpartition("details in ")[2].strip())
    assert "in fail\n" in log.read_text("utf-8")


@pytest.mark.slow
def test_standard_input_of_another_encoding_is_read(pair: list[str]) -> None:
    """It is converted, and said to be; what is no text is refused."""
    words = ["ask", *pair, "--max-tokens", "2", "--json"]
    known = json.loads(run(*words, stdin="Grüße".encode()).stdout)["stats"]["prompt_tokens"]
    done = run(*words, stdin="Grüße".encode("latin-1"))
    assert json.loads(done.stdout)["stats"]["prompt_tokens"] == known
    assert b"standard input was read as Windows-1252" in done.stderr
    done = run(*words, stdin=b"\x7fELF\2\1\1\0")
    assert done.returncode == 2
    assert b"standard input is not text" in done.stderr
