"""Uses the server through OpenAI's package: python openai_client.py ADDRESS CALLER LOCKED.

CALLER is a server whose model calls a tool, LOCKED one that wants a key.
"""

import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import openai
from openai import OpenAI
from pydantic import BaseModel, Field

ADDRESS, CALLER, LOCKED = sys.argv[1:]
KEY = "no-key-needed"
QUESTION: Any = [{"role": "user", "content": "What is specchat?"}]
GREEDY: Any = {"model": "demo", "temperature": 0, "max_tokens": 12}
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def open_client(address: str, key: str = KEY) -> OpenAI:
    """Return a client that tries once."""
    return OpenAI(base_url=f"{address}/v1", api_key=key, max_retries=0)


client = open_client(ADDRESS)


def check_models() -> None:
    """List and retrieve models."""
    names = [each.id for each in client.models.list()]
    assert {"demo", "demo:plain"} <= {*names}, names
    assert client.models.retrieve("demo").owned_by == "specchat"


def check_chat() -> None:
    """Get a whole reply, the same as a stream, with all figures."""
    reply = client.chat.completions.create(
        messages=QUESTION, logprobs=True, top_logprobs=3, **GREEDY
    )
    choice, usage = reply.choices[0], reply.usage
    assert choice.finish_reason == "length"
    assert usage
    assert usage.completion_tokens == 12
    assert usage.prompt_tokens_details
    assert usage.completion_tokens_details
    assert reply.model_extra
    assert "acceptance_rate" in reply.model_extra["specchat"]
    entries = choice.logprobs.content if choice.logprobs else None
    assert entries
    assert b"".join(bytes(each.bytes or ()) for each in entries).decode() == choice.message.content
    for entry in entries:
        assert entry.logprob == entry.top_logprobs[0].logprob
        assert len(entry.top_logprobs) == 3

    stream = client.chat.completions.create(
        messages=QUESTION, stream=True, stream_options={"include_usage": True}, **GREEDY
    )
    text, last = "", None
    for chunk in stream:
        for each in chunk.choices:
            text += each.delta.content or ""
        last = chunk
    assert text == choice.message.content
    assert last
    assert last.usage
    assert last.usage.completion_tokens == 12


def check_options() -> None:
    """Options that the package does not know arrive, and those that it does."""
    plain = client.chat.completions.create(
        messages=QUESTION, extra_body={"drafter": "none", "verify": True}, **GREEDY
    )
    assert plain.model_extra
    assert plain.model_extra["specchat"]["verify"]["identical"]
    stopped = client.chat.completions.create(messages=QUESTION, stop=["specchat"], **GREEDY)
    assert "specchat" not in (stopped.choices[0].message.content or "")
    two = client.chat.completions.create(messages=QUESTION, n=2, seed=7, **GREEDY)
    assert [each.index for each in two.choices] == [0, 1]


def check_prediction() -> None:
    """A predicted text is counted as the package shows it."""
    asked = {**GREEDY, "max_tokens": 24}
    text = client.chat.completions.create(messages=QUESTION, **asked).choices[0].message.content
    reply = client.chat.completions.create(
        messages=QUESTION, prediction={"type": "content", "content": text or ""}, **asked
    )
    details = reply.usage.completion_tokens_details if reply.usage else None
    assert reply.choices[0].message.content == text
    assert details
    assert details.accepted_prediction_tokens is not None
    assert details.rejected_prediction_tokens is not None


def check_tools() -> None:
    """A call arrives whole, and in a stream; its result is answered."""
    caller = open_client(CALLER)
    asked: Any = {"model": "caller", "tools": [WEATHER], "temperature": 0}
    messages: Any = [{"role": "user", "content": "How is the weather in Paris?"}]
    choice = caller.chat.completions.create(messages=messages, **asked).choices[0]
    assert choice.finish_reason == "tool_calls"
    (call,) = choice.message.tool_calls
    assert call.type == "function"
    assert call.function.name == "weather"
    assert json.loads(call.function.arguments) == {"city": "Paris"}

    with caller.chat.completions.stream(messages=messages, **asked) as stream:
        done = stream.get_final_completion().choices[0]
    assert done.finish_reason == "tool_calls"
    (streamed,) = done.message.tool_calls
    assert streamed.function.arguments == call.function.arguments

    result = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
    messages += [choice.message, result]
    answer = caller.chat.completions.create(messages=messages, **asked).choices[0]
    assert (answer.message.content, answer.finish_reason) == ("It is sunny.", "stop")


