"""The images of a prompt: each becomes tokens of its own where its mark stands in the text."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from specchat.errors import InvalidOption
from specchat.formats.chat_message import ChatMessage
from specchat.images.image import Image, parted
from specchat.images.text_only import text_only
from specchat.llama.image_cells import ImageTokens
from specchat.llama.model import Model
from specchat.requests.answer_request import AnswerRequest, GenerateRequest


class TextTokens(NamedTuple):
    """A text as tokens; its images are found by them for as long as `images` lives."""

    tokens: list[int]
    images: tuple[ImageTokens, ...] = ()


class KnownImages:
    """Images of which another process has made tokens, by their marks; none is read here."""

    def __init__(self, tokens: Mapping[str, Sequence[int]]) -> None:
        """Know these."""
        self._tokens = tokens

    def tokens_of(self, image: Image) -> ImageTokens:
        """Return an image as tokens."""
        return ImageTokens(list(self._tokens[image.mark]), ())

    def close(self) -> None:
        """Do nothing: there is nothing to free."""


def tokens_of_parts(
    model: Model, text: str, images: Sequence[Image], tokenize: Callable[[str], list[int]]
) -> TextTokens:
    """Return a text as tokens: the parts between images as `tokenize` does.

    Raises InvalidOption for an image that the model cannot read.
    """
    if not images:
        return TextTokens(tokenize(text))
    tokens, found = list[int](), list[ImageTokens]()
    for part in parted(text, images):
        if isinstance(part, Image):
            found.append(image_tokens(model, part))
            tokens += found[-1].tokens
        elif part:
            tokens += tokenize(part)
    return TextTokens(tokens, tuple(found))


def image_tokens(model: Model, image: Image) -> ImageTokens:
    """Return an image as tokens. Raises InvalidOption for one that the model cannot read."""
    if model.vision is None:
        raise InvalidOption(text_only(model.header.name, advises=True))
    return model.vision.tokens_of(image)


def require_shown(text: str, messages: Sequence[ChatMessage], images: Sequence[Image]) -> None:
    """Raise InvalidOption if a chat template left an image of these messages out of their text."""
    for image in images:
        if image.mark in text:
            continue
        for message in messages:
            if image.mark in str(message.get("content")):
                raise InvalidOption(
                    f"{image.name} is in a message of the role {message['role']}, where the chat"
                    " template does not show it: put it into one of the user's"
                )


def require_marks(request: AnswerRequest) -> None:
    """Raise InvalidOption for an image that stands nowhere in a request."""
    if isinstance(request, GenerateRequest):
        texts = [request.prompt] if isinstance(request.prompt, str) else []
    else:
        texts = [str(message.get("content")) for message in request.messages]
    for image in request.images:
        if not any(image.mark in text for text in texts):
            raise InvalidOption(
                f"{image.name} stands in no text: write it into one, such as"
                ' f"{image}What is this?"'
            )
