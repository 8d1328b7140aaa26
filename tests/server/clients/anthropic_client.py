"""Uses the server through Anthropic's package: python anthropic_client.py ADDRESS CALLER LOCKED.

CALLER is a server whose model calls a tool, LOCKED one that wants a key.
"""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import anthropic
from anthropic import Anthropic

ADDRESS, CALLER, LOCKED = sys.argv[1:]
QUESTION: Any = [{"role": "user", "content": "What is specchat?"}]
COLD = {"extra_body": {"temperature": 0}}
GREEDY: Any = {"model": "demo", "max_tokens": 12, **COLD}
WEATHER: Any = {
    "name": "weather",
    "description": "The weather in a city",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}

PLACE: Any = {
    "name": "place",
    "description": "Choose a place",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"enum": ["Paris", "Oslo"]}},
        "required": ["city"],
    },
}


def open_client(address: str, key: str = "no-key-needed") -> Anthropic:
    """Return a client that tries once."""
    return Anthropic(base_url=address, api_key=key, max_retries=0)


client = open_client(ADDRESS)


def check_messages() -> None:
    """Get a whole message, the same in a stream, and the prompt's size."""
    whole = client.messages.create(messages=QUESTION, system="Be brief.", **GREEDY)
    assert (whole.type, whole.role, whole.stop_reason) == ("message", "assistant", "max_tokens")
    (block,) = whole.content
    assert block.type == "text"
    assert whole.usage.output_tokens == 12

    with client.messages.stream(messages=QUESTION, system="Be brief.", **GREEDY) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == block.text
    assert (final.stop_reason, final.usage.output_tokens) == ("max_tokens", 12)
    assert [each.text for each in final.content] == [block.text]

    counted = client.messages.count_tokens(model="demo", messages=QUESTION, system="Be brief.")
    cached = whole.usage.cache_read_input_tokens or 0
    assert counted.input_tokens == whole.usage.input_tokens + cached


def check_tools() -> None:
    """A call arrives whole, and in a stream; its result is answered."""
    caller = open_client(CALLER)
    asked: Any = {"model": "caller", "max_tokens": 60, "tools": [WEATHER], **COLD}
    messages: Any = [{"role": "user", "content": "How is the weather in Paris?"}]
    whole = caller.messages.create(messages=messages, **asked)
    assert whole.stop_reason == "tool_use"
    (call,) = [each for each in whole.content if each.type == "tool_use"]
    assert (call.name, call.input) == ("weather", {"city": "Paris"})
    with caller.messages.stream(messages=messages, **asked) as stream:
        (streamed,) = [
            each for each in stream.get_final_message().content if each.type == "tool_use"
        ]
    assert streamed.input == call.input
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}
    messages += [
        {"role": "assistant", "content": whole.content},
        {"role": "user", "content": [result]},
    ]
    answer = caller.messages.create(messages=messages, **asked)
    assert answer.stop_reason == "end_turn"
    assert [each.text for each in answer.content] == ["It is sunny."]

    required: Any = {**asked, "model": "demo", "tool_choice": {"type": "any"}, "tools": [PLACE]}
    called = client.messages.create(messages=QUESTION, **required)
    with client.messages.stream(messages=QUESTION, **required) as stream:
        called_in_stream = stream.get_final_message()
    for each in (called, called_in_stream):
        (block,) = each.content
        assert block.type == "tool_use"
        assert (each.stop_reason, block.name) == ("tool_use", "place")
        assert block.input in ({"city": "Paris"}, {"city": "Oslo"})


def check_errors() -> None:
    """Each error is the package's exception for it."""
    create = client.messages.create
    long = [{"role": "user", "content": "many words " * 20_000}]
    for fields in ({"extra_body": {"temperature": "hot"}}, {"messages": long}, {"tools": "x"}):
        asked = {"messages": QUESTION, **GREEDY, **fields}
        error = raised_by(partial(create, **asked), anthropic.BadRequestError)
        assert error.body["error"]["type"] == "invalid_request_error"
    locked = open_client(LOCKED).messages.create
    asked = {"messages": QUESTION, **GREEDY}
    error = raised_by(partial(locked, **asked), anthropic.AuthenticationError)
    assert error.body["error"]["type"] == "authentication_error"
    assert open_client(LOCKED, "secret").messages.create(**asked).content


def raised_by(act: Callable[[], object], kind: type[anthropic.APIStatusError]) -> Any:
    """Return the exception of a kind that something raises."""
    try:
        act()
    except kind as error:
        return error
    raise AssertionError(kind)


for check in (check_messages, check_tools, check_errors):
    check()
print("done")
