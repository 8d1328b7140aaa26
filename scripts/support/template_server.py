"""What llama-server makes of a template: prompts, and the parts of texts, whole and cut.

The model is a parrot whose vocabulary holds every beginning of every text as one token. A logit
bias makes the server utter one of them, so that one server, which starts in a tenth of a second,
parses all of a template's texts.
"""

import http.client
import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from scripts.support.llama_server import ask, asking, running_server
from scripts.support.template_cases import (
    BOS,
    QUESTION,
    Asked,
    Family,
    Message,
    Text,
    digest,
    packed,
    tools,
    without_date,
)
from scripts.support.tiny_gguf import Piece, Words, ids_of, write_parrot

CONTEXT = 1 << 15
CHAT = "v1/chat/completions"
SURE = 1000.0
"""A logit bias that leaves no other choice."""


class TemplateServer:
    """A llama-server on a model with a template, which utters what it is asked to."""

    def __init__(self, address: str, ids: Mapping[str, int]) -> None:
        """Take the address of the server, and the tokens of what it can utter."""
        self._address = address
        self._ids = ids

    def prompt(self, asked: Asked, variables: Mapping[str, Any]) -> str | None:
        """Return a conversation as the server renders it; None if it refuses it."""
        options = {"messages": asked.messages, "chat_template_kwargs": variables}
        options |= {"tools": tools()} if asked.has_tools else {}
        try:
            return str(ask(self._address, "apply-template", **options)["prompt"])
        except HTTPError:
            return None

    def parsed(self, text: str, variables: Mapping[str, Any], *, has_tools: bool) -> Message | None:
        """Return the message that the server makes of a text; None if its parser fails on it.

        It falls back on the whole text where its parser finds nothing, but not while it streams.
        """
        options: dict[str, Any] = {"logit_bias": [[self._ids[text], SURE]], "max_tokens": 1}
        options |= {"messages": QUESTION, "chat_template_kwargs": variables, "temperature": 0}
        options |= {"tools": tools()} if has_tools else {}
        try:
            message = ask(self._address, CHAT, **options)["choices"][0]["message"]
        except HTTPError as error:
            if error.code == http.client.INTERNAL_SERVER_ERROR:
                return None
            raise
        functions = [call["function"] for call in message.get("tool_calls") or ()]
        calls = [[each["name"], each["arguments"]] for each in functions]
        found = Message(message.get("reasoning_content") or "", message["content"] or "", calls)
        return self._streamed(options) if found == Message(answer=text) else found

    def _streamed(self, options: Mapping[str, Any]) -> Message:
        found = Message()
        with asking(self._address, CHAT, **options, stream=True) as response:
            for line in response:
                if line.startswith(b"data: {"):
                    delta = json.loads(line[6:])["choices"][0]["delta"]
                    found.reasoning += delta.get("reasoning_content") or ""
                    found.answer += delta.get("content") or ""
        return found


@contextmanager
def serving(server: Path, template: str, family: Family) -> Iterator[TemplateServer]:
    """Run a server with a template, able to utter the texts of its family."""
    beginnings = {each for text in family.texts for each in text.beginnings}
    wanted: list[Piece] = sorted(beginnings)
    marks = (BOS, family.eos)
    words = Words(control=marks, normal=tuple(wanted), template=template, eos=family.eos, bos=BOS)
    ids = dict(zip(sorted(beginnings), ids_of(wanted, [family.eos], words), strict=True))
    with tempfile.TemporaryDirectory() as folder:
        path = write_parrot(
            Path(folder) / "parrot.gguf", [family.eos], words, context_length=CONTEXT
        )
        given = ("-c", str(CONTEXT), "-t", "1", "--jinja", "--no-webui")
        with running_server(server, path, *given) as address:
            yield TemplateServer(address, ids)


def recorded(server: Path, template: str, family: Family) -> dict[str, Any]:
    """Return what a server makes of a template's conversation and of its family's texts."""
    with serving(server, template, family) as asked_server:
        prompts = {
            case: _recorded_prompt(asked_server, asked, family.variables(asked.think))
            for case, asked in family.prompts.items()
        }
        texts = [
            {"text": digest(text.text), **_recorded_text(asked_server, text, family)}
            for text in family.texts
        ]
    return {"template": digest(template), "prompts": prompts, "texts": texts}


def _recorded_prompt(
    server: TemplateServer, asked: Asked, variables: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a prompt of the server's, and which texts it lacks."""
    rendered = server.prompt(asked, variables)
    if rendered is None:
        return {"refused": True}
    text = without_date(rendered, datetime.now().astimezone())
    lacking = {"lacks": asked.lacking(text)} if asked.lacking(text) else {}
    return {"sha256": digest(text), "text": text, **lacking}


def _recorded_text(server: TemplateServer, text: Text, family: Family) -> dict[str, Any]:
    """Return what the server makes of a text: its parts, and how they grow if it calls no tool."""

    def parsed(beginning: str) -> Message | None:
        variables = family.variables(text.think)
        return server.parsed(beginning, variables, has_tools=text.has_tools)

    whole = parsed(text.text)
    if whole is None:
        return {"refused": True}
    found: dict[str, Any] = {"reasoning": whole.reasoning, "answer": whole.answer}
    if text.has_tools:
        return found | {"calls": [[name, json.loads(given)] for name, given in whole.calls]}
    return found | {"steps": packed(parsed(each) or Message() for each in text.beginnings)}
