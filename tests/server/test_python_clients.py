"""Programs that others wrote use the server as they use the makers' own servers.

Each runs in a process of its own, in an environment of clients that the set-up makes.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from conftest import TRAP_FOLDER
from image_files import encoded, picture
from scripts.setup_env.clients import LITELLM, find_clients
from scripts.support.tiny_gguf import Words, pieces_of, write_parrot
from server.conftest import Running, StartServer
from specchat.server.guard import Access

PYTHON = find_clients()
SCRIPTS = Path(__file__).parent / "clients"
KEPT = frozenset({"PATH", "LANG", "LC_ALL", "TMPDIR", "SYSTEMROOT", "NETWORK_TRAP"})
MARKS = ("<tool_call>", "</tool_call>", "<|im_end|>", "<|result|>")
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'
UTTERED = f"{CALL}<|im_end|><|result|>It is sunny.<|im_end|>"
TEMPLATE = """{% if tools %}<|im_start|>system
You may call: {% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif %}{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content or '' }}{% for call in message.tool_calls or [] %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% if messages[-1].role == 'tool' %}<|result|>{% endif %}{% endif %}"""
"""After a tool's result, a prompt ends with a mark that the parrot goes on from."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        PYTHON is None, reason="needs the environment of clients, which scripts/test --all makes"
    ),
]


@pytest.fixture(scope="module")
def caller(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> Running:
    """Return a server whose model calls a tool, and then says what it found."""
    path = tmp_path_factory.mktemp("caller") / "caller.gguf"
    pieces = pieces_of(UTTERED, MARKS)
    words = Words(
        control=("<|im_start|>", "<|im_end|>", "<|result|>"),
        user=MARKS[:2],
        whole=tuple(piece for piece in pieces if piece not in MARKS),
        template=TEMPLATE,
    )
    write_parrot(path, pieces, words)
    return start_server("caller", target=path)


@pytest.fixture(scope="module")
def locked(start_server: StartServer, demo_server: Running) -> Running:
    """Return a server that wants a key."""
    return start_server(access=Access(key="secret"), service=demo_server.service)


def run(script: str, home: Path, *servers: Running, python: Path | None = PYTHON) -> None:
    """Run a client against servers, offline and apart from the user's settings."""
    environment = {name: text for name, text in os.environ.items() if name in KEPT}
    environment |= {
        "HOME": str(home),
        "LLM_USER_PATH": str(home / "llm"),
        "PYTHONPATH": str(TRAP_FOLDER),
        "NO_PROXY": "*",
        "LANGSMITH_TRACING": "false",
        "LANGCHAIN_TRACING_V2": "false",
    }
    done = subprocess.run(
        [str(python), str(SCRIPTS / script), *(each.address for each in servers)],
        env=environment, cwd=home, text=True, check=False,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.stdout == "done\n", done.stdout
    assert done.returncode == 0


def test_openais_package(
    demo_server: Running, caller: Running, locked: Running, tmp_path: Path
) -> None:
    """Whole replies and streams, options, tools, predictions, and errors as its exceptions."""
    run("openai_client.py", tmp_path, demo_server, caller, locked)


def test_anthropics_package(
    demo_server: Running, caller: Running, locked: Running, tmp_path: Path
) -> None:
    """Whole messages and streams, counted tokens, tools, and errors as its exceptions."""
    run("anthropic_client.py", tmp_path, demo_server, caller, locked)


def test_llm(demo_server: Running, tmp_path: Path) -> None:
    """Streamed and whole, and a conversation that goes on."""
    run("llm_client.py", tmp_path, demo_server)


def test_pydantic_ai(demo_server: Running, caller: Running, tmp_path: Path) -> None:
    """Whole, streamed, and with a tool that it calls and answers from."""
    run("pydantic_ai_client.py", tmp_path, demo_server, caller)


def test_langchain(demo_server: Running, caller: Running, tmp_path: Path) -> None:
    """Whole, streamed, and with a tool's call and result."""
    run("langchain_client.py", tmp_path, demo_server, caller)


def test_instructor(demo_server: Running, caller: Running, tmp_path: Path) -> None:
    """By tools, of both APIs, several of them, and by schemas."""
    run("instructor_client.py", tmp_path, demo_server, caller)


def test_openais_agents(demo_server: Running, caller: Running, tmp_path: Path) -> None:
    """By both APIs: plain, in a form, and with a tool, required or not."""
    run("agents_client.py", tmp_path, demo_server, caller)


def test_litellm(demo_server: Running, caller: Running, tmp_path: Path) -> None:
    """By four of its providers, whole and streamed; texts, tools and errors."""
    python = find_clients(LITELLM)
    if python is None:
        pytest.skip("needs the environment of LiteLLM, which scripts/test --all makes")
    run("litellm_client.py", tmp_path, demo_server, caller, python=python)


def test_images(seer: Running, tmp_path: Path) -> None:
    """Shown by five packages in their own forms, and returned by a tool."""
    (tmp_path / "cat.png").write_bytes(encoded(picture(1)))
    run("images_client.py", tmp_path, seer)


def test_images_by_litellm(seer: Running, tmp_path: Path) -> None:
    """By three of its providers, with the same answer."""
    python = find_clients(LITELLM)
    if python is None:
        pytest.skip("needs the environment of LiteLLM, which scripts/test --all makes")
    (tmp_path / "cat.png").write_bytes(encoded(picture(1)))
    run("litellm_images_client.py", tmp_path, seer, python=python)
