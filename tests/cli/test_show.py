"""`specchat show`: metadata, template, memory and licence of whatever has a name."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from conftest import WriteModel
from local_folders import put, put_in_hub, put_in_ollama
from scripts.support.tiny_gguf import write_with_head
from scripts.support.tiny_gguf.vocabulary import CHAT_TEMPLATE, Vocabulary
from specchat.catalogue.catalogue_file import find_entry
from specchat.cli import main
from specchat.passes.exactness import Exactness
from specchat.passes.learned_cache import LearnedCache, LearnedPair


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder of the test's own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("cache", "config", "state", "data"):
        monkeypatch.setenv(f"XDG_{name.upper()}_HOME", str(tmp_path / f".{name}"))
    return tmp_path


def shown(capsys: pytest.CaptureFixture[str], name: str | Path) -> dict[str, Any]:
    """Return what `show --json` prints."""
    assert main(["show", str(name), "--json"]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def test_a_file_is_shown_with_all_that_it_says(
    home: Path, tiny: WriteModel, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its kind, what it needs, which draft is taken for it, and its template."""
    target = put(home / "big.gguf", tiny("llama", width=128, feed_forward=512).read_bytes())
    put(home / "small.gguf", tiny("llama", num_layers=2).read_bytes())
    result = shown(capsys, target)

    assert {key: result[key] for key in ("path", "from", "architecture", "layers", "context")} == {
        "path": str(target),
        "from": None,
        "architecture": "llama",
        "layers": 4,
        "context": 2048,
    }
    assert (result["tokenizer"], result["vocabulary"]) == ("BPE", 320)
    assert (result["bytes"], result["quantisation"]) == (target.stat().st_size, "F32")
    assert result["chat_template"] == CHAT_TEMPLATE
    assert result["metadata"]["llama.block_count"] == 4
    (memory,) = result["memory"]
    assert (memory["context"], memory["is_exact"], memory["fit"]) == (2048, True, "fits in memory")
    assert memory["bytes"] > result["bytes"] * 0.9
    (draft,) = result["drafts"]["fitting"]
    assert draft["name"] == "small.gguf"


def test_what_is_shown_to_a_person_is_in_lines(
    home: Path, tiny: WriteModel, capsys: pytest.CaptureFixture[str]
) -> None:
    """The template last, because it is long."""
    model = put(home / "big.gguf", tiny("qwen3moe").read_bytes())
    assert main(["show", str(model)]) == 0

    lines = capsys.readouterr().out.splitlines()
    result = {line[:12].strip(): line[13:] for line in lines}
    assert result["name"] == "big.gguf"
    assert "qwen3moe" in result["architecture"]
    assert "experts active" in result["architecture"]
    assert result["licence"] == "not in the file"
    assert result["draft"] == "none: no local model fits"
    assert result["memory"].endswith("tokens: fits in memory")
    assert result["template"].startswith("{% for message in messages %}")


@pytest.mark.parametrize(
    ("architecture", "reason"),
    [("llama", None), ("gemma3", "sliding window"), ("mamba", "state"), ("lfm2", "state")],
)
def test_models_whose_drafts_are_chains_say_why(
    home: Path,
    tiny: WriteModel,
    capsys: pytest.CaptureFixture[str],
    architecture: str,
    reason: str | None,
) -> None:
    """In one line, by the file's header alone."""
    model = put(home / "big.gguf", tiny(architecture).read_bytes())
    why = shown(capsys, model)["chains_reason"]
    assert (why is None) == (reason is None)
    assert main(["show", str(model)]) == 0

    lines = [line for line in capsys.readouterr().out.splitlines() if "drafts are chains" in line]
    assert lines == ([f"draft tree   drafts are chains: {why}"] if reason else [])
    assert (reason or "") in (why or "")


@pytest.mark.parametrize("architecture", ["llama", "granitehybrid", "gemma3"])
def test_states_to_go_back_in_a_text_are_shown(
    home: Path,
    tiny: WriteModel,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    architecture: str,
) -> None:
    """What one takes and how many are kept, which follows the setting; other models have none."""
    model = put(home / "big.gguf", tiny(architecture).read_bytes())
    states = []
    for limit in ("0", "1024"):
        monkeypatch.setenv("SPECCHAT_CACHE_RAM", limit)
        states.append(shown(capsys, model)["states"])
    assert main(["show", str(model)]) == 0

    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("states ")]
    if architecture == "llama":
        assert (states, lines) == ([None, None], [])
        return
    assert [each["kept"] for each in states] == [4, 32]
    assert states[0]["bytes"] > 1000
    (line,) = lines
    assert re.search(r"a state takes [\d.]+ kB; up to 32 are kept per conversation", line)


