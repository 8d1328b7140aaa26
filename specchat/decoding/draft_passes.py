"""The target's passes over the end of a transcript and the drafts that follow it."""

from collections.abc import Sequence

from specchat.decoding.draft_tree import DraftTree
from specchat.decoding.ports import (
    LanguageModel,
    PaddingCosts,
    PromptProgress,
    Rows,
    TreeModel,
)
from specchat.decoding.request import Request


class DraftPasses:
    """Evaluates a transcript and its drafts with the target, and rolls back rejected tokens.

    Between steps the memory holds the first `depth` tokens of the transcript, and nothing else. The
    others stay unread until the pass over the next draft: the target's own last token, and the
    forced tokens after it.
    """

    def __init__(
        self,
        target: LanguageModel,
        tokens: Sequence[int],
        request: Request,
        padding: PaddingCosts | None = None,
    ) -> None:
        """Read `tokens`, the transcript's own list, which grows from step to step.

        With `padding`, passes over drafts are extended to the fastest length. Removing the padding
        must then cost nothing: it is rolled back together with the rejected tokens.
        """
        self.depth = 0
        self._tokens, self._target, self._request = tokens, target, request
        self._padding = padding
        self._tree_model = target if isinstance(target, TreeModel) else None
        self._trees = self._tree_model if request.most_nodes else None
        self._num_read_again = 0  # accepted branches of the last pass

    @property
    def most_branches(self) -> int:
        """How many branches a draft may have, 0 for a target that cannot read any."""
        return self._trees.most_branches if self._trees else 0

    @property
    def num_unread(self) -> int:
        """How many tokens of the transcript the next pass reads before its draft."""
        return len(self._tokens) - self.depth

    @property
    def num_extra(self) -> int:
        """How many tokens the next pass reads besides the last one and its draft."""
        return self.num_unread - 1 + self._num_read_again

    def read_prompt(self, num_forced: int, on_progress: PromptProgress | None) -> int:
        """Read all but the last token; return how many the memory held already.

        The last `num_forced` tokens belong to an interrupted answer, in which they would have been
        read together with the next drafts. They are read in passes just as short, to give the same
        bits.
        """
        tokens, num_shared = self._tokens, self._request.num_shared
        num_cached = self._target.count_known(tokens)
        if 0 < num_shared < len(tokens) - 1 and num_cached < num_shared:
            # stopping there allows a rollback to it when the next prompt leaves this one
            num_cached = self._target.prefill(tokens[:num_shared], on_progress)
        else:
            num_cached = len(tokens)
        num_read = self._target.prefill(tokens[: -1 - num_forced], on_progress)
        self.depth = len(tokens) - 1 - num_forced
        while (num_waiting := self.num_unread - 1) > 0:
            self._read(min(self._request.longest_pass or num_waiting, num_waiting))
        return min(num_cached, num_read)

    def read_ahead(self) -> None:
        """Read forced tokens ahead, until the rest fit into one pass."""
        longest = self._request.longest_pass
        while longest and self.num_unread > longest:
            self._read(longest)

    def evaluate(self, tree: DraftTree) -> Rows:
        """Evaluate the unread tokens and a draft in one pass; return the row after each node."""
        tokens, num_rows = [*self._tokens[self.depth :], *tree.tokens], len(tree.tokens) + 1
        num_nodes = tree.num_nodes
        if num_nodes:
            self._target.mark()
        if tree.branches and self._trees:
            count = self._num_padding(len(tokens) + len(tree.links), len(tokens))
            # padding follows the last node in a chain of its own, so that no node attends to it
            padding = [(tokens[-1], node) for node in range(num_nodes, num_nodes + count)]
            rows = self._trees.evaluate_tree(tokens, [*tree.links, *padding], num_rows)
        else:
            count = self._num_padding(len(tokens)) if num_nodes else 0
            tokens += [tokens[-1]] * count
            rows = self._target.evaluate(tokens, num_rows + count)
        return rows[: num_nodes + 1] if count else rows

    def keep(self, tree: DraftTree, path: Sequence[int]) -> None:
        """Keep the accepted nodes of a draft, which form a path, in the memory, and no others.

        The transcript already contains them, followed by one token that the pass did not read.
        """
        # the last token is the correction or bonus token, which the pass did not read
        self.depth = len(self._tokens) - 1
        branches = [number for node in path if (number := tree.number_of(node)) is not None]
        self._num_read_again = len(branches)
        if tree.branches and self._trees:
            self._trees.keep(self.depth, branches)
        elif tree.draft:
            self._target.rollback(self.depth)

    def _num_padding(self, num_tokens: int, num_in_text: int | None = None) -> int:
        """Return how much padding to add to a pass over these tokens and the waiting ones.

        Of these tokens, `num_in_text` are not branches; the number of branches in a pass is
        limited.
        """
        if self._padding is None:
            return 0
        target, waiting = self._target, self._tree_model.num_waiting if self._tree_model else 0
        depth, room = target.length, target.capacity - target.length
        if num_in_text is not None:
            room = min(room, num_in_text + self.most_branches)
        longest = self._padding.padded(num_tokens + waiting, depth, room + waiting)
        return max(0, longest - num_tokens - waiting)

    def _read(self, count: int) -> None:
        """Read unread tokens whose logits are not needed."""
        self._target.evaluate(self._tokens[self.depth : self.depth + count], 0)
        self.depth += count
