"""How much of a context a conversation takes."""

from dataclasses import dataclass

BYTES_PER_TOKEN = 4


def estimated_tokens(text: str) -> int:
    """Return about how many tokens a text has, for as long as no model has counted them."""
    return -(-len(text.encode("utf-8", "replace")) // BYTES_PER_TOKEN)


@dataclass(frozen=True, slots=True)
class PromptSize:
    """How much of the context a conversation takes.

    Its prompt has `prompt_tokens`, 0 if that is not known, of which `kept_tokens` need not be read
    again; None if that is not known. The content of its last message has `message_tokens`.
    `num_left_out` messages do not fit. With `is_too_long` the last message does not fit even
    without them.
    """

    message_tokens: int
    num_left_out: int = 0
    is_too_long: bool = False
    prompt_tokens: int = 0
    kept_tokens: int | None = None

    @property
    def read_again(self) -> int:
        """The tokens before the last message that are read again, with the marks around it."""
        if self.kept_tokens is None:
            return 0
        return max(0, self.prompt_tokens - self.kept_tokens - self.message_tokens)
