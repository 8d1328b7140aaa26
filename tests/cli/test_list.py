"""`specchat list`, and the names it shows: models of other programs are found and usable."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import gguf
import pytest

from conftest import WriteModel
from in_process import say_here
from local_folders import GGUF, put, put_in_hub, put_in_ollama
from scripts.support.tiny_gguf import write_with_head
from specchat.catalogue.catalogue_file import find_entry, own_catalogue_path
from specchat.cli import main
from specchat.planning.device import Device, keep_gpus

ROOT = Path(__file__).parents[2]
QUICK = ("--threads", "1", "--ctx", "512")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder of the test's own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("cache", "config", "state"):
        monkeypatch.setenv(f"XDG_{name.upper()}_HOME", str(tmp_path / f".{name}"))
    return tmp_path


def listed(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Return what `list --json` prints."""
    assert main(["list", "--json"]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def test_local_models_are_listed_by_their_names(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With their sizes, the program that brought them, and the file."""
    blob = put_in_ollama(home / ".ollama/models")

    result = listed(capsys)
    assert result["local"] == [
        {
            "name": "tiny:latest",
            "from": "Ollama",
            "has_head": False,
            "missing_head": None,
            "origin": None,
            "bytes": len(GGUF),
            "fit": "fits in memory",
            "path": str(blob),
        }
    ]
    assert main(["list"]) == 0
    assert "tiny:latest          160 bytes  fits in memory  Ollama\n" in capsys.readouterr().out


def test_what_belongs_to_a_pair_is_listed_with_the_pair(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And not once more as a local model, though another program put it there."""
    put(
        home / ".config/specchat/models.toml",
        b"""
        [pair.mine]
        description = "mine"
        target = { repository = "org/model", file = "a.gguf" }
        """,
    )
    put_in_hub(home / ".cache/huggingface/hub", "org/model", "a.gguf")
    put_in_hub(home / ".cache/huggingface/hub", "org/model", "b.gguf", GGUF + b"2")
    result = listed(capsys)

    assert next(row for row in result["models"] if row["name"] == "mine")["here"]
    assert [row["name"] for row in result["local"]] == ["org/model/b.gguf"]


def test_the_list_is_an_object_that_scripts_can_rely_on(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each pair with its size, what of it is here and how well it fits; the machine below."""
    keep_gpus([Device("CUDA0", "Mine", "gpu", 0, 16 * 10**9)])
    result = listed(capsys)
    rows = {row["name"]: row for row in result["models"]}

    assert rows["qwen3-8b"] == {
        "name": "qwen3-8b",
        "description": "Best start with 9 GB free; thinks before it answers",
        "tier": "medium",
        "licence": "Apache-2.0",
        "kind": "simple",
        "bytes": 5_667_230_176,
        "about_gb": None,
        "here": False,
        "bytes_here": 0,
        "fit": "fits the GPU",
        "memory_gb": {str(ctx): gb for ctx, gb in find_entry("qwen3-8b").memory_gb.items()},
        "recommended": True,
        "files": [
            "Qwen/Qwen3-8B-GGUF/Qwen3-8B-Q4_K_M.gguf",
            "Qwen/Qwen3-0.6B-GGUF/Qwen3-0.6B-Q8_0.gguf",
        ],
        "missing_head": None,
    }
    assert rows["demo"]["here"]
    assert (result["local"], result["machine"]["free_bytes"] > 0) == ([], True)
    assert result["machine"]["gpus"] == [{"name": "Mine", "total": 16 * 10**9, "is_shared": False}]
    assert main(["list"]) == 0
    assert capsys.readouterr().out.endswith("; GPU: Mine (16.0 GB)\n")


def test_mistakes_in_the_users_own_file_hinder_no_other_pair(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The list says what it leaves out and why; showing that very pair is refused."""
    put(
        home / ".config/specchat/models.toml",
        b"""
        [pair.good]
        description = "good"
        target = { repository = "org/model", file = "a.gguf" }

        [pair.bad]
        description = 7
        target = { repository = "org/model", file = "b.gguf" }
        tier = "huge"
        """,
    )
    assert main(["list", "--json"]) == 0
    result = capsys.readouterr()
    names = {row["name"] for row in json.loads(result.out)["models"]}
    assert {"demo", "qwen3-8b", "good"} < names
    assert "bad" not in names
    assert result.err.startswith("not all pairs are listed: ")
    assert "models.toml line 7" in result.err
    assert "and 1 more: `specchat doctor` lists them all" in result.err
    assert main(["show", "good"]) == 0
    assert main(["show", "bad"]) == 1
    assert "models.toml line 7" in capsys.readouterr().err


def test_models_that_cannot_answer_are_not_listed(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What they are their headers say, whatever they are named."""
    path = tmp_path / "bge-m3.gguf"
    writer = gguf.GGUFWriter(path, "bert")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    put_in_ollama(home / ".ollama/models", path.read_bytes())

    assert listed(capsys)["local"] == []


def test_a_model_with_a_head_is_listed_as_one(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It needs no draft model, which `show` says, too; a head alone is not listed."""
    path = write_with_head(tmp_path / "whole.gguf", "glm4moe")
    alone = write_with_head(tmp_path / "mtp.gguf", "glm4moe", part="head")
    put_in_ollama(home / ".ollama/models", alone.read_bytes())
    assert listed(capsys)["local"] == []

    put_in_ollama(home / ".ollama/models", path.read_bytes())
    assert [each["has_head"] for each in listed(capsys)["local"]] == [True]
    assert main(["list"]) == 0
    assert "Ollama, with a prediction head\n" in capsys.readouterr().out
    assert main(["show", str(path)]) == 0
    out = capsys.readouterr().out
    assert "head         a prediction head (MTP), which specchat drafts with\n" in out
    assert "draft        none: it has a prediction head of its own\n" in out
    assert main(["show", str(alone)]) == 0
    assert "kind         a prediction head (MTP) without its model\n" in capsys.readouterr().out
    eagle = write_with_head(tmp_path / "eagle3.gguf", "llama", part="head")
    assert main(["show", str(eagle)]) == 0
    assert "kind         an EAGLE-3 draft, a prediction head for" in capsys.readouterr().out


def test_a_name_that_would_write_to_the_terminal_is_shown_harmless(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """File names are untrusted."""
    put(home / ".lmstudio/models/a/b/red\x1b[31m\nREADY.gguf")
    own_catalogue_path().parent.mkdir(parents=True, exist_ok=True)
    own_catalogue_path().write_text(
        '[pair."my\\u001b\\nOWN"]\ndescription = "a\\nSECOND\\r"\ntarget = "x.gguf"\n'
    )
    assert main(["list"]) == 0
    own_catalogue_path().unlink()
    out = capsys.readouterr().out

    assert not {"\x1b", "\r"} & set(out)
    starts = {line.split()[0] for line in out.splitlines() if line}
    assert not {"READY.gguf", "OWN", "SECOND"} & starts
    assert "my\ufffd OWN" in out


def ask(*words: str) -> subprocess.CompletedProcess[str]:
    """Ask without a terminal."""
    return say_here("ask", "hi", *QUICK, *words)


@pytest.mark.slow
def test_a_local_model_answers_by_its_name(home: Path, tiny: WriteModel) -> None:
    """The model is used in place; nothing is copied."""
    put_in_ollama(home / ".ollama/models", tiny("llama").read_bytes())
    done = ask("--target", "tiny", "--max-tokens", "3", "--json")

    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["stats"]["generated_tokens"] == 3


def test_a_name_of_no_model_is_an_error_in_one_line(home: Path) -> None:
    """A path that does not exist gives the same error."""
    done = ask("--target", "nothing")

    assert done.returncode == 1
    assert done.stderr.startswith("specchat: nothing: no such file")
    assert "`specchat list` shows all models" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_found_draft_is_reported_and_the_pair_can_be_saved(home: Path, tiny: WriteModel) -> None:
    """The saved name works until the pair is removed."""
    target = put(home / "big.gguf", tiny("llama", width=128, feed_forward=512).read_bytes())
    put(home / "small.gguf", tiny("llama", num_layers=2).read_bytes())
    few = ("--max-tokens", "2", "--json")
    first = ask("--target", str(target), "--save-as", "mine", *few)
    again = ask("--pair", "mine", *few)

    assert first.stderr.splitlines()[0].startswith("draft: small.gguf beside it: same vocabulary")
    assert first.stderr.splitlines()[1].startswith("saved in ")
    assert (again.returncode, again.stderr) == (0, "")
    assert json.loads(again.stdout)["model"]["draft"]
    assert main(["rm", "mine", "--yes"]) == 0
    assert ask("--pair", "mine").stderr.startswith("specchat: there is no pair named 'mine'")
    assert target.is_file()


@pytest.mark.slow
def test_what_cannot_be_loaded_is_not_saved(home: Path) -> None:
    """A name that leads to nothing would be no help."""
    target = put(home / "big.gguf")
    done = ask("--target", str(target), "--save-as", "mine", "--max-tokens", "2")

    assert done.returncode == 1
    assert "saved" not in done.stderr
    assert ask("--pair", "mine").stderr.startswith("specchat: there is no pair named 'mine'")


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [("--draft", "none"), ("--drafter", "suffix"), ("--drafter", "none")], ids=" ".join
)
def test_no_draft_is_searched_for_with_drafter_none(
    home: Path, tiny: WriteModel, words: tuple[str, str]
) -> None:
    """No draft is reported either."""
    target = put(home / "big.gguf", tiny("llama", width=128, feed_forward=512).read_bytes())
    put(home / "small.gguf", tiny("llama", num_layers=2).read_bytes())
    done = ask("--target", str(target), "--max-tokens", "2", "--json", *words)

    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["model"]["draft"] is None


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("words", "code", "result"),
    [
        (("--save-as", "mine"), 2, "--save-as needs --target"),
        (("--target", "{file}", "--save-as", "a/b"), 2, "'a/b' is not a valid name"),
        (("--target", "{file}", "--save-as", "qwen3-8b"), 2, "choose another name"),
        (("--target", "none.gguf", "--save-as", "mine"), 1, "none.gguf: no such file"),
    ],
    ids=str,
)
def test_a_pair_that_cannot_be_saved_is_one_line(
    home: Path, words: tuple[str, ...], code: int, result: str
) -> None:
    """Before anything is loaded."""
    file = put(home / "big.gguf")
    done = ask(*(word.format(file=file) for word in words))

    assert (done.returncode, done.stderr.count("\n")) == (code, 1)
    assert result in done.stderr
