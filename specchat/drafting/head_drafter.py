"""The prediction head as drafter: a small model that reads the target's hidden states."""

import sys
from collections.abc import Sequence

from specchat.decoding.fixed_pacer import FixedPacer
from specchat.decoding.ports import BlockModel, DraftTask, LanguageModel, Pacer
from specchat.decoding.proposal import DraftToken, Hint
from specchat.drafting import suffix
from specchat.drafting.combined import CombinedDrafter
from specchat.drafting.draft_model import DraftModelDrafter
from specchat.drafting.factory import Materials

TRIAL_INTERVAL = 32
"""After this many steps without a draft, one tries the head, until its fit is known."""


class _TrialPacer(FixedPacer):
    """Allows one draft pass, and declines its token."""

    def wants_token(self, origin: str, hint: Hint) -> bool:
        """Return False: the token is only compared with the target's."""
        del origin, hint
        return False


class HeadDrafter(DraftModelDrafter):
    """Drafts with a head, which has read all but the last few tokens of the target's text.

    It stops drafting once the head has turned out no better than guessing; tokens that the pacer
    declined count as well. If the pacer rarely wants a draft, occasional trial passes compare the
    head's token with the target's.
    """

    origin = "head"
    short_memories = (sys.maxsize,)
    _num_blind = 0  # steps since the head last made a pass
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
        self._is_forced = False
        super().begin(task)

    def propose(self, pacer: Pacer, after: Sequence[int] = ()) -> list[DraftToken]:
        """Draw tokens; none after another drafter's, as the target has not read those."""
        if after or self._is_forced or self.unfit_reason:
            return []
        draft = super().propose(pacer)
        # a pacer that wants no drafts would never learn whether the head fits
        is_due = self._num_blind >= TRIAL_INTERVAL and not self._fit.is_known
        return draft if self._is_ahead or not is_due else super().propose(_TrialPacer(1))

    def _add_forced(self, pacer: Pacer, draft: list[DraftToken], named: list[int]) -> Sequence[int]:
        """Add nothing: without hidden states to read them with, each needs a pass."""
        del pacer, draft, named
        return ()

    def observe(self, emitted: Sequence[int], num_accepted: int) -> None:
        """Update the text, and count whether the head was right."""
        self._is_forced = len(emitted) > num_accepted + 1
        self._num_blind += 1
        if self._is_ahead:
            self._num_blind = 0
        if self._is_ahead and self._first:
            self._fit.num_drafts += 1
            is_accepted = num_accepted > 0 and emitted[0] in self._drafted[:1]
            self._fit.num_right += is_accepted or emitted[0] == self._first.best()
        super().observe(emitted, num_accepted)


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
