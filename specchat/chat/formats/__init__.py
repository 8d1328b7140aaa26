"""Chat formats: what a template does with a conversation, and how its model writes answers."""

from functools import lru_cache

from specchat.chat.formats.chat_format import ChatFormat, Prompt
from specchat.chat.formats.families import completed
from specchat.chat.formats.learning import learn

__all__ = ["ChatFormat", "Prompt", "format_of"]


@lru_cache(maxsize=8)
def format_of(template: str, bos: str = "", eos: str = "") -> ChatFormat:
    """Return the format of a template, which is learned once."""
    return completed(learn(template, bos, eos))
