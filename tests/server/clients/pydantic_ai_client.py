"""Uses the server through Pydantic AI: python pydantic_ai_client.py ADDRESS CALLER.

CALLER is a server whose model calls a tool.
"""

import asyncio
import sys
from typing import Any, Literal

from pydantic import BaseModel, Field
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings

ADDRESS, CALLER = sys.argv[1:]


class Pair(BaseModel):
    """A pair."""

    kind: Literal["draft", "target"]
    length: int = Field(ge=1, le=99)


class Place(BaseModel):
    """A place."""

    city: Literal["Paris", "Oslo"]


def agent_of(address: str, name: str, output: Any = str) -> Agent[None, Any]:
    """Return an agent whose model is served here."""
    provider = OpenAIProvider(base_url=f"{address}/v1", api_key="no-key-needed")
    settings = ModelSettings(temperature=0, max_tokens=48 if output is str else 200)
    model = OpenAIChatModel(name, provider=provider)
    return Agent(model, model_settings=settings, output_type=output)


async def main() -> None:
    """Ask plainly, in a stream, and with a tool."""
    agent = agent_of(ADDRESS, "demo")
    whole = await agent.run("What is specchat?")
    assert whole.output
    async with agent.run_stream("What is specchat?") as streamed:
        assert await streamed.get_output() == whole.output

    caller, cities = agent_of(CALLER, "caller"), list[str]()

    @caller.tool_plain
    def weather(city: str) -> str:
        """Return the weather in a city."""
        cities.append(city)
        return "sunny"

    told = await caller.run("How is the weather in Paris?")
    assert (told.output, cities) == ("It is sunny.", ["Paris"])

    native = await agent_of(ADDRESS, "demo", NativeOutput(Pair)).run("A pair?")
    assert isinstance(native.output, Pair)
    for address, name in ((CALLER, "caller"), (ADDRESS, "demo")):
        called = await agent_of(address, name, Place).run("Where?")
        assert isinstance(called.output, Place)


asyncio.run(main())
print("done")
