"""The steps of answers as the store keeps them: compressed JSON with each token's text once."""

import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from specchat.chat.message_rows import storable
from specchat.decoding.chunk import Alternative, Chunk, TreeToken

MAX_BYTES = 1 << 20
"""The largest record of one answer, about 20,000 tokens; larger ones are not stored."""
MAX_JSON_BYTES = 64 << 20
"""The most that is unpacked: a damaged or hostile record may be larger."""
MAX_TOTAL_BYTES = 64 << 20
"""The most for all answers together; the steps of the oldest ones are removed."""
PARTS = 10_000
"""Probabilities are stored in this many parts of 1."""
LARGEST_TREE = 128
"""More tokens than any draft has with its branches."""


@dataclass(frozen=True, slots=True)
class StoredSteps:
    """The steps of an answer, and the name of the target whose tokens they have."""

    target: str
    steps: tuple[Chunk, ...]


def steps_column(steps: Iterable[Chunk]) -> bytes | None:
    """Return steps in the form that the store keeps; None for none, or for too many."""
    kept = [step for step in steps if step.tokens or step.finish]
    pieces: dict[int, str] = {}
    drafted = (token.origin for step in kept for token in step.tree)
    emitted = (name for step in kept for name in step.origins)
    names = list(dict.fromkeys((*emitted, *drafted)))
    rows = [_row(step, pieces, names) for step in kept]
    if not any(step.tokens for step in kept):
        return None
    record = {"origins": names, "pieces": list(pieces.items()), "steps": rows}
    packed = zlib.compress(json.dumps(record, separators=(",", ":")).encode(), 1)
    return packed if len(packed) <= MAX_BYTES else None


def steps_of(packed: bytes) -> tuple[Chunk, ...]:
    """Return the steps of a stored record; none if it is damaged."""
    try:
        record = json.loads(zlib.decompressobj().decompress(packed, MAX_JSON_BYTES))
        pieces = {int(token): str(text) for token, text in record["pieces"]}
        names = [str(name) for name in record["origins"]]
        return tuple(_step(row, pieces, names) for row in record["steps"])
    except (zlib.error, ValueError, TypeError, LookupError, OverflowError, RecursionError):
        return ()


def _row(step: Chunk, pieces: dict[int, str], names: Sequence[str]) -> list[Any]:
    """Return a step as a row; add the texts of rejected tokens and of alternatives to `pieces`.

    A draft with branches adds its tree at the end, which other steps do without.
    """
    rejected = step.proposed[len(step.proposed) - len(step.rejected) :]
    for token, text in zip(rejected, step.rejected, strict=False):
        pieces[token] = storable(text)
    for token, text, _ in (each for found in step.alternatives for each in found):
        pieces[token] = storable(text)
    return [
        step.tokens,
        [names.index(name) for name in step.origins],
        [storable(text) for text in step.texts],
        step.proposed,
        len(step.rejected),
        [[round(PARTS * share) for share in pair] for pair in step.chances],
        [[part for token, _, share in found for part in (token, round(PARTS * share))]
         for found in step.alternatives],
        step.finish,
        *([_tree_row(step.tree, names)] if step.tree else ()),
    ]  # fmt: skip


def _tree_row(tree: Sequence[TreeToken], names: Sequence[str]) -> list[Any]:
    """Return a tree as the text, the parent, the origin and the fate of its tokens in turn."""
    return [
        part
        for token in tree
        for part in (
            storable(token.text),
            token.parent,
            names.index(token.origin),
            int(token.is_accepted),
        )
    ]


def _step(row: Sequence[Any], pieces: dict[int, str], names: Sequence[str]) -> Chunk:
    tokens, origins, texts, proposed, num_rejected, chances, alternatives, finish, *trees = row
    rejected = proposed[len(proposed) - num_rejected :]
    if not len(tokens) == len(origins) == len(texts):
        raise ValueError("a step's tokens, origins and texts differ in number")
    return Chunk(
        "".join(texts),
        tuple(map(int, tokens)),
        tuple(names[index] for index in origins),
        tuple(map(str, texts)),
        tuple(map(int, proposed)),
        tuple(pieces[token] for token in rejected),
        finish,
        chances=tuple((int(target) / PARTS, int(drafter) / PARTS) for target, drafter in chances),
        alternatives=tuple(_alternatives(found, pieces) for found in alternatives),
        tree=_tree(trees[0], names, len(tokens)) if trees else (),
    )


def _tree(row: Sequence[Any], names: Sequence[str], num_emitted: int) -> tuple[TreeToken, ...]:
    """Return a stored tree; ValueError unless its accepted tokens are one path of the answer."""
    if len(row) > 4 * LARGEST_TREE:
        raise ValueError("a step's tree is larger than any draft")
    parts = zip(row[::4], row[1::4], row[2::4], row[3::4], strict=True)
    tree = tuple(
        TreeToken(str(text), int(parent), names[origin], bool(is_accepted))
        for text, parent, origin, is_accepted in parts
    )
    path = [number for number, token in enumerate(tree, 1) if token.is_accepted]
    parents = [tree[number - 1].parent for number in path]
    is_ordered = all(0 <= token.parent < number for number, token in enumerate(tree, 1))
    if not is_ordered or parents != [0, *path][: len(path)] or len(path) > num_emitted:
        raise ValueError("a step's tree is not one of its draft")
    return tree


def _alternatives(found: Sequence[int], pieces: dict[int, str]) -> tuple[Alternative, ...]:
    pairs = zip(found[::2], found[1::2], strict=True)
    return tuple((token, pieces[token], share / PARTS) for token, share in pairs)
