"""Requests for answers: the keywords of `Engine.generate` and `Engine.chat`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, TypeVar

from specchat.decoding.chunk import Chunk
from specchat.decoding.replay import Replay
from specchat.errors import InvalidOption
from specchat.formats.chat_message import ChatMessage
from specchat.images.image import Image, distant
from specchat.options.declarations import GenerateOptions
from specchat.requests.progress import ProgressCallback
from specchat.structured.structure import Structure

ToolChoice: TypeAlias = Literal["auto", "none", "required"]
"""Whether an answer may call tools, may not, or must."""


@dataclass(frozen=True, slots=True)
class GenerateRequest(GenerateOptions):
    """The keywords of `Engine.generate`; `prompt` is a text or token ids.

    With `special`, names of control tokens in a text become those tokens, as in a hand-written chat
    prompt; otherwise they stay text. `begun` are steps of an earlier answer with this target: the
    answer begins with their tokens, which are yielded first. With `replay` it is a known answer
    that is decoded again, `max_tokens` or not. `prediction` is a text, or its tokens, that the
    answer is expected to resemble: what they have in common is drafted. The answer is what
    `structure` allows, if one is given. The text may have marks of `images`. With `is_exact` no
    draft is longer than those that are verified with the bits of plain decoding. Requests for parts
    of one answer are `part_of` the same number, which is not 0.
    """

    prompt: str | Sequence[int]
    special: bool = field(default=True, kw_only=True)
    images: Sequence[Image] = field(default=(), kw_only=True)
    begun: Sequence[Chunk] = field(default=(), kw_only=True)
    replay: Replay | None = field(default=None, kw_only=True)
    prediction: str | Sequence[int] = field(default="", kw_only=True)
    structure: Structure | None = field(default=None, kw_only=True)
    is_exact: bool = field(default=False, kw_only=True)
    part_of: int = field(default=0, kw_only=True)
    on_progress: ProgressCallback | None = field(default=None, kw_only=True)

    @property
    def is_constrained(self) -> bool:
        """Whether the answer may not be any text."""
        return self.structure is not None


@dataclass(frozen=True, slots=True)
class ChatRequest(GenerateOptions):
    """The keywords of `Engine.chat`; a last message from the assistant is continued.

    Messages show `images` where their marks stand in the text: `f"{image}What is this?"`.
    `tools` are offered to the model, in the form of OpenAI's API. With `tool_choice` "required" the
    answer calls some, with "none" it calls none, and they are not offered. Of the tools only those
    in `tool_names` may be called, all if it is empty; with `parallel_tool_calls` several at once,
    where the chat template has that. With `enforces_tools` a call that begins can only become one
    of a tool, with arguments that follow its schema. The chat template gets `variables` besides its
    own, as llama-server's `chat_template_kwargs`. `begun` are steps of an earlier answer with this
    target: the answer begins with their tokens, which are yielded first. `replay`, `prediction`,
    `structure`, `is_exact` and `part_of` are as in GenerateRequest. With `make_room`, the messages
    with the indices `pinned` stay, and the rest of their turns. With `is_aside` the conversation
    will continue without the last message and the answer: the request is refused with InvalidOption
    if the model would have to read the conversation again for that.
    """

    messages: Sequence[ChatMessage]
    images: Sequence[Image] = field(default=(), kw_only=True)
    pinned: Sequence[int] = field(default=(), kw_only=True)
    is_aside: bool = field(default=False, kw_only=True)
    begun: Sequence[Chunk] = field(default=(), kw_only=True)
    replay: Replay | None = field(default=None, kw_only=True)
    tools: Sequence[Mapping[str, Any]] = field(default=(), kw_only=True)
    tool_choice: ToolChoice = field(default="auto", kw_only=True)
    tool_names: Sequence[str] = field(default=(), kw_only=True)
    parallel_tool_calls: bool = field(default=True, kw_only=True)
    enforces_tools: bool = field(default=True, kw_only=True)
    variables: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    prediction: str | Sequence[int] = field(default="", kw_only=True)
    structure: Structure | None = field(default=None, kw_only=True)
    is_exact: bool = field(default=False, kw_only=True)
    part_of: int = field(default=0, kw_only=True)
    on_progress: ProgressCallback | None = field(default=None, kw_only=True)

    @property
    def offered_tools(self) -> Sequence[Mapping[str, Any]]:
        """The tools that the model learns of."""
        return () if self.tool_choice == "none" else self.tools

    @property
    def may_call(self) -> bool:
        """Whether the answer may call tools, in calls that are enforced."""
        return bool(self.offered_tools) and self.enforces_tools

    @property
    def is_constrained(self) -> bool:
        """Whether the answer may not be any text: it has a structure, or may call tools."""
        return self.structure is not None or self.tool_choice == "required" or self.may_call


AnswerRequest: TypeAlias = GenerateRequest | ChatRequest
AnyRequest = TypeVar("AnyRequest", bound=AnswerRequest)


def sendable(request: AnyRequest) -> AnyRequest:
    """Return a request for another process: without its callback and the bytes of its images."""
    return replace(request, on_progress=None, images=list(map(distant, request.images)))


def request_for(
    messages: Sequence[ChatMessage], *, has_template: bool, **options: Any
) -> AnswerRequest:
    """Return the request for an answer; without a chat template, to continue the messages' text.

    Raises InvalidOption for an answer with a structure that is to be continued without a template:
    where it begins in the text is not known.
    """
    if has_template:
        return ChatRequest(messages=messages, **options)
    is_begun = bool(messages) and messages[-1]["role"] == "assistant"
    if is_begun and options.get("structure") is not None:
        raise InvalidOption(
            "an answer that follows a schema or grammar cannot be continued, as this model has no"
            " chat template: answer the question again"
        )
    chat_only = {"pinned", "is_aside"}  # a text has no messages to leave out
    given = {name: value for name, value in options.items() if name not in chat_only}
    text = "\n\n".join(message["content"] for message in messages)
    return GenerateRequest(prompt=text, special=False, **given)
