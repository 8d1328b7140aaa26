"""Every command and every snippet in README.md and the documentation works as written."""

from __future__ import annotations

import json
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from documents import ROOT, Block, blocks
from scripts.support.tiny_gguf import write_model
from specchat.catalogue.catalogue_file import own_catalogue_path, read_catalogue
from specchat.chat.store import Store
from specchat.cli.arguments import parse
from specchat.cli.terminal import INTERRUPTED
from specchat.settings.sources import read_settings

MODELS: dict[str, dict[str, Any]] = {
    "target.gguf": {"num_layers": 6, "width": 128, "feed_forward": 512},
    "draft.gguf": {"num_layers": 2},
}
NETWORK = "needs a network"
SKIPPED = {
    "git clone": NETWORK,
    "curl -LO": NETWORK,
    "./scripts/specchat": "builds llama.cpp, with packages from a network",
    "specchat pull": NETWORK,
    "specchat ask --pair qwen3-4b": f"{NETWORK}, to pull the pair",
    "specchat rm": f"{NETWORK}, to pull the pair",
    "specchat bench --pair smollm2-135m": f"{NETWORK}, to pull both pairs",
    "specchat serve --pair qwen3-4b": f"{NETWORK}, to pull the pair",
    "specchat --connect": "needs a server",
    "ssh": "needs a second machine",
}
"""Why commands are skipped that begin with these words."""
MEASURING = ("specchat derive", "specchat tune", 'specchat race "', "specchat race --")
"""Commands that decode for long, and that tests/cli runs: here their words are read."""

PAIR = "[pair."
QUIT = b"\x11"
MOST_SECONDS = 60

Environment = Mapping[str, str]


def commands() -> list[tuple[str, str]]:
    """Return the place of each block of commands, and each command in it, less its comment."""
    return [
        (block.place, line.partition("  #")[0].strip())
        for block in blocks("sh")
        for line in block.text.splitlines()
        if line and not line.startswith("#")
    ]


def _settings() -> list[Block]:
    return [block for block in blocks("toml") if PAIR not in block.text]


def _catalogues() -> list[Block]:
    return [block for block in blocks("toml") if PAIR in block.text]


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory, demo_state: Path) -> Path:
    """Return a folder with a `specchat` to call, a tiny pair, and what is learned of pairs."""
    folder = tmp_path_factory.mktemp("docs")
    shutil.copytree(demo_state, folder / "state")
    for name, options in MODELS.items():
        write_model(folder / name, "llama", context_length=512, **options)
    call = folder / "bin" / "specchat"
    call.parent.mkdir()
    call.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m specchat "$@"\n', "utf-8")
    call.chmod(0o755)
    return folder


@pytest.fixture
def environment(shared: Path, tmp_path: Path) -> Environment:
    """Return the environment of a user who has one conversation, and files of their own."""
    data = tmp_path / "data"
    with Store(data / "specchat" / "history.db") as store:
        conversation = store.begin().id
        store.add(conversation, "user", "Tell me about speculative decoding.")
        answer = store.add(conversation, "assistant", "It")
        store.write(answer.id, "It drafts.", statistics={"generated_tokens": 3, "decode_s": 1.0})
    return {
        **os.environ,
        "HOME": str(tmp_path),
        "XDG_DATA_HOME": str(data),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_STATE_HOME": str(shared / "state"),
        "XDG_CACHE_HOME": str(shared / "cache"),
        "PATH": f"{shared / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "EDITOR": "true",
        "TERM": "xterm-256color",
        "OMP_WAIT_POLICY": "passive",
        "SPECCHAT_THREADS": "1",  # many tests run at once
        "SPECCHAT_PORT": "0",  # as above
        "SPECCHAT_TEMPERATURE": "0",  # the demo pair may fill a string for ever
    }


