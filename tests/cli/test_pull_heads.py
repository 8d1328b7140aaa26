"""`specchat pull` takes a target's prediction head with it, from wherever it is on the hub."""

from __future__ import annotations

import io
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hub_server import HubServer
from scripts.support.tiny_gguf import write_with_head
from specchat.catalogue import head_offers
from specchat.catalogue.catalogue_file import own_catalogue_path
from specchat.catalogue.draft_choice import find_drafts
from specchat.cli import main, pull
from specchat.planning.device import Machine
from specchat.planning.forecast import Forecast, HeadCost, foresee

REPO = "org/Tall-8B-GGUF"
HEADS = "other/Tall-8B-MTP-ONLY-GGUF"
TARGET, HEAD = "Tall-8B-Q8_0.gguf", "mtp-Tall-8B-Q8_0.gguf"
KNOWN = f"""
[head.tall]
model = "Tall-8B"
kind = "mtp"
licence = "MIT"

[head.tall.file]
repository = "{HEADS}"
file = "{HEAD}"
"""


@pytest.fixture(autouse=True)
def _alone(hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A target on the hub, no terminal, no other models, and a machine that measures nothing."""
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.delenv("OLLAMA_MODELS", raising=False)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.setattr(pull, "find_machine", lambda: Machine(2**40, ()))
    monkeypatch.setattr(pull, "measure_pulled", lambda *_, **__: None)
    hub.put(REPO, TARGET, part(tmp_path, "trunk"), commit="c" * 40)


def part(folder: Path, name: str, width: int = 64, noise: float = 0.1) -> bytes:
    """Return the bytes of a part of a tiny model with a prediction head."""
    path = folder / f"{name}-{width}-{noise}.gguf"
    return write_with_head(path, part=name, width=width, noise=noise).read_bytes()


def pulled(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[list[Path], str]:
    """Pull a name, and return the paths that are printed, and the messages."""
    assert main(["pull", *words]) == 0
    out, err = capsys.readouterr()
    return [Path(line) for line in out.splitlines()], err


def assert_found_offline(
    hub: HubServer, target: Path, head: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check that a target's head is found by itself, without asking the hub."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    hub.seen.clear()
    best = find_drafts(target).best
    assert best is not None
    assert (best.model.path.resolve(), best.is_head) == (head.resolve(), True)
    assert hub.seen == []


@pytest.mark.parametrize("file", [HEAD, f"MTP/{HEAD}", "MTP/Tall-8B-Q8_0-MTP.gguf"])
def test_a_head_of_the_same_repository_comes_with_its_target(
    hub: HubServer,
    tmp_path: Path,
    file: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The message says its size and what it takes; offline afterwards it is found by itself."""
    content = part(tmp_path, "head")
    hub.put(REPO, file, content, commit="c" * 40)
    (target, head), err = pulled(capsys, f"{REPO}:Q8_0")

    assert (target.name, head.read_bytes()) == (TARGET, content)
    size = f"{len(content) / 1e3:.0f} kB"
    assert f"its prediction head: {REPO}/{file} (from the same repository, {size}, takes " in err
    assert err.endswith(f"--target {REPO}/{TARGET} --draft {REPO}/{file}\n")

    assert_found_offline(hub, target, head, monkeypatch)


def test_a_target_can_be_pulled_without_its_head(
    hub: HubServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The head is not even looked for."""
    hub.put(REPO, HEAD, part(tmp_path, "head"), commit="c" * 40)
    (target,), err = pulled(capsys, f"{REPO}:Q8_0", "--draft", "none")

    assert (target.name, "head" in err) == (TARGET, False)
    assert not [seen for seen in hub.seen if HEAD in seen.path]


def test_the_catalogues_head_comes_from_a_repository_of_its_own(
    hub: HubServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """For any quantization of the model; until it is here, lists name the command that gets it."""
    hub.put(HEADS, HEAD, part(tmp_path, "head"))
    own_catalogue_path().parent.mkdir(parents=True)
    own_catalogue_path().write_text(KNOWN)
    (target,), _ = pulled(capsys, f"{REPO}:Q8_0", "--draft", "none")
    offer = f"an MTP head: `specchat pull {HEADS}/{HEAD}` gets it"
    assert main(["list"]) == 0
    assert f"{REPO}/{TARGET} lacks its head, {offer}\n" in capsys.readouterr().out
    assert main(["show", str(target)]) == 0
    assert f"head         not here: {offer}\n" in capsys.readouterr().out

    assert main(["rm", "--yes", f"{REPO}/{TARGET}"]) == 0
    capsys.readouterr()
    (_, head), err = pulled(capsys, f"{REPO}:Q8_0")
    assert head.name == HEAD
    assert f"its prediction head: {HEADS}/{HEAD} (the catalogue's head for it, " in err
    assert main(["list"]) == 0
    assert "lacks its head" not in capsys.readouterr().out


def test_a_repository_of_a_head_alone_is_pulled_for_the_target_that_is_here(
    hub: HubServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without the target, the message says what is missing; later it is found for it, offline."""
    hub.put(HEADS, HEAD, part(tmp_path, "head"))
    (head,), err = pulled(capsys, f"{HEADS}:Q8_0")
    assert head.name == HEAD
    assert err.endswith(
        f"it is a prediction head; pull its target, too: it drafts with --draft {HEADS}/{HEAD}\n"
    )

    (target,), err = pulled(capsys, f"{REPO}:Q8_0")
    assert f"draft: {HEADS}/{HEAD} from the Hugging Face cache: a prediction head for it" in err
    assert target.name == TARGET
    _, err = pulled(capsys, f"{HEADS}:Q8_0")
    words = ["specchat", "ask", "--target", f"{REPO}/{TARGET}", "--draft", f"{HEADS}/{HEAD}"]
    assert err.endswith(f"ready: {shlex.join(words)}\n")
    assert_found_offline(hub, target, head, monkeypatch)


def test_of_several_heads_one_is_taken_and_the_others_are_named(
    hub: HubServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The most exact one up to 8 bits that fits; which is fastest is for `tune` to measure."""
    names = [f"mtp-Tall-8B-{name}.gguf" for name in ("Q4_0", "Q8_0", "BF16")]
    for number, name in enumerate(names):
        hub.put(REPO, name, part(tmp_path, "head", noise=number / 10), commit="c" * 40)
    hub.put(REPO, "mtp-Tall-70B-Q8_0.gguf", part(tmp_path, "head"), commit="c" * 40)
    hub.put(REPO, "eagle3-Tall-8B-Q8_0.gguf", part(tmp_path, "head", 128), commit="c" * 40)
    (target, head), err = pulled(capsys, f"{REPO}:Q8_0")

    assert head.name == names[1]
    assert f"{REPO}/{names[0]}" in err
    assert "Tall-70B" not in err
    _, err = pulled(capsys, f"{REPO}/{names[0]}")
    best = find_drafts(target).best
    assert best is not None
    assert best.why.endswith("2 heads fit it: `specchat tune` measures which is fastest")
    assert_found_offline(hub, target, best.model.path, monkeypatch)


def test_a_head_that_does_not_fit_is_not_taken(
    hub: HubServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever it is named: its header is read before the file is fetched."""
    hub.put(REPO, HEAD, part(tmp_path, "head", width=128), commit="c" * 40)
    (target,), err = pulled(capsys, f"{REPO}:Q8_0")

    assert target.name == TARGET
    assert "its prediction head" not in err


def test_a_head_without_room_beside_its_target_is_left_on_the_hub(
    hub: HubServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The message says so, and names the command that fetches it anyway."""
    hub.put(REPO, HEAD, part(tmp_path, "head"), commit="c" * 40)
    contexts = []

    def without_room(*given: Any) -> Forecast:
        contexts.append(given[2].ctx)
        left_out = HeadCost(0, "", ctx=2048, longest_ctx=2048)
        return replace(foresee(*given), head=left_out)

    monkeypatch.setattr(head_offers, "foresee", without_room)
    monkeypatch.setenv("SPECCHAT_CTX", "512")
    (target,), err = pulled(capsys, f"{REPO}:Q8_0")

    assert target.name == TARGET
    assert "is left out here: there is no memory for it beside the target)" in err
    assert f"`specchat pull {REPO}/{HEAD}` fetches it anyway" in err
    assert contexts == [512]
