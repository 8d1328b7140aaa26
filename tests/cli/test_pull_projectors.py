"""`specchat pull` offers what makes a model read images, and takes it by its name."""

from __future__ import annotations

import hashlib
import io
import sys
from pathlib import Path

import pytest

from hub_server import HubServer
from scripts.support.tiny_gguf import write_model, write_projector
from specchat.catalogue.catalogue_file import own_catalogue_path
from specchat.catalogue.projectors import projector_for
from specchat.cli import main, pull
from specchat.planning.device import Machine
from specchat.settings.editor import write_setting
from specchat.settings.sources import settings_path
from specchat.wording import size_text

REPO, TARGET, PROJECTOR = "org/Sees-2B-GGUF", "Sees-2B-Q8_0.gguf", "mmproj-F16.gguf"
OWN = f"""
[pair.sees]
description = "Reads images"
target = {{ repository = "{REPO}", file = "{TARGET}" }}
draft = {{ repository = "org/Small-GGUF", file = "small.gguf" }}
"""


def sha256_of(content: bytes) -> str:
    """Return the checksum of a file."""
    return hashlib.sha256(content).hexdigest()


class Terminal(io.StringIO):
    """Standard input of a terminal, on which an answer is typed."""

    def isatty(self) -> bool:
        """Return that it is one."""
        return True


