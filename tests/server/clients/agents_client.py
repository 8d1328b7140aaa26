"""Uses the server through OpenAI's agents package: python agents_client.py ADDRESS CALLER.

CALLER is a server whose model calls a tool.
"""

import asyncio
import sys
from typing import Any, Literal

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from pydantic import BaseModel

ADDRESS, CALLER = sys.argv[1:]
CITIES: list[str] = []


class Place(BaseModel):
    """A place."""

    city: Literal["Paris", "Oslo"]


@function_tool
def weather(city: str) -> str:
    """Return the weather in a city."""
    CITIES.append(city)
    return "sunny"


def agent_of(kind: Any, address: str, name: str, **options: Any) -> Agent[Any]:
    """Return an agent whose model is served here."""
    client = AsyncOpenAI(base_url=f"{address}/v1", api_key="no-key-needed", max_retries=0)
    settings = options.pop("settings", {})
    return Agent(
        name="Helper",
        model=kind(name, client),
        model_settings=ModelSettings(temperature=0, max_tokens=200, **settings),
        **options,
    )


async def main() -> None:
    """Ask plainly, in a form, and with a tool, by both of OpenAI's APIs."""
    for kind in (OpenAIChatCompletionsModel, OpenAIResponsesModel):
        told = await Runner.run(agent_of(kind, ADDRESS, "demo"), "What is specchat?")
        assert told.final_output
        formed = await Runner.run(agent_of(kind, ADDRESS, "demo", output_type=Place), "Where?")
        assert isinstance(formed.final_output, Place)
        for required in ({}, {"tool_choice": "required"}):
            CITIES.clear()
            agent = agent_of(kind, CALLER, "caller", tools=[weather], settings=required)
            found = await Runner.run(agent, "How is the weather in Paris?")
            assert (found.final_output, CITIES) == ("It is sunny.", ["Paris"])


set_tracing_disabled(True)
asyncio.run(main())
print("done")
