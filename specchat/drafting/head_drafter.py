"""The prediction head as drafter: a small model that reads the target's hidden states."""

from collections.abc import Sequence

from specchat.decoding.ports import BlockModel, DraftTask, LanguageModel, Pacer
from specchat.decoding.proposal import DraftToken
from specchat.drafting import suffix
from specchat.drafting.combined import CombinedDrafter
from specchat.drafting.draft_model import DraftModelDrafter
from specchat.drafting.factory import Materials
from specchat.gguf.draft_kinds import HEAD_BATCH


class HeadDrafter(DraftModelDrafter):
    """Drafts with a head. After a pause it reads the tokens of one pass: the last ones it missed.

    It stops drafting once the head has turned out no better than guessing; tokens that the pacer
    declined count as well.
    """

    origin = "head"
    short_memories = (HEAD_BATCH,)
    _is_forced = False  # whether a grammar's tokens follow, which the target has not read

    def __init__(self, model: LanguageModel, materials: Materials) -> None:
        super().__init__(model, materials.tokens, materials.end_tokens)
        self._fit = materials.head_fit

    @property
    def unfit_reason(self) -> str | None:
        """Why the head does not suit this target, None if it may."""
        return self._fit.unfit_reason

    def begin(self, task: DraftTask) -> None:
        """Start an answer, whose prompt the target has read."""
        self._is_forced, self._is_replay = False, task.is_replay
        super().begin(task)

    def propose(self, pacer: Pacer, after: Sequence[int] = ()) -> list[DraftToken]:
        """Draw tokens; none after another drafter's, as the target has not read those."""
        if after or self._is_forced or self.unfit_reason:
            return []
        return super().propose(pacer)

    def _add_forced(self, pacer: Pacer, draft: list[DraftToken], named: list[int]) -> Sequence[int]:
        """Add nothing: without hidden states to read them with, each needs a pass."""
        del pacer, draft, named
        return ()

    def observe(self, emitted: Sequence[int], num_accepted: int) -> None:
        """Update the text, and count whether the head was right."""
        self._is_forced = len(emitted) > num_accepted + 1
        if self._is_ahead and self._first and not self._is_replay:
            self._fit.num_drafts += 1
            is_accepted = num_accepted > 0 and emitted[0] in self._drafted[:1]
            self._fit.num_right += is_accepted or emitted[0] == self._first.best()
        super().observe(emitted, num_accepted)

    def _shorten(self, num_kept: int) -> None:
        """Keep the text: the head itself leaves out what it missed, and its positions count on."""
        del num_kept


class BlockDrafter(HeadDrafter):
    """Drafts with a head whose pass gives the logits of a block of tokens."""

    _model: BlockModel

    def propose(self, pacer: Pacer, after: Sequence[int] = ()) -> list[DraftToken]:
        """Draw the tokens of one block, as long as the step has room for."""
        self._model.room = pacer.room
        return super().propose(pacer, after)

    def _wants_another(self, pacer: Pacer, num_pending: int) -> bool:
        del num_pending
        return pacer.room > 0  # it takes no pass

    def _has_room(self, num_drafted: int) -> bool:
        is_in_block = num_drafted < min(self._model.room or 1, self._model.longest_block)
        return is_in_block and super()._has_room(num_drafted)


def make(materials: Materials) -> HeadDrafter:
    """Return a drafter for a prediction head; there must be one."""
    if materials.draft_model is None:
        raise ValueError("no prediction head")
    drafter = BlockDrafter if materials.drafts_blocks else HeadDrafter
    return drafter(materials.draft_model, materials)


def make_combined(materials: Materials) -> CombinedDrafter:
    """Return a drafter that combines suffix lookup and the head."""
    return CombinedDrafter(suffix.make(materials), make(materials))
