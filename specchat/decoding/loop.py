"""The loop: draft, verify in one target pass, accept a prefix, add a token of the target's own."""

from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import TypeAlias

from specchat.decoding.answer_transcript import AnswerTranscript
from specchat.decoding.chunk import Chunk
from specchat.decoding.distribution import LARGEST_TABLE, Distribution
from specchat.decoding.draft_maker import DraftMaker
from specchat.decoding.draft_passes import DraftPasses
from specchat.decoding.draft_tree import TEXT, DraftTree
from specchat.decoding.fixed_pacer import FixedPacer
from specchat.decoding.likely_tokens import LikelyTokens
from specchat.decoding.ports import (
    Drafter,
    LanguageModel,
    Pacer,
    PromptProgress,
    Rows,
)
from specchat.decoding.proposal import DraftToken
from specchat.decoding.repeats import Repeats
from specchat.decoding.request import Request
from specchat.decoding.sampling import Sampler
from specchat.decoding.statistics import Statistics
from specchat.decoding.verification import TargetAt
from specchat.drafter_registry import GRAMMAR, TARGET
from specchat.errors import Cancelled

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
    transcript = AnswerTranscript(request, target.capacity)
    passes = DraftPasses(target, transcript.tokens, request)
    answer = _Answer(passes, drafter, request, statistics, pacer or FixedPacer(), transcript)
    for chunk in answer.chunks(on_progress):
        if chunk.finish:  # the caller may ask for no more after the last chunk
            statistics.is_valid = transcript.is_valid
        yield chunk


