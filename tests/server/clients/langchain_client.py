"""Uses the server through langchain-openai: python langchain_client.py ADDRESS CALLER.

CALLER is a server whose model calls a tool.
"""

import sys
from typing import Literal

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field, SecretStr

ADDRESS, CALLER = sys.argv[1:]


def chat_of(address: str, name: str, most: int = 24) -> ChatOpenAI:
    """Return a model that is served here."""
    return ChatOpenAI(
        base_url=f"{address}/v1",
        api_key=SecretStr("no-key-needed"),
        model=name,
        temperature=0,
        max_completion_tokens=most,
        stream_usage=True,
        max_retries=0,
    )


@tool
def weather(city: str) -> str:
    """Return the weather in a city."""
    return f"sunny in {city}"


chat = chat_of(ADDRESS, "demo")
whole = chat.invoke("What is specchat?")
assert whole.content
assert whole.usage_metadata
assert whole.usage_metadata["output_tokens"] == 24
parts = list(chat.stream("What is specchat?"))
assert len(parts) > 2
assert "".join(str(part.content) for part in parts) == whole.content
assert any(part.usage_metadata for part in parts)

caller = chat_of(CALLER, "caller").bind_tools([weather])
question = HumanMessage("How is the weather in Paris?")
called = caller.invoke([question])
(call,) = called.tool_calls
assert (call["name"], call["args"]) == ("weather", {"city": "Paris"})
result = ToolMessage(weather.invoke(call["args"]), tool_call_id=call["id"])
assert caller.invoke([question, called, result]).content == "It is sunny."


class Pair(BaseModel):
    """A pair."""

    kind: Literal["draft", "target"]
    length: int = Field(ge=1, le=99)


class Place(BaseModel):
    """A place."""

    city: Literal["Paris", "Oslo"]


chat = chat_of(ADDRESS, "demo", most=200)
assert isinstance(chat.with_structured_output(Pair).invoke("A pair?"), Pair)
assert isinstance(chat.with_structured_output(Pair, method="json_schema").invoke("?"), Pair)
for address, name in ((CALLER, "caller"), (ADDRESS, "demo")):
    caller = chat_of(address, name, most=200)
    by_call = caller.with_structured_output(Place, method="function_calling")
    assert isinstance(by_call.invoke("Where?"), Place)
print("done")
