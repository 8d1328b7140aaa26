"""`specchat pull` with repositories, quantizations, pages, paths and other programs' names."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import WriteModel
from foreign_files import write_header
from hub_server import Fault, HubServer
from local_folders import GGUF, put, put_in_ollama
from other_vocabulary import write_copy
from specchat.catalogue import draft_offers
from specchat.catalogue.catalogue_file import load_entries, own_catalogue_path
from specchat.catalogue.draft_offers import expected_speedup
from specchat.catalogue.pairs import file_of, find_pair
from specchat.cli import main, pull, pull_names
from specchat.errors import DownloadFailed, ModelNotFound
from specchat.hub import remote_header
from specchat.hub.cache import find_present
from specchat.hub.names import parse_name
from specchat.hub.references import Reference
from specchat.planning.device import Machine

REPO = "org/Some-7B-GGUF"


class Terminal(io.StringIO):
    """Input that is typed."""

    def isatty(self) -> bool:
        """Return True."""
        return True


@pytest.fixture(autouse=True)
def _alone(hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No other models, and a machine with known memory, which measures nothing."""
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.delenv("OLLAMA_MODELS", raising=False)
    monkeypatch.setattr(pull, "find_machine", lambda: Machine(10**9, ()))
    monkeypatch.setattr("specchat.planning.forecast.total_bytes", lambda: 0)  # of any machine
    monkeypatch.setattr(pull, "measure_pulled", lambda *_, **__: None)


@pytest.fixture
def models(hub: HubServer, tiny: WriteModel) -> dict[str, bytes]:
    """Put a target in three quantizations on the hub, and return their bytes."""
    large: dict[str, Any] = {"width": 128, "feed_forward": 512, "num_layers": 8}
    content = tiny("llama", **large).read_bytes()
    for name in ("Some-7B-Q8_0.gguf", "Some-7B-Q4_K_M.gguf", "Some-7B-Q2_K.gguf"):
        hub.put(REPO, name, content, commit="c" * 40)
    return {"target": content, "draft": tiny("llama").read_bytes()}


