"""A conversation as tokens, by the model's chat template."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from specchat.chat.newest_turns import newest_turns
from specchat.constraints.answer_start import AnswerStart
from specchat.errors import ContextFull, InvalidOption, TemplateError
from specchat.formats.chat_format import ChatFormat
from specchat.formats.chat_message import ChatMessage
from specchat.formats.families import format_of
from specchat.formats.messages import checked, with_objects
from specchat.formats.template import ADVICE
from specchat.images.image import Image
from specchat.llama.image_cells import ImageTokens
from specchat.llama.model import Model
from specchat.options.declarations import AUTO_THINK
from specchat.prompts.image_parts import require_shown, tokens_of_parts
from specchat.prompts.prompt_room import PromptRoom
from specchat.prompts.quoted_names import QuotedNames, texts_in
from specchat.requests.answer_request import ChatRequest
from specchat.structured.structure_prompt import description_of

QUESTION: ChatMessage = {"role": "user", "content": "."}
"""A placeholder for the user's next question."""


class PromptText(NamedTuple):
    """A request as tokens; for a chat, the answer begins at `start`.

    `num_left_out` messages did not fit. `notices` are the chat template's. The `images` in it are
    found for as long as these live.
    """

    tokens: list[int]
    start: AnswerStart | None = None
    num_left_out: int = 0
    notices: tuple[str, ...] = ()
    images: tuple[ImageTokens, ...] = ()


def chat_format(model: Model) -> ChatFormat:
    """Return the format of the model's template. Raises InvalidOption if it has none."""
    template = model.header.chat_template
    if template is None:
        raise InvalidOption(f"{model.header.name} has no chat template: {ADVICE}")
    vocabulary = model.vocabulary
    return format_of(template, vocabulary.special_text("bos"), vocabulary.special_text("eos"))


def tokenize_chat(model: Model, messages: Sequence[ChatMessage]) -> list[int]:
    """Return a conversation as tokens, by the model's chat template.

    An answer at the end is left open, to be continued. Raises InvalidOption for a model without a
    template, TemplateError if rendering fails.
    """
    return _rendered(model, messages, think=AUTO_THINK).tokens


def conversation_text(
    model: Model, request: ChatRequest, limit: int, room: PromptRoom
) -> PromptText:
    """Return a request's conversation as tokens, without an answer's beginning.

    With `make_room` its oldest turns are left out until it has at most `limit` tokens. Raises what
    `tokenize_chat` does, and ContextFull if the `room` is far from enough.
    """
    messages = request.messages

    def count(kept: Sequence[ChatMessage]) -> int:
        try:
            return len(_text_of(model, request, kept, room).tokens)
        except ContextFull as error:
            return error.num_tokens

    if request.make_room:
        messages = newest_turns(messages, count, limit, frozenset(request.pinned))
    text = _text_of(model, request, messages, room)
    return text._replace(num_left_out=len(request.messages) - len(messages))


def closed_text(model: Model, request: ChatRequest, room: PromptRoom) -> PromptText:
    """Return a request's conversation as tokens, as it stands in one that goes on after it.

    Raises what `conversation_text` does.
    """
    return _text_of(model, request, request.messages, room, opens_answer=False)


def num_shared(model: Model, request: ChatRequest, text: PromptText) -> int:
    """Return how many tokens the prompt of the next turn is expected to share with this one.

    It may not share all of them: a template that drops earlier reasoning also drops the `<think>`
    at the end of this prompt.
    """
    if text.num_left_out:
        return 0
    messages = request.messages
    asked = messages[:-1] if messages[-1]["role"] == "assistant" else messages
    answer: ChatMessage = {"role": "assistant", "content": "."}
    try:
        later = _text_of(model, request, [*asked, answer, QUESTION]).tokens
    except TemplateError:
        return 0
    pairs = zip(text.tokens, later, strict=False)
    return next((index for index, (a, b) in enumerate(pairs) if a != b), 0)


def after_aside(model: Model, request: ChatRequest) -> list[int]:
    """Return the prompt of a conversation that continues after an aside, its last message."""
    return _text_of(model, request, [*request.messages[:-1], QUESTION]).tokens


def _text_of(
    model: Model,
    request: ChatRequest,
    messages: Sequence[ChatMessage],
    room: PromptRoom | None = None,
    *,
    opens_answer: bool = True,
) -> PromptText:
    """Return a conversation as tokens, with the other fields of a request.

    The system prompt describes the structure of the answer to the model.
    """
    structure = request.structure
    return _rendered(
        model,
        messages,
        room=room,
        think=request.think,
        tools=request.offered_tools,
        variables=request.variables,
        told=description_of(structure) if structure is not None and structure.is_shown else "",
        opens_answer=opens_answer,
        images=request.images,
    )


def _rendered(
    model: Model,
    messages: Sequence[ChatMessage],
    *,
    think: str,
    tools: Sequence[Mapping[str, Any]] = (),
    variables: Mapping[str, Any] | None = None,
    told: str = "",
    room: PromptRoom | None = None,
    opens_answer: bool = True,
    images: Sequence[Image] = (),
) -> PromptText:
    """Return a conversation as tokens; names of special tokens in its messages stay text."""
    form, vocabulary = chat_format(model), model.vocabulary
    whole = [with_objects(message) for message in checked(messages)]
    texts = texts_in([whole, tools, variables or {}, told])
    quoted = QuotedNames(vocabulary, form.template, texts, room or PromptRoom(vocabulary))
    rendered = form.prompt(
        quoted.hidden(whole),
        think=think,
        tools=quoted.hidden(list(tools)),
        variables=quoted.hidden_everywhere(variables or {}),
        told=quoted.hidden_everywhere(told),
        opens_answer=opens_answer,
    )
    text, bos = rendered.text, vocabulary.bos()
    if form.bos and text.lstrip().startswith(form.bos):
        text = text.lstrip()
    require_shown(text, messages, images)
    tokens, found = tokens_of_parts(model, text, images, quoted.tokenize)
    if bos is not None and tokens[:1] != [bos]:
        tokens = [bos, *tokens]
    start = AnswerStart(form, rendered.state, rendered.goes_on)
    return PromptText(tokens, start, notices=rendered.notices, images=found)
