"""Record what llama-server answers, byte by byte: what the tests of `--connect` replay.

Three servers are asked in turn: the model by itself, the model with a draft that is a copy of it in
Q4_0, and the model under another template, where a grammar and the beginning of an answer bring
about reasoning and tool calls. tests/connection/recording.py describes the files.

    python scripts/lab/build_llama_tools.py --tools llama-server
    python scripts/lab/record_exchanges.py tests/connection/recordings \
        --server PATH/llama-server --model PATH/SmolLM2-135M-Instruct.Q4_1.gguf \
        --template PATH/vendor/llama.cpp/models/templates/Qwen-Qwen3-0.6B.jinja
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from scripts.support.llama_server import free_port, running_server
from scripts.support.quantised_model import quantised

ALIAS = "smollm2-135m"
CHAT = "/v1/chat/completions"
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
LIST = [{"role": "user", "content": "Count from one to ten, in words."}]
BEGUN = [*LIST, {"role": "assistant", "content": "One, two, three,"}]
CALL = [*QUESTION, {"role": "assistant", "content": "<tool_call>\n"}]
CONTINUED = {"continue_final_message": True, "add_generation_prompt": False}
LONG = [{"role": "user", "content": "word " * 3000}]
PLAIN: dict[str, Any] = {"temperature": 0, "max_tokens": 24}
STREAM: dict[str, Any] = {**PLAIN, "stream": True}
USAGE = {"stream_options": {"include_usage": True}}
THOUGHT = 'root ::= "<think>\\nThe user asks for a city.\\n</think>\\n\\nIt is Paris."'
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Paris"]}},
            "required": ["city"],
        },
    },
}
KEPT_HEADERS = ("Server", "Content-Type")
LEAST_SECONDS = 0.001
SERVER_OPTIONS = ("--alias", ALIAS, "-c", "2048", "-t", "2")


@dataclass(frozen=True)
class Question:
    """A request; `wanted` are the fields by which a replay knows it, `name` where it is chosen."""

    method: str
    path: str
    body: Any = None
    wanted: tuple[str, ...] = ()
    name: str = ""


def main() -> None:
    """Record all three servers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path, help="where the recordings are written")
    parser.add_argument("--server", type=Path, required=True, help="llama-server")
    parser.add_argument("--model", type=Path, required=True, help="the GGUF file")
    parser.add_argument("--template", type=Path, required=True, help="a template that reasons")
    options = parser.parse_args()
    server, model = options.server.resolve(), options.model.resolve()
    alone = loading(server, model) + asked(server, model, questions(), ["--metrics"])
    alone += asked(
        server, model, [Question("GET", "/v1/models", name="wrong_key")], ["--api-key", "x"]
    )
    write(options.folder / "llama_server.txt", server, "without a draft", alone)
    with tempfile.TemporaryDirectory() as scratch:
        draft = quantised(model, "Q4_0", Path(scratch))
        more = ["--metrics", "-md", str(draft), "--spec-type", "draft-simple"]
        found = asked(server, model, drafted(), [*more, "--spec-draft-n-max", "4"])
    write(options.folder / "llama_server_draft.txt", server, "with a draft in Q4_0", found)
    more = ["--jinja", "--chat-template-file", str(options.template.resolve())]
    found = asked(server, model, reasoned(), more)
    write(options.folder / "llama_server_reasoning.txt", server, "with Qwen3's template", found)


def questions() -> Iterator[Question]:
    """Yield what the server without a draft is asked."""
    streamed = ("stream",)
    counted = (*streamed, "stream_options.include_usage")
    for path in ("/health", "/v1/models", "/props", "/slots", "/metrics"):
        yield Question("GET", path)
    timed = (*counted, "timings_per_token")
    body = {**STREAM, **USAGE, "messages": QUESTION}
    yield Question("POST", CHAT, {**body, "timings_per_token": True}, timed)
    yield Question("POST", CHAT, body, counted)
    yield Question("POST", CHAT, {**STREAM, "messages": QUESTION}, streamed)
    yield Question("POST", CHAT, {**PLAIN, "messages": QUESTION})
    yield Question("POST", f"{CHAT}/input_tokens", {"messages": QUESTION})
    yield Question("POST", "/apply-template", {"messages": QUESTION})
    yield Question("POST", "/tokenize", {"content": "What is the capital of France?"})
    begun = {**STREAM, **USAGE, "messages": BEGUN}
    yield Question("POST", CHAT, begun, name="continued_with_an_echo")
    yield Question("POST", CHAT, {**begun, **CONTINUED}, name="continued")
    yield Question("POST", CHAT, {**body, "return_progress": True}, name="progress")
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    yield Question("POST", CHAT, {**body, "response_format": form}, name="json_schema")
    yield Question("POST", CHAT, {**body, "logprobs": True, "top_logprobs": 2}, name="logprobs")
    yield Question("POST", CHAT, {**body, "messages": LONG}, name="too_long")
    yield Question("POST", CHAT, {"messages": 1}, name="wrong_type")
    yield Question("GET", "/nowhere", name="wrong_path")
    yield Question("GET", "/metrics")


