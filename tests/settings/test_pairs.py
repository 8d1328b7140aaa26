"""Writing pairs into the user's own models.toml: everything else in it stays."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from specchat.catalogue.pairs import drop_pair, has_pair, write_pair
from specchat.errors import SettingsError

OWN = """\
# My models.

[file.small]  # shared
repository = "org/small"
file = "small.gguf"

[pair.first]   # the best
description = 'One'   # a word
target = "small"
sampling = { temperature = 0.5 }

# the end
"""
MINE = {"description": "Mine", "target": "/models/a.gguf"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A models.toml with comments."""
    path = tmp_path / "models.toml"
    path.write_text(OWN)
    return path


def test_a_pair_is_added_and_every_comment_stays(path: Path) -> None:
    """The text before it is unchanged, and removing the pair leaves just that."""
    write_pair(path, "mine", MINE)

    text = path.read_text()
    assert text.startswith(OWN)
    assert tomllib.loads(text)["pair"]["mine"] == MINE
    assert has_pair(path, "mine")
    drop_pair(path, "mine")
    assert path.read_text().rstrip() == OWN.rstrip()
    assert not has_pair(path, "mine")


def test_a_pair_of_that_name_is_replaced(path: Path) -> None:
    """Comments beside it stay, its values go."""
    write_pair(path, "first", MINE)

    text = path.read_text()
    assert tomllib.loads(text)["pair"] == {"first": MINE}
    for comment in ("# My models.", "# shared", "# the best", "# the end"):
        assert comment in text


def test_a_missing_file_is_created_for_the_user_alone(tmp_path: Path) -> None:
    """The file begins with a comment on its purpose."""
    path = tmp_path / "folder" / "models.toml"
    write_pair(path, "mine", MINE)

    assert path.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0
    assert path.read_text().startswith("# Your own pairs")
    assert tomllib.loads(path.read_text()) == {"pair": {"mine": MINE}}


@pytest.mark.parametrize("name", ["a.b", "qwen3:8b", "x-1", 'a"b', "a b", "\\", "ü"])
def test_names_are_quoted_where_necessary(path: Path, name: str) -> None:
    """Paths keep their quotes and backslashes."""
    values = {**MINE, "target": 'C:\\models\\"a".gguf'}
    write_pair(path, name, values)
    write_pair(path, name, values)

    assert tomllib.loads(path.read_text())["pair"][name] == values


@pytest.mark.parametrize(
    "text",
    [
        "pair = { first = { description = 'One', target = 'a.gguf' } }\n",
        "pair.first.description = 'One'\n",
        "[pair]\nfirst = { description = 'One' }",
        "",
        "\r\n[pair.first]\r\ndescription = 'One'\r\n",
    ],
)
def test_pairs_may_be_in_any_form_of_toml(tmp_path: Path, text: str) -> None:
    """Their values are kept."""
    path = tmp_path / "models.toml"
    path.write_bytes(text.encode())
    before = tomllib.loads(text.replace("\r\n", "\n")).get("pair", {})
    write_pair(path, "mine", MINE)

    assert tomllib.loads(path.read_text("utf-8"))["pair"] == {**before, "mine": MINE}


def test_a_damaged_file_is_left_as_it_is(path: Path) -> None:
    """The wrong line is named."""
    path.write_text("[pair\n")
    with pytest.raises(SettingsError, match="line 1"):
        write_pair(path, "mine", MINE)

    assert path.read_text() == "[pair\n"
