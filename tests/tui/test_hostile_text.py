"""No text of a model, a file or a setting reaches the terminal of the chat as it is."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostile_text import HOSTILE, IN_FILE_NAME, MARK, OF_CHAT, harm_in
from hostile_world import World, make_world, write_models
from tui.test_terminal import ROOT, Tmux

pytestmark = pytest.mark.slow


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Return a home folder that is hostile wherever it can be, with a file to attach."""
    models = tmp_path / "models"
    models.mkdir()
    world = make_world(tmp_path, write_models(models), monkeypatch)
    (tmp_path / f"notes{IN_FILE_NAME}").touch()
    (tmp_path / f"model{IN_FILE_NAME}.gguf").touch()
    (tmp_path / "notes.txt").write_text(HOSTILE, "utf-8")
    monkeypatch.chdir(tmp_path)
    return world


@pytest.fixture
def terminal(world: World) -> Iterator[Tmux]:
    """Run the chat with the hostile pair, and record all that it sends."""
    path = os.pathsep.join([str(ROOT), *sys.path])
    command = [
        "env", f"PYTHONPATH={path}", sys.executable, "-m", "specchat", "--offline",
        "--target", world.target, "--draft", world.draft,
        "--max-tokens", "40", "--threads", "1", "--ctx", "2048",
    ]  # fmt: skip
    tmux = Tmux(world.home / "tmux", command)
    tmux.record(world.home / "sent")
    yield tmux
    tmux.close()


def test_no_hostile_text_reaches_the_terminal_of_the_chat(world: World, terminal: Tmux) -> None:
    """Answers, attachments, titles, names of models and their steps are shown harmlessly."""
    terminal.wait_for(lambda screen: "Ask anything" in screen)
    terminal.press("see @not", "Tab")
    terminal.wait_for(lambda screen: "@notes.txt" in screen)
    terminal.press("Enter")
    terminal.wait_for(lambda screen: "token limit reached" in screen)
    for key in ("F4", "F6", "Right", "Right", "Escape", "F7", "Escape"):
        terminal.press(key)
        terminal.settle()
    terminal.press("C-f", MARK)
    terminal.settle()
    terminal.press("Enter")
    terminal.settle()
    for key in ("S-Up", "Up", "Space", "Escape", "F8", "Down", "Down", "d", "Escape", "F9"):
        terminal.press(key)
        terminal.settle()
    terminal.press("Escape", "F8", "C-o", "./mod", "Tab")
    terminal.wait_for(lambda screen: screen.count(MARK) > 0)
    for key in ("Escape", "Escape", "/context", "Enter", "@*", "Space", "Enter"):
        terminal.press(key)
        terminal.settle()
    terminal.press("Escape", "C-p", MARK)
    terminal.settle()
    terminal.press("Escape", "F2", "Down", "Down")
    terminal.settle()
    terminal.press("C-q")
    ended = terminal.wait_for(lambda screen: "ended with" in screen)

    sent = (world.home / "sent").read_text("utf-8", "replace")
    assert "ended with 0" in ended
    assert MARK in sent
    assert harm_in(sent, OF_CHAT) == []
