"""Tool calls in all three APIs for conversations, whole and streamed, and what becomes of results.

An agent of each API is played here as its own programs do it: it collects what it hears, and sends
that back with the tool's result. Parrots utter the calls, in the forms of real chat templates too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from agent_parrot import TEMPLATE, TOOLLESS_TEMPLATE, write_agent_parrot
from family_parrots import parrot_of
from real_templates import needs_templates, template_of
from scripts.support.template_cases import BOS, QUESTION, Message, Text, families, ideal, tools
from server.conftest import Running, StartServer
from specchat.formats.families import format_of
from specchat.server import messages_api, responses_api
from specchat.server.chat_body import ChatBody, chat_requests

WORD = "pomegranate"
PATH = {"path": "notes.txt"}
WRITE = {
    "name": "write",
    "description": "Write a file.",
    "parameters": {
        "type": "object",
        "properties": {"path": {"enum": ["notes.txt"]}},
        "required": ["path"],
    },
}
"""A tool that leaves a model no choice."""
READ = {"name": "read", "description": "Read a file.", "parameters": {"type": "object"}}
MUDDLED = '<tool_call>\n{"name": "find_trains", "arguments": {"origin": \n</tool_call>'
FAMILIES = {
    "Qwen-Qwen3-0.6B": "reasoned call",
    "openai-gpt-oss-120b": "reasoned call",
    "mistralai-Mistral-Nemo-Instruct-2407": "calls",
    "deepseek-ai-DeepSeek-V3.1": "calls",
}
"""Templates whose calls differ much, with a kind of text of each."""


@dataclass
class Heard:
    """What an agent heard: the parts of an answer, and `said`, the API's own form of it."""

    reasoning: str = ""
    text: str = ""
    calls: list[tuple[str, str, Any]] = field(default_factory=list)
    said: Any = None
    why: str = ""

    @property
    def message(self) -> Message:
        """The parts, with calls as names and arguments."""
        calls = [[name, given] for _, name, given in self.calls]
        return Message(self.reasoning, self.text, calls)


def streamed(server: Running, path: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the events of a stream."""
    with server.client.stream("POST", path, json={**body, "stream": True}) as reply:
        assert reply.status_code == 200, reply.read()
        for line in reply.iter_lines():
            if line.startswith("data: ") and line != "data: [DONE]":
                yield json.loads(line.removeprefix("data: "))


def posted(server: Running, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Return a whole reply."""
    reply = server.client.post(path, json=body)
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


class ChatAgent:
    """Uses the chat API."""

    path = "/v1/chat/completions"

    def body(self, turns: list[Any], offered: list[Any]) -> dict[str, Any]:
        """Return a request."""
        listed = [{"type": "function", "function": each} for each in offered]
        return {"messages": turns, "tools": listed, "temperature": 0}

    def heard(self, server: Running, body: dict[str, Any], *, stream: bool) -> Heard:
        """Ask, and return the answer."""
        message, why = self._streamed(server, body) if stream else self._whole(server, body)
        calls = [
            (call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))
            for call in message.get("tool_calls", [])
        ]
        assert message.get("reasoning") == message.get("reasoning_content")
        reasoning, text = message.get("reasoning", ""), message.get("content") or ""
        return Heard(reasoning, text, calls, [message], why)

    def result(self, number: str, text: str) -> list[Any]:
        """Return the turn with a tool's result."""
        return [{"role": "tool", "tool_call_id": number, "content": text}]

    def to_chat(self, body: dict[str, Any]) -> ChatBody:
        """Return a request as the server reads it."""
        return msgspec.convert(body, ChatBody)

    def _whole(self, server: Running, body: dict[str, Any]) -> tuple[dict[str, Any], str]:
        (choice,) = posted(server, self.path, body)["choices"]
        return choice["message"], choice["finish_reason"]

    def _streamed(self, server: Running, body: dict[str, Any]) -> tuple[dict[str, Any], str]:
        message: dict[str, Any] = {"role": "assistant", "content": ""}
        reasons = []
        for each in streamed(server, self.path, body):
            (choice,) = each["choices"]
            delta = choice["delta"]
            reasons.append(choice["finish_reason"])
            for name in ("content", "reasoning", "reasoning_content"):
                if name in delta:
                    message[name] = message.get(name, "") + delta[name]
            for call in delta.get("tool_calls", []):
                known = message.setdefault("tool_calls", [])
                assert call.pop("index") == len(known)
                known.append(call)
        assert set(reasons[:-1]) == {None}
        return message, reasons[-1]


