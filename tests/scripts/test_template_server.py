"""How scripts/support/template_server.py reads what llama-server makes of a text."""

import io
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from email.message import Message as Headers
from pathlib import Path
from typing import Any, TypeAlias
from urllib.error import HTTPError

import pytest

from scripts.support import template_server
from scripts.support.template_cases import QUESTION, Asked, Family, Message, Text, digest
from scripts.support.template_server import TemplateServer, recorded

Answer: TypeAlias = Callable[..., dict[str, Any]]


def refusing(*_: Any, **__: Any) -> dict[str, Any]:
    """Answer as a server whose parser fails."""
    raise HTTPError("url", 500, "no", Headers(), io.BytesIO())


def answering(**message: Any) -> Answer:
    """Return what answers with a message."""
    return lambda *_, **__: {"prompt": "rendered", "choices": [{"message": message}]}


def parsed(monkeypatch: pytest.MonkeyPatch, answer: Answer) -> Message | None:
    """Return what is made of the text "Hm."."""
    monkeypatch.setattr(template_server, "ask", answer)
    return TemplateServer("http://x", {"Hm.": 300}).parsed("Hm.", {}, has_tools=False)


def test_a_message_is_read_with_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reasoning, answer and the names and arguments of calls."""
    calls = [{"function": {"name": "look", "arguments": "{}"}}]
    answer = answering(content="It is.", reasoning_content="Is it?", tool_calls=calls)

    assert parsed(monkeypatch, answer) == Message("Is it?", "It is.", [["look", "{}"]])


def test_a_text_that_the_server_refuses_has_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so with status 500."""
    assert parsed(monkeypatch, refusing) is None


def test_where_the_server_falls_back_on_the_whole_text_the_stream_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its parser found nothing yet, which only the stream shows."""
    events = [{"choices": [{"delta": delta}]} for delta in ({}, {"reasoning_content": "Hm"})]
    lines = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
    monkeypatch.setattr(template_server, "asking", lambda *_, **__: io.BytesIO(lines.encode()))

    assert parsed(monkeypatch, answering(content="Hm.")) == Message("Hm")


@pytest.mark.parametrize(("answer", "prompt"), [(answering(), "rendered"), (refusing, None)])
def test_a_prompt_is_rendered_or_refused(
    monkeypatch: pytest.MonkeyPatch, answer: Answer, prompt: str | None
) -> None:
    """A template may not take tools, say."""
    monkeypatch.setattr(template_server, "ask", answer)

    assert TemplateServer("http://x", {}).prompt(Asked(QUESTION), {}) == prompt


def test_a_record_has_prompts_and_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of answers also how they grow, of calls their arguments, and of prompts what they lack."""

    class Fake:
        def prompt(self, asked: Asked, variables: Mapping[str, Any]) -> str | None:
            return None if asked.has_tools else "rendered"

        def parsed(self, text: str, *_: Any, has_tools: bool) -> Message | None:
            calls = [["look", '{"at": 1}']] if has_tools else []
            return None if text.startswith("?") else Message("", "" if calls else text, calls)

    @contextmanager
    def fake(*_: Any) -> Iterator[Fake]:
        yield Fake()

    monkeypatch.setattr(template_server, "serving", fake)
    texts = (Text("plain", "auto", "Hm."), Text("call", "auto", "x"), Text("plain", "auto", "?"))
    found = recorded(Path("server"), "template", Family("</s>", texts))

    assert found["template"] == digest("template")
    assert found["prompts"]["tools"] == {"refused": True}
    assert found["prompts"]["earlier reasoning"]["lacks"] == ["It is twelve."]
    assert found["texts"] == [
        {"text": digest("Hm."), "reasoning": "", "answer": "Hm.", "steps": "3a"},
        {"text": digest("x"), "reasoning": "", "answer": "", "calls": [["look", {"at": 1}]]},
        {"text": digest("?"), "refused": True},
    ]


def test_a_parrot_can_utter_every_beginning_of_its_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each one is a token of its own."""

    @contextmanager
    def looking(_: Path, model: Path, *_options: str) -> Iterator[str]:
        vocabulary.append(model.read_bytes())
        yield "http://x"

    vocabulary = list[bytes]()
    monkeypatch.setattr(template_server, "running_server", looking)
    family = Family("</s>", (Text("plain", "auto", "Twelve"),))
    with template_server.serving(Path("server"), "{{ messages }}", family) as server:
        assert sorted(server._ids, key=len) == ["T", "Tw", "Twe", "Twel", "Twelv", "Twelve"]

    assert b"Twelve" in vocabulary[0]
