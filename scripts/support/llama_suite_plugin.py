"""A plugin of pytest that lets llama.cpp's own server tests start `specchat serve` instead.

It runs in an environment that has what those tests need, and imports nothing of specchat.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

PYTHON, MODEL, FOLDER = (f"LLAMA_SUITE_{name}" for name in ("PYTHON", "MODEL", "FOLDER"))
"""Variables: specchat's Python, the model of all servers, and a folder for what is written."""
REPORT = "report.jsonl"
ABSENT = {
    "server_embeddings": "embeddings",
    "server_reranking": "rankings",
    "lora_files": "adapters",
    "slot_save_path": "slots saved by request",
    "models_dir": "several models in a server",
    "models_preset": "several models in a server",
    "models_max": "several models in a server",
    "mcp_servers_config": "tools that the server runs",
    "mcp_servers_json": "tools that the server runs",
    "server_tools": "tools that the server runs",
    "ui_mcp_proxy": "tools that the server runs",
    "sleep_idle_seconds": "unloading an idle model",
    "gcp_compat": "Google's Vertex AI",
    "mmproj_url": "images",
    "media_path": "images",
    "enable_ctx_shift": "context shift",
    "spec_synth_len": "made-up acceptance",
    "spec_synth_rates": "made-up acceptance",
}
"""Options of llama-server that specchat lacks: a test that sets one is skipped with these words."""
SECONDS_TO_START = 60
MOST_RUNNING = 2
NEEDS_NEW = re.compile("cache|metrics|slot")
LISTENS = re.compile(r"http://\S+?:(\d+)/v1")
RUNNING: dict[Sequence[str], tuple[subprocess.Popen[bytes], int]] = {}
"""The servers that run, with their ports, by their options."""


def pytest_configure(config: pytest.Config) -> None:
    """Replace how servers are started, before the tests import it."""
    sys.path.insert(0, str(config.rootpath))
    utils: Any = importlib.import_module("utils")  # llama.cpp's

    utils.ServerProcess.start = start
    utils.ServerPreset.load_all = lambda: None
    utils.download_file = lambda *_: os.environ[MODEL]


def start(server: Any, timeout_seconds: float = 0) -> None:
    """Let a test use a `specchat serve` with the options of its llama-server.

    One that runs with these already is used once more, unless the test looks at what is cached or
    counted. Each listens on a port of its own.
    """
    del timeout_seconds
    for name, what in ABSENT.items():
        if getattr(server, name) not in (None, False):
            pytest.skip(f"needs {what}")
    words = tuple(words_of(server))
    test = os.environ["PYTEST_CURRENT_TEST"]
    if NEEDS_NEW.search(test) or len(RUNNING) == MOST_RUNNING:
        stop_all()
    if words not in RUNNING:
        RUNNING[words] = launch(words)
    server.server_port = RUNNING[words][1]


def launch(words: Sequence[str]) -> tuple[subprocess.Popen[bytes], int]:
    """Start a server; return its process and its port once it listens."""
    folder = Path(os.environ[FOLDER])
    state = {f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("STATE", "CONFIG", "DATA")}
    log = folder / "server.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            [os.environ[PYTHON], "-P", "-m", "specchat", "serve", "--port", "0", *words],
            stdin=subprocess.DEVNULL, stdout=file, stderr=file, env={**os.environ, **state},
        )  # fmt: skip
    for _ in range(SECONDS_TO_START * 20):
        if found := LISTENS.search(log.read_text("utf-8")):
            return process, int(found[1])
        if process.poll() is not None:
            break
        time.sleep(0.05)
    process.kill()
    raise RuntimeError(log.read_text("utf-8"))


def stop_all() -> None:
    """End all servers."""
    for process, _ in RUNNING.values():
        process.terminate()
        process.wait()
    RUNNING.clear()


def pytest_unconfigure() -> None:
    """End what still runs."""
    stop_all()


def words_of(server: Any) -> Iterator[str]:
    """Yield the options of `specchat serve` that mean what a test asks of llama-server."""
    yield from ("--host", server.server_host, "--threads", "1")
    yield from ("--target", str(model_of(server)))
    if server.n_ctx:
        shares = 1 if server.kv_unified else server.n_slots or 1
        yield from ("--ctx", str(server.n_ctx // shares))
    for option, value in (
        ("--temperature", server.temperature),
        ("--seed", server.seed if server.seed >= 0 else None),
        ("--max-tokens", server.n_predict if (server.n_predict or 0) > 0 else None),
        ("--key", server.api_key),
        ("--think", server.reasoning),
        ("--draft", server.model_draft or "none"),
        ("--draft-length", server.spec_draft_n_max),
        ("--cache-ram", server.cache_ram),
    ):
        if value is not None:
            yield from (option, str(value))


def model_of(server: Any) -> Path:
    """Return the model, in a copy with the chat template that a test asks for if it does."""
    model, template = Path(os.environ[MODEL]), server.chat_template
    if server.chat_template_file:
        template = Path(server.chat_template_file).read_text("utf-8")
    if not template:
        return model
    if "{" not in template:
        pytest.skip("needs chat templates by name")
    name = hashlib.sha256(template.encode()).hexdigest()[:16]
    copy = Path(os.environ[FOLDER], f"{name}.gguf")
    if not copy.exists():
        words = ("-m", "gguf.scripts.gguf_new_metadata", "--chat-template", template, model, copy)
        subprocess.run([os.environ[PYTHON], *words], check=True, capture_output=True)
    return copy


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note how a test ended: a line of JSON for each."""
    if report.when == "call" or report.outcome != "passed":
        why = report.longrepr
        if isinstance(why, tuple):
            why = why[2]
        elif crash := getattr(why, "reprcrash", None):
            why = crash.message
        line = {"test": report.nodeid.removeprefix("unit/"), "outcome": report.outcome}
        with Path(os.environ[FOLDER], REPORT).open("a") as file:
            file.write(json.dumps({**line, "why": str(why or "")}) + "\n")
