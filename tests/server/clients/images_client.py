"""Shows an image to the server through several packages: python images_client.py ADDRESS.

The image is `cat.png` in the current folder.
"""

import asyncio
import base64
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anthropic
import openai
from anthropic import Anthropic
from click.testing import CliRunner
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI
from openai import OpenAI
from pydantic import SecretStr
from pydantic_ai import Agent, BinaryContent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings

ADDRESS = sys.argv[1]
BASE, KEY, MODEL, WORDS = f"{ADDRESS}/v1", "no-key-needed", "seer", "What is this?"
FILE = Path("cat.png")
DATA = base64.b64encode(FILE.read_bytes()).decode()
URL = f"data:image/png;base64,{DATA}"
SOURCE: Any = {"type": "base64", "media_type": "image/png", "data": DATA}
NUM_CELLS = 64


def refused(kind: type[Exception], call: Callable[[], object]) -> str:
    """Return the message of the error that a call raises."""
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError("no error")


def check_openai() -> None:
    """Both APIs give the same text, whole and streamed; an address is refused."""
    client = OpenAI(base_url=BASE, api_key=KEY, max_retries=0)
    messages: Any = [
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": URL, "detail": "low"}},
                {"type": "text", "text": WORDS},
            ],
        }
    ]
    fields: Any = {"model": MODEL, "messages": messages, "temperature": 0, "max_tokens": 12}
    whole = client.chat.completions.create(**fields)
    details = whole.usage.prompt_tokens_details if whole.usage else None
    assert details
    assert getattr(details, "image_tokens", None) == NUM_CELLS
    stream = client.chat.completions.create(stream=True, **fields)
    streamed = "".join(each.choices[0].delta.content or "" for each in stream if each.choices)
    assert streamed == whole.choices[0].message.content
    given: Any = [
        {
            "role": "user",
            "content": [
                {"type": "input_image", "image_url": URL, "detail": "auto"},
                {"type": "input_text", "text": WORDS},
            ],
        }
    ]
    answer = client.responses.create(model=MODEL, input=given, temperature=0, max_output_tokens=12)
    assert answer.output_text == streamed
    messages[0]["content"][0]["image_url"]["url"] = "https://example.com/cat.png"
    said = refused(openai.BadRequestError, lambda: client.chat.completions.create(**fields))
    assert "none is opened here" in said


def check_anthropic() -> None:
    """Said by the user, returned by a tool, and counted; an address is refused."""
    client = Anthropic(base_url=ADDRESS, api_key=KEY, max_retries=0)
    image: Any = {"type": "image", "source": SOURCE}
    shown: Any = {"role": "user", "content": [image, {"type": "text", "text": WORDS}]}
    use: Any = {"type": "tool_use", "id": "t1", "name": "look", "input": {}}
    found: Any = {"type": "tool_result", "tool_use_id": "t1", "content": [image]}
    for messages in (
        [shown],
        [
            {"role": "user", "content": WORDS},
            {"role": "assistant", "content": [use]},
            {"role": "user", "content": [found]},
        ],
    ):
        reply = client.messages.create(model=MODEL, max_tokens=12, messages=messages)
        read = reply.usage.input_tokens + (reply.usage.cache_read_input_tokens or 0)
        counted = client.messages.count_tokens(model=MODEL, messages=messages)
        assert read == counted.input_tokens > NUM_CELLS
    image["source"] = {"type": "url", "url": "https://example.com/cat.png"}
    fields: Any = {"model": MODEL, "max_tokens": 12, "messages": [shown]}
    said = refused(anthropic.BadRequestError, lambda: client.messages.create(**fields))
    assert "none is opened here" in said


def check_langchain() -> None:
    """A message with an image in LangChain's own form."""
    chat = ChatOpenAI(
        base_url=BASE, api_key=SecretStr(KEY), model=MODEL, temperature=0, max_retries=0
    )
    block = {"type": "image", "base64": DATA, "mime_type": "image/png"}
    content: Any = [block, {"type": "text", "text": WORDS}]
    found = chat.bind(max_tokens=12).invoke([HumanMessage(content=content)])
    assert found.usage_metadata
    assert found.usage_metadata["input_tokens"] > NUM_CELLS


def check_pydantic_ai() -> None:
    """A question with a file beside it."""
    provider = OpenAIProvider(base_url=BASE, api_key=KEY)
    settings = ModelSettings(temperature=0, max_tokens=12)
    agent = Agent(OpenAIChatModel(MODEL, provider=provider), model_settings=settings)
    file = BinaryContent(data=FILE.read_bytes(), media_type="image/png")
    found = asyncio.run(agent.run([WORDS, file]))
    assert found.output


def check_llm() -> None:
    """The command `llm` attaches a file."""
    from llm.cli import cli

    folder = Path(os.environ["LLM_USER_PATH"])
    folder.mkdir(parents=True)
    (folder / "extra-openai-models.yaml").write_text(
        f"- model_id: here\n  model_name: {MODEL}\n  api_base: {BASE}\n  vision: true\n", "utf-8"
    )
    words = ["prompt", "-m", "here", "-o", "max_tokens", "12", WORDS, "-a", str(FILE)]
    done = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output


for check in (check_openai, check_anthropic, check_langchain, check_pydantic_ai, check_llm):
    check()
print("done")
