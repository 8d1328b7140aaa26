"""Answers as the objects and events of Anthropic's messages API."""

import secrets
from collections.abc import Mapping
from typing import Any

import msgspec

from specchat.decoding.chunk import Finish
from specchat.server.answer_figures import messages_usage
from specchat.server.api_errors import ApiError, anthropic_body
from specchat.server.api_reply import Ended
from specchat.server.replies import comment, event
from specchat.server.reply_parts import PartEvent, PartWriter, ReplyPart
from specchat.server.served_answer import ServedAnswer

STOP_REASONS: Mapping[Finish, str] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "context": "model_context_window_exceeded",
}
SIGNATURE = "specchat"
"""What clients want to see at the end of thinking before they send it back."""
PING = event({"type": "ping"}, "ping")


class MessageEvents(PartWriter):
    """Writes one message, whole or as events."""

    def __init__(self, model: str) -> None:
        """Write a message of a model."""
        super().__init__()
        self._fields = {
            "id": f"msg_{secrets.token_hex(12)}",
            "type": "message",
            "role": "assistant",
            "model": model,
        }

    def whole(self, ended: Ended) -> dict[str, Any]:
        """Return a message that is over."""
        return {
            **self._fields,
            "content": [_whole_block(part) for part in self.parts],
            **_reason_of(ended),
            "usage": messages_usage(ended.answer.statistics),
            **ended.figures,
        }

    def begin(self, answer: ServedAnswer) -> bytes:
        """Return the events that begin a message; its usage counts what is known by then."""
        message: dict[str, Any] = {
            **self._fields,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {**messages_usage(answer.statistics), "output_tokens": 0},
        }
        return event({"type": "message_start", "message": message}, "message_start") + PING

    def quiet(self, text: str) -> bytes:
        """Return a comment and a ping."""
        return comment(text) + PING

    def end(self, ended: Ended) -> bytes:
        """Return the events that end a message."""
        data = {
            "type": "message_delta",
            "delta": _reason_of(ended),
            "usage": messages_usage(ended.answer.statistics),
            **ended.figures,
        }
        return event(data, "message_delta") + event({"type": "message_stop"}, "message_stop")

    def failed(self, error: ApiError) -> bytes:
        """Return the event with the error."""
        return event(anthropic_body(error), "error")

    def write_part(self, happened: PartEvent) -> bytes:
        """Return the events for what happened to a block of the content."""
        part, index = happened.part, happened.position
        if happened.what == "begin":
            block = _block(part, "", {})
            return _event("content_block_start", index, content_block=block)
        if happened.what == "grow":
            return _event("content_block_delta", index, delta=_delta(part, happened.text))
        data = b""
        if part.kind == "reasoning":
            signed = {"type": "signature_delta", "signature": SIGNATURE}
            data = _event("content_block_delta", index, delta=signed)
        return data + _event("content_block_stop", index)


def _event(name: str, index: int, **fields: Any) -> bytes:
    return event({"type": name, "index": index, **fields}, name)


def _whole_block(part: ReplyPart) -> dict[str, Any]:
    # as it was written: a number may be larger than JSON's usual ones
    given = msgspec.Raw(part.text.encode()) if part.kind == "call" else None
    block = _block(part, part.text, given)
    return {**block, "signature": SIGNATURE} if part.kind == "reasoning" else block


def _block(part: ReplyPart, text: str, given: Any) -> dict[str, Any]:
    """Return a part as a block with some text, or with what is given to a tool."""
    if part.kind == "reasoning":
        return {"type": "thinking", "thinking": text, "signature": ""}
    if part.call is not None:
        return {"type": "tool_use", "id": part.call.id, "name": part.call.name, "input": given}
    return {"type": "text", "text": text}


def _delta(part: ReplyPart, text: str) -> dict[str, Any]:
    if part.kind == "reasoning":
        return {"type": "thinking_delta", "thinking": text}
    if part.kind == "call":
        return {"type": "input_json_delta", "partial_json": text}
    return {"type": "text_delta", "text": text}


def _reason_of(ended: Ended) -> dict[str, Any]:
    """Return why a message ended."""
    finish = ended.answer.finish or "stop"
    if finish == "stop" and ended.stop_string:
        return {"stop_reason": "stop_sequence", "stop_sequence": ended.stop_string}
    if finish == "stop" and ended.answer.tool_calls:
        return {"stop_reason": "tool_use", "stop_sequence": None}
    return {"stop_reason": STOP_REASONS[finish], "stop_sequence": None}
