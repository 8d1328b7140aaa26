"""Uses the server through Pydantic AI: python pydantic_ai_client.py ADDRESS CALLER.

CALLER is a server whose model calls a tool.
"""

import asyncio
import sys

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings

ADDRESS, CALLER = sys.argv[1:]


def agent_of(address: str, name: str) -> Agent[None, str]:
    """Return an agent whose model is served here."""
    provider = OpenAIProvider(base_url=f"{address}/v1", api_key="no-key-needed")
    settings = ModelSettings(temperature=0, max_tokens=48)
    return Agent(OpenAIChatModel(name, provider=provider), model_settings=settings)


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


asyncio.run(main())
print("done")
