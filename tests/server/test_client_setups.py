"""The set-ups of clients: each is parsed as its client does, with names that need quoting."""

from __future__ import annotations

import ast
import json
import re
import shlex
import tomllib
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # comes with huggingface-hub

from specchat.cli.arguments import CLIENTS
from specchat.errors import InvalidOption
from specchat.server.client_setups import SETUPS, Served, setup_text
from tables import table

ADDRESS = "http://127.0.0.1:8642"
NAME = 'Qwen 3\'s "best" $HOME\\4B'
"""A name that breaks what is not quoted."""
KEY = "k-'1\"$2"
OPEN = Served(ADDRESS, "", NAME, 32768)
KEYED = Served(ADDRESS, KEY, NAME, 32768)


def without_comments(text: str, mark: str = "#") -> str:
    """Return a set-up's lines without its comments, of which there is at least one."""
    lines = text.splitlines()
    kept = [line for line in lines if not line.startswith(mark)]
    assert len(kept) < len(lines)
    return "\n".join(kept)


def exports_of(text: str) -> dict[str, str]:
    """Return the variables that a shell would export; they come before the command."""
    words = [shlex.split(line) for line in without_comments(text).splitlines()]
    pairs = [line[1].partition("=") for line in words if line[0] == "export"]
    return {name: value for name, _, value in pairs}


def test_every_client_of_the_command_line_has_a_set_up() -> None:
    """`--for` offers what there is."""
    assert tuple(SETUPS) == CLIENTS


@pytest.mark.parametrize(("served", "key"), [(OPEN, "none"), (KEYED, KEY)])
def test_openai_gets_python(served: Served, key: str) -> None:
    """It is a whole program."""
    calls = [node for node in ast.walk(ast.parse(setup_text("openai", served)))
             if isinstance(node, ast.Call)]  # fmt: skip
    given: dict[str, Any] = {
        each.arg: each.value.value
        for call in calls
        for each in call.keywords
        if each.arg and isinstance(each.value, ast.Constant)
    }
    assert given == {"base_url": f"{ADDRESS}/v1", "api_key": key, "model": NAME}


def test_codex_gets_toml() -> None:
    """Its protocol is the one it accepts; the key comes from the environment."""
    config = tomllib.loads(setup_text("codex", OPEN))
    provider = config["model_providers"][config["model_provider"]]
    assert (config["model"], config["model_context_window"]) == (NAME, 32768)
    assert provider["base_url"] == f"{ADDRESS}/v1"
    assert provider["wire_api"] == "responses"
    assert "env_key" not in provider

    keyed = setup_text("codex", KEYED)
    variable = tomllib.loads(keyed)["model_providers"]["specchat"]["env_key"]
    first = next(line for line in keyed.splitlines() if line.startswith("# First: "))
    assert shlex.split(first.removeprefix("# First: "))[1] == f"{variable}={KEY}"


@pytest.mark.parametrize(("served", "key"), [(OPEN, "none"), (KEYED, KEY)])
def test_claude_gets_its_environment(served: Served, key: str) -> None:
    """Its address has no path, for it adds one itself; it sends nothing anywhere else."""
    text = setup_text("claude", served)
    variables = exports_of(text)
    assert variables["ANTHROPIC_BASE_URL"] == ADDRESS
    assert variables["ANTHROPIC_AUTH_TOKEN"] == key
    assert variables["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"] == "1"
    models = [value for name, value in variables.items() if name.endswith("_MODEL")]
    assert set(models) == {NAME}
    assert text.endswith("\nclaude\n")


@pytest.mark.parametrize(("served", "key"), [(OPEN, "none"), (KEYED, KEY)])
def test_opencode_gets_json(served: Served, key: str) -> None:
    """The model that it uses is one that its provider has."""
    config = json.loads(without_comments(setup_text("opencode", served), "//"))
    provider, _, model = config["model"].partition("/")
    found = config["provider"][provider]
    assert found["options"] == {"baseURL": f"{ADDRESS}/v1", "apiKey": key}
    assert found["models"][model]["limit"]["context"] == 32768
    assert model == NAME


def test_llm_gets_yaml() -> None:
    """A key is stored under the name that the entry has."""
    (entry,) = yaml.safe_load(setup_text("llm", OPEN))
    assert entry["model_name"] == NAME
    assert entry["api_base"] == f"{ADDRESS}/v1"
    assert "api_key_name" not in entry

    keyed = setup_text("llm", KEYED)
    (entry,) = yaml.safe_load(keyed)
    stored = re.search(r"^# First: (.*)", keyed, re.MULTILINE)
    assert stored is not None
    assert shlex.split(stored[1]) == ["llm", "keys", "set", entry["api_key_name"], "--value", KEY]


@pytest.mark.parametrize(("served", "key"), [(OPEN, "none"), (KEYED, KEY)])
def test_aider_gets_its_environment_and_command(served: Served, key: str) -> None:
    """Its prefix says which API to speak."""
    text = setup_text("aider", served)
    wanted = {"OPENAI_API_BASE": f"{ADDRESS}/v1", "OPENAI_API_KEY": key}
    assert exports_of(text) == wanted
    assert shlex.split(text.splitlines()[-1]) == ["aider", "--model", f"openai/{NAME}"]


def test_on_windows_variables_are_set_for_powershell(monkeypatch: pytest.MonkeyPatch) -> None:
    """A POSIX shell's `export` means nothing there."""
    monkeypatch.setattr("specchat.server.client_setups.os.name", "nt")
    assert "$env:OPENAI_API_KEY = 'k-''1\"$2'\n" in setup_text("aider", KEYED)


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])  # noqa: S104  # an address to print
def test_an_address_that_means_all_is_not_called(host: str) -> None:
    """Clients of this machine use its own one."""
    text = setup_text("llm", Served(f"http://{host}:8642", KEY, NAME, 4096))
    assert f'"{ADDRESS}/v1"' in text


@table("client", SETUPS)
def test_names_cannot_control_a_terminal(client: str) -> None:
    """A pair's name may come from a file's."""
    text = setup_text(client, Served(ADDRESS, "", "a\x1b]0;b\x07\nc", 4096))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert text.count("\n") == setup_text(client, Served(ADDRESS, "", "a", 4096)).count("\n")


def test_a_socket_needs_a_port_instead() -> None:
    """None of these clients can be pointed at a file."""
    with pytest.raises(InvalidOption, match="without --socket"):
        setup_text("codex", Served("unix:/run/specchat.sock", "", NAME, 4096))


def test_clients_learn_that_the_model_takes_images() -> None:
    """Those that would leave images out otherwise, and of no other model."""
    seer = Served(ADDRESS, "", NAME, 4096, takes_images=True)
    for served, kinds in ((seer, ["text", "image"]), (OPEN, None)):
        config = json.loads(without_comments(setup_text("opencode", served), "//"))
        model = config["provider"]["specchat"]["models"][NAME]
        assert model.get("modalities", {}).get("input") == kinds
        (entry,) = yaml.safe_load(setup_text("llm", served))
        assert entry.get("vision") == (True if kinds else None)
