"""A running llama-server and what it answers."""

import json
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPResponse
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

SECONDS_TO_LOAD = 60.0


def free_port() -> int:
    """Return a port that no program uses now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


@contextmanager
def running_server(server: Path, model: Path, *options: str) -> Iterator[str]:
    """Run a server on a free port, by default with its own settings; yield its address.

    How its threads wait is its own choice, whatever the environment says.
    """
    port = str(free_port())
    command = [str(server), "-m", str(model), "--port", port, "-np", "1", *options]
    own = {name: value for name, value in os.environ.items() if not name.startswith("GOMP_")}
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, env=own, stdout=log, stderr=subprocess.STDOUT)
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
    with asking(address, path, **question) as response:
        answer: dict[str, Any] = json.load(response)
    return answer


def asking(address: str, path: str, **question: Any) -> HTTPResponse:
    """Return the server's response to a question, to be read as it arrives."""
    headers = {"Content-Type": "application/json"}
    request = Request(f"{address}/{path}", json.dumps(question).encode(), headers)  # noqa: S310
    response: HTTPResponse = urlopen(request)  # noqa: S310 -- the address is ours
    return response


class MeasuredServer:
    """A running llama-server that decodes token ids, and reports how fast."""

    def __init__(self, address: str) -> None:
        """Take the address of the server."""
        self.address = address

    def tokens_of(self, question: str) -> list[int]:
        """Return a question as the model's template and tokenizer give it."""
        messages = [{"role": "user", "content": question}]
        text = ask(self.address, "apply-template", messages=messages)["prompt"]
        found = ask(self.address, "tokenize", content=text, parse_special=True, add_special=True)
        tokens: list[int] = found["tokens"]
        return tokens

    def timings(self, prompt: Sequence[int], num_tokens: int, **sampling: Any) -> dict[str, float]:
        """Decode one answer and return the figures that come with it."""
        request = _to_decode(prompt, num_tokens) | sampling
        found: dict[str, float] = ask(self.address, "completion", **request)["timings"]
        return found

    def rates(self, prompt: Sequence[int], num_tokens: int) -> tuple[float, float]:
        """Stream one greedy answer; return its tokens per second as reported, and as arrived."""
        request = _to_decode(prompt, num_tokens) | {"temperature": 0.0, "stream": True}
        first, timings = 0.0, dict[str, float]()
        with asking(self.address, "completion", **request) as response:
            for line in response:
                if line.startswith(b"data: "):
                    first = first or time.perf_counter()
                    timings = json.loads(line[6:]).get("timings") or timings
        arrived = (num_tokens - 1) / (time.perf_counter() - first)
        return timings["predicted_per_second"], arrived


@contextmanager
def measured_server(
    server: Path, model: Path, threads: int, more: Sequence[str] = ()
) -> Iterator[MeasuredServer]:
    """Run a server with as many threads for prompts as for answers."""
    options = ("-t", str(threads), "-tb", str(threads), "-c", "2048", "--no-webui", *more)
    with running_server(server, model, *options) as address:
        yield MeasuredServer(address)


def _to_decode(prompt: Sequence[int], num_tokens: int) -> dict[str, Any]:
    return {
        "prompt": list(prompt), "n_predict": num_tokens, "ignore_eos": True, "cache_prompt": False
    }  # fmt: skip
