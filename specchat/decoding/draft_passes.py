"""The target's passes over the end of a transcript and the drafts that follow it."""

from collections.abc import Callable, Generator, Sequence
from time import perf_counter
from typing import NamedTuple

from specchat.decoding.draft_tree import DraftTree
from specchat.decoding.ports import (
    LanguageModel,
    PromptProgress,
    RepeatableModel,
    Rows,
    TreeModel,
    reading_of,
)
from specchat.decoding.request import Request
from specchat.drafter_registry import GRAMMAR

LEAST_GAP = 32
"""Ends of messages that can be returned to are at least this many tokens before the end of the
prompt, and before the place where the next prompt is expected to leave this one."""


class PassResult(NamedTuple):
    """The rows of a target pass, one after each node of the draft, and the seconds it took.

    As many answers took part as are `num_sharing`, of which `num_drafting` had a draft; the longest
    part had `num_longest` tokens. Alone, this one would have taken `apart_s`. Each is 0 if it is
    not known.
    """

    rows: Rows
    seconds: float
    num_sharing: int = 1
    apart_s: float = 0.0
    num_drafting: int = 0
    num_longest: int = 0


class TargetPass(NamedTuple):
    """A pass over the end of a transcript and its draft, which may have branches.

    The last `num_rows` of the tokens give rows of logits, as do the branches.
    """

    target: LanguageModel
    tokens: Sequence[int]
    num_rows: int
    branches: Sequence[tuple[int, int]] = ()

    @property
    def num_tokens(self) -> int:
        """How many tokens it reads, those that wait in the memory included."""
        return self.target.num_waiting + len(self.tokens) + len(self.branches)

    def make(self) -> PassResult:
        """Make the pass by itself. Raises as the model's `evaluate` does."""
        began, target = perf_counter(), self.target
        if self.branches and isinstance(target, TreeModel):
            rows = target.evaluate_tree(self.tokens, self.branches, self.num_rows)
        else:
            rows = target.evaluate(self.tokens, self.num_rows)
        return PassResult(rows, perf_counter() - began)


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
    ) -> None:
        """Read `tokens`, the transcript's own list, which grows from step to step."""
        self.depth = self.num_cached = 0
        self._tokens, self._target, self._request = tokens, target, request
        self._tree_model = target if isinstance(target, TreeModel) else None
        # drawn branches beside a draft that is known to be right would never be accepted
        has_branches = request.most_nodes and not (request.replay and request.draws_siblings)
        self._trees = self._tree_model if has_branches else None
        self.num_read_again = 0
        """How many branches of the last pass the next one reads again, as they were accepted."""

    @property
    def most_branches(self) -> int:
        """How many branches a draft may have, 0 for a target that cannot read any."""
        return self._trees.most_branches if self._trees else 0

    @property
    def num_unread(self) -> int:
        """How many tokens of the transcript the next pass reads before its draft."""
        return len(self._tokens) - self.depth

    @property
    def num_waiting(self) -> int:
        """How many tokens of the text the next pass reads again before the unread ones."""
        return self._target.num_waiting

    def read_prompt(
        self,
        num_forced: int,
        on_progress: PromptProgress | None,
        is_brief: Callable[[], bool],
    ) -> Generator[None]:
        """Read all but the last token, with a pause after each pass if the model allows it.

        Passes are short while `is_brief`. `num_cached` is then how many the memory held already.
        The last `num_forced` tokens belong
        to an interrupted answer, in which they would have been read together with the next drafts.
        They are read in passes just as short, to give the same bits. So is all of that answer if
        the request repeats.
        """
        tokens, places = self._tokens, self.places_to_stop
        end = len(tokens) - 1 - num_forced
        if self._request.repeats and isinstance(self._target, RepeatableModel):
            num_first = self._num_first
            planned = [*(place for place in places if place < num_first), num_first]
            num_kept = self._target.keep_repeatable(tokens[:-1], planned)
            end = min(end, max(num_first, num_kept))

        def report(done: int, _: int) -> None:
            if on_progress:
                on_progress(done, end)

        # stopping at a place allows a rollback to it when the next prompt leaves this one there
        num_known = self._target.count_known(tokens)
        stops = [place for place in places if num_known < place < end]
        self.num_cached = num_known
        for stop in (*stops, end):
            num_held = yield from reading_of(self._target, tokens[:stop], report, is_brief)
            self.num_cached = min(self.num_cached, num_held)
        self.depth = end
        while (num_waiting := self.num_unread - 1) > 0:
            self._read(min(self._request.longest_pass or num_waiting, num_waiting))

    @property
    def _num_first(self) -> int:
        """How many tokens are read before the first that may be drafted, if the memory is empty.

        Tokens that are forced at the beginning of the answer are among them.
        """
        origins = [origin for step in self._request.begun for origin in step.origins]
        are_free = (number for number, origin in enumerate(origins) if origin != GRAMMAR.name)
        num_prompt = len(self._request.tokens)
        return num_prompt + next(are_free, len(self._tokens) - num_prompt) - 1

    def read_ahead(self) -> None:
        """Read forced tokens ahead, until the rest fit into one pass."""
        longest = self._request.longest_pass
        while longest and self.num_unread > longest:
            self._read(longest)

    def wanted(self, tree: DraftTree) -> TargetPass:
        """Return the pass over the unread tokens and a draft: a row after each of its nodes."""
        tokens, num_rows = [*self._tokens[self.depth :], *tree.tokens], len(tree.tokens) + 1
        if tree.num_nodes:
            self._target.mark()
        links = tree.links if tree.branches and self._trees else ()
        return TargetPass(self._target, tokens, num_rows, links)

    def keep(self, tree: DraftTree, path: Sequence[int]) -> None:
        """Keep the accepted nodes of a draft, which form a path, in the memory, and no others.

        The transcript already contains them, followed by one token that the pass did not read.
        """
        # the last token is the correction or bonus token, which the pass did not read
        self.depth = len(self._tokens) - 1
        branches = [number for node in path if (number := tree.number_of(node)) is not None]
        self.num_read_again = len(branches)
        if tree.branches and self._trees:
            self._trees.keep(self.depth, branches)
        elif tree.draft:
            self._target.rollback(self.depth)

    @property
    def places_to_stop(self) -> list[int]:
        """Where the next prompt is likely to leave this one.

        That is where it is expected to, and at ends of messages, some way apart. There are no such
        places for a target that can return to any.
        """
        num_shared, step = self._request.num_shared, self._request.state_step
        if not num_shared and not step:
            return []
        ends, places = frozenset(self._request.end_tokens if step else ()), [0]
        last = len(self._request.tokens) - LEAST_GAP
        for place, token in enumerate(self._request.tokens, 1):
            is_end = token in ends and place - places[-1] >= step and place <= last
            if token < 0:  # images are read whole
                continue
            if place == num_shared or (is_end and not 0 < num_shared - place < LEAST_GAP):
                places.append(place)
        return places[1:]

    def _read(self, count: int) -> None:
        """Read unread tokens whose logits are not needed."""
        self._target.evaluate(self._tokens[self.depth : self.depth + count], 0)
        self.depth += count
