"""Writing settings: one changes, and everything else in the user's file stays."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

from specchat.errors import InvalidOption, SettingsError
from specchat.settings.editor import create_settings, documented_settings, write_setting
from specchat.settings.schema import SETTINGS, TABLES
from specchat.settings.sources import read_settings

FILE = """\
# mine
[screen]  # first
theme = "nord"  # as in my editor

# how I like it
[sampling]
# seed = 7
top_k = 20 # few
 # about the end
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of a settings file in a folder that does not exist yet."""
    return tmp_path / "new" / "config.toml"


def written(path: Path, text: str, name: str, value: object) -> str:
    """Write a setting into a file with this text and return the new text."""
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text.encode())
    write_setting(path, name, value)
    return path.read_bytes().decode()


def test_a_change_keeps_comments_and_order(path: Path) -> None:
    """Only the value differs; the comment behind it stays."""
    assert written(path, FILE, "sampling.top_k", 30) == FILE.replace("20", "30")
    assert written(path, FILE, "screen.theme", "a\n\"'") == FILE.replace('"nord"', '"a\\n\\"\'"')


def test_a_new_setting_follows_the_line_that_shows_it(path: Path) -> None:
    """Or the last setting of its table; a new table comes last."""
    assert written(path, FILE, "sampling.seed", 3) == FILE.replace(
        "# seed = 7\n", "# seed = 7\nseed = 3\n"
    )
    assert written(path, FILE, "sampling.min_p", 0.1) == FILE.replace(
        "# few\n", "# few\nmin_p = 0.1\n"
    )
    assert written(path, FILE, "chat.history", False) == f"{FILE}\n[chat]\nhistory = false\n"


def test_removing_a_setting_leaves_the_rest(path: Path) -> None:
    """If there is nothing to remove, no file is created or changed."""
    assert written(path, FILE, "screen.theme", None) == FILE.replace(
        'theme = "nord"  # as in my editor\n', ""
    )
    assert written(path, FILE, "sampling.seed", None) == FILE
    path.unlink()
    write_setting(path, "sampling.seed", None)
    assert not path.exists()


@pytest.mark.parametrize(
    "text",
    [
        "sampling.top_k = 1 # a\nsampling.seed = 2 # b\n",
        "sampling = { top_k = 1, seed = 2 } # a\n",
        "[sampling]\r\ntop_k = 1 # a\r\n\r\n# b\r\n[screen]\r\n",
        "[sampling]\ntop_k = 1",
        "\ufeff[sampling]\ntop_k = 1\n[chat]\nsystem_prompt = '''\n[sampling]\n# min_p = 1\n'''\n",
        "# only a comment",
        "",
    ],
)
def test_every_way_to_write_a_table_is_kept(path: Path, text: str) -> None:
    """Dotted names, inline tables, Windows line ends, no final line end: comments stay."""
    before = tomllib.loads(text.removeprefix("\ufeff"))
    for name, value in (("min_p", 0.5), ("top_k", 9)):
        result = written(path, text, f"sampling.{name}", value)

        wanted = {**before, "sampling": {**before.get("sampling", {}), name: value}}
        assert tomllib.loads(result) == wanted
        assert all(f"# {word}" in result for word in ("a", "b") if f"# {word}" in text)


def test_a_new_file_explains_every_setting(path: Path) -> None:
    """A new file sets nothing; with its lines uncommented it is valid."""
    create_settings(path)
    text = path.read_text("utf-8")
    assert text == documented_settings()
    assert read_settings(path, {}).given == {}

    lines = [
        line.removeprefix("# ") if line.partition(" = ")[2] else line for line in text.split("\n")
    ]
    lines.remove('target = "~/models/target.gguf"')  # a pair, a target or a server
    lines.remove('connect = "http://workstation:8080"')
    path.write_text("\n".join(lines), "utf-8")
    named = {setting.name for setting in SETTINGS} - {"model.target", "model.connect"}
    assert set(read_settings(path, {}).given) == {*named, "servers.workstation", "keys.quit"}


def test_an_existing_file_is_not_replaced(path: Path) -> None:
    """An empty file is not replaced either."""
    path.parent.mkdir()
    path.write_text("")
    create_settings(path)
    assert path.read_text() == ""


def test_setting_and_removing_restores_the_file(path: Path) -> None:
    """The documented one, for every setting and for a key."""
    create_settings(path)
    for setting in SETTINGS:
        write_setting(path, setting.name, setting.sample)
        assert list(read_settings(path, {}).given) == [setting.name]
        write_setting(path, setting.name, None)
        assert path.read_text("utf-8") == documented_settings()
    write_setting(path, "keys.quit", "ctrl+x")
    assert read_settings(path, {}).key_bindings == {"quit": "ctrl+x"}


def test_a_pair_takes_the_place_of_a_target(path: Path) -> None:
    """A file with both could not be read."""
    write_setting(path, "model.target", Path("/models/a.gguf"))
    write_setting(path, "model.pair", "demo")
    assert set(read_settings(path, {}).given) == {"model.pair"}
    write_setting(path, "model.target", Path("/models/a.gguf"))
    assert read_settings(path, {})["model.target"] == Path("/models/a.gguf")


def test_the_file_is_the_users_alone(path: Path) -> None:
    """The folder is private, too; nothing else is left in it."""
    write_setting(path, "sampling.seed", 1)

    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert os.listdir(path.parent) == ["config.toml"]  # noqa: PTH208 -- hidden ones too


@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_stays_a_link(path: Path, tmp_path: Path, is_there: bool) -> None:
    """The settings may be kept in a repository of dotfiles."""
    real = tmp_path / "dotfiles.toml"
    if is_there:
        real.write_text(FILE)
    path.parent.mkdir()
    path.symlink_to(real)
    write_setting(path, "sampling.top_k", 30)

    assert path.is_symlink()
    assert tomllib.loads(real.read_text())["sampling"]["top_k"] == 30


def test_a_wrong_name_or_value_touches_nothing(path: Path) -> None:
    """An invalid name or value is refused before the file is opened."""
    with pytest.raises(InvalidOption, match=r"sampling.top_k must be"):
        write_setting(path, "sampling.top_k", -1)
    with pytest.raises(InvalidOption, match=r"did you mean sampling.top_k"):
        write_setting(path, "sampling.topk", None)
    assert not path.exists()


def test_a_damaged_file_is_left_as_it_is(path: Path) -> None:
    """The wrong line is named; a wrong value elsewhere does not matter."""
    with pytest.raises(SettingsError, match="line 2"):
        written(path, "[screen]\ntheme = \n", "sampling.top_k", 1)
    assert path.read_text() == "[screen]\ntheme = \n"
    assert "theme = 3" in written(path, "[screen]\ntheme = 3\n", "screen.animations", True)


def test_what_cannot_be_set_without_damage_is_refused(path: Path) -> None:
    """For instance if the file uses a table's name for something else."""
    with pytest.raises(SettingsError, match=r"sampling.top_k cannot be set"):
        written(path, "[[sampling]]\nx = 1\n", "sampling.top_k", 1)
    assert path.read_text() == "[[sampling]]\nx = 1\n"


def test_a_full_disk_leaves_the_old_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error gives the reason, and no partial file remains."""

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    path.parent.mkdir()
    path.write_text(FILE)
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(SettingsError, match="cannot be written: No space left"):
        write_setting(path, "sampling.top_k", 1)
    assert path.read_text() == FILE
    assert list(path.parent.iterdir()) == [path]


def test_a_value_that_is_not_utf_8_is_refused(path: Path) -> None:
    """A path may hold bytes that are not UTF-8."""
    with pytest.raises(SettingsError, match="not UTF-8"):
        write_setting(path, "model.target", "/models/\udcff.gguf")
    assert not path.exists()


def test_every_table_is_documented() -> None:
    """Including the keys."""
    assert list(tomllib.loads(documented_settings())) == list(TABLES)
