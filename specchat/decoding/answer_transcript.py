"""The transcript of one answer: its tokens, their text, and where it ends."""

import sys
from collections.abc import Iterator, Sequence

from specchat.decoding.chunk import Chunk, Finish
from specchat.decoding.constraint import Walk
from specchat.decoding.request import Request
from specchat.decoding.text_assembler import TextAssembler
from specchat.errors import ContextFull


class AnswerTranscript:
    """A prompt and the answer to it.

    The answer grows token by token, up to the one that ends it: an end token, the token that
    completes a stop string, the last that the constraint allows, or the last within the token
    limit. `finish` then says why.
    """

    def __init__(self, request: Request, capacity: int) -> None:
        """Begin with the prompt and the steps that the answer begins with.

        Raises ContextFull if they exceed `capacity`, the tokens that the target's memory holds.
        """
        self.finish: Finish | None = None
        begun = request.begun_tokens
        self.tokens = [*request.tokens, *begun]
        self.walk = Walk(request.constraint, frozenset(request.end_tokens))
        self.num_left = request.max_tokens or sys.maxsize
        if request.replay:
            self.num_left = len(request.replay.tokens) - len(begun)
        self._num_prompt = len(request.tokens)
        self._capacity = capacity
        self._text = TextAssembler(request.piece, request.stop_strings, request.end_tokens)
        self.piece = self._text.piece
        if len(self.tokens) > capacity:
            raise self._context_full(request.if_too_long)

    @property
    def index(self) -> int:
        """The index of the next token in the answer: 0 for its first one."""
        return len(self.tokens) - self._num_prompt

    @property
    def room(self) -> int:
        """How many more tokens the answer may have; the last need not fit in the memory."""
        return self._capacity + 1 - len(self.tokens)

    @property
    def is_valid(self) -> bool | None:
        """Whether the answer as a whole is what its constraint allows, or None without one."""
        return self.walk.is_complete

    @property
    def stop_string(self) -> str:
        """The stop string that ended the answer, if one did."""
        return self._text.stop_string

    def repeated(self, begun: Sequence[Chunk]) -> Iterator[Chunk]:
        """Yield the steps that the answer begins with, with their texts assembled again.

        Only their last token may end the answer.
        """
        for step in begun:
            texts = tuple([self._text.push(token) for token in step.tokens])
            for token in step.tokens:
                self.walk.follow(token)
            if self._text.is_stopped or self.walk.is_over:
                self.finish = "stop"
            yield step._replace(
                text="".join(texts), texts=texts, finish=self.finish, seconds=0.0,
                reasoning="", tool_calls=(), pieces=(),
            )  # fmt: skip

    def add(self, run: Sequence[int]) -> tuple[str, ...]:
        """Add tokens up to the one that ends the answer; return the text of each that was added."""
        text, walk = self._text, self.walk
        texts: list[str] = []
        for token in run:
            texts.append(text.push(token))
            walk.follow(token)
            self.num_left -= 1
            is_stopped = text.is_stopped or walk.is_over
            if is_stopped or not self.num_left:
                self.finish = "stop" if is_stopped else "length"
                texts[-1] += text.finish()
                break
        self.tokens += run[: len(texts)]
        return tuple(texts)

    def add_forced(self) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Add the tokens that must follow now; return those that were added, and their texts."""
        run = self.walk.forced()
        if not run:
            return (), ()
        texts = self.add(run[: self.room])
        return tuple(run[: len(texts)]), texts

    def end(self, finish: Finish) -> Chunk:
        """End the answer after the last step; the chunk holds no tokens."""
        self.finish = finish
        return Chunk(text=self._text.finish(), finish=finish)

    def _context_full(self, advice: str) -> ContextFull:
        num_tokens = len(self.tokens)
        error = ContextFull(
            f"the prompt has {num_tokens} tokens and the context holds {self._capacity}: {advice}"
        )
        error.num_tokens, error.capacity = num_tokens, self._capacity
        return error
