"""Reading an answer: its reasoning, text and tool calls, and whether the whole of it is valid."""

from collections.abc import Callable, Collection, Iterable, Iterator

from specchat.decoding.chunk import Chunk, Piece
from specchat.decoding.statistics import Statistics
from specchat.drafter_registry import TARGET
from specchat.formats.answer_reader import AnswerReader, Part


def read_parts(
    chunks: Iterable[Chunk],
    reader: AnswerReader,
    statistics: Statistics,
    cutting_stops: Collection[str] = (),
) -> Iterator[Chunk]:
    """Yield chunks with their parts; count the tokens and seconds of reasoning.

    A call that ends at one of `cutting_stops` is cut short.
    """
    for chunk in chunks:
        num_calls = len(reader.calls)
        pieces: list[Piece] = []
        for text, origin in zip(chunk.texts, chunk.origins, strict=True):
            before = reader.kind
            parts = reader.read(text)
            is_new = statistics.generated_tokens > 0  # not of the steps that the answer begins with
            if is_new and "reasoning" in {before, reader.kind, *(kind for kind, _ in parts)}:
                statistics.reasoning_tokens += 1
                statistics.reasoning_s = chunk.seconds
            pieces += [Piece(part, origin, kind) for kind, part in parts]
        if chunk.finish:
            rest = _rest(chunk, reader, cutting_stops)
            pieces += [Piece(part, TARGET.name, kind) for kind, part in rest]
        yield chunk._replace(
            text="".join(piece.text for piece in pieces if piece.kind == "answer"),
            reasoning="".join(piece.text for piece in pieces if piece.kind == "reasoning"),
            tool_calls=tuple(reader.calls[num_calls:]),
            pieces=tuple(pieces),
        )


def _rest(chunk: Chunk, reader: AnswerReader, cutting_stops: Collection[str]) -> list[Part]:
    """Return the parts held back until the end, when the last chunk may have text but no tokens."""
    parts = [] if chunk.texts else reader.read(chunk.text)
    cuts_call = chunk.stop_string in cutting_stops
    return parts + reader.finish(is_cut=chunk.finish != "stop", cuts_call=cuts_call)


def checked(
    chunks: Iterable[Chunk], why_invalid: Callable[[str], str], statistics: Statistics
) -> Iterator[Chunk]:
    """Yield an answer's chunks; record in the statistics why the whole text is invalid, if it is.

    `why_invalid` returns that for a text. It is not asked if the answer was cut or calls tools.
    """
    texts, has_called = list[str](), False
    for chunk in chunks:
        texts.append(chunk.text)
        has_called |= bool(chunk.tool_calls)
        if chunk.finish and statistics.is_valid and not has_called:
            reason = why_invalid("".join(texts))
            if reason:
                statistics.is_valid, statistics.invalid_reason = False, reason
                statistics.notices += (reason,)
        yield chunk
