"""What a step drafted, and how much of it was kept; no Textual here."""

from collections.abc import Sequence

from specchat.decoding.chunk import Chunk
from specchat.drafter_registry import CHOSEN, GRAMMAR, TARGET


def has_draft(step: Chunk) -> bool:
    """Return True if tokens were drafted in a step, kept or not."""
    return bool(step.rejected or step.tree) or num_accepted(step) > 0


def draft_of(step: Chunk) -> tuple[list[str], int]:
    """Return the texts of a step's draft without its branches, and how many of them were kept."""
    if not step.tree:
        kept = num_kept(step)
        return [*step.texts[:kept], *step.rejected], kept
    length = num_before_branches([token.parent for token in step.tree])
    kept = next((at for at in range(length) if not step.tree[at].is_accepted), length)
    return [token.text for token in step.tree[:length]], kept


def is_own(step: Chunk) -> bool:
    """Return True if the step has a token that was neither drafted nor forced."""
    return any(name in {TARGET.name, CHOSEN} for name in step.origins)


def num_kept(step: Chunk) -> int:
    """Return how many tokens of the draft were kept, those that a grammar forced there included.

    They are at the beginning of the step, and the target's own token is behind them.
    """
    own = [index for index, name in enumerate(step.origins) if name in {TARGET.name, CHOSEN}]
    if own:
        return own[0]
    return len(step.texts) if num_accepted(step) else 0


def num_accepted(step: Chunk) -> int:
    """Return how many drafted tokens were accepted."""
    return len(step.texts) - is_own(step) - step.origins.count(GRAMMAR.name)


def num_before_branches(parents: Sequence[int]) -> int:
    """Return how many tokens of a tree are the draft itself, each behind the one before it."""
    return next((at for at, parent in enumerate(parents) if parent != at), len(parents))
