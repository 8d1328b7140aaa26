"""The engine in this process."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from functools import cached_property, partial
from time import perf_counter

from specchat import drafter_registry
from specchat.decoding.chunk import Alternative, Chunk
from specchat.decoding.distribution import Logits
from specchat.decoding.loop import decode
from specchat.decoding.noise import Noise
from specchat.decoding.ports import Drafter
from specchat.decoding.request import SHORTER_OR_LARGER, Request
from specchat.decoding.statistics import Statistics
from specchat.drafting.factory import Materials, choose_drafter, make_drafter
from specchat.drafting.prediction import PredictionDrafter
from specchat.drafting.token_map import CommonTokenMap, TokenMap
from specchat.engine.api import Engine, EngineFacts, Loading
from specchat.engine.draft_limits import DraftLimits
from specchat.engine.exact_drafts import NOT_MEASURED, ExactDrafts
from specchat.engine.loaded_pair import LoadedPair
from specchat.engine.loader import load_pair
from specchat.engine.pair_pacing import PairPacing
from specchat.engine.parked_memories import ParkedMemories
from specchat.engine.prompt_scores import scored
from specchat.engine.read_texts import ReadBefore, ReadTexts
from specchat.errors import Cancelled, InvalidOption, OutOfMemory
from specchat.gguf.draft_kinds import why_no_head
from specchat.llama import tinyblas
from specchat.llama.context import count_common
from specchat.llama.library import AbortFlag
from specchat.llama.model import Model
from specchat.llama.thread_waits import ThreadWaits
from specchat.pacing.pacer import LearningPacer
from specchat.passes.exact_passes import DEPTHS, LONGEST_COMPARED
from specchat.planning.host_resources import available_bytes
from specchat.planning.text_copies import MIB, room_for_copies, step_between_states
from specchat.prompts.chat_text import chat_format
from specchat.prompts.preparing import Preparation, require_known
from specchat.prompts.prompt import Prompt
from specchat.requests.answer_request import AnswerRequest, ChatRequest
from specchat.requests.answer_update import Update
from specchat.requests.progress import ProgressCallback, ProgressReport, stopping_report
from specchat.requests.prompt_size import PromptSize
from specchat.workers.worker_watch import LostCallback, end_process

NO_EXACT_DRAFT = (
    "the answer must be exact, and no draft is as the pair is loaded: `--exact on` may allow some"
)
REASON_INTERVAL = 8
"""While nothing is drafted, the reason is updated once in this many chunks; this also lets pacing
learn from plain passes before the answer ends."""
MEASURED_CONTEXT = DEPTHS[-1] + 2 * LONGEST_COMPARED
"""The size of a context to measure in, where the pair's own holds a text."""


