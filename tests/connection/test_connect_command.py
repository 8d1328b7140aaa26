"""`--connect` on the command line: what it names, keys, and what cannot be done there."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from connection.recording import read_recording
from connection.scripted_server import ScriptedServer, json_answer
from specchat.cli import main
from specchat.hub.offline import OFFLINE
from specchat.settings.editor import create_settings
from specchat.settings.sources import read_settings

ONE_KEY = "SPECCHAT_API_KEY must hold one key and nothing else"
CHAT, MODELS = "/v1/chat/completions", "/v1/models"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of the settings file in effect, which does not exist yet."""
    path = tmp_path / "config.toml"
    monkeypatch.setattr("specchat.settings.sources.settings_path", lambda *_: path)
    for name in OFFLINE:
        monkeypatch.delenv(name, raising=False)
    return path


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Return the exit code and the one line of a command that fails."""
    code = main(list(words))
    output, errors = capsys.readouterr()
    assert output == ""
    (line,) = errors.splitlines()
    return code, line


@pytest.mark.usefixtures("config")
def test_an_answer_is_printed_with_what_the_server_reports(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Scripts get null for what is not reported."""
    with read_recording("vllm").server() as server:
        words = ["ask", "--connect", f"{server.address}/v1/", "--json", "--no-stdin", "hi"]
        assert main([*words, "--temperature", "0.3", "--system", "Be brief."]) == 0
        found = json.loads(capsys.readouterr().out)
        sent = server.asked(CHAT)[-1].json()
    assert found["model"]["target"] == "qwen3-8b"
    assert found["speculation"]["served_by"].startswith("vLLM at 127.0.0.1:")
    assert found["stats"]["acceptance_rate"] == pytest.approx(0.625)
    assert found["stats"]["draft_s"] is None
    assert found["text"].strip() == "The answer: Paris."
    assert sent["temperature"] == 0.3
    assert [each["role"] for each in sent["messages"]] == ["system", "user"]


@pytest.mark.usefixtures("config")
def test_only_the_answer_is_written_to_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    """Reasoning and notices are not part of it."""
    with read_recording("lm_studio").server() as server:
        assert main(["ask", "--connect", server.address, "--no-stdin", "hi"]) == 0
        output, errors = capsys.readouterr()
    assert output.strip() == "The answer: Paris."
    assert "one more model" in errors


@pytest.mark.usefixtures("config")
def test_a_server_that_is_gone_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """And exit code 1."""
    with ScriptedServer() as server:
        address = server.address
    code, line = refused(capsys, "ask", "--connect", address, "--no-stdin", "hi")
    assert code == 1
    assert "cannot be reached (connection refused)" in line


