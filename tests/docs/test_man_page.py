"""The manual page is that of this parser, and roff takes it without a complaint."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from scripts.support.man_page import man_page
from specchat.cli.arguments import parse
from specchat.docs import FOLDER

PAGE = FOLDER / "specchat.1"
ROOT = Path(__file__).parents[2]


def test_it_is_up_to_date() -> None:
    """If this fails, run python scripts/lab/update_docs.py."""
    assert PAGE.read_text("utf-8") == man_page()


def test_it_names_every_command_and_every_option() -> None:
    """Each option at least once, however many commands have it."""
    text = re.sub(r"\\f[BIR]|\\&", "", man_page()).replace("\\-", "-")
    commands = parse(["help"]).commands
    flags = {
        flag
        for command in commands.values()
        for action in command._actions
        for flag in action.option_strings
    }
    assert [each for each in commands if f"\n.TP\n{each}" not in text] == []
    assert [each for each in flags - {"-h", "--help"} if not re.search(rf"{each}\b", text)] == []


def test_the_wheel_installs_it_where_man_looks() -> None:
    """Beside the command's folder, in share."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    shared = project["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"]
    assert shared == {PAGE.relative_to(ROOT).as_posix(): "share/man/man1/specchat.1"}


@pytest.mark.skipif(not shutil.which("man"), reason="there is no man")
def test_man_shows_it_without_a_warning() -> None:
    """No line is too long for 60 columns, and no text is lost to roff."""
    done = subprocess.run(
        ["man", "--warnings", "-E", "UTF-8", "-l", str(PAGE)],
        check=True, capture_output=True, text=True, env={"MANWIDTH": "60", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    shown = re.sub(r".\x08", "", done.stdout)
    assert done.stderr == ""
    assert max(map(len, shown.splitlines())) <= 60
    for words in (
        "specchat config show",
        "--draft-length auto|N",
        "~/.config/specchat/config.toml",
    ):
        assert words in re.sub(r"\s+", " ", shown)