class _Answer:
    """One answer while it is decoded: the transcript grows by a step at a time."""

    def __init__(
        self,
        passes: DraftPasses,
        drafter: Drafter,
        request: Request,
        statistics: Statistics,
        pacer: Pacer,
        transcript: AnswerTranscript,
    ) -> None:
        self._passes, self._drafter, self._request = passes, drafter, request
        self._statistics, self._pacer = statistics, pacer
        self._transcript, self._walk = transcript, transcript.walk
        self._drafts = DraftMaker(drafter, request, transcript, pacer)
        self._sampler = Sampler(request.sampling)
        self._likely = LikelyTokens(request.num_alternatives, transcript.walk, transcript.piece)
        self._repeats = Repeats(token for step in request.begun for token in step.tokens)

    def chunks(self, on_progress: PromptProgress | None) -> Iterator[Chunk]:
        """Yield the chunks of the answer."""
        transcript = self._transcript
        try:
            yield from transcript.repeated(self._request.begun)
            if transcript.finish is None:
                opening = self._with_forced(Chunk(""))  # the prompt's passes read it
                try:
                    self._read_prompt(on_progress)
                finally:  # it is counted, and must come whether or not the prompt was read
                    if opening.tokens:
                        yield opening
            while transcript.finish is None:
                yield self._step()
        except Cancelled:
            if transcript.finish is None:
                yield transcript.end("cancelled")

    def _read_prompt(self, on_progress: PromptProgress | None) -> None:
        """Evaluate all of the prompt but its last token, and begin the drafter's answer."""
        statistics = self._statistics
        statistics.prompt_tokens = len(self._transcript.tokens) - statistics.forced
        began = perf_counter()
        try:
            num_forced = self._num_forced_last() if self._request.longest_pass else 0
            statistics.cached_tokens = self._passes.read_prompt(num_forced, on_progress)
            self._drafts.begin(self._passes.most_branches)
        finally:
            statistics.prompt_s += perf_counter() - began
            if statistics.forced:
                statistics.time_to_first_token_s = statistics.prompt_s

    def _num_forced_last(self) -> int:
        """Return how many forced tokens end the steps that the answer begins with.

        Returns 0 if there are only forced ones, or an opening follows: the prompt's passes then
        read them.
        """
        origins = [origin for step in self._request.begun for origin in step.origins]
        if self._transcript.index != len(origins):
            return 0
        forced = (count for count, origin in enumerate(reversed(origins)) if origin != GRAMMAR.name)
        return next(forced, 0)

    def _step(self) -> Chunk:
        """Draft, verify the draft in one target pass, and emit the accepted tokens and one more."""
        began = perf_counter()
        request, transcript, passes = self._request, self._transcript, self._passes
        room = transcript.room
        if (is_cancelled := request.is_cancelled()) or room == 0:
            return transcript.end("cancelled" if is_cancelled else "context")
        if request.replay and transcript.index >= request.replay.end:
            return transcript.end("length")

        passes.read_ahead()
        num_unread, num_extra = passes.num_unread, passes.num_extra
        # -1 for the last token, evaluated with the draft, and -1 for the target's own token
        limit = min(request.draft_length, room - 1, transcript.num_left - 1)
        if request.longest_pass and num_unread > 1:
            limit = min(limit, request.longest_pass - num_unread)
        self._pacer.begin_step(passes.depth, limit, num_extra)
        tree = self._drafts.make(limit, room - 1)
        drafted = perf_counter()

        rows = passes.evaluate(tree)
        evaluated = perf_counter()

        path, own, chances = self._verify(tree, rows)
        chunk = self._emit(tree, path, own, rows, chances)
        num_decided = len(chunk.tokens) - passes.num_unread + 1  # by verifying or drawing them
        # an answer may end within the accepted tokens, before its last node
        self._drafter.observe(chunk.tokens, min(len(path), num_decided))
        self._pacer.end_step(chunk.tokens[:num_decided], perf_counter() - drafted)
        seconds = self._statistics.time_step(began, drafted, evaluated)
        times, num_forced = self._statistics.step_times, chunk.origins.count(GRAMMAR.name)
        num_own, is_repeated = len(chunk.tokens) - num_forced, self._repeats.add(chunk.tokens)
        if is_repeated or num_unread > 1:  # forced tokens are read together without drafts, too
            times.leave_out()
            self._statistics.repeated += num_own * is_repeated
        else:
            times.add(num_extra + tree.num_nodes, num_own, seconds, drafted - began)
        return chunk._replace(seconds=self._statistics.decode_s)

    def _verify(self, tree: DraftTree, rows: Rows) -> tuple[list[int], int, Chances]:
        """Verify a tree by the target's logits after each of its nodes.

        Returns the accepted nodes, the target's own token after them, and the probabilities of both
        models.

        The drafted tokens are verified as if there were no branches, which keeps the text the
        target's own. If the target's own token is one of the branches, the row after that branch
        gives the next one.
        """
        request, walk, sampler = self._request, self._walk, self._sampler
        past = sampler.window(self._transcript.tokens)  # empty unless penalties look back
        first = self._transcript.index

        known: dict[int, Distribution] = {}  # a decorator that remembers costs more to make

        def target_at(node: int) -> Distribution:
            if node not in known:
                known[node] = made_at(node)
            return known[node]

        def made_at(node: int) -> Distribution:
            before = tree.tokens_to(node)
            if run := walk.forced_after(before):
                return Distribution.certain(run[0])  # whatever the options make of it
            mask = walk.mask_after(before)
            return sampler.distribution(rows[node], [*past, *before] if past else (), mask)

        def own_at(node: int, num_before: int) -> int:
            return request.draw_own(target_at(node), first + num_before)

        draft = tree.draft
        verify = request.verifier_at(first, tree.drawn)
        verdict = verify(draft, target_at, request.random)
        self._pacer.learn(draft, target_at, verdict, tree.branches if tree.drawn else ())
        chances: Chances = ()
        if draft and not request.sampling.is_greedy:
            chances = _chances(draft[: verdict.num_accepted + 1], target_at)
        path, own = tree.followed(verdict.num_accepted, verdict.token, own_at)
        return path, own, chances

    def _emit(
        self, tree: DraftTree, path: Sequence[int], own: int, rows: Rows, chances: Chances
    ) -> Chunk:
        """Emit the accepted nodes and the target's own token, up to the end; roll back the rest.

        Tokens that must follow are emitted with them.
        """
        transcript = self._transcript
        run = (*map(tree.token_at, path), own)
        certain = self._likely.which_are_forced(run)
        texts = transcript.add(run)
        tokens, path = run[: len(texts)], path[: len(texts)]
        self._statistics.count_tree(tree, path, len(tokens))
        origins = (*map(tree.origin_of, path), TARGET.name)[: len(tokens)]
        before = [rows[node] for node in (TEXT, *path)] if certain else ()
        alternatives = self._likely.of(tokens, certain, before)
        self._passes.keep(tree, path[: len(tokens) - 1])  # may evaluate again, over the rows
        chunk = Chunk(
            "".join(texts), tokens, origins, texts, finish=transcript.finish, chances=chances,
            alternatives=alternatives, stop_string=transcript.stop_string,
        )  # fmt: skip
        if tree.num_nodes:
            wrong = [
                node
                for node, drafted in enumerate(tree.draft, 1)
                if node not in path and drafted.origin != GRAMMAR.name
            ]
            chunk = chunk._replace(
                proposed=tuple(map(tree.token_at, (*path, *wrong))),
                rejected=tuple([transcript.piece(tree.token_at(node)) for node in wrong]),
                tree=tree.record(path, transcript.piece) if tree.branches else (),
            )
        return self._with_forced(chunk) if transcript.finish is None else chunk

    def _with_forced(self, chunk: Chunk) -> Chunk:
        """Return a step with the tokens that must follow it, which join the transcript."""
        transcript = self._transcript
        tokens, texts = transcript.add_forced()
        if not tokens:
            return chunk
        self._statistics.count_forced(len(tokens))
        return chunk._replace(
            text=chunk.text + "".join(texts),
            tokens=chunk.tokens + tokens,
            origins=chunk.origins + (GRAMMAR.name,) * len(tokens),
            texts=chunk.texts + texts,
            finish=transcript.finish,
            alternatives=chunk.alternatives + self._likely.of_certain(tokens),
            stop_string=transcript.stop_string,
        )


def _chances(compared: Sequence[DraftToken], target: TargetAt) -> Chances:
    """Return the target's and the drafter's probability of the tokens that were compared.

    Empty with many candidates, where finding the token would take time.
    """
    pairs = [(target(index), drafted) for index, drafted in enumerate(compared)]
    if any(
        max(len(wanted), len(drafted.distribution)) > LARGEST_TABLE for wanted, drafted in pairs
    ):
        return ()
    return tuple(
        [(wanted.probability(token), own.probability(token)) for wanted, (token, own, _) in pairs]
    )