def test_exact_drafts_are_shown_by_how_the_model_was_loaded(
    home: Path, tiny: WriteModel, capsys: pytest.CaptureFixture[str]
) -> None:
    """With what they cost, and also where no draft is exact."""
    model = put(home / "model.gguf", tiny("llama").read_bytes())
    assert shown(capsys, model)["exact"] == {}
    cache = LearnedCache(model, "a build")
    cache.keep_exactness("one way", Exactness(33, ((2, 1.0), (4, 1.12))))
    cache.keep_exactness("another", Exactness(1))

    assert shown(capsys, model)["exact"] == {"one way": 32, "another": 0}
    assert shown(capsys, model)["exact_cost"] == {"one way": 1.12, "another": None}
    main(["show", str(model)])
    out = capsys.readouterr().out
    assert (
        "bit-exact    drafts up to 32, verified in up to 12 % more time (one way)\n"
        "             no drafts (another)\n"
    ) in out


def test_what_passes_cost_is_shown(
    home: Path, tiny: WriteModel, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is usual until it was measured, and then the speed that it predicts."""
    model = put(home / "model.gguf", tiny("llama").read_bytes())
    before = shown(capsys, model)["passes"]
    assert (before["is_measured"], before["stair"]["4"], before["plain_rate"]) == (False, 1.55, 0.0)
    rows = [(0, count, 0.01 * (1 + 0.1 * (count - 1))) for count in range(1, 17)]
    measured = LearnedPair(rows, way="3 threads")
    LearnedCache(model, "a build").keep_pair({}, measured)

    after = shown(capsys, model)["passes"]
    assert (after["is_measured"], after["stair"]["4"], after["way"]) == (True, 1.3, "3 threads")
    assert after["plain_rate"] == pytest.approx(100.0)
    main(["show", str(model)])
    assert (
        "passes       2, 3, 4, 5, 8, 16 tokens cost 1.1, 1.2, 1.3, 1.4, 1.7, 2.5 times one token"
        " (3 threads)\nspeed        predicted 100.0 tokens/s\n"
    ) in capsys.readouterr().out


def test_a_local_model_is_shown_by_its_name(
    home: Path, tiny: WriteModel, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whichever program downloaded it, to whichever folder."""
    blob = put_in_ollama(home / ".ollama/models", tiny("llama").read_bytes())
    result = shown(capsys, "tiny")
    assert (result["path"], result["from"], result["local_name"]) == (
        str(blob),
        "Ollama",
        "tiny:latest",
    )

    content = tiny("qwen3").read_bytes()
    pointer = put_in_hub(home / ".cache/huggingface/hub", "org/model", "a.gguf", content)
    for name in ("org/model/a.gguf", "a", "hf.co/org/model/a.gguf"):
        result = shown(capsys, name)
        assert (result["path"], result["from"]) == (str(pointer), "hub")


def test_a_pair_is_shown_before_it_is_here(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The facts come from the catalogue, with the command that pulls the pair."""
    result = shown(capsys, "qwen3-8b")
    assert (result["here"], result["licence"], result["bytes"]) == (
        False,
        "Apache-2.0",
        5_667_230_176,
    )
    assert result["target"] == {
        "file": "Qwen/Qwen3-8B-GGUF/Qwen3-8B-Q4_K_M.gguf",
        "wheel": None,
        "here": False,
        "model": None,
    }
    assert [each["is_exact"] for each in result["memory"]] == [False, False]

    assert main(["show", "qwen3-8b"]) == 0
    out = capsys.readouterr().out
    assert "not installed: `specchat pull qwen3-8b` fetches it\n" in out
    assert "memory       about 8.10 GB with a context of 8192 tokens" in out


def test_a_pair_that_is_here_is_shown_with_its_models(capsys: pytest.CaptureFixture[str]) -> None:
    """What both say of themselves, and the memory that both take."""
    result = shown(capsys, "demo")

    assert result["here"]
    assert result["licence"] == result["target"]["model"]["licence"] == "MIT"
    assert result["draft"]["model"]["vocabulary"] == result["target"]["model"]["vocabulary"]
    assert result["memory"][0]["bytes"] > result["bytes"]
    assert main(["show", "demo"]) == 0
    assert "licence      MIT\n" in capsys.readouterr().out


def test_long_arrays_are_shown_by_their_length(
    home: Path, tiny: WriteModel, capsys: pytest.CaptureFixture[str]
) -> None:
    """However much of the file was read; short ones are shown in full."""
    model = tiny("lfm2")
    metadata = shown(capsys, model)["metadata"]

    assert metadata["tokenizer.ggml.token_type"] == "320 numbers"
    assert metadata["tokenizer.ggml.tokens"] == "320 texts"
    assert len(metadata["lfm2.attention.head_count_kv"]) == 4


def test_what_a_file_says_cannot_command_the_terminal(
    home: Path, tiny: WriteModel, capsys: pytest.CaptureFixture[str]
) -> None:
    """Templates and names are untrusted."""
    hostile = Vocabulary(chat_template="\x1b]0;mine\x07{{ messages }}\r\nmore")
    model = put(home / "a.gguf", tiny("llama", vocabulary=hostile).read_bytes())
    assert main(["show", str(model)]) == 0

    out = capsys.readouterr().out
    assert not {"\x1b", "\x07", "\r"} & set(out)
    assert "more" in out


@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("nothing", "nothing: no such file or local model"),
        ("org/model/none.gguf", "org/model/none.gguf: no such file or local model"),
        (
            "qwen3-8b-q4_k_m.gguf",
            "`specchat pull Qwen/Qwen3-8B-GGUF/Qwen3-8B-Q4_K_M.gguf` fetches it",
        ),
        ("{home}/empty", "is a folder without a GGUF model"),
        ("{home}/text.gguf", "is a text file that begins with 'text', not a GGUF file"),
    ],
)
def test_a_model_that_cannot_be_shown_is_one_line(
    home: Path, capsys: pytest.CaptureFixture[str], name: str, result: str
) -> None:
    """The error includes the next step."""
    put(home / "text.gguf", b"text")
    (home / "empty").mkdir()
    assert main(["show", name.format(home=home)]) == 1
    out, err = capsys.readouterr()

    assert (out, err.count("\n")) == ("", 1)
    assert result in err


def test_the_draft_that_ships_with_smollm2_is_shown_alone_and_in_its_pair(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Alone it drafts for no model of its own and has no use for a template."""
    draft = find_entry("smollm2-135m").draft
    assert main(["show", str(draft)]) == 0
    alone = capsys.readouterr().out
    assert main(["show", "smollm2-135m"]) == 0
    (made,) = (line for line in capsys.readouterr().out.splitlines() if " faster" in line)

    assert "an EAGLE-3 draft" in alone
    assert not {"draft", "template"} & {line.split(" ")[0] for line in alone.splitlines()}
    assert re.match(r" +predicted 1\.\d\dx faster; made with ", made)


def test_a_head_costs_what_the_settings_context_takes(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As its cache does."""
    target = write_with_head(home / "tall.gguf", part="trunk")
    write_with_head(home / "mtp-tall.gguf", part="head")
    costs = []
    for ctx in ("256", "2048"):
        monkeypatch.setenv("SPECCHAT_CTX", ctx)
        costs.append(shown(capsys, target)["head_cost"])
    assert [cost["ctx"] for cost in costs] == [256, 2048]
    assert 0 < costs[0]["num_bytes"] < costs[1]["num_bytes"]


def know_a_head(home: Path) -> dict[str, Any]:
    """Put the head of a model called Tall-8B into the catalogue, and return its file."""
    file = {"repository": "other/Tall-8B-MTP-GGUF", "file": "mtp-Tall-8B.gguf", "bytes": 5000}
    lines = (f"{key} = {json.dumps(value)}\n" for key, value in file.items())
    known = f'[head.tall]\nmodel = "Tall-8B"\nkind = "mtp"\n[head.tall.file]\n{"".join(lines)}'
    put(home / ".config/specchat/models.toml", known.encode())
    return file


def test_a_missing_head_is_shown_with_the_command_that_gets_it(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Until a head is here, which has a cost instead; a base model lacks none."""
    file = know_a_head(home)
    target = write_with_head(home / "Tall-8B-Q8_0.gguf", part="trunk")
    base = write_with_head(home / "Tall-8B-Base-Q8_0.gguf", part="trunk")

    name = f"{file['repository']}/{file['file']}"
    missing = shown(capsys, target)["missing_head"]
    offer = f"an MTP head (5.00 kB): `specchat pull {name}` gets it"
    assert missing == {"name": name, "kind": "mtp", "bytes": 5000, "offer": offer}
    assert main(["show", str(target)]) == 0
    assert f"head         not here: {offer}\n" in capsys.readouterr().out
    assert shown(capsys, base)["missing_head"] is None

    write_with_head(home / "mtp-Tall-8B.gguf", part="head")
    about = shown(capsys, target)
    assert (about["missing_head"], about["head_cost"]["device"]) == (None, "")


def test_a_head_without_a_name_is_that_of_the_targets_that_it_fits(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """To all others in its folder the published one is offered."""
    know_a_head(home)
    target = write_with_head(home / "Tall-8B-Q8_0.gguf", part="trunk")
    write_with_head(home / "mtp.gguf", part="head", width=128)
    assert shown(capsys, target)["missing_head"] is not None
    write_with_head(home / "mtp-head.gguf", part="head")
    assert shown(capsys, target)["missing_head"] is None


def test_what_the_template_does_is_shown(
    tiny: WriteModel, capsys: pytest.CaptureFixture[str]
) -> None:
    """The marks of reasoning and of calls, the words of --think, and the system prompt."""
    template = (
        "{% for m in messages if m.role != 'system' %}<{{ m.role }}>{% if m.reasoning_content %}"
        "<muse>{{ m.reasoning_content }}</muse>{% endif %}{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% if enable_thinking is false %}<muse></muse>"
        "{% endif %}{% endif %}"
    )
    path = tiny("llama", vocabulary=Vocabulary(chat_template=template))
    form = shown(capsys, path)["chat_format"]
    main(["show", str(path)])
    out = capsys.readouterr().out

    assert form["reasoning"] == {"begin": "<muse>", "end": "</muse>"}
    assert (form["think"], form["system_prompt"], form["tool_calls"]) == (
        ["on", "off"],
        False,
        None,
    )
    assert "reasoning from <muse> up to </muse>; earlier reasoning is kept in prompts" in out
    assert "--think auto, on, off" in out
    assert "no system role" in out