class LocalEngine(Engine):
    """A pair loaded into this process, which answers one request at a time, from one thread."""

    def __init__(
        self,
        loading: Loading,
        on_progress: ProgressCallback | None = None,
        on_lost: LostCallback = end_process,
    ) -> None:
        """Load the pair; free everything if that fails.

        `on_lost` is called from another thread if a worker stops answering. It must end the
        process, because llama.cpp cannot continue; `Engine.load` therefore uses a process of its
        own with workers.
        """
        self._statistics = Statistics()  # of the answer in progress
        self._abort = AbortFlag()
        self._drafters: dict[str, Drafter] = {}
        self._is_unfinished = False  # the last answer, which may go on
        self._read_texts = ReadTexts()
        with ExitStack() as stack:
            report = stopping_report(on_progress)
            pair = load_pair(loading, self._abort, stack, report, on_lost)
            self.model, self.context = pair.context.model, pair.context
            self._draft_context = pair.draft_context
            drops_any_tail = self.context.rollback_kind.removes_any_tail
            self.prompts = Preparation(
                self.model, self.context.capacity, foresees_next=not drops_any_tail
            )
            self._pair = pair
            size = self.model.sizes.state(self.context.shape)
            step = step_between_states(size, is_on_gpu=pair.uses_gpus)
            self._state_step = 0 if drops_any_tail else step
            limit = room_for_copies(loading.cache_ram, available_bytes() or 0)
            self.parked = ParkedMemories(pair, limit, (loading.cache_disk or 0) * MIB)
            facts = _with_format(pair.facts, self.model)
            self._plain_facts = replace(facts, takes_turns=self.parked.takes_turns)
            self._exact_drafts = ExactDrafts(pair)
            self._apply_exactness()
            self.pacing = PairPacing(pair)
            self._note_costs()
            use_threads = pair.use_threads if pair.may_change_threads else None
            self._waits = ThreadWaits(pair.num_threads, use_threads)
            stack.callback(self._waits.close)
            self._resources = stack.pop_all()

    def begin(self, request: AnswerRequest) -> Generator[Update]:
        """Prepare an answer; later stops apply to it."""
        self._require_idle()
        prompt = self.prompts.prepare(request)
        if prompt.after_aside is not None:
            self._protect_memory(prompt, prompt.after_aside)
        self._abort.clear()
        name = choose_drafter(request.drafter, self._materials)
        name = drafter_registry.PLAIN if self._exact_drafts.is_awaited else name
        longest_pass = self._limits.longest_pass(name, request)
        notices = (*prompt.notices, *self._limits.tree_notices(request, longest_pass))
        self._statistics = Statistics(left_out=prompt.num_left_out, notices=notices)

        def on_prompt(done: int, total: int) -> None:
            self._follow_others()
            if request.on_progress:
                request.on_progress("prompt", done / max(1, total))

        with self._kernels(longest_pass):
            self.pacing.follow_kernels()
        pacer = self.pacing.pacer(name, request, is_replay=request.replay is not None)
        decoded = self._request(prompt, request, longest_pass)
        self._describe(name, request, decoded)
        self._statistics.pass_costs = self.pacing.pass_costs(len(prompt.tokens))
        read_before = self._switch_memory(prompt, repeats=decoded.repeats)
        drafter = self._with_prediction(prompt, self._drafter(name))
        chunks = decode(self.context, drafter, decoded, self._statistics, on_prompt, pacer)
        chunks = prompt.read(self._steps(chunks, longest_pass), self._statistics)
        return self._answer(chunks, drafter, pacer, longest_pass, read_before)

    def rescore(
        self, prompt: Sequence[int], answer: Sequence[int], num_at_once: int
    ) -> Iterator[Logits]:
        """Evaluate an answer again from an empty memory, `num_at_once` tokens per pass.

        Yields the row of logits for each token, shape (vocabulary,), valid until the next one.
        """
        self.context.prefill([])
        self.context.prefill(prompt[:-1])
        given = [prompt[-1], *answer[:-1]]
        for start in range(0, len(given), num_at_once):
            part = given[start : start + num_at_once]
            yield from self.context.evaluate(part, len(part))

    def stop(self) -> None:
        """Stop the answer in progress."""
        self._abort.set()

    def prepare(
        self, on_progress: ProgressCallback | None = None, *, only_exactness: bool = False
    ) -> bool:
        """Measure what is not known of the pair, from this thread."""
        self._require_idle()
        self.pacing.follow_kernels()
        if self._exact_drafts.is_settled and (only_exactness or self.pacing.is_settled):
            return True
        self._abort.clear()
        self._is_busy = True
        self._waits.restore_threads()
        try:
            self._measure(stopping_report(on_progress), only_exactness=only_exactness)
        except (Cancelled, OutOfMemory):
            return False
        finally:
            self._is_busy = False
        return True

    def size(self, request: ChatRequest) -> PromptSize:
        """Return how much of the context a conversation would take."""
        self._require_idle()
        return self.prompts.size(request, self.parked.reachable)

    def tokenize(self, text: str, *, special: bool = True, begins: bool = True) -> list[int]:
        """Return the tokens of a text."""
        return self.model.vocabulary.tokenize(text, add_special=begins, parse_special=special)

    def detokenize(self, tokens: Sequence[int]) -> list[bytes]:
        """Return the text of each token."""
        return self.prompts.detokenize(tokens)

    def render(self, request: ChatRequest) -> list[int]:
        """Return the prompt of a conversation."""
        return self.prompts.render(request)

    def score(self, tokens: Sequence[int], count: int) -> list[tuple[Alternative, ...]]:
        """Return the likely tokens in the place of each of these."""
        self._require_idle()
        require_known(self.model.vocabulary, tokens)
        self._abort.clear()
        self.parked.switch(tokens[:1], dict(self._drafters))
        return scored(self.context, tokens, count)

    def keep(self, is_stopped: Callable[[], bool] = lambda: False) -> None:
        """Keep what was read on disk."""
        self._require_idle()
        self.parked.save(is_stopped)

    def forget(self) -> None:
        """Forget every text."""
        self._require_idle()
        self._pair.empty()
        self.parked.clear()
        self._read_texts.clear()
        self._close_drafters()

    def close(self) -> None:
        """Free the models and their memory; keep what was read on disk first, if asked for."""
        if not self._is_closed and not self._is_busy:
            self.keep()
        self._is_closed = True
        self._close_drafters()
        self.parked.clear()
        self._resources.close()

    def _switch_memory(self, prompt: Prompt, *, repeats: bool) -> ReadBefore:
        """Restore the memory that suits a prompt best, and set aside the present one.

        Returns what was read before of the prompt.
        """
        began = perf_counter()
        read = prompt.text[:-1]
        self._read_texts.add(self.context.tokens)
        num_known, num_moved = self._read_texts.compare(read)
        drafters = self.parked.switch(
            prompt.text, dict(self._drafters), is_unfinished=self._is_unfinished
        )
        if drafters is not None:
            self._drafters = dict(drafters)
        num_known = max(num_known, self.context.count_known(read))
        self._statistics.prompt_s = perf_counter() - began
        return ReadBefore(num_known, self.context.reachable(read), num_moved, repeats=repeats)

    def _protect_memory(self, prompt: Prompt, after_aside: Sequence[int]) -> None:
        """Save the state of the memory before an aside.

        Raises InvalidOption if the next prompt would share less with the memory after the aside.
        """
        kind = self.context.rollback_kind
        held = self.context.count_known(after_aside)
        is_forgetting = count_common(prompt.tokens, after_aside) < held or not kind.can_speculate
        if prompt.num_left_out or is_forgetting:
            raise InvalidOption("the model would have to read the conversation again after this")
        kind.keep(self.context.num_evaluated)

    def _describe(self, name: str, options: AnswerRequest, decoded: Request) -> None:
        """Record the drafter in the statistics, and why nothing better drafts."""
        self._statistics.drafter = name
        origins = drafter_registry.DRAFTERS[name].origins
        self._statistics.draft_length = options.draft_length if origins else 0
        if not origins:
            is_chosen = options.drafter == name
            reason = "switched off" if is_chosen else self.facts.speculation_off_reason
            self._statistics.speculation_off_reason = reason
        elif options.draft_length == 0:
            self._statistics.speculation_off_reason = "switched off: the draft length is 0"
        elif not decoded.draft_length:
            is_known = self.facts.repeatable_draft is not None
            self._statistics.speculation_off_reason = NO_EXACT_DRAFT if is_known else NOT_MEASURED
        if not drafter_registry.DRAFTERS[name].needs:
            self._statistics.draft_off_reason = (
                self.facts.draft_off_reason or f"the {self._draft_label} is switched off"
            )

    def _answer(
        self,
        chunks: Iterator[Chunk],
        drafter: Drafter,
        pacer: LearningPacer | None,
        longest_pass: int | None,
        read_before: ReadBefore,
    ) -> Generator[Update]:
        """Yield an answer step by step; meanwhile the engine is busy."""
        self._require_idle()
        self._is_busy = True
        uses_model = bool(drafter_registry.DRAFTERS[self._statistics.drafter].needs)
        draft = self._draft_context
        before = draft.prompt_seconds if draft else 0.0
        with self.context.exact_passes(longest_pass):
            try:
                self._waits.begin()
                for number, chunk in enumerate(chunks):
                    self._follow_others()
                    self._statistics.draft_prompt_s = (
                        draft.prompt_seconds - before if draft else 0.0
                    )
                    is_due = chunk.finish or chunk.proposed or number % REASON_INTERVAL == 0
                    if uses_model and is_due:
                        reason = pacer.why_not() if pacer else None
                        paused = f"the {self._draft_label} is paused: {reason}" if reason else None
                        self._statistics.draft_off_reason = (
                            getattr(drafter, "unfit_reason", None) or paused
                        )
                    if chunk.finish or not number:
                        self._statistics.read_again = read_before.read_again(self._statistics)
                    if chunk.finish:
                        self._is_unfinished = chunk.finish == "cancelled"
                        self._statistics.pass_costs = self.pacing.pass_costs(self.context.length)
                        self.pacing.save()
                    yield Update((chunk,), self._statistics, finish=chunk.finish)
                    self._require_open()
            finally:
                self._waits.close()
                self._is_busy = False

    def _follow_others(self) -> None:
        """Give way to other programs, and say so."""
        self._waits.follow()
        notice = self._waits.notice
        if notice and notice not in self._statistics.notices:
            self._statistics.notices += (notice,)

    def _measure(self, report: ProgressReport, *, only_exactness: bool) -> None:
        """Measure what is not known, in contexts that hold no text."""
        with self._pair.with_empty_memory(MEASURED_CONTEXT, self._abort) as pair:
            if not only_exactness:
                self.pacing.measure(pair, report)
                self._note_costs()
            if not self._exact_drafts.is_settled:
                self._exact_drafts.measure(
                    pair, partial(report, "comparing"), is_needed=only_exactness
                )
                self._apply_exactness()
                self.pacing.follow_kernels()
                if not only_exactness:
                    self.pacing.measure(pair, report)  # with other kernels, if these are in use now
            self._note_costs()
        report("measuring", 1.0)

    def _note_costs(self) -> None:
        self.facts = replace(self.facts, knows_costs=self.pacing.is_settled)

    def _apply_exactness(self) -> None:
        """Apply what is known about exact drafts to the pair and the facts."""
        self._close_drafters()  # what they are made from may change
        self.facts = self._exact_drafts.apply(self._pair, self._plain_facts)
        self._materials = self._make_materials(self._pair)

    @property
    def _limits(self) -> DraftLimits:
        return DraftLimits(self.facts, self._pair.loading.exact, self._pair.uses_gpus)

    @cached_property
    def _draft_label(self) -> str:
        return drafter_registry.origin(drafter_registry.pass_origin(self._materials.kind)).label

    def _drafter(self, name: str) -> Drafter:
        """Return the drafter of that name, which remembers the conversation."""
        if name not in self._drafters:
            self._drafters[name] = make_drafter(name, self._materials)
        return self._drafters[name]

    def _with_prediction(self, prompt: Prompt, drafter: Drafter) -> Drafter:
        """Return a drafter that first drafts the text that the request predicts, if there is one.

        Plain decoding stays plain.
        """
        if not prompt.predicted or self._statistics.speculation_off_reason:
            return drafter
        return PredictionDrafter(prompt.predicted, prompt.begun, drafter)

    def _close_drafters(self) -> None:
        while self._drafters:
            self._drafters.popitem()[1].close()

    def _request(self, prompt: Prompt, options: AnswerRequest, longest_pass: int | None) -> Request:
        return Request(
            tokens=prompt.tokens,
            sampling=options,
            noise=None if options.seed is None else Noise(options.seed),
            draft_length=self._limits.draft_length(options, longest_pass),
            max_tokens=options.max_tokens,
            end_tokens=prompt.end_tokens,
            stop_strings=prompt.stop_strings,
            piece=self.model.vocabulary.piece,
            is_cancelled=self._abort.is_set,
            num_shared=prompt.num_shared,
            state_step=self._state_step,
            begun=options.begun,
            replay=options.replay,
            num_alternatives=options.alternatives,
            constraint=prompt.constraint,
            longest_pass=longest_pass,
            repeats=longest_pass is not None and (options.seed is not None or options.is_exact),
            most_nodes=self._limits.most_nodes(options, longest_pass),
            if_too_long="shorten it" if self.context.is_longest else SHORTER_OR_LARGER,
        )

    def _steps(self, chunks: Iterator[Chunk], longest_pass: int | None) -> Iterator[Chunk]:
        """Yield an answer's chunks; each is decoded with the kernels that the answer needs."""
        while True:
            with self._kernels(longest_pass):
                chunk = next(chunks, None)
            if chunk is None:
                return
            yield chunk

    @staticmethod
    def _kernels(longest_pass: int | None) -> AbstractContextManager[None]:
        """Leave out inexact kernels for a while if the length of exact passes matters."""
        return nullcontext() if longest_pass is None else tinyblas.left_out(LONGEST_COMPARED)

    def _make_materials(self, pair: LoadedPair) -> Materials:
        contexts = filter(None, (self.context, self._draft_context))
        vocabularies = [context.model.vocabulary for context in contexts]
        tokens = TokenMap(min(vocabulary.size for vocabulary in vocabularies))
        if pair.files.common_vocabulary and self._draft_context:
            tokens = CommonTokenMap(pair.files.common_vocabulary, *vocabularies)
        return Materials(
            draft_model=None if self.facts.draft_off_reason else self._draft_context,
            tokens=tokens,
            end_tokens=self.model.vocabulary.end_tokens,
            kind=pair.draft_kind,
            drafts_blocks=bool(pair.files.kind and pair.files.kind.drafts_blocks),
            missing_reasons={
                "model": self.facts.draft_off_reason,
                "head": pair.files.no_head_reason or why_no_head(self.model.header),
            },
            no_rollback_reason=self.facts.speculation_off_reason,
        )


def _with_format(facts: EngineFacts, model: Model) -> EngineFacts:
    """Return facts that include how the model's chat template handles reasoning."""
    if model.header.chat_template is None:
        return facts
    form = chat_format(model)
    return replace(facts, thinking=form.thinking, keeps_reasoning=form.keeps_reasoning)
