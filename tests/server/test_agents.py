"""Claude Code and Codex, as their makers publish them, take a whole turn with a tool.

They are set up by what `--for` prints, find a file by a command, and answer with what is in it. The
model is a parrot.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from agent_parrot import write_agent_parrot
from server.conftest import Running, StartServer
from specchat.server.client_setups import Served, setup_text

WORD = "pomegranate"
READ = "cat notes.txt"
CALLS: Mapping[str, Mapping[str, str]] = {
    "Bash": {"command": READ, "description": "Read the notes"},
    "exec_command": {"cmd": READ},
}
"""The tool that runs commands in each agent, and how to read the file with it."""
CONTEXT = 65536
QUESTION = "Which word is in notes.txt?"
COMMANDS = {
    "claude": ("-p", QUESTION, "--allowedTools", "Bash"),
    "codex": ("exec", "--skip-git-repo-check", "--sandbox", "danger-full-access", QUESTION),
}
SECONDS = 120

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> Running:
    """Return a server whose model reads the file."""
    path = tmp_path_factory.mktemp("agent") / "agent.gguf"
    write_agent_parrot(path, CALLS, WORD, context_length=CONTEXT)
    return start_server("agent", target=path, ctx=CONTEXT)


@pytest.mark.parametrize("agent", COMMANDS)
def test_an_agent_takes_a_turn_with_a_tool(agent: str, served: Running, tmp_path: Path) -> None:
    """Its answer has the word that only the tool's result told it."""
    program = shutil.which(agent)
    if program is None:
        pytest.skip(f"needs {agent}, which npm installs")
    home, folder = tmp_path / "home", tmp_path / "folder"
    (home / ".codex").mkdir(parents=True)
    folder.mkdir()
    (folder / "notes.txt").write_text(f"{WORD}\n", "utf-8")
    text = setup_text(agent, Served(served.address, "", "agent", CONTEXT))
    environment = {"HOME": str(home), "PATH": os.environ["PATH"]}
    if agent == "codex":
        (home / ".codex" / "config.toml").write_text(text, "utf-8")
    else:
        exports = [shlex.split(line)[1] for line in text.splitlines() if line[:7] == "export "]
        environment |= dict(each.split("=", 1) for each in exports)

    done = subprocess.run(
        [program, *COMMANDS[agent]], env=environment, cwd=folder, timeout=SECONDS, text=True,
        stdin=subprocess.DEVNULL, capture_output=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"It says {WORD}."
