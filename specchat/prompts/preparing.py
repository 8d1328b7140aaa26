"""Prepares requests: their tokens, the room for them, and the answer's constraint and reader."""

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING

from specchat.constraints.answer_rules import ANY_TEXT
from specchat.constraints.answer_start import AnswerStart
from specchat.decoding.chunk import Chunk
from specchat.errors import ContextFull, InvalidOption
from specchat.formats.answer_reader import AnswerReader
from specchat.images.image import Image, parted
from specchat.llama.model import Model
from specchat.llama.tokenizer import Vocabulary
from specchat.prompts.chat_text import (
    PromptText,
    after_aside,
    closed_text,
    conversation_text,
    num_shared,
)
from specchat.prompts.gap_prompt import gap_prompt
from specchat.prompts.image_parts import require_marks, tokens_of_parts
from specchat.prompts.prompt import Prompt
from specchat.prompts.prompt_room import LONG_TOKEN, PromptRoom, too_long
from specchat.requests.answer_request import AnswerRequest, ChatRequest, GenerateRequest
from specchat.requests.gap import Gap
from specchat.requests.prompt_facts import PromptFacts
from specchat.requests.prompt_size import PromptSize

if TYPE_CHECKING:
    from specchat.constraints.answer_constraint import AnswerConstraints

LEAST_ROOM = 512
"""Tokens of the context kept free for an answer, or a quarter of the context if that is less."""


