"""A conversation as tokens, by the model's chat template."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from specchat.constraints.answer_start import AnswerStart
from specchat.errors import InvalidOption
from specchat.formats.chat_format import ChatFormat
from specchat.formats.chat_message import ChatMessage
from specchat.formats.families import format_of
from specchat.formats.messages import SYSTEM_ROLES, checked, with_objects
from specchat.llama.model import Model
from specchat.options.declarations import AUTO_THINK
from specchat.prompts.quoted_names import QuotedNames
from specchat.requests.answer_request import AnswerRequest, ChatRequest
from specchat.structured.structure_prompt import description_of

Request = TypeVar("Request", bound=AnswerRequest)


class ChatText(NamedTuple):
    """A conversation as tokens; its answer begins at `start`. `notices` are the template's."""

    tokens: list[int]
    start: AnswerStart
    notices: tuple[str, ...] = ()


def chat_format(model: Model) -> ChatFormat:
    """Return the format of the model's template. Raises InvalidOption if it has none."""
    template = model.header.chat_template
    if template is None:
        raise InvalidOption(f"{model.header.name} has no chat template: ask with --raw")
    vocabulary = model.vocabulary
    return format_of(template, vocabulary.special_text("bos"), vocabulary.special_text("eos"))


def described(request: Request) -> Request:
    """Return a request whose system prompt tells the model what its answer must look like."""
    structure = request.structure
    if structure is None or not structure.is_shown or not isinstance(request, ChatRequest):
        return request
    line = description_of(structure)
    messages: list[ChatMessage] = list(request.messages)
    pinned = request.pinned
    if messages and messages[0]["role"] in SYSTEM_ROLES:
        content = f"{messages[0]['content']}\n\n{line}"
        messages[0] = {**messages[0], "content": content}
    else:
        messages.insert(0, {"role": "system", "content": line})
        pinned = [index + 1 for index in pinned]
    return replace(request, messages=messages, pinned=pinned)


def tokenize_chat(model: Model, messages: Sequence[ChatMessage]) -> list[int]:
    """Return a conversation as tokens, by the model's chat template.

    An answer at the end is left open, to be continued. Raises InvalidOption for a model without a
    template, TemplateError if rendering fails.
    """
    return chat_text(model, messages).tokens


def chat_text(
    model: Model,
    messages: Sequence[ChatMessage],
    *,
    think: str = AUTO_THINK,
    tools: Sequence[Mapping[str, Any]] = (),
    variables: Mapping[str, Any] | None = None,
) -> ChatText:
    """Return a conversation as tokens; names of special tokens in its messages stay text.

    Raises what `tokenize_chat` does.
    """
    form, vocabulary = chat_format(model), model.vocabulary
    whole = [with_objects(message) for message in checked(messages)]
    quoted = QuotedNames(vocabulary, form.template, [whole, tools, variables or {}])
    rendered = form.prompt(
        quoted.hidden(whole),
        think=think,
        tools=quoted.hidden(list(tools)),
        variables=quoted.hidden_everywhere(variables or {}),
    )
    text, bos = rendered.text, vocabulary.bos()
    if form.bos and text.lstrip().startswith(form.bos):
        text = text.lstrip()
    tokens = quoted.tokenize(text)
    if bos is not None and tokens[:1] != [bos]:
        tokens = [bos, *tokens]
    start = AnswerStart(form, rendered.state, rendered.goes_on)
    return ChatText(tokens, start, rendered.notices)
