"""Recordings of servers: text files that say what was asked and answered, byte by byte.

    # llama-server b1-0c1e570: recorded by scripts/lab/record_servers.py
    > GET /v1/models
    < 200
    < Content-Type: application/json
    {"object": "list"}

    > POST /v1/chat/completions
    ? stream_options.include_usage=true
    < 200
    < Content-Type: text/event-stream
    data: {"choices": []}

    ~ 0.012
    data: [DONE]

    > POST /v1/chat/completions (too_long)

Comments stand before the first exchange. `?` names a field of the body and its value in JSON, where
null means that it is absent. `~` are the seconds that passed before an event. The same request once
more is its next answer. A name in brackets is an answer for tests to choose, and nothing else leads
to it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from connection.scripted_server import Answer, Piece, Route, ScriptedServer

FOLDER = Path(__file__).with_name("recordings")
REQUEST = re.compile(r"> (\w+) (\S+)(?: \((\w+)\))?")
STREAM = "text/event-stream"


@dataclass
class Recording:
    """What one server answers: its routes in order, and answers that have names."""

    about: str
    routes: list[Route] = field(default_factory=list)
    named: dict[str, Route] = field(default_factory=dict)

    def server(self, **options: Any) -> ScriptedServer:
        """Return a server that answers as the recorded one did."""
        return ScriptedServer(self.routes, **options)

    def stream(self, **wanted: Any) -> Answer:
        """Return the answer to a chat that is streamed; `wanted` are fields of the request."""
        return self.answer("POST", "/v1/chat/completions", **{"stream": True, **wanted})

    def answer(self, method: str, path: str, **wanted: Any) -> Answer:
        """Return the first answer of a route that asks for no more than `wanted`."""
        for route in self.routes:
            fits = (route.method, route.path) == (method, path)
            if fits and route.wanted.items() <= wanted.items():
                return route.answers[0]
        raise KeyError(f"{method} {path} is not in the recording")


def read_recording(name: str, *, paced: bool = False) -> Recording:
    """Return a recording of the folder; `paced` if its streams take as long as they did."""
    return parse_recording(FOLDER.joinpath(f"{name}.txt").read_text("utf-8"), paced=paced)


def parse_recording(text: str, *, paced: bool = False) -> Recording:
    """Return the recording that a text is."""
    about, *exchanges = re.split(r"^(?=> )", text, flags=re.MULTILINE)
    recording = Recording(re.sub(r"^# ?", "", about, flags=re.MULTILINE).strip())
    for exchange in exchanges:
        first, *lines = exchange.split("\n")
        found = REQUEST.fullmatch(first)
        assert found, f"not a request: {first}"
        method, path, name = found.groups()
        wanted, rest = _wanted(lines)
        answer = _answer(rest, paced=paced)
        if name:
            recording.named[name] = Route(method, path, [answer])
            continue
        same = [r for r in recording.routes if (r.method, r.path) == (method, path)]
        again = next((route for route in same if route.wanted == wanted), None)
        if again:
            again.answers.append(answer)
        else:
            recording.routes.append(Route(method, path, [answer], wanted))
    return recording


def _wanted(lines: list[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the fields that a request must have, and the lines behind them."""
    wanted = dict[str, Any]()
    while lines and lines[0].startswith("? "):
        name, _, value = lines[0][2:].partition("=")
        wanted[name] = json.loads(value)
        lines = lines[1:]
    return wanted, lines


def _answer(lines: list[str], *, paced: bool) -> Answer:
    """Return the answer that some lines are: status, headers, body."""
    status, headers = 200, dict[str, str]()
    while lines and lines[0].startswith("< "):
        name, separator, value = lines[0][2:].partition(": ")
        if separator:
            headers[name] = value
        else:
            status = int(name)
        lines = lines[1:]
    body = "\n".join(lines).strip("\n")
    if not headers.get("Content-Type", "").startswith(STREAM):
        # what Prometheus reads ends with a line end
        end = "\n" if headers.get("Content-Type", "").startswith("text/plain") and body else ""
        return Answer(status, headers, [(body + end).encode()])
    return Answer(status, headers, _pieces(body, paced=paced), "chunked")


def _pieces(body: str, *, paced: bool) -> list[Piece]:
    """Return the events of a stream, each as the bytes that it was."""
    pieces = list[Piece]()
    for block in body.split("\n\n"):
        event = block
        while event.startswith("~ "):
            seconds, _, event = event.partition("\n")
            if paced:
                pieces.append(float(seconds[2:]))
        if event:
            pieces.append(f"{event}\n\n".encode())
    return pieces