def drafted() -> Iterator[Question]:
    """Yield what the server with a draft is asked."""
    for path in ("/v1/models", "/slots", "/metrics"):
        yield Question("GET", path)
    body = {**STREAM, **USAGE, "messages": LIST}
    timed = ("stream", "stream_options.include_usage", "timings_per_token")
    yield Question("POST", CHAT, {**body, "timings_per_token": True}, timed)
    yield Question("GET", "/metrics")
    yield Question("POST", CHAT, body, timed[:2])
    yield Question("POST", CHAT, {**STREAM, "messages": LIST}, timed[:1])
    yield Question("POST", CHAT, {**PLAIN, "messages": LIST})
    yield Question("GET", "/slots", name="slots_after_an_answer")


def reasoned() -> Iterator[Question]:
    """Yield what the server is asked whose template reasons and calls tools."""
    body = {**STREAM, **USAGE, "messages": QUESTION}
    counted = ("stream", "stream_options.include_usage")
    yield Question("GET", "/v1/models")
    yield Question("GET", "/props")
    yield Question("POST", CHAT, {**body, "grammar": THOUGHT}, counted)
    whole = {**PLAIN, "messages": QUESTION, "grammar": THOUGHT}
    yield Question("POST", CHAT, whole)
    call = {"tools": [WEATHER], "tool_choice": "required", "max_tokens": 80, "messages": CALL}
    yield Question("POST", CHAT, {**body, **call, **CONTINUED}, name="tool_calls")
    text = {"chat_template_kwargs": {"enable_thinking": "no"}}
    yield Question("POST", CHAT, {**body, **text}, name="enable_thinking_as_text")


def asked(
    server: Path, model: Path, asking: Iterator[Question] | list[Question], more: Sequence[str]
) -> str:
    """Return what a server answers to questions, as a recording has it."""
    print(*more, file=sys.stderr)
    with running_server(server, model, *SERVER_OPTIONS, *more) as address:
        return "".join(exchange(address, question, model) for question in asking)


def loading(server: Path, model: Path) -> str:
    """Return what a server answers while it loads the model."""
    port = free_port()
    command = [str(server), "-m", str(model), "--port", str(port), *SERVER_OPTIONS]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    question, address = Question("GET", "/v1/models", name="loading"), f"http://127.0.0.1:{port}"
    found = ""
    try:
        while not found and process.poll() is None:
            try:
                found = exchange(address, question, model)
            except ConnectionError:
                time.sleep(LEAST_SECONDS)
    finally:
        process.terminate()
        process.wait()
    if not found:
        raise SystemExit("the server ended: run it by hand")
    if "Loading model" not in found:
        raise SystemExit("the model was loaded too fast to record what comes before: try again")
    return found


def exchange(address: str, question: Question, model: Path) -> str:
    """Ask a question and return it with its answer, as a recording has them."""
    lines = [f"> {question.method} {question.path}{f' ({question.name})' * bool(question.name)}"]
    for name in question.wanted:
        value = question.body
        for part in name.split("."):
            value = value[part]
        lines.append(f"? {name}={json.dumps(value)}")
    headers = {"Content-Type": "application/json"}
    body = None if question.body is None else json.dumps(question.body)
    with closing(HTTPConnection(urlsplit(address).netloc)) as connection:
        connection.request(question.method, question.path, body, headers)
        response = connection.getresponse()
        kind = response.getheader("Content-Type", "")
        lines.append(f"< {response.status}")
        kept = [(name, response.getheader(name)) for name in KEPT_HEADERS]
        lines += [f"< {name}: {value}" for name, value in kept if value]
        if kind.startswith("text/event-stream"):
            text = "".join(events(response))
        else:
            text = response.read().decode().rstrip("\n") + "\n\n"
    text = text.replace(str(model), model.name)
    return "\n".join(lines) + "\n" + text


def events(response: Any) -> Iterator[str]:
    """Yield each event of a stream with the seconds that passed before it, if that was long."""
    event, last = "", time.perf_counter()
    for line in response:
        event += line.decode()
        if event.endswith("\n\n"):
            passed = (now := time.perf_counter()) - last
            yield f"~ {passed:.3f}\n{event}" if passed >= LEAST_SECONDS else event
            event, last = "", now
    yield event


def write(file: Path, server: Path, how: str, exchanges: str) -> None:
    """Write a recording, which begins with the server's version."""
    shown = subprocess.run([server, "--version"], capture_output=True, text=True, check=True)
    lines = (shown.stdout + shown.stderr).splitlines()
    version = next(line for line in lines if line.startswith("version")).partition(": ")[2]
    about = f"# llama-server {version} {how}:\n# recorded by scripts/lab/record_exchanges.py\n"
    file.write_text(about + exchanges.rstrip("\n") + "\n", "utf-8")


if __name__ == "__main__":
    main()
