"""Turns a request into prompt tokens: by the chat template, or from text or token ids.

If a conversation does not fit into the context, its oldest turns are left out.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any

from specchat.chat.newest_turns import newest_turns
from specchat.decoding.chunk import Chunk
from specchat.engine.api import EngineFacts, PromptSize
from specchat.errors import InvalidOption, TemplateError
from specchat.formats.chat_format import ChatFormat
from specchat.formats.chat_message import ChatMessage
from specchat.formats.families import format_of
from specchat.formats.marks import State
from specchat.formats.messages import checked, with_objects
from specchat.llama.model import Model
from specchat.llama.tokenizer import Vocabulary
from specchat.options.declarations import AUTO_THINK
from specchat.requests.answer_request import AnswerRequest, ChatRequest, GenerateRequest

LEAST_ROOM = 512
"""Tokens of the context kept free for an answer, or a quarter of the context if that is less."""
PLACEHOLDER = "zq{}qy"
"""ASCII, so that it survives JSON and Python's `repr`; numbered so that no message contains it."""
STRUCTURE = ("role", "type", "id", "tool_call_id")
"""Fields of messages and tools whose values a template may compare with its own words."""
WORD = re.compile(r"[\w-]*")


@dataclass(frozen=True, slots=True)
class Prompt:
    """The tokens of a request; for a chat, also what is needed to parse the answer.

    `num_left_out` messages did not fit. The prompt of the next turn is expected to start with the
    same `num_shared` tokens; 0 if unknown.
    """

    tokens: list[int]
    num_left_out: int = 0
    num_shared: int = 0
    form: ChatFormat | None = None
    state: State = "start"
    goes_on: bool = False
    notices: tuple[str, ...] = ()


