"""The loop: draft, verify in one target pass, accept a prefix, add a token of the target's own.

An answer by itself makes its passes. Several at once ask for them, and are given rows of passes
that they share (specchat.decoding.joint_loop).
"""

from collections.abc import Callable, Generator, Sequence
from time import perf_counter
from typing import TypeAlias

from specchat.decoding.answer_transcript import AnswerTranscript
from specchat.decoding.chunk import Chunk
from specchat.decoding.distribution import LARGEST_TABLE, Distribution
from specchat.decoding.draft_maker import DraftMaker
from specchat.decoding.draft_passes import DraftPasses, PassResult, TargetPass
from specchat.decoding.draft_tree import TEXT, DraftTree
from specchat.decoding.fixed_pacer import FixedPacer
from specchat.decoding.likely_tokens import LikelyTokens
from specchat.decoding.ports import Drafter, LanguageModel, Pacer, PromptProgress, Rows
from specchat.decoding.proposal import DraftToken
from specchat.decoding.repeats import Repeats
from specchat.decoding.request import Request
from specchat.decoding.sampling import Sampler
from specchat.decoding.statistics import Statistics
from specchat.decoding.verification import TargetAt
from specchat.drafter_registry import GRAMMAR, TARGET
from specchat.errors import Cancelled

READ = object()
"""What follows the last pass over a prompt."""
Chances: TypeAlias = tuple[tuple[float, float], ...]
Steps: TypeAlias = Generator[Chunk | TargetPass | None, PassResult | None]
"""An answer's chunks, and the passes that it wants. It makes one itself if it is given no result.
None stands between two passes over its prompt."""


