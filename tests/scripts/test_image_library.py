"""What reads images is made once, by whoever needs it first: a test, or a user's first image."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.setup_env import fast, image_library
from scripts.setup_env.checks import check_everything
from scripts.setup_env.running import CommandFailed, SetUpFailed


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return where the library was built, in an environment that has none yet."""
    builds: list[Path] = []

    def build(place: Path) -> None:
        builds.append(place)
        made = tmp_path / "made" / "libmtmd.so"
        made.parent.mkdir(exist_ok=True)
        made.write_bytes(b"library")
        image_library.keep(made.parent, image_library.folder())

    (tmp_path / "lib/site-packages/llama_cpp/lib").mkdir(parents=True)
    records = tmp_path / "records"
    records.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(fast, "VENV", str(tmp_path))
    monkeypatch.setattr(fast, "RECORDS", str(records))
    for name, path in {"LOCK": "lock", "OWNER": "owner", "LOG": "log"}.items():
        monkeypatch.setattr(f"scripts.setup_env.running.{name}", records / path)
    monkeypatch.setattr("scripts.setup_env.stages.RECORDS", records)
    monkeypatch.setattr(image_library, "run_pip", lambda *_: None)
    monkeypatch.setattr(image_library, "_build", build)
    return builds


def test_the_library_is_built_once_for_all_environments_of_a_release(built: list[Path]) -> None:
    """Another environment finds it, and if it was removed it is built again."""
    image_library.provide()
    image_library.provide()
    assert len(built) == 1
    (Path(fast.RECORDS) / image_library.IMAGES).unlink()
    image_library.provide()
    assert len(built) == 1
    (library,) = image_library.folder().iterdir()
    assert library.read_bytes() == b"library"
    library.unlink()
    image_library.provide()
    assert len(built) == 2


@pytest.mark.parametrize("failure", [SetUpFailed("no compiler"), CommandFailed(["error: x"])])
def test_what_cannot_be_built_is_said_in_a_line(
    failure: Exception,
    built: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Those who show an image then hear the same from specchat, which needs it."""

    def fail(place: Path) -> None:
        built.append(place)
        raise failure

    monkeypatch.setattr(image_library, "_build", fail)
    assert image_library.main() == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("specchat: images cannot be read: ")
    assert not (Path(fast.RECORDS) / image_library.IMAGES).exists()
    assert built


def test_the_tests_are_given_what_reads_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever are run: in CI their skips would go unnoticed."""
    provided: list[str] = []
    monkeypatch.setattr(
        "scripts.setup_env.checks._provide", lambda what, fetch: provided.append(fetch.__name__)
    )
    monkeypatch.setattr(
        "scripts.setup_env.checks._python",
        lambda *_, **__: type("Done", (), {"returncode": 0, "stdout": ""}),
    )
    assert check_everything(["tests/llama"]) == 0
    assert "provide" in provided
