"""A message as chat templates take it."""

from typing import Any, Literal, NotRequired, TypedDict


class ChatMessage(TypedDict):
    """One message of a conversation, with the field names of OpenAI's API.

    `reasoning_content` is the reasoning before `content`. `tool_calls` have the form
    `{"id": ..., "type": "function", "function": {"name": ..., "arguments": JSON text}}`; a message
    with the role "tool" is the result of the call whose id is its `tool_call_id`.
    """

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str
    reasoning_content: NotRequired[str]
    tool_calls: NotRequired[list[dict[str, Any]]]
    tool_call_id: NotRequired[str]
    name: NotRequired[str]
