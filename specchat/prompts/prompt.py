"""A request that is ready to be decoded."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from specchat.decoding.chunk import Chunk
from specchat.decoding.constraint import Constraint
from specchat.decoding.statistics import Statistics
from specchat.formats.answer_reader import AnswerReader
from specchat.llama.image_cells import ImageTokens
from specchat.prompts.answer_reading import checked, read_parts


@dataclass(frozen=True, slots=True)
class Prompt:
    """The tokens of a request, the constraint of its answer, and the reader of its text.

    The answer begins with the tokens `begun` and is expected to continue with `predicted`. The
    `constraint` limits it, unless that is None, and it ends at one of `end_tokens` or
    `stop_strings`. `num_left_out` messages did not fit. The prompt of the next turn is expected to
    start with the same `num_shared` tokens; 0 if unknown. After an aside the conversation continues
    as `after_aside` does. `notices` say which parts of the request are not followed. The model
    finds the `images` of the prompt for as long as these live.
    """

    tokens: list[int]
    begun: Sequence[int]
    predicted: Sequence[int]
    end_tokens: frozenset[int]
    stop_strings: Sequence[str]
    cutting_stops: frozenset[str]
    """Those of the request: what ends there may be cut short, as the format does not end it."""
    constraint: Constraint | None
    num_left_out: int
    num_shared: int
    after_aside: Sequence[int] | None
    notices: tuple[str, ...]
    images: tuple[ImageTokens, ...]
    reader: AnswerReader | None
    """Splits a chat's answer into its parts; None for a text that is continued."""
    why_invalid: Callable[[str], str] | None
    """Returns why a whole answer breaks what the constraint does not enforce, "" if it does not."""

    @property
    def text(self) -> list[int]:
        """The tokens that the model reads before it writes: the prompt and what is begun."""
        return [*self.tokens, *self.begun]

    def read(self, chunks: Iterator[Chunk], statistics: Statistics) -> Iterator[Chunk]:
        """Yield an answer's chunks with its parts; the statistics say if the whole is invalid."""
        if self.reader is not None:
            chunks = read_parts(chunks, self.reader, statistics, self.cutting_stops)
        if self.why_invalid is not None:
            chunks = checked(chunks, self.why_invalid, statistics)
        return chunks
