"""The loop: draft, verify in one target pass, accept a prefix, add a token of the target's own."""

import sys
from collections.abc import Iterator, Sequence
from functools import cache
from time import perf_counter
from typing import NamedTuple, TypeAlias

from specchat.decoding.chunk import Chunk, Finish, TreeToken
from specchat.decoding.constraint import Walk
from specchat.decoding.distribution import LARGEST_TABLE, Distribution
from specchat.decoding.draft_tree import TEXT, DraftTree, some_of, valid_branches, with_drawn
from specchat.decoding.fixed_pacer import FixedPacer
from specchat.decoding.likely_tokens import LikelyTokens
from specchat.decoding.ports import (
    Branching,
    Drafter,
    DraftTask,
    LanguageModel,
    Pacer,
    PromptProgress,
    Rows,
    TreeModel,
)
from specchat.decoding.proposal import DraftToken, forced_token
from specchat.decoding.request import Request
from specchat.decoding.sampling import Sampler
from specchat.decoding.statistics import Statistics
from specchat.decoding.text_assembler import TextAssembler
from specchat.decoding.verification import TargetAt
from specchat.drafter_registry import GRAMMAR, TARGET
from specchat.errors import Cancelled, ContextFull, EngineFailed

Chances: TypeAlias = tuple[tuple[float, float], ...]


def decode(
    target: LanguageModel,
    drafter: Drafter,
    request: Request,
    statistics: Statistics,
    on_progress: PromptProgress | None = None,
    pacer: Pacer | None = None,
) -> Iterator[Chunk]:
    """Decode one answer, yielding a chunk per step and updating the statistics.

    The steps that the answer begins with come first and do not count in the statistics. The pacer
    decides how much of the request's draft length is used; without one, all of it is.

    Whenever a new chunk is yielded, the target's memory holds the prompt and all emitted tokens but
    the last one that was not forced and those after it, so the generator may be closed at any
    chunk; if reading the prompt was stopped, it holds a part of that. Raises ContextFull if the
    prompt does not fit.
    """
    answer = _Answer(target, request, statistics, pacer or FixedPacer())
    answer.require_room()
    for chunk in _chunks(answer, drafter, on_progress):
        if chunk.finish:  # nobody may ask for more after the last chunk
            statistics.is_valid = answer.is_valid
        yield chunk


def _chunks(
    answer: "_Answer", drafter: Drafter, on_progress: PromptProgress | None
) -> Iterator[Chunk]:
    """Yield the chunks of an answer."""
    try:
        yield from answer.begun()
        if answer.finish is None:
            opening = answer.opening()
            try:
                answer.read_prompt(drafter, on_progress)
            finally:  # it is counted, and must come whether or not the prompt was read
                if opening:
                    yield opening
        while answer.finish is None:
            yield answer.step(drafter)
    except Cancelled:
        if answer.finish is None:
            yield answer.ended("cancelled")


class _Accepted(NamedTuple):
    """The places of a tree that were accepted, the target's own token behind them, and chances."""

    path: list[int]
    token: int
    chances: Chances


