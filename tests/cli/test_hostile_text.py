"""No text of a model, a file, a hub, a setting or an argument reaches a terminal as it is.

Every command runs on a real pseudo-terminal, with escape sequences in whatever it prints.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from hostile_text import HOSTILE, IN_FILE_NAME, IN_TOML, MARK, harm_in
from hostile_world import World, make_world, write_models
from hub_server import Fault, HubServer
from in_process import on_terminal_here
from local_folders import put
from pseudo_terminal import ROOT, on_terminal
from specchat.cli.arguments import parse
from specchat.engine.api import Loading
from specchat.sharing.process_engine import try_out

FAST = ("--threads", "1", "--ctx", "1024", "--offline", "--max-tokens", "16")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    """Write the hostile models once."""
    return write_models(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="module")
def measured(models: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of state where the pair's speed is measured, which takes most of a run."""
    folder = tmp_path_factory.mktemp("measured")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder))
        try_out(Loading(*models[:2], threads=1, ctx=1024))
    return folder


@pytest.fixture
def world(
    models: tuple[Path, ...], measured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> World:
    """Return a home folder that is hostile wherever it can be."""
    shutil.copytree(measured, tmp_path / "state")
    return make_world(tmp_path, models, monkeypatch)


@dataclass(frozen=True, slots=True)
class Case:
    """A command line, made of the hostile world's files, and the variables it runs with."""

    words: Callable[[World], list[str]]
    environment: Callable[[World], dict[str, str]] = lambda _: {}
    key: str = ""
    shows_it: bool = True
    """Whether it prints hostile text at all."""


def named(*words: str, **environment: str) -> Case:
    """Return a case of words and variables that are the same in every world."""
    return Case(lambda _: list(words), lambda _: environment)


def of_pair(*words: str, shows_it: bool = True) -> Case:
    """Return a case of a command that loads the pair."""
    return Case(
        lambda world: [*words, "--target", world.target, "--draft", world.draft, *FAST],
        shows_it=shows_it,
    )


def with_file(name: str, content: str, *words: str, shows_it: bool = True) -> Case:
    """Return a case with a file in the folder of settings."""

    def environment(world: World) -> dict[str, str]:
        put(world.config / name, content.encode("utf-8", "surrogateescape"))
        return {}

    return Case(lambda _: list(words), environment, shows_it=shows_it)


def with_tuned(world: World) -> dict[str, str]:
    """Keep what `tune` keeps, for a target of a hostile name."""
    return {"XDG_STATE_HOME": str(put(world.home / HOSTILE.replace("/", "") / "file").parent)}


def with_broken_build(world: World) -> dict[str, str]:
    """Put a llama.cpp first that cannot be loaded, for a hostile reason."""
    code = f"raise RuntimeError({HOSTILE!r})"
    broken = put(world.home / "broken" / "llama_cpp" / "__init__.py", code.encode())
    path = os.pathsep.join([str(broken.parents[1]), os.environ["PYTHONPATH"]])
    return {"PYTHONPATH": path, **with_tuned(world)}


SHORT = ("--rounds", "1")
SEED = ("--seed", "1")
HI = ("ask", "hi", *SEED)
"""Its answer is always the same one, with hostile text."""
CASES: dict[str, Case] = {
    # what a model writes
    "ask": of_pair(*HI),
    "ask with drafts": of_pair(*HI, "--show-drafts", "--draft-length", "3"),
    "ask raw": of_pair("ask", HOSTILE, "--raw", *SEED),
    "ask json": of_pair(*HI, "--json"),
    "check": of_pair("check", shows_it=False),
    "bench": of_pair("bench", *SHORT, "--task", "chat", "--temperature", "0"),
    "race": of_pair("race", HOSTILE),
    "tune": of_pair("tune", *SHORT),
    "serve": of_pair("serve", "--socket", f"/{IN_FILE_NAME}/socket"),
    "save as": of_pair(*HI, "--save-as", "mine"),
    "save as a hostile name": of_pair(*HI, "--save-as", HOSTILE),
    # what files say of themselves
    "ask with a template": Case(lambda w: [*HI, "--target", w.template, *FAST]),
    "ask an unknown model": Case(lambda w: [*HI, "--target", w.unknown, *FAST]),
    "check an unknown draft": Case(
        lambda w: ["check", "--target", w.target, "--draft", w.unknown, *FAST]
    ),
    "derive": Case(lambda w: ["derive", f"{w.unknown}.gone", "--train", "1s"]),
    "show": Case(lambda w: ["show", w.target]),
    "show json": Case(lambda w: ["show", w.target, "--json"]),
    "show a template": Case(lambda w: ["show", w.template]),
    "show an unknown model": Case(lambda w: ["show", w.unknown]),
    "show a pair": named("show", "own"),
    "show a hostile pair": named("show", HOSTILE),
    "show a hostile pair as json": named("show", HOSTILE, "--json"),
    "ask a pair": named(*HI, "--pair", "own", *FAST),
    "list": named("list"),
    "list json": named("list", "--json"),
    "pull a local pair": named("pull", HOSTILE, "--offline"),
    "rm": Case(lambda _: ["rm", "own"], key="n\n", shows_it=False),
    "rm a hostile pair": Case(lambda _: ["rm", HOSTILE], key="n\n"),
    # what was said
    "history list": named("history", "list"),
    "history list json": named("history", "list", "--json"),
    "history search": named("history", "search", MARK),
    "history search json": named("history", "search", MARK, "--json"),
    "history show": named("history", "show", "1"),
    "history show json": named("history", "show", "1", "--json"),
    "history statistics": Case(lambda _: ["history", "show", "1", "--stats"], shows_it=False),
    "history statistics json": named("history", "show", "1", "--stats", "--json"),
    **{
        f"history export {each}": named("history", "export", "1", "--format", each)
        for each in ("md", "json", "html")
    },
    "history export to a file": Case(
        lambda w: ["history", "export", "1", "--output", str(w.home / IN_FILE_NAME)]
    ),
    "history delete": Case(lambda _: ["history", "delete", "1"], key="n\n"),
    # settings
    "config show": named("config", "show"),
    "config show json": named("config", "show", "--json"),
    "config path": named("config", "path", SPECCHAT_CONFIG=f"/{IN_FILE_NAME}"),
    "config edit": named("config", "edit", EDITOR=f"'{IN_FILE_NAME}'", VISUAL=""),
    "a wrong variable": named("config", "show", SPECCHAT_TOP_K=HOSTILE),
    "an unknown variable": named("config", "show", **{f"SPECCHAT_{HOSTILE}": "1"}),
    "a wrong value": with_file("config.toml", f'[sampling]\ntop_k = "{IN_TOML}"\n', "list"),
    "an unknown setting": with_file("config.toml", f'"{IN_TOML}" = 1\n', "ask", "hi"),
    "a wrong key": with_file("config.toml", f'[keys]\n"{IN_TOML}" = "f2"\n', "chat"),
    "no TOML": with_file("config.toml", f"[{HOSTILE}\n", "config", "show", shows_it=False),
    "no UTF-8": with_file("config.toml", "\udc9b" + HOSTILE, "ask", "hi", shows_it=False),
    "a wrong catalogue": with_file("models.toml", f"[{HOSTILE}\n", "list"),
    "pairs with mistakes": with_file(
        "models.toml", f'[pair.p]\ntarget = "x"\ndescription = "x"\n"{IN_TOML}" = 3\n', "list"
    ),
    "doctor": Case(
        lambda _: ["doctor", "--offline"],
        lambda w: {**with_tuned(w), "HF_ENDPOINT": "http://x/" + HOSTILE},
    ),
    "doctor of a broken build": Case(lambda _: ["doctor", "--offline"], with_broken_build),
    # arguments
    "a wrong command": named(HOSTILE),
    "a wrong option": named("ask", f"--{HOSTILE}"),
    "a wrong choice": named("ask", "hi", "--drafter", HOSTILE),
    "a wrong number": named("ask", "hi", "--top-k", HOSTILE),
    "a wrong device": named("worker", "--devices", HOSTILE),
    "a wrong worker": named("ask", "hi", "--worker", HOSTILE),
    "a wrong server": named("ask", "hi", "--connect", HOSTILE),
    "a wrong topic": named("help", HOSTILE),
    "a wrong shell": named("completions", HOSTILE),
    "no such file": named("ask", "hi", "--target", HOSTILE),
    "no such pair": named("ask", "hi", "--pair", HOSTILE + "x"),
    "no such model": named("show", HOSTILE + "x"),
    "no such plot": of_pair("bench", "--plot", f"/{IN_FILE_NAME}/x.svg"),
    "pull nonsense": named("pull", HOSTILE, "--draft", HOSTILE),
    "pull a hostile file": named("pull", f"org/model/{IN_FILE_NAME}.gguf"),
    "bytes that are no text": named("show", "\udc9b31m\udc9d" + HOSTILE),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_no_hostile_text_reaches_the_terminal(world: World, name: str) -> None:
    """It is shown with its control characters replaced, or escaped in JSON."""
    case = CASES[name]
    words = [os.fsdecode(os.fsencode(each)) for each in case.words(world)]
    environment = case.environment(world)
    ends_process = words[0] == "worker"
    run = on_terminal_here
    if ends_process or name == "ask" or "PYTHONPATH" in environment:
        run = on_terminal
    shown = run(words, case.key, **environment)

    assert harm_in(shown) == []
    assert shown.strip()
    assert "Traceback" not in shown
    if case.shows_it:
        assert MARK in shown


FAULTS = {
    "an error": {"X-Error-Message": HOSTILE[:30]},
    "a link": {"Location": f"http://127.0.0.1:1/{MARK}\x9b5;97m"},
    "a tag": {"X-Linked-ETag": f'"{MARK}\x9d0;\x9c\x7f"'},
    "a commit": {"X-Repo-Commit": f"{MARK}\x9b5;97m\x7f"},
    "a size": {"X-Linked-Size": f"{MARK}\x9b5;97m\x7f"},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_no_hostile_hub_reaches_the_terminal(world: World, hub: HubServer, name: str) -> None:
    """Neither what its answers say nor the names of its files."""
    hub.put("org/model", "model.gguf", b"GGUF" + bytes(3000))
    status = 500 if name == "an error" else None
    hub.faults = [Fault(on, status, headers=FAULTS[name], times=2) for on in ("HEAD", "GET")]
    shown = on_terminal_here(["pull", "org/model/model.gguf"], HF_ENDPOINT=hub.address)

    assert harm_in(shown) == []
    assert "model.gguf" in shown or "specchat: " in shown
    assert "Traceback" not in shown


@pytest.mark.slow
def test_no_hostile_list_of_files_reaches_the_terminal(world: World, hub: HubServer) -> None:
    """A file that is not there is compared with the names that the hub lists."""
    hub.put("org/model", f"model-{MARK}\x1b[5;97m\x9b.gguf", b"GGUF")
    shown = on_terminal_here(["pull", f"org/model/model-{MARK}.gguf"], HF_ENDPOINT=hub.address)

    assert harm_in(shown) == []
    assert MARK in shown


def test_every_command_is_run() -> None:
    """A new command gets a case; `chat` has its own tests in tests/tui.

    The others that have none print nothing but what is in the package.
    """
    run = {case.words(World(Path(), "", "", "", ""))[0] for case in CASES.values()}
    known: argparse.Namespace = parse(["help"])
    assert set(known.commands) <= run | {"chat", "help", "completions", "update"}


@pytest.mark.slow
def test_a_pipe_gets_the_answer_as_it_is(world: World) -> None:
    """Scripts get the model's own characters."""
    words = ["ask", "hi", "--target", world.target, *FAST, "--temperature", "0"]
    done = subprocess.run(
        [sys.executable, "-m", "specchat", *words], cwd=ROOT, check=True, capture_output=True
    )
    answer = json.loads(
        subprocess.run(
            [sys.executable, "-m", "specchat", *words, "--json"],
            cwd=ROOT, check=True, capture_output=True,
        ).stdout
    )["text"]  # fmt: skip

    assert done.stdout.decode().rstrip("\n") == answer.rstrip("\n")
    assert harm_in(answer)