def test_a_repository_lists_its_models_and_offers_the_best(
    models: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With size and fit; Enter takes it."""
    monkeypatch.setattr(sys, "stdin", Terminal("\n"))
    assert main(["pull", REPO]) == 0
    out, err = capsys.readouterr()
    lines = err.splitlines()

    assert lines[0] == f"{REPO} has:"
    assert [line.split()[0] for line in lines[1:4]] == ["Q2_K", "Q4_K_M", "Q8_0"]
    assert all(line.endswith("fits in memory") for line in lines[1:4])
    assert f"pull {REPO}:Q4_K_M (" in lines[4]
    assert Path(out.splitlines()[0]).name == "Some-7B-Q4_K_M.gguf"


def test_nothing_is_fetched_if_it_is_declined(
    models: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """How to take another is said."""
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    assert main(["pull", REPO]) == 1
    assert "nothing was fetched: name another of them" in capsys.readouterr().err
    assert find_present(parse_name(f"{REPO}/Some-7B-Q4_K_M.gguf").reference) is None


def test_without_a_terminal_the_command_is_named(
    models: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The list is shown all the same."""
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert main(["pull", f"https://huggingface.co/{REPO}/tree/main".replace(
        "https://huggingface.co", "hf.co")]) == 2  # fmt: skip
    message = capsys.readouterr().err
    assert "Q8_0" in message
    assert f"`specchat pull {REPO}:Q4_K_M` pulls the best of them" in message


@pytest.mark.parametrize("name", [f"{REPO}:Q8_0", f"hf.co/{REPO}:q8_0", f" {REPO}:Some-7B-Q8_0 "])
def test_a_quantization_is_pulled(
    models: dict[str, bytes], name: str, hub: HubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second time nothing is asked of the hub."""
    assert main(["pull", name]) == 0
    assert Path(capsys.readouterr().out.splitlines()[0]).read_bytes() == models["target"]
    hub.seen.clear()
    assert main(["pull", name]) == 0
    assert "already installed" in capsys.readouterr().err
    assert hub.seen == []
    assert main(["pull", "--check", name]) == 0


@pytest.mark.parametrize(("first", "other"), [("Q4_K_M", "Q4_K"), ("UD-Q4_K_XL", "Q4_K_XL")])
def test_a_name_that_another_file_has_as_a_part_is_not_that_file(
    hub: HubServer, tiny: WriteModel, first: str, other: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is installed does not decide."""
    for name in (first, other):
        hub.put(REPO, f"Some-7B-{name}.gguf", tiny("llama").read_bytes(), commit="c" * 40)
    assert main(["pull", f"{REPO}:Some-7B-{first}"]) == 0
    capsys.readouterr()
    main(["pull", f"{REPO}:{other}"])
    out, err = capsys.readouterr()
    assert "already installed" not in err
    assert out.splitlines()[:1] == [] or Path(out.splitlines()[0]).name == f"Some-7B-{other}.gguf"
    assert main(["pull", f"{REPO}/Some-7B-{other}.gguf"]) == 0
    hub.seen.clear()
    assert main(["pull", f"{REPO}:{other}"]) == 0
    assert hub.seen == []


@pytest.mark.parametrize("name", [REPO, f"{REPO}:Q8_0", f"hf.co/{REPO}"])
def test_it_is_checked_and_removed_by_the_same_name(
    models: dict[str, bytes], name: str, hub: HubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without asking the hub; a second time there is nothing."""
    assert main(["pull", f"{REPO}:Q8_0"]) == 0
    hub.seen.clear()
    capsys.readouterr()
    assert main(["pull", "--check", name]) == 0
    assert capsys.readouterr().out == f"right: {REPO}/Some-7B-Q8_0.gguf\n"
    assert main(["show", name]) == 0
    assert main(["rm", "--yes", name]) == 0
    assert find_present(parse_name(f"{REPO}/Some-7B-Q8_0.gguf").reference) is None
    assert hub.seen == []
    assert main(["pull", "--check", name]) == 1
    assert "is not installed: `specchat pull" in capsys.readouterr().err


def test_a_quantization_that_is_not_there_is_named(
    models: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    """With those that are."""
    assert main(["pull", f"{REPO}:Q3_K_M"]) == 1
    assert "which has Some" not in (err := capsys.readouterr().err)
    assert "is not in the repository, which has Q8_0, Q4_K_M, Q2_K" in err


@pytest.mark.parametrize("file", ["Some-Q8_0.gguf", "some-q8_0.gguf", "Some.Q8_0.gguf"])
def test_a_mirror_that_lists_nothing_is_asked_for_usual_names(
    hub: HubServer, models: dict[str, bytes], file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A quantization is found if its file is called as most are."""
    hub.put("org/Some-GGUF", file, models["draft"])
    hub.has_api = False
    assert main(["pull", "org/Some-GGUF:q8_0"]) == 0
    assert Path(capsys.readouterr().out.splitlines()[0]).name == file
    assert main(["pull", "org/Some-GGUF:Q4_0"]) == 1
    assert main(["pull", "org/Some-GGUF"]) == 1


def test_a_name_with_spaces_and_accents_is_pulled(
    hub: HubServer, models: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    """As a path, and as the address that a browser shows."""
    file = "Ein Modell für É 100%.gguf"
    hub.put("org/accents", file, models["draft"])
    assert main(["pull", f"org/accents/{file}"]) == 0
    assert Path(capsys.readouterr().out.splitlines()[0]).name == file
    page = f"{hub.address}/org/accents/blob/main/Ein%20Modell%20f%C3%BCr%20%C3%89%20100%25.gguf"
    assert main(["pull", f"{page}?download=true"]) == 0
    assert "already installed" in capsys.readouterr().err


def test_a_repository_that_is_not_there_is_one_line(
    models: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    """As for a file."""
    assert main(["pull", "org/nothing"]) == 1
    assert "there is no org/nothing at" in (err := capsys.readouterr().err)
    assert err.count("\n") == 1


def test_a_repository_without_models_says_where_to_look(
    hub: HubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Most models are quantized by others."""
    hub.put("org/only-weights", "model.safetensors", bytes(9000))
    assert main(["pull", "org/only-weights"]) == 1
    assert "has no GGUF model: look for a repository" in capsys.readouterr().err


def test_offline_a_repository_is_not_asked(
    models: dict[str, bytes], hub: HubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is here is found all the same."""
    assert main(["pull", f"{REPO}:Q8_0"]) == 0
    hub.seen.clear()
    for name in ("Q8_0", "Q8"):
        assert main(["pull", "--offline", f"{REPO}:{name}"]) == 0
    assert main(["pull", "--offline", f"{REPO}:Q4_K_M"]) == 1
    assert "offline, so org/Some-7B-GGUF cannot be listed" in capsys.readouterr().err
    assert hub.seen == []


@pytest.fixture
def kin(models: dict[str, bytes], hub: HubServer) -> Reference:
    """Put smaller models of the family on the hub, and others; return the draft that fits."""
    hub.put("org/Some-0.5B-GGUF", "Some-0.5B-Q4_K_M.gguf", models["draft"])
    hub.put("org/Some-0.5B-Coder-GGUF", "Coder-0.5B-Q4_K_M.gguf", models["draft"])
    hub.put("other/Some-0.5B-GGUF", "Some-0.5B-Q8_0.gguf", models["draft"])
    return Reference("org/Some-0.5B-GGUF", "Some-0.5B-Q4_K_M.gguf")


@pytest.mark.parametrize("answer", ["n\n", "y\n"])
def test_a_draft_of_the_same_organization_is_offered(
    models: dict[str, bytes],
    kin: Reference,
    answer: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of the same family and vocabulary, with the gain to expect."""
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    assert main(["pull", f"{REPO}:Q8_0"]) == 0
    out, err = capsys.readouterr()
    share = len(models["draft"]) / len(models["target"])
    is_wanted = answer == "y\n"

    assert f"a draft model for it: {kin} (from org too" in err
    assert f"same vocabulary, {len(models['draft']) / 1e3:.0f} kB, 1/{1 / share:.0f} of" in err
    assert f"{expected_speedup(share):.1f}x faster where 70 % of its drafts" in err
    assert len(out.splitlines()) == 1 + is_wanted
    command = f"ready: specchat ask --target {REPO}/Some-7B-Q8_0.gguf"
    assert err.splitlines()[-1].endswith(command + f" --draft {kin}" * is_wanted)


def test_only_the_header_of_a_draft_is_read_before_it_is_agreed_to(
    models: dict[str, bytes],
    kin: Reference,
    hub: HubServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Some bytes of it, and more where those do not suffice."""
    hub.put(kin.repository, kin.file, models["draft"] + bytes(3 << 20))
    monkeypatch.setattr(remote_header, "LENGTHS", (100, 40_000, 400_000))
    monkeypatch.setattr(draft_offers, "LARGEST_SHARE", 10)
    assert main(["pull", f"{REPO}:Q8_0"]) == 0
    before = hub.num_sent
    assert main(["rm", "--yes", f"{REPO}:Q8_0"]) == 0
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    assert main(["pull", f"{REPO}:Q8_0"]) == 0
    assert f"a draft model for it: {kin}" in capsys.readouterr().err
    ranges = [each.range for each in hub.seen if kin.file in each.path and each.method == "GET"]
    assert {"bytes=0-99", "bytes=100-39999"} <= set(ranges)
    assert 0 < hub.num_sent - before - len(models["target"]) <= 400_000


def test_a_slow_hub_ends_the_search_for_a_draft(
    models: dict[str, bytes],
    kin: Reference,
    hub: HubServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The target is here; a header that trickles is given up."""
    assert main(["pull", f"{REPO}:Q8_0"]) == 0
    monkeypatch.setattr(draft_offers, "SEARCH_SECONDS", 0.3)
    hub.faults = [Fault("storage", seconds_per_piece=0.05, times=9)]
    offer = draft_offers.offer_draft(
        file_of(f"{REPO}:Q8_0"), Reference(REPO, "Some-7B-Q8_0.gguf"), Machine(10**9, ())
    )
    assert offer is None
    gets = [each for each in hub.seen if kin.file in each.path and each.method == "GET"]
    assert len(gets) == 2  # of the hub, and of its storage


def test_few_headers_are_read(
    models: dict[str, bytes], hub: HubServer, tiny: WriteModel, tmp_path: Path
) -> None:
    """However many models the organization has."""
    other = tmp_path / "other.gguf"
    write_copy(tiny("llama"), other, share=0.05)
    for number in range(1, 9):
        hub.put(f"org/Some-0.{number}B-GGUF", f"Some-0.{number}B.gguf", other.read_bytes())
    assert main(["pull", f"{REPO}:Q8_0"]) == 0
    hub.seen.clear()
    offer = draft_offers.offer_draft(
        file_of(f"{REPO}:Q8_0"), Reference(REPO, "Some-7B-Q8_0.gguf"), Machine(10**9, ())
    )
    assert offer is None
    listed = [each for each in hub.seen if "/tree/" in each.path]
    asked = [each for each in hub.seen if each.method == "HEAD"]
    assert (len(listed), len(asked)) == (3, 3)


def test_the_catalogues_draft_comes_first(
    models: dict[str, bytes],
    kin: Reference,
    hub: HubServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """For the same model by others, quantized in another way."""
    hub.put("best/draft", "draft-Q8_0.gguf", models["draft"])
    own_catalogue_path().parent.mkdir(parents=True)
    own_catalogue_path().write_text(
        """
[pair.some]
description = "Some"
target = { repository = "original/Some", file = "some-7b-Q6_K.gguf" }
draft = { repository = "best/draft", file = "draft-Q8_0.gguf" }
"""
    )
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    assert main(["pull", f"{REPO}:Q8_0"]) == 0
    err = capsys.readouterr().err
    assert "best/draft/draft-Q8_0.gguf (the catalogue's draft for some, same vocabulary" in err


def test_without_a_terminal_no_draft_is_looked_for(
    models: dict[str, bytes], kin: Reference, hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody could answer."""
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert main(["pull", f"{REPO}:Q8_0"]) == 0
    assert not [each for each in hub.seen if "/api/models?" in each.path or "0.5B" in each.path]


@pytest.mark.parametrize("way", ["interrupted", "refused"])
def test_a_pulled_target_is_kept_if_its_draft_is_not(
    models: dict[str, bytes],
    kin: Reference,
    hub: HubServer,
    way: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its path is printed before the question."""

    def fail(*_: object) -> list[Path]:
        raise DownloadFailed("it is gated")

    def interrupt(*_: object, **__: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    if way == "interrupted":
        monkeypatch.setattr(pull, "confirm", interrupt)
    else:
        fetch = pull._fetch
        monkeypatch.setattr(
            pull, "_fetch", lambda each, *more: (fail if each == [kin] else fetch)(each, *more)
        )
    assert main(["pull", f"{REPO}:Q8_0"]) == (130 if way == "interrupted" else 0)
    out, err = capsys.readouterr()
    assert [Path(line).name for line in out.splitlines()] == ["Some-7B-Q8_0.gguf"]
    if way == "refused":
        assert "without a draft model: it is gated" in err
        assert err.endswith(f"ready: specchat ask --target {REPO}/Some-7B-Q8_0.gguf\n")


def test_a_draft_that_does_not_fit_is_not_offered(
    models: dict[str, bytes],
    hub: HubServer,
    tiny: WriteModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Too large, or with another vocabulary, or not a model."""
    monkeypatch.setattr(sys, "stdin", Terminal())
    other = tmp_path / "other.gguf"
    write_copy(tiny("llama"), other, share=0.05)
    hub.put("org/Some-0.5B-GGUF", "Some-0.5B-Q4_K_M.gguf", models["target"])
    hub.put("org/Some-1B-GGUF", "Some-1B-Q4_K_M.gguf", b"GGUF" + bytes(5000))
    hub.put("org/Some-2B-GGUF", "Some-2B-Q4_K_M.gguf", other.read_bytes())
    assert main(["pull", f"{REPO}:Q8_0"]) == 0
    err = capsys.readouterr().err
    assert "a draft model for it" not in err
    assert "no draft model was found for it" in err


def test_a_file_of_this_machine_becomes_a_pair(
    tiny: WriteModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Named after the file; a second time it stays that pair."""
    path = tmp_path / "my models" / "Tést model.gguf"
    path.parent.mkdir()
    path.write_bytes(tiny("llama").read_bytes())
    for _ in range(2):
        assert main(["pull", str(path)]) == 0
        out, err = capsys.readouterr()
        assert out == f"{path}\n"
        assert err.splitlines()[-1] == "ready: specchat ask --pair Test-model"
    assert load_entries()["Test-model"].target == path
    assert find_pair("Test-model").target == path


def test_the_models_of_a_folder_become_pairs(
    tiny: WriteModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that can answer, each with the draft that suits it; the catalogue's names stay."""
    folder = tmp_path / "models"
    folder.mkdir()
    large: dict[str, Any] = {"width": 128, "feed_forward": 512, "num_layers": 8}
    (folder / "demo.gguf").write_bytes(tiny("llama", **large).read_bytes())
    (folder / "small.gguf").write_bytes(tiny("llama").read_bytes())
    (folder / "mmproj-x.gguf").write_bytes(GGUF)
    assert main(["pull", str(folder)]) == 0
    message = capsys.readouterr().err
    assert "demo-2: small.gguf drafts for it, beside it: same vocabulary" in message
    assert load_entries()["demo-2"].draft == folder / "small.gguf"
    assert "small: saved without a draft model" in message
    assert "mmproj" not in message


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["{tmp}/none.gguf"], 1, "none.gguf: no such file: check the path"),
        (["none.gguf"], 1, "none.gguf: no such file: check the path"),
        (["C:\\models\\x.gguf"], 1, "no such file: check the path"),
        (["~nobody-here/x.gguf"], 1, "no such file: check the path"),
        (["x" * 5000 + ".gguf"], 1, "no such file: check the path"),
        (["a\0b"], 1, "there is no pair named"),
        (["https://[bad/x"], 2, "cannot be read"),
        (["https://hf.co/a/b?" + "x=1&" * 300], 2, "cannot be read"),
        (["https://hf.co/datasets/org/repo"], 2, "is a page of the hub's datasets"),
        (["https://hf.co/a/b/tree/a:b"], 2, "invalid Hugging Face revision name"),
        (["org/repo:Q8_0", "--draft", "./draft.gguf"], 2, "does not name a file of the hub"),
        (["{tmp}/projector.gguf"], 1, "is a vision or audio projector"),
        (["{tmp}/text.gguf"], 1, "is a text file"),
        (["{tmp}/empty"], 1, "has no GGUF model"),
        (["{tmp}/text.gguf", "--check"], 2, "--check goes with files of the hub"),
        (["llama3.2:1b"], 1, "`ollama pull llama3.2:1b` fetches a model of Ollama"),
        (["nothing"], 1, "there is no pair named 'nothing'"),
        (["dmeo"], 1, "there is no pair named 'dmeo' (did you mean demo?)"),
    ],
)
def test_what_cannot_be_pulled_is_one_line(
    words: list[str], code: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says what it is and what to do."""
    (tmp_path / "text.gguf").write_text("text")
    (tmp_path / "empty").mkdir()
    write_header(tmp_path / "projector.gguf", "clip", {})
    assert main(["pull", *(word.format(tmp=tmp_path) for word in words)]) == code
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def test_a_model_of_ollama_is_here_already(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its path is printed, and how to use it."""
    blob = put_in_ollama(tmp_path / "HOME/.ollama/models")
    assert main(["pull", "tiny"]) == 0
    out, err = capsys.readouterr()
    assert out == f"{blob}\n"
    assert err.splitlines() == [
        "tiny:latest is already here, from Ollama",
        "ready: specchat ask --target tiny",
    ]


def test_a_pair_with_the_same_target_stays_as_it_is(
    tiny: WriteModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the user wrote by hand is not replaced."""
    path = tmp_path / "m.gguf"
    path.write_bytes(tiny("llama").read_bytes())
    own_catalogue_path().parent.mkdir(parents=True)
    text = f'[pair.mine]\ndescription = "Mine"\ntarget = "{path}"\nsampling = {{ top_k = 5 }}\n'
    own_catalogue_path().write_text(text)
    assert main(["pull", str(path)]) == 0
    assert own_catalogue_path().read_text() == text
    err = capsys.readouterr().err
    assert "mine is already a pair with this target" in err
    assert err.splitlines()[-1] == "ready: specchat ask --pair mine"


@pytest.mark.slow(keep=5)
@pytest.mark.parametrize("words", [["pull"], ["pull", "--check"], ["rm", "--yes"], ["show"]])
@pytest.mark.parametrize("name", ["good/Some-7B-GGUF:Q8_0", "nobody/Some-7B-GGUF", "good/some-7b"])
def test_another_organizations_file_is_never_meant(
    models: dict[str, bytes], words: list[str], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """However alike the names are."""
    assert main(["pull", f"{REPO}:Q8_0"]) == 0
    capsys.readouterr()
    assert main([*words, name]) == 1
    out, err = capsys.readouterr()
    assert "Some-7B-Q8_0" not in out + err
    assert find_present(parse_name(f"{REPO}/Some-7B-Q8_0.gguf").reference)


@pytest.mark.slow
def test_a_revision_is_that_revision(
    models: dict[str, bytes], hub: HubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Main's file is not taken for another one's, and what was pulled at a commit is found."""
    assert main(["pull", f"{REPO}:Q8_0"]) == 0
    other = f"{hub.address}/{REPO}/blob/v2/Some-7B-Q8_0.gguf"
    with pytest.raises(ModelNotFound):
        file_of(other)
    assert main(["pull", "--check", f"{hub.address}/{REPO}/tree/v2"]) == 1
    assert main(["rm", "--yes", REPO]) == 0

    commit = hub.put("org/pinned", "m-Q4_0.gguf", models["draft"])
    page = f"{hub.address}/org/pinned/blob/{commit}/m-Q4_0.gguf"
    assert main(["pull", page]) == 0
    capsys.readouterr()
    for name in ("org/pinned", "org/pinned:Q4_0", page):
        assert main(["pull", "--check", name]) == 0
        assert main(["show", name]) == 0
    assert main(["rm", "--yes", "org/pinned"]) == 0
    assert main(["rm", "--yes", "org/pinned"]) == 1
    assert "nothing to delete for org/pinned: it is not installed" in capsys.readouterr().err


def test_the_case_of_a_pulled_file_does_not_matter(
    models: dict[str, bytes], hub: HubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is found as it is spelled on the hub."""
    assert main(["pull", f"{REPO}:Q8_0"]) == 0
    hub.seen.clear()
    name = f"{REPO}/some-7b-q8_0.GGUF".lower()
    assert main(["pull", name]) == 0
    assert main(["pull", "--check", name]) == 0
    assert hub.seen == []


def test_a_file_of_the_hub_is_installed_by_its_name_alone(
    models: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    """It is said to be installed, and can be checked."""
    assert main(["pull", f"{REPO}:Q8_0"]) == 0
    capsys.readouterr()
    assert main(["pull", "some-7b-q8_0"]) == 0
    assert "already installed" in capsys.readouterr().err
    assert main(["pull", "--check", "some-7b-q8_0"]) == 0


def test_lm_studios_model_is_here_already(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By its quantization or file; its repository alone can still be listed."""
    path = put(tmp_path / "HOME/.lmstudio/models/pub/Model-3B-GGUF/Model-3B-Q6_K.gguf")
    for name in ("pub/Model-3B-GGUF:Q6_K", "pub/Model-3B-GGUF/Model-3B-Q6_K.gguf"):
        assert main(["pull", name]) == 0
        out, err = capsys.readouterr()
        assert out == f"{path}\n"
        assert "is already here, from LM Studio" in err
    assert main(["pull", "pub/Model-3B-GGUF"]) == 1
    assert "there is no pub/Model-3B-GGUF at" in capsys.readouterr().err


def test_a_folder_named_without_a_slash_is_a_folder(
    tiny: WriteModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of more models than are saved at once, none is."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "many").mkdir()
    for number in range(3):
        (tmp_path / "many" / f"m{number}.gguf").write_bytes(tiny("llama").read_bytes())
    monkeypatch.setattr(pull_names, "MOST_REGISTERED", 2)
    assert main(["pull", "many"]) == 2
    assert "has 3 models, more than are saved at once (2)" in capsys.readouterr().err
    monkeypatch.setattr(pull_names, "MOST_REGISTERED", 3)
    assert main(["pull", "many"]) == 0
    assert {"m0", "m1", "m2"} <= set(load_entries())
