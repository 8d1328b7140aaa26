"""Prompts as tokens: a conversation by the target's chat template, or checked token ids.

The oldest turns of a conversation that is longer than the context are left out.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence

from specchat.chat.conversation import ChatMessage
from specchat.chat.template import render
from specchat.engine.api import AnswerRequest, GenerateRequest
from specchat.errors import InvalidOption, TemplateError
from specchat.llama.model import Model
from specchat.llama.tokenizer import Vocabulary

LEAST_ROOM = 512
"""Tokens of the context kept free for an answer, or a quarter of it if that is less."""
TURNS_AT_ONCE = 4
"""Turns left out at a time: each time the model must evaluate all others again."""
FIRST_MARK = 0xF0000
"""A private-use character; one that the messages contain is not used."""


def tokenize_request(model: Model, request: AnswerRequest, capacity: int) -> tuple[list[int], int]:
    """Return the tokens of a request, and how many of its messages a full context leaves out.

    Raises InvalidOption or TemplateError.
    """
    if isinstance(request, GenerateRequest):
        return _tokenize_prompt(model, request.prompt), 0
    messages = request.messages
    if request.make_room:
        limit = capacity - min(request.max_tokens or LEAST_ROOM, capacity // 4)
        messages = newest_turns(messages, lambda kept: len(tokenize_chat(model, kept)), limit)
    return tokenize_chat(model, messages), len(request.messages) - len(messages)


def newest_turns(
    messages: Sequence[ChatMessage], count: Callable[[Sequence[ChatMessage]], int], limit: int
) -> Sequence[ChatMessage]:
    """Return a conversation without its oldest turns, so that `count` is within a limit.

    Whole turns are left out, so the rest begins with a question. System prompts and the last
    question always stay.
    """
    system = [message for message in messages if message["role"] == "system"]
    others = [message for message in messages if message["role"] != "system"]
    begins = [place for place, message in enumerate(others) if message["role"] == "user"]
    if count(messages) <= limit or not begins:
        return messages
    places = begins[TURNS_AT_ONCE:-1:TURNS_AT_ONCE]
    # counting renders the whole template, so not every place is tried
    first = bisect_left(places, True, key=lambda place: count([*system, *others[place:]]) <= limit)
    return [*system, *others[[*places, begins[-1]][first] :]]


def _tokenize_prompt(model: Model, prompt: str | Sequence[int]) -> list[int]:
    """Return a text as tokens, or token ids as they are; InvalidOption for an unknown id."""
    if isinstance(prompt, str):
        return model.vocabulary.tokenize(prompt, add_special=True, parse_special=False)
    size = model.vocabulary.size
    wrong = [token for token in prompt if not 0 <= token < size]
    if wrong:
        raise InvalidOption(f"token {wrong[0]} is not in the vocabulary (0 to {size - 1})")
    return list(prompt)


def tokenize_chat(model: Model, messages: Sequence[ChatMessage]) -> list[int]:
    """Return a conversation as tokens, by the model's chat template.

    Control tokens come from the template only: their names in a message stay text. An answer at the
    end is left open, to be continued. Raises InvalidOption for a model without a template,
    TemplateError if it cannot be rendered.
    """
    template = model.header.chat_template
    if template is None:
        raise InvalidOption(f"{model.header.name} has no chat template: ask with --raw")
    begun = messages[-1]["content"] if messages and messages[-1]["role"] == "assistant" else ""
    messages = messages[:-1] if begun else messages
    vocabulary = model.vocabulary
    bos, eos = vocabulary.special_text("bos"), vocabulary.special_text("eos")
    quoted = _QuotedNames(vocabulary, [*(each["content"] for each in messages), begun])
    hidden: list[ChatMessage] = [
        {**each, "content": quoted.hide(each["content"])} for each in messages
    ]
    text = _rendered(template, hidden, bos, eos) + quoted.hide(begun)
    first = vocabulary.bos()
    adds_bos = first is not None and not (bos and text.startswith(bos))
    return [*([first] if first is not None and adds_bos else []), *quoted.tokenize(text)]


class _QuotedNames:
    """Names of control tokens quoted in messages, replaced by marks while the template renders.

    Otherwise a piped-in file could end its turn and continue as another role.
    """

    def __init__(self, vocabulary: Vocabulary, contents: Sequence[str]) -> None:
        self._vocabulary = vocabulary
        found = set[str]().union(*map(vocabulary.control_names_in, contents))
        self._names = sorted(found, key=len, reverse=True)
        used = set("".join(contents)) if found else set()
        marks = map(chr, range(FIRST_MARK, 0x10FFFE))
        self._mark = next(mark for mark in marks if mark not in used)

    def hide(self, content: str) -> str:
        """Return a message with a mark in place of each name."""
        for number, name in enumerate(self._names):
            content = content.replace(name, f"{self._mark}{number}{self._mark}")
        return content

    def tokenize(self, text: str) -> list[int]:
        """Return the tokens of a rendered text; the names behind marks are tokenized as text."""
        first, *others = re.split(f"{self._mark}([0-9]+){self._mark}", text)
        tokens = self._vocabulary.tokenize(first, add_special=False, parse_special=True)
        for name, rest in zip(others[::2], others[1::2], strict=True):
            tokens += self._vocabulary.tokenize_more(self._names[int(name)], parse_special=False)
            tokens += self._vocabulary.tokenize_more(rest, parse_special=True)
        return tokens


def _rendered(template: str, messages: Sequence[ChatMessage], bos: str, eos: str) -> str:
    """Return a conversation as text; a refused system prompt goes into the first question.

    Some models (Gemma, older Mistral) were trained without a system role.
    """
    try:
        return render(template, messages, bos=bos, eos=eos)
    except TemplateError:
        match messages:
            case [{"role": "system", "content": system}, {"role": "user", "content": asked}, *rest]:
                question: ChatMessage = {"role": "user", "content": f"{system}\n\n{asked}"}
                return render(template, [question, *rest], bos=bos, eos=eos)
        raise