def tokenize_request(model: Model, request: AnswerRequest, capacity: int) -> Prompt:
    """Return a request's prompt, without the tokens that its answer begins with.

    Raises InvalidOption or TemplateError.
    """
    _check_begun(model.vocabulary, request.begun)
    if isinstance(request, GenerateRequest):
        return Prompt(_tokenize_prompt(model, request.prompt, special=request.special))
    messages = request.messages
    prompt = partial(_prompt_of, model, request)
    if request.make_room:
        num_begun = sum(len(step.tokens) for step in request.begun)
        limit = capacity - num_begun - min(request.max_tokens or LEAST_ROOM, capacity // 4)
        messages = newest_turns(
            messages, lambda kept: len(prompt(kept).tokens), limit, frozenset(request.pinned)
        )
    return replace(prompt(messages), num_left_out=len(request.messages) - len(messages))


def size_of(model: Model, request: ChatRequest, capacity: int) -> PromptSize:
    """Return how much of a context a conversation takes, with or without a chat template.

    Raises InvalidOption or TemplateError.
    """
    content = request.messages[-1]["content"]
    message_tokens = len(model.vocabulary.tokenize(content, add_special=False, parse_special=False))
    if model.header.chat_template is None:
        return PromptSize(message_tokens, is_too_long=message_tokens > capacity)
    prompt = tokenize_request(model, request, capacity)
    num_tokens = len(prompt.tokens)
    return PromptSize(message_tokens, prompt.num_left_out, num_tokens > capacity, num_tokens)


def num_shared(model: Model, request: AnswerRequest, prompt: Prompt) -> int:
    """Return how many tokens the prompt of the next turn is expected to share with this one.

    It may not share all of them: a template that drops earlier reasoning also drops the `<think>`
    at the end of this prompt.
    """
    if not isinstance(request, ChatRequest) or prompt.form is None:
        return 0
    kept = request.messages[prompt.num_left_out :]
    if prompt.num_left_out:
        return 0
    answered: ChatMessage = {"role": "assistant", "content": "."}
    asked: ChatMessage = {"role": "user", "content": "."}
    followed = [*(kept[:-1] if kept[-1]["role"] == "assistant" else kept), answered, asked]
    try:
        later = _prompt_of(model, request, followed).tokens
    except TemplateError:
        return 0
    pairs = zip(prompt.tokens, later, strict=False)
    return next((index for index, (a, b) in enumerate(pairs) if a != b), 0)


def tokenize_next(model: Model, request: ChatRequest) -> list[int]:
    """Return a prompt with which a conversation goes on after an aside, its last message."""
    messages: list[ChatMessage] = [*request.messages[:-1], {"role": "user", "content": "."}]
    return _prompt_of(model, request, messages).tokens


def tokenize_prediction(
    model: Model, prediction: str | Sequence[int], prompt: Prompt
) -> Sequence[int]:
    """Return the tokens of a text that an answer to a prompt may be, without the marks around it.

    What follows an answer's first word does not depend on what is before it. Unknown tokens are
    never right, so they do no harm.
    """
    if not isinstance(prediction, str):
        return [token for token in prediction if 0 <= token < model.vocabulary.size]
    text = prediction.lstrip() if prompt.form is not None else prediction
    return model.vocabulary.tokenize_more(text, parse_special=False)


def num_common(first: Sequence[int], second: Sequence[int]) -> int:
    """Return how many tokens two texts have in common from their beginning."""
    pairs = zip(first, second, strict=False)
    unequal = (index for index, (one, other) in enumerate(pairs) if one != other)
    return next(unequal, min(len(first), len(second)))


def _check_begun(vocabulary: Vocabulary, begun: Sequence[Chunk]) -> None:
    """Raise InvalidOption if this model did not write these steps: their texts differ."""
    tokens = [token for step in begun for token in step.tokens]
    written = "".join(text for step in begun for text in step.texts)
    is_known = all(0 <= token < vocabulary.size for token in tokens)
    text = b"".join(map(vocabulary.piece, tokens)) if is_known else b""
    if not is_known or not text.decode("utf-8", "replace").startswith(written):
        raise InvalidOption(
            "another model wrote the beginning of this answer: continue it with that one"
        )


def _tokenize_prompt(model: Model, prompt: str | Sequence[int], *, special: bool) -> list[int]:
    """Return a text as tokens, or token ids as they are. Raises InvalidOption for an unknown id.

    The model continues the text, so no end token is added. It begins with one BOS, even if the text
    spells it out.
    """
    if isinstance(prompt, str):
        vocabulary = model.vocabulary
        tokens = vocabulary.tokenize(prompt, add_special=True, parse_special=special)
        bos = vocabulary.bos()
        if vocabulary.adds_eos() and len(tokens) > 1:
            tokens.pop()
        return tokens[1:] if bos is not None and tokens[:2] == [bos, bos] else tokens
    require_known(model, prompt)
    return list(prompt)


def require_known(model: Model, tokens: Sequence[int]) -> None:
    """Raise InvalidOption for a token id that the vocabulary does not have."""
    size = model.vocabulary.size
    wrong = [token for token in tokens if not 0 <= token < size]
    if wrong:
        raise InvalidOption(f"token {wrong[0]} is not in the vocabulary (0 to {size - 1})")


def chat_format(model: Model) -> ChatFormat:
    """Return the format of the model's template. Raises InvalidOption if it has none."""
    template = model.header.chat_template
    if template is None:
        raise InvalidOption(f"{model.header.name} has no chat template: ask with --raw")
    vocabulary = model.vocabulary
    return format_of(template, vocabulary.special_text("bos"), vocabulary.special_text("eos"))


def facts_with_format(facts: EngineFacts, model: Model) -> EngineFacts:
    """Return facts that include how the model's chat template handles reasoning."""
    if model.header.chat_template is None:
        return facts
    form = chat_format(model)
    return replace(facts, thinking=form.thinking, keeps_reasoning=form.keeps_reasoning)


def tokenize_chat(model: Model, messages: Sequence[ChatMessage]) -> list[int]:
    """Return a conversation as tokens, by the model's chat template.

    An answer at the end is left open, to be continued. Raises InvalidOption for a model without a
    template, TemplateError if rendering fails.
    """
    return _chat_prompt(model, messages, think=AUTO_THINK).tokens


def _prompt_of(model: Model, request: ChatRequest, messages: Sequence[ChatMessage]) -> Prompt:
    """Return the prompt of a conversation, with all else as a request has it."""
    return _chat_prompt(
        model,
        messages,
        think=request.think,
        tools=request.offered_tools,
        variables=request.variables,
    )


def _chat_prompt(
    model: Model,
    messages: Sequence[ChatMessage],
    *,
    think: str,
    tools: Sequence[Mapping[str, Any]] = (),
    variables: Mapping[str, Any] | None = None,
) -> Prompt:
    """Return a conversation's prompt; names of tokens in its messages stay text."""
    form, vocabulary = chat_format(model), model.vocabulary
    said = [with_objects(each) for each in checked(messages)]
    quoted = _QuotedNames(vocabulary, form.template, _strings([said, tools, variables or {}]))
    rendered = form.prompt(
        quoted.hidden(said),
        think=think,
        tools=quoted.hidden(list(tools)),
        variables=_mapped(variables or {}, quoted.hide),
    )
    text, first = rendered.text, vocabulary.bos()
    if form.bos and text.lstrip().startswith(form.bos):
        text = text.lstrip()
    tokens = quoted.tokenize(text)
    if first is not None and tokens[:1] != [first]:
        tokens = [first, *tokens]
    return Prompt(
        tokens,
        form=form,
        state=rendered.state,
        goes_on=rendered.goes_on,
        notices=rendered.notices,
    )


class _QuotedNames:
    """Names of special tokens in messages, replaced by placeholders while the template renders.

    Otherwise a piped-in file could end its turn and continue in another role.
    """

    def __init__(self, vocabulary: Vocabulary, template: str, contents: Sequence[str]) -> None:
        self._vocabulary = vocabulary
        found = {name for each in contents for name in vocabulary.names_in(each, template)}
        self._names = sorted(found, key=len, reverse=True)
        used = "\n".join([template, *contents]) if found else ""
        marks = map(PLACEHOLDER.format, count())
        self._mark = next(mark for mark in marks if mark not in used)

    def hidden(self, value: Any) -> Any:
        """Return messages or tools with a placeholder for each special token's name in them.

        Words that the message format requires stay, whatever tokens a vocabulary has.
        """
        return self._hidden(value) if self._names else value

    def tokenize(self, text: str) -> list[int]:
        """Return the tokens of a rendered text; the hidden names are tokenized as plain text."""
        first, *others = re.split(f"{self._mark}([0-9]+){self._mark}", text)
        tokens = self._vocabulary.tokenize(first, add_special=False, parse_special=True)
        for name, rest in zip(others[::2], others[1::2], strict=True):
            tokens += self._vocabulary.tokenize_literally(self._names[int(name)])
            tokens += self._vocabulary.tokenize_more(rest, parse_special=True)
        return tokens

    def _hidden(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {self._hide_unless_word(key): self._field(key, value[key]) for key in value}
        if isinstance(value, list | tuple):
            return [self._hidden(each) for each in value]
        return self.hide(value) if isinstance(value, str) else value

    def _field(self, key: str, value: Any) -> Any:
        if key in STRUCTURE and isinstance(value, str):
            return self._hide_unless_word(value)
        # a model wrote the arguments, including their names
        return _mapped(value, self.hide) if key == "arguments" else self._hidden(value)

    def _hide_unless_word(self, text: str) -> str:
        return text if WORD.fullmatch(text) else self.hide(text)

    def hide(self, content: str) -> str:
        """Return a text with a placeholder for each special token's name in it."""
        for number, name in enumerate(self._names):
            content = content.replace(name, f"{self._mark}{number}{self._mark}")
        return content


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """Return a nested value with every string changed, keys included."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {change(key): _mapped(each, change) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_mapped(each, change) for each in value]
    return value


def _strings(value: Any) -> list[str]:
    """Return every string in a nested value."""
    found: list[str] = []

    def note(text: str) -> str:
        found.append(text)
        return text

    _mapped(value, note)
    return found
