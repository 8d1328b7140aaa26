"""Uses the server through Instructor: python instructor_client.py ADDRESS CALLER.

CALLER is a server whose model calls a tool.
"""

import sys
from collections.abc import Iterable
from typing import Any, Literal

import instructor
from openai import OpenAI
from pydantic import BaseModel

ADDRESS, CALLER = sys.argv[1:]
QUESTION: Any = [{"role": "user", "content": "How is the weather in Paris?"}]
ASKED: Any = {"messages": QUESTION, "temperature": 0, "max_tokens": 200, "max_retries": 0}


class Place(BaseModel):
    """A place."""

    city: Literal["Paris", "Oslo"]


class weather(BaseModel):  # noqa: N801  # the tool's name
    """The weather in a city."""

    city: str


def client_of(address: str, mode: instructor.Mode) -> Any:
    """Return a client that asks for answers in one way."""
    return instructor.from_openai(
        OpenAI(base_url=f"{address}/v1", api_key="no-key-needed", max_retries=0), mode=mode
    )


for each in (
    instructor.Mode.TOOLS,
    instructor.Mode.JSON_SCHEMA,
    instructor.Mode.RESPONSES_TOOLS,
):
    for address, name in ((ADDRESS, "demo"), (CALLER, "caller")):
        created = client_of(address, each).chat.completions.create(
            model=name, response_model=Place, **ASKED
        )
        assert isinstance(created, Place), each

calls = client_of(CALLER, instructor.Mode.PARALLEL_TOOLS).chat.completions.create(
    model="caller", response_model=Iterable[weather], **ASKED
)
assert list(calls) == [weather(city="Paris")]
print("done")
