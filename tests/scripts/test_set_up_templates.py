"""The set-up keeps the chat templates of llama.cpp's source, where the tests find them."""

from pathlib import Path

import pytest

from scripts.setup_env import templates, wheels
from scripts.setup_env.running import SetUpFailed

VERSION = "1.2.3"


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an unpacked source with a template, which is what the set-up would download."""
    monkeypatch.delenv(templates.VARIABLE, raising=False)
    monkeypatch.setattr(wheels, "cache_folder", lambda: tmp_path / "cache" / "wheels")
    monkeypatch.setattr(wheels, "source", lambda _version: tmp_path / "source")
    monkeypatch.setattr(wheels, "forget_build", lambda: None)
    folder = tmp_path / "source" / templates.INSIDE
    folder.mkdir(parents=True)
    (folder / "one.jinja").write_text("{{ messages }}", "utf-8")
    (folder / "README.md").write_text("not a template", "utf-8")
    return tmp_path / "source"


def test_templates_are_kept_when_llama_cpp_is_built(source: Path) -> None:
    """Of the folder, the templates alone are copied."""
    assert templates.find_templates(VERSION) is None

    kept = templates.keep_templates(VERSION, source)

    assert [path.name for path in kept.iterdir()] == ["one.jinja"]
    assert templates.find_templates(VERSION) == kept
    assert templates.keep_templates(VERSION, source / "gone") == kept


def test_templates_are_fetched_once_where_the_wheel_was_built_before(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source is downloaded for them, and not again."""
    fetched = templates.fetch_templates(VERSION)
    monkeypatch.setattr(wheels, "source", lambda _version: pytest.fail("downloaded again"))

    assert templates.fetch_templates(VERSION) == fetched


def test_a_folder_of_templates_can_be_named(
    source: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The variable names it; one without templates is an error."""
    monkeypatch.setenv(templates.VARIABLE, str(tmp_path))
    with pytest.raises(SetUpFailed, match="has no templates"):
        templates.find_templates(VERSION)
    monkeypatch.setenv(templates.VARIABLE, str(source / templates.INSIDE))

    assert templates.find_templates(VERSION) == source / templates.INSIDE