class ResponsesAgent:
    """Uses the responses API."""

    path = "/v1/responses"

    def body(self, turns: list[Any], offered: list[Any]) -> dict[str, Any]:
        """Return a request."""
        listed = [{"type": "function", **each} for each in offered]
        return {"input": turns, "tools": listed, "temperature": 0}

    def heard(self, server: Running, body: dict[str, Any], *, stream: bool) -> Heard:
        """Ask, and return the answer; the events of a stream say the same as its end."""
        if stream:
            *events, last = streamed(server, self.path, body)
            assert last["type"] == "response.completed"
            output = last["response"]["output"]
            assert self._told(events) == output
        else:
            output = posted(server, self.path, body)["output"]
        heard = Heard(said=output, why=output[-1]["type"])
        for item in output:
            assert item["status"] == "completed"
            if item["type"] == "function_call":
                given = json.loads(item["arguments"])
                heard.calls.append((item["call_id"], item["name"], given))
            elif item["type"] == "reasoning":
                heard.reasoning += item["content"][0]["text"]
            else:
                heard.text += item["content"][0]["text"]
        return heard

    def result(self, number: str, text: str) -> list[Any]:
        """Return the turn with a tool's result."""
        output = [{"type": "input_text", "text": text}]
        return [{"type": "function_call_output", "call_id": number, "output": output}]

    def to_chat(self, body: dict[str, Any]) -> ChatBody:
        """Return a request as the server reads it."""
        return responses_api.to_chat(msgspec.convert(body, responses_api.ResponsesBody))

    @staticmethod
    def _told(events: list[dict[str, Any]]) -> list[Any]:
        """Return the items that the events of a stream tell of, put together from their deltas."""
        items: dict[int, Any] = {}
        grown: dict[int, str] = {}
        for each in events:
            index = each.get("output_index", -1)
            if each["type"] == "response.output_item.added":
                assert index == len(items)
                grown[index] = ""
            elif each["type"].endswith(".delta"):
                grown[index] += each["delta"]
            elif each["type"].endswith(("_text.done", "_arguments.done")):
                assert grown[index] == each.get("text", each.get("arguments"))
            elif each["type"] == "response.output_item.done":
                items[index] = each["item"]
        return [items[index] for index in sorted(items)]


class MessagesAgent:
    """Uses Anthropic's API."""

    path = "/v1/messages"

    def body(self, turns: list[Any], offered: list[Any]) -> dict[str, Any]:
        """Return a request."""
        listed = [
            {"name": each["name"], "description": each.get("description"), "input_schema": schema}
            for each in offered
            for schema in [each["parameters"]]
        ]
        return {"messages": turns, "tools": listed, "temperature": 0, "max_tokens": 500}

    def heard(self, server: Running, body: dict[str, Any], *, stream: bool) -> Heard:
        """Ask, and return the answer."""
        if stream:
            blocks, why = self._streamed(server, body)
        else:
            message = posted(server, self.path, body)
            blocks, why = message["content"], message["stop_reason"]
        heard = Heard(said=[{"role": "assistant", "content": blocks}], why=why)
        for block in blocks:
            if block["type"] == "tool_use":
                heard.calls.append((block["id"], block["name"], block["input"]))
            elif block["type"] == "thinking":
                assert block["signature"]
                heard.reasoning += block["thinking"]
            else:
                heard.text += block["text"]
        return heard

    def result(self, number: str, text: str) -> list[Any]:
        """Return the turn with a tool's result."""
        content = [{"type": "text", "text": text}]
        block = {"type": "tool_result", "tool_use_id": number, "content": content}
        return [{"role": "user", "content": [block]}]

    def to_chat(self, body: dict[str, Any]) -> ChatBody:
        """Return a request as the server reads it."""
        return messages_api.to_chat(msgspec.convert(body, messages_api.MessagesBody))

    def _streamed(self, server: Running, body: dict[str, Any]) -> tuple[list[Any], str]:
        blocks: list[Any] = []
        grown = why = ""
        for each in streamed(server, self.path, body):
            if each["type"] == "content_block_start":
                assert each["index"] == len(blocks)
                blocks.append(each["content_block"])
                grown = ""
            elif each["type"] == "content_block_delta":
                grown += self._add(blocks[each["index"]], each["delta"])
            elif each["type"] == "content_block_stop" and blocks[-1]["type"] == "tool_use":
                blocks[-1]["input"] = json.loads(grown)
            elif each["type"] == "message_delta":
                why = each["delta"]["stop_reason"]
        return blocks, why

    @staticmethod
    def _add(block: dict[str, Any], delta: dict[str, Any]) -> str:
        """Add to a block; return the JSON that is not whole yet."""
        kind = delta["type"]
        if kind == "input_json_delta":
            return str(delta["partial_json"])
        name = kind.removesuffix("_delta")
        block[name] += delta[name]
        return ""


