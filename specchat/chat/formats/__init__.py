"""Chat formats: how a template writes prompts, and how to parse its model's output."""

from functools import lru_cache

from specchat.chat.formats.chat_format import ChatFormat, Prompt
from specchat.chat.formats.families import completed
from specchat.chat.formats.learning import learn

__all__ = ["ChatFormat", "Prompt", "format_of"]


@lru_cache(maxsize=8)
def format_of(template: str, bos: str = "", eos: str = "") -> ChatFormat:
    """Return the format of a template; cached."""
    return completed(learn(template, bos, eos))