class Answer:
    """One answer while it is decoded: the transcript grows by a step at a time.

    The pacer decides how much of the request's draft length is used; without one, all of it is. The
    statistics leave out the steps that the answer begins with, which come first. `num_sharing`
    answers that write share its passes, itself among them. In the present step it has waited
    `waited_s` for the prompts of others.
    """

    num_sharing = 1
    waited_s = 0.0
    _ended = _held_up_s = 0.0
    """When the last step ended, by the clock, and how long others held up reading the prompt."""

    def __init__(
        self,
        target: LanguageModel,
        drafter: Drafter,
        request: Request,
        statistics: Statistics,
        on_progress: PromptProgress | None = None,
        pacer: Pacer | None = None,
    ) -> None:
        """Prepare the answer to a request. Raises ContextFull if the prompt does not fit."""
        self._transcript = transcript = AnswerTranscript(request, target.capacity)
        self._passes = DraftPasses(target, transcript.tokens, request)
        self._drafter, self._request, self._statistics = drafter, request, statistics
        self._on_progress = on_progress
        self._pacer = pacer or FixedPacer()
        self._walk = transcript.walk
        self._drafts = DraftMaker(drafter, request, transcript, self._pacer)
        self._sampler = Sampler(request.sampling)
        self._likely = LikelyTokens(request.num_alternatives, transcript.walk, transcript.piece)
        self._repeats = Repeats(token for step in request.begun for token in step.tokens)
        self.is_reading = True
        """Whether its prompt is not read yet."""
        self.awaits: Callable[[], bool] = lambda: False
        """Whether another answer is about to read the beginning of its prompt, too."""
        self.before_reading: Callable[[], object] = lambda: None
        """Called before the prompt is read: the memory may get its beginning from elsewhere."""

    @property
    def longest_pass(self) -> int | None:
        """The longest pass that it may take part in, None if any may be."""
        return self._request.longest_pass

    @property
    def has_begun(self) -> bool:
        """Whether it goes on with what an earlier decoding wrote."""
        return bool(self._request.begun)

    @property
    def places_to_stop(self) -> Sequence[int]:
        """Where reading its prompt pauses, and a state of the memory is kept."""
        return self._passes.places_to_stop

    @property
    def prompt_s(self) -> float:
        """The seconds that reading its prompt has taken so far."""
        return self._statistics.prompt_s

    def steps(self) -> Steps:
        """Yield the chunks of the answer, one a step, and the passes that it wants.

        Whenever a new chunk is yielded, the target's memory holds the prompt and all emitted tokens
        but the last one that was not forced and those after it, so the generator may be closed at
        any chunk; if reading the prompt was stopped, it holds a part of that.
        """
        transcript = self._transcript
        try:
            for chunk in transcript.repeated(self._request.begun):
                yield self._noted(chunk)
            if transcript.finish is None:
                opening = self._with_forced(Chunk(""))  # the prompt's passes read it
                try:
                    yield from self._read_prompt()
                    self.is_reading = False
                except Exception:  # it is counted, so it must come all the same
                    if opening.tokens:
                        yield self._noted(opening)
                    raise
                if opening.tokens:
                    yield self._noted(opening)
            while transcript.finish is None:
                yield self._noted((yield from self._step()))
        except Cancelled:
            if transcript.finish is None:
                yield self._noted(transcript.end("cancelled"))
        finally:
            self.is_reading = False

    def _noted(self, chunk: Chunk) -> Chunk:
        """Note whether the answer is valid once it ends: nobody may ask for more after that."""
        if chunk.finish:
            self._statistics.is_valid = self._transcript.is_valid
        return chunk

    def _read_prompt(self) -> Generator[None]:
        """Evaluate all of the prompt but its last token, and begin the drafter's answer."""
        statistics = self._statistics
        statistics.prompt_tokens = len(self._transcript.tokens) - statistics.forced
        reading = self._passes_over_prompt()
        is_read, started, before = False, perf_counter(), statistics.prompt_s
        while self.awaits() and not self._request.is_cancelled():
            yield
        while not is_read:
            began = perf_counter()  # others write meanwhile
            try:
                is_read = next(reading, READ) is READ
            finally:
                ended = perf_counter()
                statistics.prompt_s += ended - began
                self._held_up_s = ended - started - (statistics.prompt_s - before)
                if statistics.forced:
                    statistics.time_to_first_token_s = self._held_up_s + statistics.prompt_s
            if not is_read:
                if self._request.is_cancelled():
                    raise Cancelled("the answer was stopped")
                yield

    def _passes_over_prompt(self) -> Generator[None]:
        """Read the prompt with the target and then with the draft, a pause after each pass."""
        self.before_reading()
        num_forced = self._num_forced_last() if self._request.longest_pass else 0
        yield from self._passes.read_prompt(num_forced, self._on_progress, self._is_brief)
        self._statistics.cached_tokens = self._passes.num_cached
        self._drafts.begin(self._passes.most_branches)
        yield from self._drafts.reading(self._is_brief)

    def _is_brief(self) -> bool:
        """Whether passes over the prompt are short: others that write wait for them.

        If its bits matter, they are as long as they always are.
        """
        return self.num_sharing > 1 and not self._request.longest_pass

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

    def _step(self) -> Generator[TargetPass, PassResult | None, Chunk]:
        """Draft, verify the draft in one target pass, and emit the accepted tokens and one more."""
        began = perf_counter()
        request, transcript, passes = self._request, self._transcript, self._passes
        room = transcript.room
        if (is_cancelled := request.is_cancelled()) or room == 0:
            return transcript.end("cancelled" if is_cancelled else "context")
        if request.replay and transcript.index >= request.replay.end:
            return transcript.end("length")

        passes.read_ahead()
        num_unread = passes.num_unread
        num_extra = num_unread - 1 + passes.num_read_again
        # -1 for the last token, evaluated with the draft, and -1 for the target's own token
        limit = min(request.draft_length, room - 1, transcript.num_left - 1)
        if request.longest_pass and (num_unread > 1 or self.num_sharing > 1):
            longest = request.longest_pass // self.num_sharing - passes.num_waiting
            limit = min(limit, max(0, longest - num_unread))
        self._pacer.begin_step(passes.depth, limit, num_extra, self.num_sharing)
        tree = self._drafts.make(limit, room - 1)
        drafting = perf_counter() - began

        wanted = passes.wanted(tree)  # which may take a copy of the memory
        preparing = perf_counter() - began - drafting
        made = (yield wanted) or wanted.make()
        rows, num_sharing = made.rows, made.num_sharing
        self._statistics.count_pass(made.seconds, num_sharing, made.apart_s)
        verifying = made.seconds + preparing
        evaluated = perf_counter()

        path, own, chances = self._verify(tree, rows)
        chunk = self._emit(tree, path, own, rows, chances)
        num_decided = len(chunk.tokens) - passes.num_unread + 1  # by verifying or drawing them
        # an answer may end within the accepted tokens, before its last node
        self._drafter.observe(chunk.tokens, min(len(path), num_decided))
        share = (verifying + perf_counter() - evaluated) / num_sharing
        beside = made.num_drafting, made.num_longest
        self._pacer.end_step(chunk.tokens[:num_decided], share, *beside)
        if self.num_sharing > 1:  # it also waited for the drafts of others
            began = self._ended or began
        began += self.waited_s
        held_up = self._held_up_s + self.waited_s
        seconds = self._statistics.time_step(began, drafting, verifying, held_up)
        self._ended, self.waited_s = began + seconds, 0.0
        times, num_forced = self._statistics.step_times, chunk.origins.count(GRAMMAR.name)
        num_own, num_repeating = len(chunk.tokens) - num_forced, self._repeats.add(chunk.tokens)
        # the beginning of a continued answer may repeat, too, but only what is new counts
        self._statistics.repeating = min(num_repeating, self._statistics.generated_tokens)
        if num_repeating or num_unread > 1:  # forced tokens are read together without drafts, too
            times.leave_out()
            self._statistics.repeated += num_own if num_repeating else 0
        else:
            times.add(num_extra + tree.num_nodes, num_own, seconds, drafting)
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
        alternatives = self._likely.of(tokens, certain, before) if certain else ()
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
