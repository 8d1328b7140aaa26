"""A DFlash 2 draft: a DFlash draft whose logits depend on the token drawn before.

A pass gives a few candidates for each place of the block, and the score of each after each
candidate of the place before. The other candidates become branches, as in other drafts.
"""

from collections.abc import Sequence

import numpy as np

from specchat.decoding.distribution import Logits
from specchat.decoding.ports import Rows
from specchat.gguf.lattice_draft import num_candidates
from specchat.llama.block_head import BlockHead


class LatticeHead(BlockHead):
    """The memory of a DFlash 2 draft beside its target's.

    `_block` holds the places' rows of the lattice in place of logits.
    """

    keeps_states = True

    @property
    def _num_candidates(self) -> int:
        return num_candidates(self.model.header)

    def evaluate(self, tokens: Sequence[int], num_rows: int) -> Rows:
        """Return the logits after the last token: minus infinity for all but the candidates."""
        super().evaluate(tokens, num_rows)
        return [self._row_after(tokens[-1])]

    def _row_after(self, token: int) -> Logits:
        """Return the logits of the next place, after this token."""
        place, count = len(self._drafted) - 1, self._num_candidates
        row = self._block[place]
        before = self._block[place - 1][:count] if place else row[:0]
        # the scores of the first place are the same after all; a token that is none of the
        # candidates, which a constraint may have chosen, counts as the likeliest of them
        found = np.flatnonzero(before == token)
        scores = row[count:].reshape(count, count)[int(found[0]) if found.size else 0]
        logits = np.full(self.context.vocabulary_size, -np.inf, np.float32)
        logits[row[:count].astype(np.int64)] = scores
        return logits

    def _rows_of_block(self, count: int) -> Rows:
        used = self._num_candidates * (self._num_candidates + 1)
        return list(self.context.hidden_states()[self.first_row : count, :used].copy())
