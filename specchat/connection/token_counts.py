"""How many tokens a conversation takes, as its server counts them."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from specchat.connection.http_session import HttpSession
from specchat.connection.probing import ServerFacts
from specchat.errors import SpecchatError

COPIED = ("messages", "tools", "chat_template_kwargs")
"""What a conversation's prompt depends on."""


class TokenCounts(NamedTuple):
    """The tokens of a whole prompt, and of the text of its last message."""

    prompt: int
    message: int


def count_tokens(
    session: HttpSession, server: ServerFacts, body: Mapping[str, Any]
) -> TokenCounts | None:
    """Return the tokens of a request's body; None if the server does not count them."""
    conversation = {name: body[name] for name in COPIED if name in body}
    last = str(body["messages"][-1].get("content", ""))
    with suppress(SpecchatError, KeyError, TypeError):
        if server.dialect.counting == "vllm":
            named = {"model": server.model}
            return TokenCounts(
                _number(session.post("/tokenize", {**named, **conversation})),
                _number(session.post("/tokenize", {**named, "prompt": last})),
            )
        if server.dialect.counting == "llama.cpp":
            prompt = session.post("/apply-template", conversation)["prompt"]
            marked = {"content": prompt, "add_special": True, "parse_special": True}
            return TokenCounts(
                _number(session.post("/tokenize", marked)),
                _number(session.post("/tokenize", {"content": last})),
            )
    return None


def _number(answer: Mapping[str, Any]) -> int:
    count = answer.get("count")
    return count if isinstance(count, int) else len(answer["tokens"])
