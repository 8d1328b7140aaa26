"""What llama.cpp's own tools make of texts and conversations."""

import json
import subprocess
from pathlib import Path
from typing import Any

from scripts.support.llama_server import ask, running_server

ANSWER_TOKENS = 32


def record(asked: dict[str, Any], server: Path, model: Path) -> dict[str, Any]:
    """Return the cases with what the tools make of them; `llama-tokenize` is beside the server."""
    texts = [
        {"text": each["text"], "tokens": tokens_of(each["text"], server, model)}
        for each in asked["texts"]
    ]
    with running_server(server, model, "-c", "2048", "-t", "2") as address:
        conversations = [conversation_of(address, each) for each in asked["conversations"]]
    return {"llama.cpp": version_of(server), "texts": texts, "conversations": conversations}


def version_of(server: Path) -> str:
    """Return the version and commit of llama.cpp."""
    done = subprocess.run([server, "--version"], capture_output=True, text=True, check=True)
    return (done.stdout + done.stderr).splitlines()[0].removeprefix("version: ")


def tokens_of(text: str, server: Path, model: Path) -> list[int]:
    """Return the tokens of a text by `llama-tokenize`; names of control tokens stay text."""
    tool = server.with_name("llama-tokenize")
    options = ("--stdin", "--ids", "--no-parse-special", "--no-escape", "--log-disable")
    command = [str(tool), "-m", str(model), *options]
    done = subprocess.run(command, input=text.encode(), capture_output=True, check=True)
    tokens: list[int] = json.loads(done.stdout)
    return tokens


def conversation_of(address: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Return a conversation with its prompt, the prompt's tokens and, if asked for, an answer."""
    messages = asked["messages"]
    prompt = ask(address, "apply-template", messages=messages)["prompt"]
    tokens = ask(address, "tokenize", content=prompt, add_special=True, parse_special=True)
    recorded = {"messages": messages, "prompt": prompt, "tokens": tokens["tokens"]}
    return recorded | (answer_of(address, prompt) if "answer" in asked else {})


def answer_of(address: str, prompt: str) -> dict[str, Any]:
    """Return the greedy answer to a prompt: its text and its tokens."""
    options = {"temperature": 0, "n_predict": ANSWER_TOKENS, "cache_prompt": False}
    answer = ask(address, "completion", prompt=prompt, return_tokens=True, **options)
    return {"answer": answer["content"], "answer_tokens": answer["tokens"]}