@pytest.fixture(autouse=True)
def _on_hub(hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A target and its projectors on the hub, no terminal, and a machine that measures nothing."""
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.delenv("OLLAMA_MODELS", raising=False)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.setattr(pull, "find_machine", lambda: Machine(2**40, ()))
    monkeypatch.setattr(pull, "measure_pulled", lambda *_, **__: None)
    commit = "c" * 40
    hub.put(REPO, TARGET, write_model(tmp_path / "a.gguf", "llama").read_bytes(), commit=commit)
    projector = write_projector(tmp_path / "p.gguf", "mlp").read_bytes()
    for file in ("mmproj-F32.gguf", PROJECTOR, "other/mmproj-Q8_0.gguf"):
        hub.put(REPO, file, projector, commit=commit)


def pulled(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[list[Path], str]:
    """Pull a name, and return the paths that are printed, and the messages."""
    assert main(["pull", *words]) == 0
    out, err = capsys.readouterr()
    return [Path(line) for line in out.splitlines()], err


def test_a_projector_is_named_with_the_command_that_fetches_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nobody asked for images, so it is not fetched; pulled by its name, the target has it."""
    (target,), err = pulled(capsys, f"{REPO}:Q8_0")
    command = f"`specchat pull {REPO}/{PROJECTOR}`"
    assert f"images: {command} fetches what makes it read them (" in err
    assert projector_for(target) is None

    (projector,), err = pulled(capsys, f"{REPO}/{PROJECTOR}")
    assert err.endswith("makes images readable for the model of its repository, which finds it\n")
    assert projector_for(target) == projector
    assert main(["show", f"{REPO}/{TARGET}"]) == 0
    assert f"images       read with {projector}\n" in capsys.readouterr().out
    (_,), err = pulled(capsys, f"{REPO}:Q8_0")
    assert "images" not in err


@pytest.mark.parametrize(
    ("words", "is_offered"),
    [
        (["sees"], True),
        ([f"{REPO}/{TARGET}", "--draft", "org/Small-GGUF/small.gguf"], True),
        ([f"{REPO}/{TARGET}", "--draft", "none"], False),
    ],
)
def test_a_pair_is_offered_one(
    words: list[str], is_offered: bool, hub: HubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the catalogue, or of two files: its target reads images, whatever drafts for it."""
    hub.put("org/Small-GGUF", "small.gguf", hub.files[REPO, "c" * 40, TARGET])
    own_catalogue_path().parent.mkdir(parents=True)
    own_catalogue_path().write_text(OWN)
    command = f"images: `specchat pull {REPO}/{PROJECTOR}` fetches what makes it read them ("
    assert pulled(capsys, *words)[1].count(command) == is_offered
    assert command not in pulled(capsys, *words)[1]  # it was declined


@pytest.mark.parametrize("is_right", [True, False])
def test_a_pair_names_its_own(
    is_right: bool,
    hub: HubServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With its size and checksum: no list of the repository is needed, and no wrong file taken."""
    content = hub.files[REPO, "c" * 40, PROJECTOR]
    hub.files[REPO, "c" * 40, PROJECTOR] = content if is_right else bytes(len(content))
    hub.put("org/Small-GGUF", "small.gguf", hub.files[REPO, "c" * 40, TARGET])
    own_catalogue_path().parent.mkdir(parents=True)
    own_catalogue_path().write_text(
        f'{OWN}projector = {{ repository = "{REPO}", file = "{PROJECTOR}", bytes = {len(content)},'
        f' sha256 = "{sha256_of(content)}" }}'
    )
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    paths, err = pulled(capsys, "sees")
    assert f"pull {PROJECTOR} ({size_text(len(content))}), too, to read images?" in err
    assert projector_for(paths[0]) == (paths[2] if is_right else None)
    assert ("without its projector: " in err) != is_right
    assert not any("/tree/" in seen.path for seen in hub.seen)


@pytest.mark.parametrize(("answer", "is_taken"), [("y\n", True), ("\n", False), ("", False)])
def test_on_a_terminal_a_projector_is_asked_about(
    answer: str,
    is_taken: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Those who only write do without its size."""
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    paths, err = pulled(capsys, f"{REPO}:Q8_0")
    assert f"pull {PROJECTOR} (" in err
    assert "), too, to read images?" in err
    assert [path.name for path in paths] == [TARGET, *[PROJECTOR] * is_taken]


def test_a_projector_is_deleted_with_the_last_model_that_uses_it(
    hub: HubServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another quantization of the model keeps it."""
    other = write_model(tmp_path / "b.gguf", "llama").read_bytes()
    hub.put(REPO, "Sees-2B-Q4_K_M.gguf", other, commit="c" * 40)
    (projector,) = pulled(capsys, f"{REPO}/{PROJECTOR}")[0]
    targets = [pulled(capsys, f"{REPO}:{name}")[0][0] for name in ("Q8_0", "Q4_K_M")]
    assert [projector_for(target) for target in targets] == [projector, projector]
    for target in targets:
        assert projector.is_file()
        assert main(["rm", f"{REPO}/{target.name}", "--yes"]) == 0
    assert not projector.is_file()
    assert f"deleting {REPO}/{PROJECTOR}" in capsys.readouterr().err


def test_a_projector_stays_with_a_target_that_another_pair_has(
    hub: HubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """That pair goes on reading images."""
    content = hub.files[REPO, "c" * 40, TARGET]
    hub.put("org/Small-GGUF", "small.gguf", content + bytes(1), commit="e" * 40)
    hub.put("org/Small-GGUF", "tiny.gguf", content + bytes(2), commit="e" * 40)
    own_catalogue_path().parent.mkdir(parents=True)
    own_catalogue_path().write_text(OWN + OWN.replace("sees", "too").replace("small.", "tiny."))
    pulled(capsys, "too")
    target, draft = pulled(capsys, "sees")[0]
    (projector,) = pulled(capsys, f"{REPO}/{PROJECTOR}")[0]
    assert main(["rm", "sees", "--yes"]) == 0
    assert [path.is_file() for path in (target, draft, projector)] == [True, False, True]
    assert projector_for(target) == projector


@pytest.mark.parametrize("is_in_settings", [False, True])
def test_a_projector_of_another_commit_is_deleted_unless_the_settings_name_it(
    is_in_settings: bool, hub: HubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pair may pin its target, which the projector of the main branch came to later."""
    target, projector = (hub.files[REPO, "c" * 40, file] for file in (TARGET, PROJECTOR))
    hub.put("org/Small-GGUF", "small.gguf", target)
    pin = f'revision = "{"c" * 40}", bytes = {len(target)}, sha256 = "{sha256_of(target)}"'
    own_catalogue_path().parent.mkdir(parents=True)
    own_catalogue_path().write_text(OWN.replace(f'file = "{TARGET}"', f'file = "{TARGET}", {pin}'))
    hub.put(REPO, PROJECTOR, projector, commit="d" * 40)
    pinned = pulled(capsys, "sees")[0][0]
    (later,) = pulled(capsys, f"{REPO}/{PROJECTOR}")[0]
    assert pinned.parent != later.parent
    assert projector_for(pinned) == later
    if is_in_settings:
        write_setting(settings_path(), "model.projector", str(later))
    assert main(["rm", "sees", "--yes"]) == 0
    assert not pinned.is_file()
    assert later.is_file() == is_in_settings
