"""Record what llama.cpp's own tools make of texts and conversations: a reference for the tests.

The file holds texts and conversations. `llama-tokenize` gives the tokens of each text, and
`llama-server` the prompt of each conversation, its tokens, and, if it has an `answer`, the greedy
answer. Everything recorded is replaced; to add a case, add only what is asked and record again.

    python scripts/build_llama_tools.py --tools llama-server llama-tokenize
    python scripts/record_llama_server.py tests/real_model/llama_server.json \
        --server PATH/llama-server --model PATH/SmolLM2-135M-Instruct.Q4_1.gguf
"""

import argparse
import json
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

ANSWER_TOKENS = 32
SECONDS_TO_LOAD = 60.0


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


@contextmanager
def running_server(server: Path, model: Path, *options: str) -> Iterator[str]:
    """Run a server on a free port, by default with its own settings; yield its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [str(server), "-m", str(model), "--port", port, "-np", "1", *options]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            wait_until_loaded(process, f"http://127.0.0.1:{port}")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()


def wait_until_loaded(process: subprocess.Popen[bytes], address: str) -> None:
    """Wait until a server answers; exit if it ends or takes too long."""
    deadline = time.monotonic() + SECONDS_TO_LOAD
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urlopen(f"{address}/health"):  # noqa: S310 -- the address is ours
                return
        except (URLError, ConnectionError):  # while it loads it answers 503
            time.sleep(0.1)
    raise SystemExit(f"the server did not start (exit code {process.poll()}): run it by hand")


def ask(address: str, path: str, **question: Any) -> dict[str, Any]:
    """Return the server's answer to a question."""
    headers = {"Content-Type": "application/json"}
    request = Request(f"{address}/{path}", json.dumps(question).encode(), headers)  # noqa: S310
    with urlopen(request) as response:  # noqa: S310 -- the address is ours
        answer: dict[str, Any] = json.load(response)
    return answer


def written(recorded: dict[str, Any]) -> str:
    """Return a record as JSON with a line for each case, so that a difference is easy to read."""
    lines = []
    for name, value in recorded.items():
        if isinstance(value, list):
            rows = ",\n".join("  " + json.dumps(each) for each in value)
            lines.append(f'"{name}": [\n{rows}\n ]')
        else:
            lines.append(f'"{name}": {json.dumps(value)}')
    return "{\n " + ",\n ".join(lines) + "\n}\n"


def main() -> None:
    """Record the cases of a file again."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("file", type=Path, help="the cases, and where they are recorded")
    parser.add_argument("--server", type=Path, required=True, help="llama-server")
    parser.add_argument("--model", type=Path, required=True, help="the GGUF file")
    options = parser.parse_args()
    asked = json.loads(options.file.read_text("utf-8"))
    recorded = record(asked, options.server.resolve(), options.model.resolve())
    options.file.write_text(written(recorded), "utf-8")


if __name__ == "__main__":
    main()
