"""Uses the server through LiteLLM: python litellm_client.py ADDRESS CALLER.

CALLER is a server whose model calls a tool.
"""

import os
import sys
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # otherwise it asks for prices on import

import litellm

ADDRESS, CALLER = sys.argv[1:]
QUESTION: Any = [{"role": "user", "content": "What is specchat?"}]
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def asked(address: str, provider: str, name: str, **more: Any) -> dict[str, Any]:
    """Return what all calls have."""
    base = address if provider == "anthropic" else f"{address}/v1"
    usual = {"temperature": 0, "max_tokens": 12, "num_retries": 0, "api_key": "no-key-needed"}
    return {**usual, "model": f"{provider}/{name}", "api_base": base, **more}


def check_chat() -> None:
    """Whole and streamed, as any of the providers that speak these APIs."""
    texts = set[str]()
    for provider in ("openai", "hosted_vllm", "lm_studio", "anthropic"):
        fields = asked(ADDRESS, provider, "demo")
        whole = litellm.completion(messages=QUESTION, **fields)
        assert (whole.choices[0].finish_reason, whole.usage.completion_tokens) == ("length", 12)
        parts = litellm.completion(messages=QUESTION, stream=True, **fields)
        text = "".join(part.choices[0].delta.content or "" for part in parts)
        assert text == whole.choices[0].message.content, provider
        texts.add(text)
    assert len(texts) == 1


def check_completions() -> None:
    """A text is continued."""
    fields = asked(ADDRESS, "text-completion-openai", "demo")
    assert litellm.text_completion(prompt="specchat is", **fields).choices[0].text


def check_tools() -> None:
    """A call and its result, and a call that is required of a model without a template for it."""
    messages: Any = [{"role": "user", "content": "How is the weather in Paris?"}]
    fields = asked(CALLER, "openai", "caller", max_tokens=60, tools=[WEATHER])
    message = litellm.completion(messages=messages, **fields).choices[0].message
    (call,) = message.tool_calls
    assert (call.function.name, call.function.arguments) == ("weather", '{"city": "Paris"}')
    result = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
    told = litellm.completion(messages=[*messages, message, result], **fields)
    assert told.choices[0].message.content == "It is sunny."
    fields = asked(ADDRESS, "openai", "demo", max_tokens=200, tools=[WEATHER])
    forced = litellm.completion(messages=messages, tool_choice="required", **fields).choices[0]
    assert forced.message.tool_calls[0].function.name == "weather"


def check_errors() -> None:
    """A prompt that is too long is that, by which agents shorten the conversation."""
    long = [{"role": "user", "content": "many words " * 20_000}]
    for provider in ("openai", "anthropic"):
        try:
            litellm.completion(messages=long, **asked(ADDRESS, provider, "demo"))
        except litellm.ContextWindowExceededError:
            continue
        raise AssertionError(provider)


litellm.suppress_debug_info = True
for check in (check_chat, check_completions, check_tools, check_errors):
    check()
print("done")
