"""The projector that a pair is loaded with: the one named, else the one that is beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import WriteModel
from scripts.support.tiny_gguf import write_projector
from specchat.catalogue.pairs import Pair
from specchat.cli import main
from specchat.cli.arguments import parse
from specchat.cli.model_arguments import chosen_pair, loading_of
from specchat.cli.option_arguments import complete
from specchat.images.text_only import text_only


@pytest.fixture(autouse=True)
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny: WriteModel) -> Path:
    """A target with a projector beside it, and another user's settings."""
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    path = tmp_path / "sees.gguf"
    path.write_bytes(tiny("llama").read_bytes())
    write_projector(tmp_path / "mmproj-sees-F16.gguf", "mlp")
    return path


def projector_of(target: Path, *words: str, opened: Path | None = None) -> str | None:
    """Return the projector for a command line, or for a pair that is opened later."""
    arguments = parse(["ask", "--target", str(target), *words, "hi"])
    complete(arguments)
    pair = Pair("later", "", opened, None, {}) if opened else chosen_pair(arguments)
    projector = loading_of(arguments, pair).projector
    return projector.name if projector else None


def test_the_one_beside_is_taken_unless_another_is_named(target: Path, tmp_path: Path) -> None:
    """`none` leaves it out."""
    (tmp_path / "other").mkdir()
    other = write_projector(tmp_path / "other" / "mine.gguf", "mlp")
    assert projector_of(target) == "mmproj-sees-F16.gguf"
    assert projector_of(target, "--projector", "none") is None
    assert projector_of(target, "--projector", str(other)) == "mine.gguf"


def test_a_draft_model_takes_the_one_beside_itself(
    target: Path, tmp_path: Path, tiny: WriteModel
) -> None:
    """Only if the target reads images, too; another's is left out."""
    folder = tmp_path / "draft"
    folder.mkdir()
    draft = folder / "small.gguf"
    draft.write_bytes(tiny("llama", "half right").read_bytes())

    def of_draft(*words: str) -> str | None:
        arguments = parse(["ask", "--target", str(target), "--draft", str(draft), *words, "hi"])
        complete(arguments)
        found = loading_of(arguments, chosen_pair(arguments)).draft_projector
        return found.name if found else None

    assert of_draft() is None
    write_projector(folder / "mmproj-F16.gguf", "mlp")
    assert of_draft() == "mmproj-F16.gguf"
    assert of_draft("--projector", "none") is None


def test_one_of_the_settings_is_for_the_models_that_it_fits(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny: WriteModel
) -> None:
    """It keeps no other model from being loaded, which one that was typed along with it does."""
    wide = write_projector(tmp_path / "wide.gguf", "mlp", text_width=96)
    monkeypatch.setenv("SPECCHAT_PROJECTOR", str(wide))
    assert projector_of(target) == "mmproj-sees-F16.gguf"
    assert projector_of(tiny("llama")) is None
    monkeypatch.delenv("SPECCHAT_PROJECTOR")
    assert projector_of(target, "--projector", str(wide)) == "wide.gguf"
    assert projector_of(target, "--projector", str(wide), opened=tiny("gemma3")) is None


def test_one_that_is_not_there_is_said(
    target: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever names it: a typing error must not go unseen."""
    words = ["ask", "--no-stdin", "--target", str(target), "hi"]
    assert main([*words, "--projector", "mistyped.gguf"]) == 1
    assert "mistyped.gguf: no such file: it was to be the projector" in capsys.readouterr().err
    monkeypatch.setenv("SPECCHAT_PROJECTOR", "mistyped.gguf")
    assert main(words) == 2
    assert "SPECCHAT_PROJECTOR" in capsys.readouterr().err


def test_show_names_the_one_that_is_loaded(
    target: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """None with the setting "none"."""
    assert main(["show", str(target)]) == 0
    assert "images       read with " in capsys.readouterr().out
    monkeypatch.setenv("SPECCHAT_PROJECTOR", "none")
    assert main(["show", str(target)]) == 0
    assert "images       read with " not in capsys.readouterr().out


def test_an_image_for_a_model_without_one_is_refused_before_it_is_loaded(
    tiny: WriteModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line says what is missing."""
    (tmp_path / "a.png").write_bytes(b"no image")
    words = ["--target", str(tiny("llama")), "--image", str(tmp_path / "a.png"), "What?"]
    assert main(["ask", "--no-stdin", *words]) == 2
    error = capsys.readouterr().err
    assert error.endswith(f"{text_only(tiny('llama').name, advises=True)}\n")
