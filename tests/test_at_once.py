"""Two chats, an answer, a benchmark and a download at once, on one history and one cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("the chats run in Linux's terminals", allow_module_level=True)

from catalogue_files import CONTENT, FILE
from hub_server import HubServer
from scripts.support.chat_terminal import Chat
from specchat.chat.store import Store

pytestmark = pytest.mark.slow

QUICK = ("--temperature", "0", "--threads", "1")
COMMANDS = (
    ["ask", *QUICK, "--max-tokens", "16", "What is specchat?"],
    ["bench", *QUICK, "--task", "chat", "--rounds", "1", "--max-tokens", "8"],
    ["pull", str(FILE)],
)
CODE = "import sys; from specchat.cli import main; sys.exit(main(sys.argv[1:]))"


def start(folder: Path, words: list[str]) -> subprocess.Popen[str]:
    """Start a command in the folders of the chats."""
    own = {f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("DATA", "STATE", "CONFIG")}
    environment = {**os.environ, **own, "XDG_CACHE_HOME": str(folder.parent / "cache")}
    return subprocess.Popen(
        [sys.executable, "-P", "-c", CODE, *words],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def have_both_ended(chats: list[Chat]) -> bool:
    """Return True once both answers have ended; reads both terminals, which else hold them up."""
    chats[1].read(0.05)
    return [finish for _, finish in chats[0].answers()] == ["length"] * 2


def test_all_at_once(hub: HubServer, tmp_path: Path, demo_state: Path) -> None:
    """Each does its work, and both conversations are stored in full."""
    hub.put(FILE.repository, FILE.file, CONTENT)
    folder = tmp_path / "round"
    shutil.copytree(demo_state, folder / "state")
    chats = [Chat(folder, "--max-tokens", "40") for _ in range(2)]
    try:
        commands = [start(folder, words) for words in COMMANDS]
        for number, chat in enumerate(chats):
            chat.see("sk anything")
            chat.ask(f"Question {number}?")
        for command in commands:
            shown, errors = command.communicate(timeout=200)
            assert command.returncode == 0, errors
            assert shown
        chats[0].until(lambda: have_both_ended(chats), "both ends")
        for chat in chats:
            chat.press("\x11")
            chat.wait()
            assert chat.code == 0
    finally:
        for chat in chats:
            chat.kill()
    with Store(chats[0].database) as store:
        assert store.notice == ""
        asked = [
            message.text
            for conversation in store.conversations()
            for message in store.tree(conversation.id).values()
            if message.role == "user"
        ]
    assert sorted(asked) == ["Question 0?", "Question 1?"]