class _Answer:
    """The state of one answer while it is decoded."""

    def __init__(
        self, target: LanguageModel, request: Request, statistics: Statistics, pacer: Pacer
    ) -> None:
        self.finish: Finish | None = None
        self._target = target
        self._request = request
        self._statistics = statistics
        self._pacer = pacer
        self._num_before = sum(len(step.tokens) for step in request.begun)
        self._tokens = [*request.tokens, *(each for step in request.begun for each in step.tokens)]
        self._num_left = request.max_tokens or sys.maxsize
        self._sampler = Sampler(request.sampling)
        self._text = TextAssembler(request.piece, request.stop_strings, request.end_tokens)
        self._walk = Walk(request.constraint, frozenset(request.end_tokens))
        self._likely = LikelyTokens(request.num_alternatives, self._walk, self._text.piece)
        self._trees = target if request.most_nodes and isinstance(target, TreeModel) else None
        self._num_unread = 1  # emitted tokens that the next pass reads
        self._num_read_again = 0  # accepted branches that it reads, too
        self._branching: Branching | None = None  # the drafter, if it knows any branches

    @property
    def is_valid(self) -> bool | None:
        """Whether the answer is what its constraint allows as a whole; None without one."""
        return self._walk.is_complete

    def require_room(self) -> None:
        """Raise ContextFull if the prompt, with the answer so far, exceeds the context."""
        num_tokens, capacity = len(self._tokens), self._target.capacity
        if num_tokens > capacity:
            error = ContextFull(
                f"the prompt has {num_tokens} tokens and the context holds {capacity}:"
                f" {self._request.if_too_long}"
            )
            error.num_tokens, error.capacity = num_tokens, capacity
            raise error

    def begun(self) -> Iterator[Chunk]:
        """Yield the steps that the answer begins with, their texts assembled anew.

        Only their last token may end the answer.
        """
        for step in self._request.begun:
            texts = tuple([self._text.push(token) for token in step.tokens])
            for token in step.tokens:
                self._walk.follow(token)
            if self._text.is_stopped or self._walk.is_over:
                self.finish = "stop"
            yield step._replace(
                text="".join(texts), texts=texts, finish=self.finish, seconds=0.0,
                reasoning="", tool_calls=(), pieces=(),
            )  # fmt: skip

    def read_prompt(self, drafter: Drafter, on_progress: PromptProgress | None) -> None:
        """Evaluate all of the prompt but its last token, and begin the drafter's answer."""
        request, statistics, tokens = self._request, self._statistics, self._tokens
        num_tokens = len(tokens)
        statistics.prompt_tokens = num_tokens - statistics.forced
        began = perf_counter()
        try:
            num_cached = self._target.count_known(tokens)
            if 0 < request.num_shared < num_tokens - 1 and num_cached < request.num_shared:
                num_cached = self._target.prefill(tokens[: request.num_shared], on_progress)
            else:
                num_cached = num_tokens
            num_forced = self._num_forced_last() if request.longest_pass else 0
            num_read = self._target.prefill(tokens[: -1 - num_forced], on_progress)
            self._read_exactly(num_forced)
            statistics.cached_tokens = min(num_cached, num_read)
            is_soon = self._pacer.expects_drafting(num_tokens)
            is_ever = request.draft_length > 0 and request.max_tokens != 1
            has_branches = bool(self._trees and self._trees.most_branches)
            task = DraftTask(
                tokens, request.sampling, self._draw_draft, is_soon, is_ever, self._walk,
                has_branches, self._ranked,
            )  # fmt: skip
            self._branching = drafter if isinstance(drafter, Branching) else None
            drafter.begin(task)
        finally:
            statistics.prompt_s += perf_counter() - began
            if statistics.forced:
                statistics.time_to_first_token_s = statistics.prompt_s

    def _num_forced_last(self) -> int:
        """Return how many forced tokens end the steps that the answer begins with.

        None if it has no others: the prompt's passes have read these.
        """
        origins = [name for step in self._request.begun for name in step.origins]
        count = next(
            (place for place, name in enumerate(reversed(origins)) if name != GRAMMAR.name), 0
        )
        is_last = self._num_before == len(origins)  # no opening follows
        return count if is_last else 0

    def _read_exactly(self, num_forced: int) -> None:
        """Read the last forced tokens of an interrupted answer as it would have gone on to."""
        self._num_unread = 1 + num_forced
        longest = self._request.longest_pass or self._num_unread
        while self._num_unread > 1:
            depth = len(self._tokens) - self._num_unread
            size = min(longest, self._num_unread - 1)
            self._target.evaluate(self._tokens[depth : depth + size], 0)
            self._num_unread -= size

    def opening(self) -> Chunk | None:
        """Emit the tokens that must begin the answer, if any; the prompt's passes read them."""
        tokens, texts = self._forced()
        self._num_before += len(tokens)
        if not tokens:
            return None
        origins = (GRAMMAR.name,) * len(tokens)
        return Chunk(
            "".join(texts), tokens, origins, texts, finish=self.finish,
            alternatives=self._likely.of_certain(tokens), stop_string=self._text.stop_string,
        )  # fmt: skip

    def step(self, drafter: Drafter) -> Chunk:
        """Draft, verify the draft in one target pass, and emit the accepted tokens and one more."""
        began = perf_counter()
        room = self._target.capacity - len(self._tokens) + 1
        if (is_cancelled := self._request.is_cancelled()) or room == 0:
            return self.ended("cancelled" if is_cancelled else "context")
        num_unread = self._read_ahead()
        depth = len(self._tokens) - num_unread
        # -1 for the last token, evaluated with the draft, and -1 for the target's own token
        limit = min(self._request.draft_length, room - 1, self._num_left - 1)
        if self._request.longest_pass and num_unread > 1:
            limit = min(limit, self._request.longest_pass - num_unread)
        num_more = num_unread - 1 + self._num_read_again
        self._pacer.begin_step(depth, limit, num_more)
        draft = self._extended(self._cut(drafter.propose(self._pacer)), limit)
        tree = self._tree(draft, room - 1)
        drafted = perf_counter()
        if tree.num_nodes:
            self._target.mark()
        rows = self._evaluate(depth, tree)
        evaluated = perf_counter()
        accepted = self._verify(tree, rows)
        chunk = self._emit(tree, accepted, rows)
        num_own = len(chunk.tokens) - self._num_unread + 1
        drafter.observe(chunk.tokens, min(len(accepted.path), num_own))
        single = self._pacer.end_step(chunk.tokens[:num_own], perf_counter() - drafted)
        num_read, num_decoded = num_more + 1 + tree.num_nodes, num_unread - 1 + num_own
        times = (began, drafted, evaluated)
        self._statistics.time_step(num_read, num_decoded, single, *times)
        return chunk._replace(seconds=self._statistics.decode_s, chances=accepted.chances)

    def _tree(self, draft: Sequence[DraftToken], room: int) -> DraftTree:
        """Return the tree of a draft and the branches that pay, in a memory with so much room."""
        if self._trees is None or self._branching is None:
            return DraftTree(draft)
        most = min(
            self._request.most_nodes - len(draft), self._trees.most_branches, room - len(draft)
        )
        offered = self._branching.branches() if most > 0 else ()
        if not offered:
            return DraftTree(draft)
        branches = valid_branches(offered, draft, self._may_follow)
        branches = some_of(branches, self._pacer.choose_branches(draft, branches, most))
        if not (branches and self._request.draws_siblings):
            return DraftTree(draft, branches)
        return DraftTree(draft, *with_drawn(branches, draft, self._request.random))

    def _may_follow(self, drafted: Sequence[int], token: int) -> bool:
        """Whether a token may come behind these drafted ones, as far as the constraint can say."""
        try:
            mask = self._walk.mask_after(drafted)
        except EngineFailed:
            return False
        return mask is None or mask.allows(token)

    def _evaluate(self, depth: int, tree: DraftTree) -> Rows:
        """Evaluate the unread tokens and a tree in one pass; return the rows behind its places."""
        tokens, num_rows = [*self._tokens[depth:], *tree.tokens], len(tree.tokens) + 1
        if tree.branches and self._trees:
            return self._trees.evaluate_tree(tokens, tree.links, num_rows)
        return self._target.evaluate(tokens, num_rows)

    def _cut(self, draft: Sequence[DraftToken]) -> Sequence[DraftToken]:
        """Cut a draft before a token that may not come, unless that was drawn.

        A drawn one has to be rejected, so that what was not drawn gets its share of the correction.
        """
        length = self._walk.num_allowed([each.token for each in draft])
        is_certain = length < len(draft) and len(draft[length].distribution) == 1
        return draft[:length] if is_certain else draft

    def _extended(self, draft: Sequence[DraftToken], limit: int) -> Sequence[DraftToken]:
        """Append the tokens that must follow a draft, up to `limit` in all.

        They are accepted if the draft is, and the target's own token then follows them. Without
        them its place would be that of the first one, which comes in any case.
        """
        if not draft:
            return draft
        run = self._walk.forced_after([each.token for each in draft])
        return [*draft, *map(forced_token, run[: max(0, limit - len(draft))])]

    def _read_ahead(self) -> int:
        """Read forced tokens that are too many for one pass; return how many are left for it."""
        longest = self._request.longest_pass
        while longest and self._num_unread > longest:
            depth = len(self._tokens) - self._num_unread
            self._target.evaluate(self._tokens[depth : depth + longest], 0)
            self._num_unread -= longest
        return self._num_unread

    def _draw_draft(self, distribution: Distribution, index: int) -> int:
        """Draw a drafted token: its index counts from the first step."""
        return self._request.draw(distribution, self._num_before + index)

    def _ranked(
        self, distribution: Distribution, index: int, count: int
    ) -> Sequence[tuple[int, float]]:
        """Return what is likeliest to be drawn, for an index that counts from the first step."""
        return self._request.ranked(distribution, self._num_before + index, count)

    def _verify(self, tree: DraftTree, rows: Rows) -> "_Accepted":
        """Verify a tree by the target's logits behind each of its places.

        The drafted tokens are verified as if there were nothing beside them, so the text is the
        target's own. Where its own token then is a branch, the row behind that gives the next one.
        """
        past = self._sampler.window(self._tokens)  # empty unless penalties look back
        first = len(self._tokens) - len(self._request.tokens)

        @cache
        def target_at(place: int) -> Distribution:
            before = tree.tokens_to(place)
            if run := self._walk.forced_after(before):
                return Distribution.certain(run[0])  # whatever the options make of it
            mask = self._walk.mask_after(before)
            return self._sampler.distribution(rows[place], [*past, *before] if past else (), mask)

        def own_at(place: int, num_before: int) -> int:
            return self._request.draw(target_at(place), first + num_before)

        draft = tree.draft
        verify = self._request.verifier_at(first, tree.drawn)
        verdict = verify(draft, target_at, self._request.random)
        self._pacer.learn(draft, target_at, verdict, tree.branches if tree.drawn else ())
        chances = self._chances(draft[: verdict.num_accepted + 1], target_at)
        path, token = tree.followed(verdict.num_accepted, verdict.token, own_at)
        return _Accepted(path, token, chances)

    def _chances(self, compared: Sequence[DraftToken], target: TargetAt) -> Chances:
        """Return the target's and the drafter's probability of the tokens that were compared.

        Empty at temperature 0, and with many candidates, where finding the token would take time.
        """
        pairs = [(target(index), each) for index, each in enumerate(compared)]
        if self._request.sampling.is_greedy or any(
            max(len(wanted), len(each.distribution)) > LARGEST_TABLE for wanted, each in pairs
        ):
            return ()
        return tuple(
            [(p.probability(own), proposed.probability(own)) for p, (own, proposed, _) in pairs]
        )

    def _emit(self, tree: DraftTree, accepted: "_Accepted", rows: Rows) -> Chunk:
        """Emit the accepted tokens and the target's own, up to the end; roll back the rest.

        Tokens that must follow are emitted with them.
        """
        path = accepted.path
        run = (*map(tree.token_at, path), accepted.token)
        certain = self._likely.forced_places(run)
        texts = self._texts_until_end(run)
        tokens, path = run[: len(texts)], path[: len(texts)]
        self._tokens += tokens
        self._statistics.count_tree(tree, path, len(tokens))
        names = tree.origins
        origins = (*(names[place - 1] for place in path), TARGET.name)[: len(tokens)]
        before = [rows[place] for place in (TEXT, *path)] if certain else ()
        alternatives = self._likely.of(tokens, certain, before)
        self._keep(tree, path[: len(tokens) - 1])  # may evaluate tokens again, over the rows
        forced, more_texts = self._forced() if self.finish is None else ((), ())
        self._num_unread = 1 + len(forced)
        if forced:
            alternatives += self._likely.of_certain(forced)
            tokens, texts = tokens + forced, texts + more_texts
            origins += (GRAMMAR.name,) * len(forced)
        wrong = [
            place
            for place, each in enumerate(tree.draft, 1)
            if place not in path and each.origin != GRAMMAR.name
        ]
        return Chunk(
            "".join(texts), tokens, origins, texts,
            tuple(map(tree.token_at, (*path, *wrong))),
            tuple([self._piece_at(tree, place) for place in wrong]),
            self.finish, alternatives=alternatives, stop_string=self._text.stop_string,
            tree=self._recorded(tree, path),
        )  # fmt: skip

    def _keep(self, tree: DraftTree, path: Sequence[int]) -> None:
        """Keep the tokens on a path through the tree in the memory."""
        numbers = [number for place in path if (number := tree.number_of(place)) is not None]
        self._num_read_again = len(numbers)
        if tree.branches and self._trees:
            self._trees.keep(len(self._tokens) - 1, numbers)
        elif tree.draft:
            self._target.rollback(len(self._tokens) - 1)

    def _recorded(self, tree: DraftTree, path: Sequence[int]) -> tuple[TreeToken, ...]:
        """Return what a step records of a tree; nothing of a chain, which its tokens tell."""
        if not tree.branches:
            return ()
        return tuple(
            [
                TreeToken(self._piece_at(tree, place), parent, origin, place in path)
                for place, (parent, origin) in enumerate(
                    zip(tree.parents, tree.origins, strict=True), 1
                )
            ]
        )

    def _piece_at(self, tree: DraftTree, place: int) -> str:
        """Return the text of the token at a place of a tree."""
        return self._text.piece(tree.token_at(place))

    def _forced(self) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Add the tokens that must follow now to the answer; return them and their texts."""
        room = self._target.capacity + 1 - len(self._tokens)
        forced = self._walk.forced()[:room]
        texts = self._texts_until_end(forced)
        tokens = tuple(forced[: len(texts)])
        self._tokens += tokens
        self._statistics.count_forced(len(tokens))
        return tokens, texts

    def _texts_until_end(self, run: Sequence[int]) -> tuple[str, ...]:
        """Return the text of each token up to the one that ends the answer; set the reason."""
        texts: list[str] = []
        for token in run:
            texts.append(self._text.push(token))
            self._walk.follow(token)
            self._num_left -= 1
            is_stopped = self._text.is_stopped or self._walk.is_over
            if is_stopped or not self._num_left:
                self.finish = "stop" if is_stopped else "length"
                texts[-1] += self._text.finish()
                break
        return tuple(texts)

    def ended(self, finish: Finish) -> Chunk:
        """End the answer after the last step; the chunk holds no tokens."""
        self.finish = finish
        return Chunk(text=self._text.finish(), finish=finish)
