"""Prompts as tokens: a conversation by the target's chat template, or ids that are checked."""

from __future__ import annotations

from collections.abc import Sequence

from specchat.chat.template import render
from specchat.chat.turn import Turn
from specchat.errors import InvalidOption, TemplateError
from specchat.llama.model import Model
from specchat.llama.tokenizer import Vocabulary

__all__ = ["checked_tokens", "tokenize_chat"]

ZERO_WIDTH_SPACE = "\u200b"


def tokenize_chat(model: Model, messages: Sequence[Turn]) -> list[int]:
    """Return a conversation as tokens, by the model's chat template.

    An answer at its end is left open, to be continued. Raises InvalidOption where the model has no
    template, TemplateError where it cannot be rendered.
    """
    begun = messages[-1]["content"] if messages and messages[-1]["role"] == "assistant" else ""
    messages = messages[:-1] if begun else messages
    template = model.chat_template
    if template is None:
        raise InvalidOption(f"{model.name} has no chat template: ask with --raw")
    vocabulary = model.vocabulary
    bos, eos = vocabulary.special_text("bos"), vocabulary.special_text("eos")
    harmless = [_harmless(vocabulary, each) for each in messages]
    text = _rendered(template, harmless, bos, eos) + _broken_up(vocabulary, begun)
    adds_bos = vocabulary.bos() is not None and not (bos and text.startswith(bos))
    return vocabulary.tokenize(text, add_special=adds_bos, parse_special=True)


def _rendered(template: str, messages: Sequence[Turn], bos: str, eos: str) -> str:
    """Render a conversation; a template that refuses a system prompt is told it by the user.

    Some makers' models (Gemma, older Mistral) were trained without such a role.
    """
    try:
        return render(template, messages, bos=bos, eos=eos)
    except TemplateError:
        folded = _without_system_role(messages)
        if len(folded) == len(messages):
            raise
        return render(template, folded, bos=bos, eos=eos)


def _without_system_role(messages: Sequence[Turn]) -> Sequence[Turn]:
    """Put a system prompt in front of the first question."""
    match messages:
        case [{"role": "system", "content": told}, {"role": "user", "content": asked}, *others]:
            return [{"role": "user", "content": f"{told}\n\n{asked}"}, *others]
    return messages


def checked_tokens(model: Model, tokens: Sequence[int]) -> list[int]:
    """Return token ids as they are; InvalidOption names one that is not in the vocabulary."""
    size = model.vocabulary.size
    wrong = [token for token in tokens if not 0 <= token < size]
    if wrong:
        raise InvalidOption(f"token {wrong[0]} is not in the vocabulary (0 to {size - 1})")
    return list(tokens)


def _harmless(vocabulary: Vocabulary, message: Turn) -> Turn:
    """Break the names of control tokens in a message: what is quoted there is no command.

    A file that is piped in could end its turn and speak as somebody else otherwise.
    """
    return {"role": message["role"], "content": _broken_up(vocabulary, message["content"])}


def _broken_up(vocabulary: Vocabulary, content: str) -> str:
    for name in vocabulary.control_names_in(content):
        content = content.replace(name, name[0] + ZERO_WIDTH_SPACE + name[1:])
    return content