def test_servers_of_the_settings_have_names(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A default is a name, too; a pair on the command line overrides it."""
    with read_recording("vllm").server() as server:
        config.write_text(
            f"[model]\nconnect = 'gpu'\n\n[servers.gpu]\nurl = '{server.address}'\n"
            "[servers]\nother = { url = 'http://10.0.0.2:8000', model = 'm' }\n"
        )
        assert main(["ask", "--no-stdin", "hi"]) == 0
        assert capsys.readouterr().out.strip() == "The answer: Paris."
        assert main(["ask", "--no-stdin", "--pair", "demo", "--max-tokens", "2", "hi"]) == 0
        capsys.readouterr()
        assert len(server.asked(CHAT)) == 1
    code, line = refused(capsys, "ask", "--connect", "gpv", "--no-stdin", "hi")
    assert code == 2
    assert "no server is called gpv (did you mean gpu?)" in line
    assert "gpu, other" in line
    main(["config", "show", "--json"])
    shown = json.loads(capsys.readouterr().out)["settings"]
    assert shown["servers.other"]["value"] == {"url": "http://10.0.0.2:8000", "model": "m"}
    assert main(["config", "show"]) == 0


@pytest.mark.parametrize(
    "table",
    [
        "[servers.x]\nmodel = 'm'",
        "[servers.x]\nurl = 5",
        "[servers.x]\nurl = 'http://a'\nkey = 'secret'",
        "[servers.x]\nurl = 'http://me:secret@a'",
        "[servers]\nx = 'http://a'",
    ],
)
def test_a_wrong_server_in_the_settings_is_named_with_its_line(
    config: Path, capsys: pytest.CaptureFixture[str], table: str
) -> None:
    """A key does not belong into the settings."""
    config.write_text(table)
    code, line = refused(capsys, "ask", "--no-stdin", "hi")
    assert code == 1
    assert "servers.x must be a table with a url" in line
    assert "line" in line
    assert "secret" not in line


def test_the_documented_settings_are_valid(config: Path) -> None:
    """With the example of a server, too."""
    create_settings(config)
    text = config.read_text()
    assert "[servers]" in text
    config.write_text(text.replace("# workstation = {", "workstation = {"))
    assert read_settings(config, {}).servers["workstation"]["url"] == "http://workstation:8080"


def test_a_key_comes_from_a_file_that_only_its_owner_reads(
    config: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Anything else is refused before a request is made."""
    key = tmp_path / "gpu.key"
    key.write_text("s3cret\n")
    with read_recording("vllm").server() as server:
        config.write_text(f"[servers.gpu]\nurl = '{server.address}'\nkey_file = 'gpu.key'\n")
        words = ("ask", "--connect", "gpu", "--no-stdin", "hi")
        key.chmod(0o644)
        if os.name == "posix":
            code, line = refused(capsys, *words)
            assert code == 1
            assert f"chmod 600 {key}" in line
            assert server.seen == []
        key.chmod(0o600)
        assert main(list(words)) == 0
        assert server.asked(CHAT)[0].headers["authorization"] == "Bearer s3cret"
        capsys.readouterr()
        wrong = read_recording("vllm").named["wrong_key"].answers[0]
        server.put("GET", MODELS, wrong)
        _, line = refused(capsys, *words)
        assert f"rejected the key from {key}" in line
        for content in ("", "two words", "s3cret\nmore", "caf\u00e9"):
            key.write_text(content)
            _, line = refused(capsys, *words)
            assert "must hold one key and nothing else" in line
        key.unlink()
        _, line = refused(capsys, *words)
        assert f"the key file {key} cannot be read" in line


def test_a_key_comes_from_the_environment(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a variable of one's own choice for a server of the settings."""
    monkeypatch.setenv("SPECCHAT_API_KEY", "one")
    monkeypatch.setenv("GPU_KEY", "two")
    with read_recording("vllm").server() as server:
        config.write_text(f"[servers.gpu]\nurl = '{server.address}'\nkey_variable = 'GPU_KEY'\n")
        main(["ask", "--connect", server.address, "--no-stdin", "hi"])
        main(["ask", "--connect", "gpu", "--no-stdin", "hi"])
        keys = [each.headers["authorization"] for each in server.asked(CHAT)]
        capsys.readouterr()
        assert keys == ["Bearer one", "Bearer two"]
        monkeypatch.setenv("SPECCHAT_API_KEY", " one\n")
        assert main(["ask", "--connect", server.address, "--no-stdin", "hi"]) == 0
        capsys.readouterr()
        for wrong in ("two words", "caf\u00e9", "a\x07b"):
            monkeypatch.setenv("SPECCHAT_API_KEY", wrong)
            code, line = refused(capsys, "ask", "--connect", server.address, "--no-stdin", "hi")
            assert (code, line) == (2, f"specchat: {ONE_KEY}")


@pytest.mark.usefixtures("config")
@pytest.mark.parametrize("command", ["check", "tune", "serve"])
def test_commands_that_need_the_models_say_so(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """They work on files, not on a server's answers."""
    code, line = refused(capsys, command, "--connect", "http://127.0.0.1:9")
    assert code == 2
    assert f"specchat {command} works on models on this machine" in line


@pytest.mark.usefixtures("config")
def test_offline_means_this_machine(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server on loopback is no network."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    words = ("ask", "--offline", "--no-stdin", "--connect")
    code, line = refused(capsys, *words, "http://10.0.0.2:8000", "hi")
    assert code == 2
    assert "10.0.0.2:8000 is on the network, and --offline is set" in line
    with read_recording("vllm").server() as server:
        assert main([*words, server.address, "hi"]) == 0


@pytest.mark.usefixtures("config")
def test_options_for_loading_are_said_to_have_no_effect(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The server has loaded its model already."""
    with read_recording("vllm").server() as server:
        words = ["ask", "--connect", server.address, "--ctx", "100", "--gpu-layers", "3"]
        assert main([*words, "--draft", "x.gguf", "--worker", "none", "--no-stdin", "hi"]) == 0
        assert "ignores --ctx, --gpu-layers, --draft\n" in capsys.readouterr().err
        words = ["ask", "--connect", server.address, "--top-k", "1", "--drafter", "suffix"]
        assert main([*words, "--temperature", "0", "--no-stdin", "hi"]) == 0
        assert "does not take --drafter: left out" in capsys.readouterr().err
    with read_recording("ollama").server() as server:
        assert main([*words[:2], server.address, "--top-k", "1", "--no-stdin", "hi"]) == 0
        assert "does not take --top-k: left out" in capsys.readouterr().err


@pytest.mark.usefixtures("config")
def test_a_race_needs_a_model_on_this_machine(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And bench measures others as they are."""
    with read_recording("vllm").server() as server:
        code, line = refused(capsys, "race", "--connect", server.address)
        assert code == 1
        assert "a race needs it on this machine" in line
        words = ["bench", "--connect", server.address, "--task", "chat", "--rounds", "1"]
        assert main([*words, "--temperature", "0"]) == 0
        output, _ = capsys.readouterr()
        assert "qwen3-8b on vLLM 0.29.0 at" in output
        assert "62 %" in output
        assert main([*words, "--temperature", "0", "--json"]) == 0
        (run,) = json.loads(capsys.readouterr().out)["runs"]
        assert run["acceptance_rate"] == pytest.approx(0.625)
        assert run["speedup"] is None


@pytest.mark.usefixtures("config")
def test_two_ways_to_name_a_target_are_one_too_many(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the command line the server wins over nothing in silence."""
    words = ("ask", "--connect", "http://127.0.0.1:9", "--no-stdin", "hi")
    code, line = refused(capsys, *words, "--pair", "demo")
    assert code == 2
    assert "--pair and --connect" in line
    monkeypatch.setenv("SPECCHAT_PAIR", "demo")
    monkeypatch.setenv("SPECCHAT_CONNECT", "http://127.0.0.1:9")
    code, line = refused(capsys, "ask", "--no-stdin", "hi")
    assert "SPECCHAT_PAIR and SPECCHAT_CONNECT both name a target" in line


@pytest.mark.usefixtures("config")
def test_a_model_of_a_server_needs_one(capsys: pytest.CaptureFixture[str]) -> None:
    """Without --connect, a model on this machine would answer."""
    code, line = refused(capsys, "ask", "--served-model", "m", "--no-stdin", "hi")
    assert code == 2
    assert "--served-model names a model of a server: add --connect URL" in line


@pytest.mark.usefixtures("config")
def test_a_named_model_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    """By its name at the server."""
    with read_recording("lm_studio").server() as server:
        model = "google/gemma-4-26b-a4b"
        words = ["ask", "--connect", server.address, "--served-model", model, "--no-stdin", "hi"]
        assert main(words) == 0
        assert server.asked(CHAT)[-1].json()["model"] == model
        capsys.readouterr()
        server.put("GET", MODELS, json_answer({"data": []}))
        code, line = refused(capsys, "ask", "--connect", server.address, "--no-stdin", "hi")
        assert code == 1
        assert "has no model: load one there first" in line
