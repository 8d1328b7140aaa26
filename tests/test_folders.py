"""Tests of folders that are the user's alone."""

from __future__ import annotations

from pathlib import Path

from specchat.folders import make_private


def test_every_folder_that_is_made_is_private(tmp_path: Path) -> None:
    """Those above it too; what was there before stays as it is."""
    tmp_path.chmod(0o755)
    folder = tmp_path / "state" / "specchat" / "log"
    make_private(folder)
    make_private(folder)
    made = [folder, folder.parent, folder.parent.parent]
    assert [each.stat().st_mode & 0o777 for each in made] == [0o700] * 3
    assert tmp_path.stat().st_mode & 0o777 == 0o755
