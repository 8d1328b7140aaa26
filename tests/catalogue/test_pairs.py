"""models.toml: the pairs it names, and what is said when it is damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from specchat.catalogue.catalogue_file import DEMO, load_entries
from specchat.catalogue.pairs import find_pair
from specchat.errors import CatalogueError, ModelNotFound


def test_the_demo_pair_is_there() -> None:
    """Both files are in the package."""
    pair = find_pair(DEMO)

    assert pair.target.is_file()
    assert pair.draft is not None
    assert pair.draft.is_file()
    assert pair.target.stat().st_size + pair.draft.stat().st_size < 25_000_000


def test_an_unknown_pair_names_the_most_similar_one() -> None:
    """And the command that names all, which are too many for a line."""
    with pytest.raises(
        ModelNotFound, match=r"'qwen3-4' \(did you mean qwen3-4b\?\): `specchat list`"
    ):
        find_pair("qwen3-4")


@pytest.mark.parametrize("content", ["[pair", "pair = 3", "[pair.x]\ntarget = 1", "[pear.x]"])
def test_a_damaged_catalogue_is_named(tmp_path: Path, content: str) -> None:
    """The path is in the message."""
    path = tmp_path / "models.toml"
    path.write_text(content)
    with pytest.raises(CatalogueError, match=r"models\.toml"):
        load_entries(path)


def test_a_missing_catalogue_is_named(tmp_path: Path) -> None:
    """A broken installation says so."""
    with pytest.raises(CatalogueError, match="missing"):
        load_entries(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"\xff\xfe", "models.toml"),
        (b"[pair.x]\ntarget = 'a'", "line 1: pair x: 'description' is missing"),
        (
            b"[pair.x]\ndescription = 'd'\ntarget = 'a.gguf'\nsampling = 3",
            "pair x: sampling must be",
        ),
        (
            b"[pair.x]\ndescription = 'd'\ntarget = 'a.gguf'\nsampling = {heat = 3}",
            "line 4: pair x: .*'heat'",
        ),
        (b"pair = 3", "models.toml"),
        (b"other = 3", "line 1: unknown key 'other'"),
    ],
)
def test_mistakes_in_a_catalogue_are_reported(tmp_path: Path, content: bytes, part: str) -> None:
    """The error is one line that names the pair."""
    path = tmp_path / "models.toml"
    path.write_bytes(content)
    with pytest.raises(CatalogueError, match=part) as raised:
        load_entries(path)
    assert "\n" not in str(raised.value)


def test_a_folder_is_not_a_catalogue(tmp_path: Path) -> None:
    """The error says that the folder cannot be read."""
    with pytest.raises(CatalogueError, match="cannot be read"):
        load_entries(tmp_path)
