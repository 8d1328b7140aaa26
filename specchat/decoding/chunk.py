"""The types of what a step adds to an answer. Light to import, and all that front ends need."""

from typing import Literal, NamedTuple, TypeAlias

from specchat.drafter_registry import TARGET

Finish: TypeAlias = Literal["stop", "length", "cancelled", "context"]
"""Why an answer ended: an end token or stop string, the token limit, the user, a full context."""

Origin: TypeAlias = str
"""Where an emitted token came from, by the names of `specchat.drafter_registry.origins`."""

Kind: TypeAlias = Literal["answer", "reasoning", "call"]
"""The kind of a text: the answer to the user, the model's reasoning, or a tool call."""


Alternative: TypeAlias = tuple[int, str, float]
"""A token that could have been emitted: its id, its text and its probability."""


class Piece(NamedTuple):
    """A part of an answer's text with its token's origin; a token's text may be of two kinds."""

    text: str
    origin: Origin
    kind: Kind = "answer"


class TreeToken(NamedTuple):
    """A token of a draft tree: its text and parent, what drafted it, and whether it was accepted.

    `parent` is 0 for the text, or the number of another token of the tree, counted from 1.
    """

    text: str
    parent: int
    origin: Origin
    is_accepted: bool


class ToolCall(NamedTuple):
    """A complete tool call: `arguments` is a JSON object as text, `raw` the call as written."""

    name: str
    arguments: str
    id: str = ""
    raw: str = ""


class Chunk(NamedTuple):
    """What one step added to the answer, in plain and in speculative decoding.

    `text` has whole characters only, so it may lag behind `tokens`; `texts` splits it by token.
    `proposed` holds all tokens that the step drafted, `rejected` the texts of the rejected ones.
    Branches beside the draft are among them only if they were accepted. A token that a grammar
    forces within a draft counts as drafted by the grammar if it was kept, and does not count if a
    token before it was rejected. `finish` is set on the last chunk, which may hold no tokens, and
    `stop_string` if one ended the answer. `seconds` is the decoding time from the end of the prompt
    to the end of the step. `chances` holds the target's and the drafter's probability of each
    drafted token up to the first rejected one, as processed for sampling. It is empty at
    temperature 0, and with many candidates. `alternatives` holds, for each emitted token, the most
    probable ones in its place, that token included, if the request asked for them: the model's own
    probabilities, before temperature, penalties and the rest of sampling. `tree` has all tokens of
    a draft with branches, and is empty for one without.

    In a chat, `text` is the answer alone and `reasoning` what was added to the reasoning;
    `tool_calls` are the calls that the step completed. `pieces` are all texts in order, including
    calls in progress, but without the marks between them, which `texts` contains.
    """

    text: str
    tokens: tuple[int, ...] = ()
    origins: tuple[Origin, ...] = ()
    texts: tuple[str, ...] = ()
    proposed: tuple[int, ...] = ()
    rejected: tuple[str, ...] = ()
    finish: Finish | None = None
    seconds: float = 0.0
    chances: tuple[tuple[float, float], ...] = ()
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    pieces: tuple[Piece, ...] = ()
    alternatives: tuple[tuple[Alternative, ...], ...] = ()
    stop_string: str = ""
    tree: tuple[TreeToken, ...] = ()


def pieces_of(chunk: Chunk) -> tuple[Piece, ...]:
    """Return a chunk's texts with their kinds; outside chats everything is the answer."""
    if chunk.pieces or not chunk.text:
        return chunk.pieces
    if not chunk.texts:  # released by the end of the answer
        return (Piece(chunk.text, TARGET.name),)
    return tuple(map(Piece, chunk.texts, chunk.origins))