AGENTS: list[Any] = [ChatAgent(), ResponsesAgent(), MessagesAgent()]
ENDS = {"tool_calls", "function_call", "tool_use"}
"""How each API says that an answer ends with a call."""
CALLED = ("tool_calls", "function_call", "tool_use")
"""What calls are named in each API."""
each_agent = pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: type(agent).__name__)
each_way = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@pytest.fixture(
    scope="module", params=[TEMPLATE, TOOLLESS_TEMPLATE], ids=["own form", "generic form"]
)
def caller(
    request: pytest.FixtureRequest,
    start_here: StartServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Running:
    """Return a server whose model reads a file, with a chat template that has tools or has none."""
    path = tmp_path_factory.mktemp("caller") / "caller.gguf"
    write_agent_parrot(path, {"read": PATH}, WORD, template=request.param)
    return start_here("caller", target=path)


@each_agent
@each_way
def test_an_agent_calls_a_tool_and_answers_with_its_result(
    caller: Running, agent: Any, stream: bool
) -> None:
    """The call comes complete, with an id of its own; the answer shows that the result arrived."""
    turns = [{"role": "user", "content": "Which word is in the file?"}]
    first = agent.heard(caller, agent.body(turns, [READ]), stream=stream)
    again = agent.heard(caller, agent.body(turns, [READ]), stream=stream)
    ((number, name, given),) = first.calls

    assert (first.reasoning, first.text) == ("I need read.", "")
    assert (name, given) == ("read", PATH)
    assert number.isalnum()
    assert len(number) == 9
    assert again.calls[0][0] != number
    assert first.why in ENDS
    turns += [*first.said, *agent.result(number, f"The word is {WORD}.")]
    last = agent.heard(caller, agent.body(turns, [READ]), stream=stream)
    assert last.text == f"It says {WORD}."
    assert last.calls == []
    assert last.why not in ENDS


def test_reasoning_may_come_back_sealed(caller: Running) -> None:
    """Codex sends it back in this form only; the prompt is the same as with its text."""
    agent = ResponsesAgent()
    turns = [{"role": "user", "content": "Which word is in the file?"}]
    body = {**agent.body(turns, [READ]), "include": ["reasoning.encrypted_content"]}
    heard = agent.heard(caller, body, stream=True)
    reasoning, called = heard.said
    sealed = {name: value for name, value in reasoning.items() if name != "content"}
    result = agent.result(heard.calls[0][0], f"The word is {WORD}.")

    asked = [
        chat_requests(agent.to_chat(agent.body([*turns, each, called, *result], [READ])), service)
        for each in (reasoning, sealed)
        for service in [caller.service]
    ]

    assert asked[0] == asked[1]
    assert asked[0][0][0].messages[1]["reasoning_content"] == "I need read."
    plain = agent.heard(caller, agent.body(turns, [READ]), stream=False).said[0]
    assert plain["encrypted_content"] is None


@each_agent
def test_tools_are_offered_only_if_they_may_be_called(caller: Running, agent: Any) -> None:
    """With `none` the model does not learn of them, nor of tools of unknown types."""
    turns = [{"role": "user", "content": "Hello?"}]
    none = {"type": "none"} if isinstance(agent, MessagesAgent) else "none"
    offered = agent.body(turns, [READ])
    unknown = {**offered, "tools": [{"type": "web_search_20250305", "name": "web_search"}]}

    for body in ({**offered, "tool_choice": none}, unknown):
        assert agent.heard(caller, body, stream=False).text == "Hello."


@pytest.mark.parametrize(
    ("agent", "choice"),
    [
        (ChatAgent(), "required"),
        (ChatAgent(), {"type": "function", "function": {"name": "write"}}),
        (ResponsesAgent(), "required"),
        (ResponsesAgent(), {"type": "function", "name": "write"}),
        (MessagesAgent(), {"type": "any"}),
        (MessagesAgent(), {"type": "tool", "name": "write"}),
    ],
)
@each_way
def test_a_call_can_be_required(caller: Running, agent: Any, choice: Any, stream: bool) -> None:
    """The model reasons first, and would call another tool if it might."""
    body = agent.body([{"role": "user", "content": "Hello?"}], [READ, WRITE])
    name = "write" if isinstance(choice, dict) and "write" in str(choice) else "read"

    heard = agent.heard(caller, {**body, "tool_choice": choice}, stream=stream)

    ((_, called, given),) = heard.calls
    assert (called, given) == (name, PATH)
    assert heard.text == ""
    assert heard.reasoning == "I need read."
    assert heard.why in ENDS


@each_agent
def test_calls_of_tools_are_valid_though_the_model_would_write_others(
    caller: Running, agent: Any
) -> None:
    """What it writes by itself are arguments that the tool does not take."""
    parameters = {"properties": {"path": {"enum": ["other.txt"]}}, "required": ["path"]}
    only = {**READ, "parameters": {"type": "object", **parameters}}
    body = agent.body([{"role": "user", "content": "Hello?"}], [only])

    ((_, called, given),) = agent.heard(caller, body, stream=False).calls

    assert (called, given) == ("read", {"path": "other.txt"})


def test_the_prompt_that_is_counted_is_the_one_that_is_read(caller: Running) -> None:
    """Another process counts it, with the tools in it, also where the system prompt has them."""
    agent = MessagesAgent()
    body = agent.body([{"role": "user", "content": "Hello?"}], [READ, WRITE])
    counted = posted(caller, "/v1/messages/count_tokens", body)["input_tokens"]
    usage = posted(caller, agent.path, body)["usage"]
    without = posted(caller, "/v1/messages/count_tokens", {**body, "tools": []})["input_tokens"]

    assert counted == usage["input_tokens"] + usage["cache_read_input_tokens"]
    assert counted > without


@each_agent
@each_way
def test_a_call_that_is_cut_off_is_neither_text_nor_a_call(
    caller: Running, agent: Any, stream: bool
) -> None:
    """Wherever `max_tokens` cuts it; only where all but the end mark is there, it is a call."""
    limit = "max_output_tokens" if isinstance(agent, ResponsesAgent) else "max_tokens"
    required = {"type": "any"} if isinstance(agent, MessagesAgent) else "required"
    body = agent.body([{"role": "user", "content": "Hello?"}], [WRITE])
    body |= {"tool_choice": required}
    usage = posted(caller, agent.path, body)["usage"]
    num_tokens = usage.get("completion_tokens") or usage["output_tokens"]
    called = []
    for length in range(1, num_tokens):
        reply = caller.client.post(agent.path, json={**body, "stream": stream, limit: length})
        assert reply.status_code == 200
        assert "tool_call>" not in reply.text
        called.append(any(f'"{word}"' in reply.text for word in CALLED))
        assert any(f'"{why}"' in reply.text for why in ("length", "incomplete", "max_tokens"))
    assert called == sorted(called)
    assert not called[num_tokens // 2]


@each_agent
@each_way
@pytest.mark.parametrize(("stop", "is_called"), [("notes", False), ("</tool_call>", True)])
def test_a_stop_string_within_a_call_leaves_no_half_of_it(
    caller: Running, agent: Any, stream: bool, stop: str, is_called: bool
) -> None:
    """In an answer that a client ends itself; at the end mark the call is whole."""
    required = {"type": "any"} if isinstance(agent, MessagesAgent) else "required"
    body = agent.body([{"role": "user", "content": "Hello?"}], [WRITE])
    body |= {"tool_choice": required, "stop": [stop], "stream": stream}

    reply = caller.client.post(agent.path, json=body)

    assert reply.status_code == 200
    assert "<tool_call>" not in reply.text
    assert any(f'"{word}"' in reply.text for word in CALLED) == is_called


@each_agent
@pytest.mark.parametrize(
    ("offered", "choice"), [([], "required"), ([READ], {"name": "absent"})], ids=["none", "absent"]
)
def test_a_choice_that_cannot_be_met_is_refused(
    caller: Running, agent: Any, offered: Any, choice: Any
) -> None:
    """The error names the field."""
    is_message = isinstance(agent, MessagesAgent)
    if isinstance(choice, dict):
        given = {"type": "tool" if is_message else "function", **choice}
    else:
        given = {"type": "any"} if is_message else choice
    body = agent.body([{"role": "user", "content": "Hello?"}], offered)

    reply = caller.client.post(agent.path, json={**body, "tool_choice": given})

    assert reply.status_code == 400
    assert "tool_choice" in reply.json()["error"]["message"]


@each_agent
def test_a_call_without_its_result_is_refused(caller: Running, agent: Any) -> None:
    """The model could only answer as if the call had not been made."""
    turns = [{"role": "user", "content": "Which word is in the file?"}]
    called = agent.heard(caller, agent.body(turns, [READ]), stream=False)

    reply = caller.client.post(agent.path, json=agent.body([*turns, *called.said], [READ]))

    assert reply.status_code == 400
    assert "add its result" in reply.text


@pytest.fixture(scope="module", params=FAMILIES)
def family(
    request: pytest.FixtureRequest,
    start_here: StartServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Running, str, Text]:
    """Return a server whose model utters calls in the form of a family, and what it utters."""
    name = request.param
    text = next(each for each in families()[name].texts if each.kind == FAMILIES[name])
    path = tmp_path_factory.mktemp("family") / "parrot.gguf"
    path = parrot_of(name, text, path, is_whole=True)
    return start_here(name, target=path, ctx=8192), name, text


@pytest.mark.slow(keep=10)
@needs_templates
@each_agent
@each_way
def test_calls_of_real_templates_come_out_right(
    family: tuple[Running, str, Text], agent: Any, stream: bool
) -> None:
    """Reasoning, text and calls are apart, in each API."""
    server, _, text = family
    body = agent.body(list(QUESTION), [each["function"] for each in tools()])

    heard = agent.heard(server, body, stream=stream)

    assert heard.message.trimmed() == ideal(text.kind).trimmed()
    assert heard.why in ENDS


@needs_templates
def test_a_result_is_in_the_next_prompt_whatever_the_api(
    family: tuple[Running, str, Text],
) -> None:
    """The prompts of all APIs are the same, and have the call, its reasoning and the result."""
    server, name, _ = family
    form = format_of(template_of(name), BOS, families()[name].eos)
    offered = [each["function"] for each in tools()]
    prompts = []
    for agent in AGENTS:
        heard = agent.heard(server, agent.body(list(QUESTION), offered), stream=True)
        results = [turn for number, *_ in heard.calls for turn in agent.result(number, "Two.")]
        body = agent.to_chat(agent.body([*QUESTION, *heard.said, *results], offered))
        (asked,), _ = chat_requests(body, server.service)
        prompt = form.prompt(asked.messages, think="auto", tools=asked.tools).text
        for number, called, given in heard.calls:
            assert called in prompt
            assert all(str(value) in prompt for value in given.values())
            prompt = prompt.replace(number, "ID")
        assert "Two." in prompt
        assert heard.reasoning.strip() in prompt
        prompts.append(prompt)
    assert prompts[0] == prompts[1] == prompts[2]


@pytest.fixture(scope="module")
def muddled(start_here: StartServer, tmp_path_factory: pytest.TempPathFactory) -> Running:
    """Return a server whose model utters a call that cannot be read."""
    text = Text("call", "auto", f"<think>\n\n</think>\n\n{MUDDLED}")
    path = parrot_of("Qwen-Qwen3-0.6B", text, tmp_path_factory.mktemp("muddled") / "parrot.gguf")
    return start_here("muddled", target=path, ctx=8192)


@needs_templates
@each_agent
@each_way
def test_a_call_that_cannot_be_read_is_text(muddled: Running, agent: Any, stream: bool) -> None:
    """Nothing that the model wrote is lost, and nothing fails."""
    body = agent.body(list(QUESTION), [each["function"] for each in tools()])

    heard = agent.heard(muddled, {**body, "enforce_tools": False}, stream=stream)

    assert heard.text == MUDDLED
    assert heard.calls == []
    assert heard.why not in ENDS
