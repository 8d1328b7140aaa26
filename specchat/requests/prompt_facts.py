"""What a client may ask about a model's prompts."""

from typing import NamedTuple


class PromptFacts(NamedTuple):
    """A model's chat template and the names of two tokens; empty where it has none."""

    chat_template: str
    bos: str
    eos: str