def check_responses() -> None:
    """Get a whole response, the same in a stream, and a call of a tool with its result."""
    asked: Any = {"model": "demo", "temperature": 0, "store": False}
    cut = client.responses.create(input="What is specchat?", max_output_tokens=16, **asked)
    assert cut.status == "incomplete"
    assert cut.incomplete_details
    assert cut.incomplete_details.reason == "max_output_tokens"
    assert cut.usage
    assert cut.usage.output_tokens == 16
    whole = client.responses.create(input="What is specchat?", **asked)
    assert whole.status == "completed"
    assert whole.output_text.startswith(cut.output_text)
    with client.responses.stream(input="What is specchat?", **asked) as stream:
        text = "".join(each.delta for each in stream if each.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert text == final.output_text == whole.output_text

    caller = open_client(CALLER)
    tool = {"type": "function", **WEATHER["function"], "strict": False}
    asked = {"model": "caller", "temperature": 0, "store": False, "tools": [tool]}
    items: Any = [{"role": "user", "content": "How is the weather in Paris?"}]
    called = caller.responses.create(input=items, **asked)
    (call,) = [each for each in called.output if each.type == "function_call"]
    assert (call.name, json.loads(call.arguments)) == ("weather", {"city": "Paris"})
    items += called.output
    items.append({"type": "function_call_output", "call_id": call.call_id, "output": "sunny"})
    assert caller.responses.create(input=items, **asked).output_text == "It is sunny."


class Pair(BaseModel):
    """What an answer is parsed as, by all helpers of the package."""

    kind: Literal["draft", "target"]
    length: int = Field(ge=1, le=99)


class Forecast(BaseModel):
    """What a strict tool takes."""

    city: Literal["Paris", "Oslo"]
    days: Literal[1, 2]


def check_parsed() -> None:
    """Answers and calls arrive as objects of a class, from both APIs and in a stream."""
    asked: Any = {"model": "demo", "temperature": 0}
    messages: Any = QUESTION
    parsed = client.chat.completions.parse(messages=messages, response_format=Pair, **asked)
    assert isinstance(parsed.choices[0].message.parsed, Pair), parsed
    with client.chat.completions.stream(messages=messages, response_format=Pair, **asked) as stream:
        streamed = stream.get_final_completion().choices[0].message.parsed
    assert streamed == parsed.choices[0].message.parsed
    response = client.responses.parse(input="A pair?", text_format=Pair, **asked)
    assert isinstance(response.output_parsed, Pair), response

    tool: Any = openai.pydantic_function_tool(Forecast, name="weather")
    choice: Any = {"type": "function", "function": {"name": "weather"}}
    for server, name in ((open_client(CALLER), "caller"), (client, "demo")):
        asked = {"model": name, "messages": messages, "tools": [tool], "temperature": 0}
        called = server.chat.completions.parse(tool_choice=choice, **asked)
        (call,) = called.choices[0].message.tool_calls or (None,)
        assert call
        assert isinstance(call.function.parsed_arguments, Forecast), call
        with server.chat.completions.stream(tool_choice="required", **asked) as stream:
            (call,) = stream.get_final_completion().choices[0].message.tool_calls or (None,)
        assert call
        assert isinstance(call.function.parsed_arguments, Forecast), call
    schema: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "hue"}}}
    ask = partial(client.chat.completions.create, messages=QUESTION, response_format=schema)
    error = raised_by(partial(ask, **GREEDY), openai.BadRequestError)
    assert "hue" in error.message, error


def check_errors() -> None:
    """Each error is the package's exception for it, and has its parts."""
    refused: Any = [
        (openai.BadRequestError, {"temperature": "hot"}, "temperature", None),
        (openai.BadRequestError, {"n": 1000}, "n", None),
        (
            openai.BadRequestError,
            {"messages": [{"role": "user", "content": "many words " * 20_000}]},
            "messages",
            "context_length_exceeded",
        ),
    ]
    for kind, fields, param, code in refused:
        asked = {"messages": QUESTION, **GREEDY, **fields}
        error = raised_by(partial(client.chat.completions.create, **asked), kind)
        assert (error.param, error.code) == (param, code), error
    error = raised_by(lambda: client.models.retrieve("another"), openai.NotFoundError)
    assert error.code == "model_not_found", error
    error = raised_by(open_client(LOCKED).models.list, openai.AuthenticationError)
    assert error.code == "invalid_api_key", error
    assert open_client(LOCKED, "secret").models.list().data


def raised_by(act: Callable[[], object], kind: type[openai.APIStatusError]) -> Any:
    """Return the exception of a kind that something raises."""
    try:
        act()
    except kind as error:
        return error
    raise AssertionError(kind)


CHECKS = (
    check_models,
    check_chat,
    check_options,
    check_prediction,
    check_tools,
    check_responses,
    check_parsed,
    check_errors,
)
for check in CHECKS:
    check()
print("done")