@pytest.fixture
def folder(shared: Path) -> Path:
    """Return a work tree with a change in it, a pair of models, a schema, a grammar, a prompt.

    It is always in the same place, as what is learned of a pair is kept by its path.
    """
    folder = shared / "work"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name in MODELS:
        os.link(shared / name, folder / name)
    (folder / "story.txt").write_text("A fox.\n", "utf-8")
    (folder / "list.gbnf").write_text('root ::= "- " [a-z]+ "\\n"', "utf-8")
    schema = {"type": "object", "properties": {"age": {"enum": [1, 2, 3]}}, "required": ["age"]}
    (folder / "dog.schema.json").write_text(json.dumps(schema), "utf-8")
    question = {"question_id": 81, "category": "writing", "turns": ["Say hello."]}
    (folder / "question.jsonl").write_text(json.dumps(question), "utf-8")
    for words in (["init", "-q"], ["add", "-N", "story.txt"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return folder


@pytest.mark.slow(keep=2)
@pytest.mark.skipif(os.name == "nt", reason="the commands are written for a POSIX shell")
@pytest.mark.parametrize(("place", "command"), commands())
def test_a_command_works_as_written(
    place: str, command: str, folder: Path, environment: Environment
) -> None:
    """The command succeeds in a shell, in a scratch home, with the demo pair configured."""
    del place  # it is part of the test's name
    for start, reason in SKIPPED.items():
        if command.startswith(start):
            pytest.skip(f"{command}: {reason}")
    if command.startswith(MEASURING):
        parse(shlex.split(command)[1:])
        return
    if command == "specchat":
        assert _open_and_quit(folder, environment) == 0
        return
    if command.startswith("specchat serve"):
        assert _serve_and_interrupt(command, folder, environment) in {0, INTERRUPTED}
        return
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=MOST_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def _serve_and_interrupt(command: str, folder: Path, environment: Environment) -> int:
    """Return the exit code of a server that gets Ctrl+C once it has said where it is."""
    with subprocess.Popen(
        ["bash", "-c", f"exec {command}"],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stderr is not None
        lines = iter(server.stderr.readline, "")
        assert any(line.startswith("http://127.0.0.1:") for line in lines)
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=MOST_SECONDS)
    return server.returncode


def _open_and_quit(folder: Path, environment: Environment) -> int:
    """Return the exit code of the chat, opened in a terminal and left with Ctrl+Q."""
    ours, theirs = os.openpty()
    ends = time.monotonic() + MOST_SECONDS
    with subprocess.Popen(
        ["specchat"], cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
    ) as chat:
        os.close(theirs)
        while chat.poll() is None and time.monotonic() < ends:
            if select.select([ours], [], [], 0.5)[0]:
                with suppress(OSError):  # what Linux raises once the other side has closed
                    os.read(ours, 65536)
            else:  # nothing more is being drawn
                os.write(ours, QUIT)
        chat.kill()
    os.close(ours)
    return chat.returncode


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("block", blocks("python"), ids=lambda block: block.place)
def test_a_python_snippet_runs(block: Block, folder: Path, environment: Environment) -> None:
    """The snippet runs as a script, beside the files that its page says to save."""
    for other in blocks("python"):
        if other.page == block.page and other.file:
            (folder / other.file).write_text(other.text, "utf-8")
    script = folder / "snippet.py"
    script.write_text(block.text, "utf-8")
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=MOST_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout or block.file


@pytest.mark.parametrize("block", _settings(), ids=lambda block: block.place)
def test_a_toml_snippet_is_valid(block: Block, tmp_path: Path) -> None:
    """The snippet is a valid settings file."""
    path = tmp_path / "file.toml"
    path.write_text(block.text, "utf-8")
    assert read_settings(path, {}).given


@pytest.mark.parametrize("block", _catalogues(), ids=lambda block: block.place)
def test_a_catalogue_snippet_is_valid(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The snippet adds to the built-in catalogue, or changes it."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = own_catalogue_path()
    path.parent.mkdir()
    path.write_text(block.text, "utf-8")
    assert read_catalogue().complaint == ""
