"""Answers as the objects and events of OpenAI's responses API."""

import secrets
from collections.abc import Collection, Mapping
from itertools import count
from time import time
from typing import Any

from specchat.requests.answer_request import ChatRequest
from specchat.server.answer_figures import responses_usage
from specchat.server.api_errors import ApiError
from specchat.server.api_reply import Ended, Reply
from specchat.server.replies import event
from specchat.server.reply_parts import PartEvent, PartKind, PartWriter, ReplyPart
from specchat.server.response_tools import ToolName
from specchat.server.served_answer import ServedAnswer

SEALED_REASONING = "reasoning.encrypted_content"
"""What a client includes that sends reasoning back in a sealed form only, as Codex does."""
REASONING_PREFIX = "specchat:"
"""Begins reasoning in that form; nothing is secret here, so its text follows."""
PREFIXES: Mapping[PartKind, str] = {"reasoning": "rs", "text": "msg", "call": "fc"}
CONTENTS: Mapping[PartKind, str] = {
    "reasoning": "reasoning_text",
    "text": "output_text",
    "call": "function_call_arguments",
}
"""What the events of items' contents are called."""
INCOMPLETE = {"reason": "max_output_tokens"}


class ResponseEvents(PartWriter):
    """Writes one response, whole or as events; it repeats fields of the request, `echoed`."""

    def __init__(
        self,
        echoed: Mapping[str, Any],
        reply: Reply[ChatRequest],
        include: Collection[str],
        names: Mapping[str, ToolName],
    ) -> None:
        """Write the response of a reply; `names` are the client's, of tools that have others."""
        super().__init__()
        self._reply = reply
        self._fields = {
            "id": f"resp_{secrets.token_hex(12)}",
            "object": "response",
            "created_at": int(time()),
            "model": reply.model,
            **echoed,
        }
        self._names = names
        self._is_sealed = SEALED_REASONING in include
        self._numbers = count()
        self._ids: list[str] = []

    def whole(self, ended: Ended) -> dict[str, Any]:
        """Return a response that is over."""
        answer = ended.answer
        is_whole = answer.finish == "stop"
        output = [self._item(index, part) for index, part in enumerate(self.parts)]
        return {
            **self._object("completed" if is_whole else "incomplete", output),
            "incomplete_details": None if is_whole else INCOMPLETE,
            "usage": responses_usage(answer.statistics),
            **ended.figures,
        }

    def begin(self, answer: ServedAnswer) -> bytes:
        """Return the events that announce the response."""
        del answer
        response = self._object("in_progress", [])
        return b"".join(
            self._event(name, response=response)
            for name in ("response.created", "response.in_progress")
        )

    def end(self, ended: Ended) -> bytes:
        """Return the event with the whole response."""
        response = self.whole(ended)
        return self._event(f"response.{response['status']}", response=response)

    def failed(self, error: ApiError) -> bytes:
        """Return the event with the error."""
        details = {"code": error.code or "server_error", "message": error.message}
        response = {**self._object("failed", []), "error": details}
        return self._event("response.failed", response=response)

    def write_part(self, happened: PartEvent) -> bytes:
        """Return the events for what happened to an item."""
        part, index = happened.part, happened.position
        if happened.what == "begin":
            return self._begun(index, part)
        if happened.what == "grow":
            return self._content_event("delta", index, part, delta=happened.text)
        return self._done(index, part)

    def _begun(self, index: int, part: ReplyPart) -> bytes:
        item = self._item(index, ReplyPart(part.kind, call=part.call), status="in_progress")
        data = self._event("response.output_item.added", output_index=index, item=item)
        return data + self._part_event("added", index, ReplyPart(part.kind))

    def _done(self, index: int, part: ReplyPart) -> bytes:
        if part.kind == "call":
            fields = {"arguments": part.text, "name": self._called(part).get("name")}
        else:
            fields = {"text": part.text}
        data = self._content_event("done", index, part, **fields)
        data += self._part_event("done", index, part)
        item = self._item(index, part)
        return data + self._event("response.output_item.done", output_index=index, item=item)

    def _event(self, name: str, /, **fields: Any) -> bytes:
        return event({"type": name, "sequence_number": next(self._numbers), **fields}, name)

    def _content_event(self, what: str, index: int, part: ReplyPart, /, **fields: Any) -> bytes:
        """Return an event for the text of an item, or for the arguments of a call."""
        location: dict[str, Any] = {"item_id": self._id(index, part.kind), "output_index": index}
        if part.kind != "call":
            location["content_index"] = 0
        if part.kind == "text":
            location["logprobs"] = []
        return self._event(f"response.{CONTENTS[part.kind]}.{what}", **location, **fields)

    def _part_event(self, what: str, index: int, part: ReplyPart) -> bytes:
        """Return the event for the content of an item as a whole; calls have none."""
        if part.kind == "call":
            return b""
        location = {
            "item_id": self._id(index, part.kind),
            "output_index": index,
            "content_index": 0,
        }
        return self._event(f"response.content_part.{what}", **location, part=_content_of(part))

    def _object(self, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            **self._fields,
            "system_fingerprint": self._reply.fingerprint,
            "status": status,
            "output": output,
            "error": None,
            "incomplete_details": None,
            "usage": None,
        }

    def _item(self, index: int, part: ReplyPart, status: str = "") -> dict[str, Any]:
        """Return a part as an item of the output; one that has begun has no content yet."""
        has_begun = status == "in_progress"
        content = [] if has_begun else [_content_of(part)]
        item: dict[str, Any] = {
            "id": self._id(index, part.kind),
            "status": status or ("incomplete" if part.is_cut else "completed"),
        }
        if part.kind == "text":
            return {**item, "type": "message", "role": "assistant", "content": content}
        if part.kind == "reasoning":
            sealed = REASONING_PREFIX + part.text if self._is_sealed and not has_begun else None
            reasoning = {"summary": [], "content": content, "encrypted_content": sealed}
            return {**item, "type": "reasoning", **reasoning}
        return {**item, "type": "function_call", **self._called(part), "arguments": part.text}

    def _called(self, part: ReplyPart) -> dict[str, Any]:
        """Return what a call calls, by the client's own name for it."""
        if part.call is None:
            return {}
        called = {"call_id": part.call.id, "name": part.call.name}
        name = self._names.get(part.call.name)
        return {**called, **name._asdict()} if name else called

    def _id(self, index: int, kind: PartKind) -> str:
        if index == len(self._ids):
            self._ids.append(f"{PREFIXES[kind]}_{secrets.token_hex(12)}")
        return self._ids[index]


def _content_of(part: ReplyPart) -> dict[str, Any]:
    if part.kind == "reasoning":
        return {"type": "reasoning_text", "text": part.text}
    return {"type": "output_text", "text": part.text, "annotations": [], "logprobs": []}