class Preparation:
    """Prepares the prompts of one model, whose context holds `capacity` tokens."""

    def __init__(self, model: Model, capacity: int, *, foresees_next: bool) -> None:
        """Prepare nothing yet.

        With `foresees_next`, prompts state how much the next turn's prompt shares with them: a
        memory that cannot drop any tail must know where to save its state.
        """
        self._model = model
        self._capacity = capacity
        self._room = PromptRoom(model.vocabulary, capacity)
        self._foresees_next = foresees_next

    def prepare(self, request: AnswerRequest) -> Prompt:
        """Return a request's prompt, with everything needed to decode and read its answer.

        Raises InvalidOption for what cannot be followed, TemplateError if rendering fails.
        """
        begun = _begun_tokens(self._model.vocabulary, request.begun)
        if request.replay:
            require_known(self._model.vocabulary, request.replay.tokens, "replay")
        require_marks(request)
        text = self._text(request, len(begun))
        if text.images and text.tokens[-1] < 0 and not begun:
            raise InvalidOption("text must follow the image: the answer continues it")
        ends, stops = self._ends_of(text.start)
        rules = ANY_TEXT
        if request.is_constrained:
            rules = self._constraints.rules(request, text.start, ends)
        shared, following = 0, None
        if isinstance(request, ChatRequest):
            shared = num_shared(self._model, request, text) if self._foresees_next else 0
            following = after_aside(self._model, request) if request.is_aside else None
        return Prompt(
            tokens=text.tokens,
            begun=begun,
            predicted=self._predicted(request.prediction, text),
            end_tokens=frozenset() if request.ignore_end else ends,
            stop_strings=request.stop if request.ignore_end else (*request.stop, *stops),
            cutting_stops=frozenset(request.stop).difference(stops, [""]),
            constraint=rules.constraint,
            num_left_out=text.num_left_out,
            num_shared=shared,
            after_aside=following,
            notices=(*text.notices, *rules.notices),
            images=text.images,
            reader=_reader(request, text.start),
            why_invalid=rules.why_invalid,
        )

    def check(self, request: AnswerRequest) -> int:
        """Return the number of tokens that a request's prompt has.

        Raises what `prepare` does, and ContextFull if they do not fit.
        """
        count = len(self.prepare(request).text)
        if count > self._capacity:
            raise too_long(count, self._capacity)
        return count

    def render_closed(self, request: ChatRequest) -> list[int]:
        """Return the tokens of a conversation after which no answer begins; raises as `prepare`."""
        return closed_text(self._model, request, self._room).tokens

    def render(self, request: AnswerRequest) -> list[int]:
        """Return the tokens of a request's prompt. Raises what `prepare` does."""
        begun = _begun_tokens(self._model.vocabulary, request.begun)
        return self._text(request, len(begun)).tokens

    def fill(self, gap: Gap) -> list[int]:
        """Return the tokens of a prompt that asks for a gap to be filled.

        Raises InvalidOption for a model that cannot do that, and ContextFull for far too much text.
        """
        room = self._capacity - self._least_room(gap.max_tokens)
        tokens = gap_prompt(self._model.vocabulary, gap, room, self._room)
        if tokens is None:
            raise InvalidOption(
                f"the model {self._model.header.name} cannot fill in the middle of a text: serve"
                " one that can, such as qwen25-coder-7b"
            )
        return tokens

    def facts(self) -> PromptFacts:
        """Return what a client may ask about the model's prompts."""
        vocabulary = self._model.vocabulary
        return PromptFacts(
            self._model.header.chat_template or "",
            vocabulary.special_text("bos"),
            vocabulary.special_text("eos"),
        )

    def tokenize(self, text: str, *, special: bool, begins: bool) -> list[int]:
        """Return the tokens of a text. Raises ContextFull for one of several contexts."""
        self._room.require(text)
        return self._model.vocabulary.tokenize(text, add_special=begins, parse_special=special)

    def detokenize(self, tokens: Sequence[int]) -> list[bytes]:
        """Return the text of each token. Raises InvalidOption for an unknown one."""
        require_known(self._model.vocabulary, tokens, "tokens")
        return [self._model.vocabulary.named_piece(token) for token in tokens]

    def size(self, request: ChatRequest, count_kept: Callable[[list[int]], int]) -> PromptSize:
        """Return how much of the context a conversation takes, with or without a chat template.

        `count_kept` returns how many first tokens of a text need not be read again. Raises what
        `prepare` does.
        """
        model, capacity, content = self._model, self._capacity, request.messages[-1]["content"]
        try:
            self._room.require(content)
        except ContextFull as error:
            return PromptSize(error.num_tokens, is_too_long=True)
        tokenize = partial(model.vocabulary.tokenize, add_special=False, parse_special=False)
        message, _ = tokens_of_parts(model, content, request.images, tokenize)
        if model.header.chat_template is None:
            return PromptSize(len(message), is_too_long=len(message) > capacity)
        begun = _begun_tokens(model.vocabulary, request.begun)
        try:
            text = self._text(request, len(begun))
        except ContextFull as error:
            return PromptSize(len(message), is_too_long=True, prompt_tokens=error.num_tokens)
        num_tokens = len(text.tokens)
        num_kept = count_kept(text.tokens[:-1])  # the answer's first pass has the last one
        is_too_long = num_tokens > capacity
        return PromptSize(len(message), text.num_left_out, is_too_long, num_tokens, num_kept)

    @cached_property
    def _constraints(self) -> "AnswerConstraints":
        """What makes the constraints of answers: few answers have one, so it is loaded late."""
        from specchat.constraints.answer_constraint import AnswerConstraints

        return AnswerConstraints(self._model.vocabulary)

    def _text(self, request: AnswerRequest, num_begun: int) -> PromptText:
        """Return a request as tokens, without its oldest turns if it asks to make room.

        Room is also left for the `num_begun` tokens that the answer begins with. All parts of a
        replay have the same prompt.
        """
        if isinstance(request, GenerateRequest):
            return self._tokens_of_text(request.prompt, request.images, special=request.special)
        room = self._least_room(request.max_tokens)
        if request.replay:  # the memory need not hold the last token
            room = max(room, len(request.replay.tokens) - 1) - num_begun
        limit = self._capacity - num_begun - room
        return conversation_text(self._model, request, limit, self._room)

    def _least_room(self, max_tokens: int | None) -> int:
        """Return how much of the context is kept free for an answer."""
        return min(max_tokens or LEAST_ROOM, self._capacity // 4)

    def _tokens_of_text(
        self, prompt: str | Sequence[int], images: Sequence[Image], *, special: bool
    ) -> PromptText:
        """Return a text as tokens, or known token ids as they are.

        The model continues the text, so no end token is added. It begins with one BOS, even if the
        text spells it out.
        """
        vocabulary = self._model.vocabulary
        if not isinstance(prompt, str):
            require_known(vocabulary, prompt, "prompt")
            return PromptText(list(prompt))
        self._room.require(prompt)
        first = next(parted(prompt, images))
        opening = vocabulary.tokenize(str(first), add_special=True, parse_special=special)
        bos = vocabulary.bos()
        if vocabulary.adds_eos() and len(opening) > 1:
            opening.pop()
        opening = opening[1:] if bos is not None and opening[:2] == [bos, bos] else opening
        tokenize = partial(vocabulary.tokenize, add_special=False, parse_special=special)
        rest = prompt[len(str(first)) :]
        more, found = tokens_of_parts(self._model, rest, images, tokenize) if rest else ([], ())
        return PromptText([*opening, *more], images=found)

    def _ends_of(self, start: AnswerStart | None) -> tuple[frozenset[int], list[str]]:
        """Return the tokens and texts that end an answer, including the template's marks.

        A mark that is not a single token in the vocabulary appears as ordinary text.
        """
        vocabulary = self._model.vocabulary
        ends = set(vocabulary.end_tokens)
        if start is None:
            return frozenset(ends), []
        stops = list(start.form.stops)
        for mark in start.form.ends:
            tokens = vocabulary.tokenize(mark, add_special=False, parse_special=True)
            is_one = len(tokens) == 1 and vocabulary.name(tokens[0]) == mark
            if is_one and vocabulary.is_special(tokens[0]):
                ends.add(tokens[0])
            else:
                stops.append(mark)
        return frozenset(ends), stops

    def _predicted(self, prediction: str | Sequence[int], text: PromptText) -> Sequence[int]:
        """Return the tokens of a predicted answer, without the template's marks around it.

        Unknown tokens are never right, so they do no harm.
        """
        vocabulary = self._model.vocabulary
        if not isinstance(prediction, str):
            return [token for token in prediction if 0 <= token < vocabulary.size]
        answer = prediction if text.start is None else prediction.lstrip()
        answer = answer[: self._capacity * LONG_TOKEN]  # no more of it can be drafted
        return vocabulary.tokenize_more(answer, parse_special=False) if answer else ()


def require_known(vocabulary: Vocabulary, tokens: Sequence[int], name: str) -> None:
    """Raise InvalidOption for a token id that the vocabulary does not have."""
    unknown = [token for token in tokens if not 0 <= token < vocabulary.size]
    if unknown:
        raise InvalidOption(
            f"{name}: token {unknown[0]} is not in the vocabulary (0 to {vocabulary.size - 1})"
        )


def _begun_tokens(vocabulary: Vocabulary, begun: Sequence[Chunk]) -> list[int]:
    """Return the tokens of an answer's beginning.

    Raises InvalidOption if this model did not write these steps: their texts differ.
    """
    tokens = [token for step in begun for token in step.tokens]
    written = "".join(text for step in begun for text in step.texts)
    is_known = all(0 <= token < vocabulary.size for token in tokens)
    text = b"".join(map(vocabulary.piece, tokens)) if is_known else b""
    if not is_known or not text.decode("utf-8", "replace").startswith(written):
        raise InvalidOption(
            "another model wrote the beginning of this answer: continue it with that one"
        )
    return tokens


def _reader(request: AnswerRequest, start: AnswerStart | None) -> AnswerReader | None:
    """Return the reader that splits a chat's answer into parts; calls count if it may make any."""
    if not isinstance(request, ChatRequest) or start is None:
        return None
    return AnswerReader(
        start.form,
        start.state,
        request.offered_tools,
        goes_on=start.goes_on,
        reads_calls=request.structure is None or request.may_call,
    )
