"""The engine in this process."""

import math
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Any, TypeVar

from specchat.decoding.chunk import Alternative, Chunk
from specchat.decoding.distribution import Logits
from specchat.decoding.joint_loop import decode_together
from specchat.decoding.loop import Answer
from specchat.decoding.statistics import Statistics
from specchat.drafting.factory import Materials
from specchat.drafting.token_map import CommonTokenMap, TokenMap
from specchat.engine.answer_starts import AnswerStarts, Known, kernels_for
from specchat.engine.api import Engine, EngineFacts, Loading
from specchat.engine.exact_drafts import ExactDrafts
from specchat.engine.loaded_pair import LoadedPair
from specchat.engine.loader import load_pair
from specchat.engine.pair_pacing import ALONE, PairPacing
from specchat.engine.parked_memories import ParkedMemories
from specchat.engine.prompt_scores import scores
from specchat.engine.running_answer import RunningAnswer
from specchat.engine.text_place import TextPlace
from specchat.errors import Cancelled, NotNumbers, OutOfMemory, SpecchatError
from specchat.gguf.draft_kinds import why_no_head
from specchat.images.image import Image
from specchat.llama.joint_passes import JointPasses
from specchat.llama.library import STOPPED, AbortFlag
from specchat.llama.model import Model
from specchat.llama.text_memory import TextMemory
from specchat.llama.thread_waits import ThreadWaits
from specchat.passes.exact_passes import DEPTHS, LONGEST_COMPARED
from specchat.planning.host_resources import available_bytes
from specchat.planning.text_copies import MIB, room_for_copies
from specchat.prompts.chat_text import chat_format
from specchat.prompts.image_parts import image_tokens
from specchat.prompts.preparing import Preparation, require_known
from specchat.prompts.prompt_room import too_long
from specchat.requests.answer_request import AnswerRequest, ChatRequest
from specchat.requests.answer_update import Update
from specchat.requests.progress import ProgressCallback, ProgressReport, stopping_report
from specchat.requests.prompt_size import PromptSize
from specchat.workers.worker_watch import LostCallback, end_process

MEASURED_CONTEXT = DEPTHS[-1] + 2 * LONGEST_COMPARED
"""The size of a context to measure in, where the pair's own holds a text."""

Step = TypeVar("Step")
END: Any = object()


class LocalEngine(Engine):
    """A pair loaded into this process, which answers from one thread."""

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
        self._abort = AbortFlag()
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
            texts = [(pair.context, pair.draft_context), *pair.beside]
            self._places = [TextPlace(number, *each) for number, each in enumerate(texts)]
            self._spoiled: list[TextPlace] = []
            limit = room_for_copies(loading.cache_ram, available_bytes() or 0)
            self.parked = ParkedMemories(pair, self._places, limit, (loading.cache_disk or 0) * MIB)
            facts = _with_format(pair.facts, self.model)
            self._plain_facts = replace(facts, takes_turns=self.parked.takes_turns)
            self._exact_drafts = ExactDrafts(pair)
            self._apply_exactness()
            self.pacing = PairPacing(pair)
            self._note_costs()
            self._joint = JointPasses(
                [place.context for place in self._places],
                self.pacing.seconds,
                self.pacing.seconds_apart,
            )
            self._starts = AnswerStarts(
                pair, self.prompts, self.parked, self.pacing, self._abort, self._follow_others
            )
            use_threads = pair.use_threads if pair.may_change_threads else None
            self._waits = ThreadWaits(pair.num_threads, use_threads)
            stack.callback(self._waits.close)
            self._resources = stack.pop_all()

    def begin(self, request: AnswerRequest) -> Generator[Update]:
        """Prepare an answer; later stops apply to it."""
        self._require_idle()
        answer = self._started(request, self._places, ())
        return self._decoded(answer)

    def begin_together(self, requests: Sequence[AnswerRequest]) -> Generator[tuple[int, Update]]:
        """Prepare answers whose passes are made together; stops apply to all of them."""
        self._require_idle()
        company = sorted(request.part_of for request in requests)
        free, answers = list(self._places), dict[int, RunningAnswer]()
        failed: dict[int, SpecchatError] = {}
        begun_first = sorted(range(len(requests)), key=lambda number: not requests[number].begun)
        for number in begun_first:  # what is in memory of them must not go for a new one
            request = requests[number]
            try:
                taken = [answer.place for answer in answers.values()]
                answers[number] = self._started(request, free, taken, company)
            except SpecchatError as error:
                failed[number] = error
            else:
                free.remove(answers[number].place)
        return self._decoded_together(answers, failed)

    def _started(
        self,
        request: AnswerRequest,
        free: Sequence[TextPlace],
        taken: Sequence[TextPlace],
        company: Sequence[int] = ALONE,
    ) -> RunningAnswer:
        known = Known(self.facts, self._materials, may_draft=not self._exact_drafts.is_awaited)
        return self._starts.started(request, free, known, taken, company)

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

    def pause(self) -> None:
        """Stop the answers in progress, after the pass where its end would be hard to undo."""
        if self.context.rollback_kind.removes_any_tail:
            self._abort.set()
        else:
            self._abort.ask()

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

    def image_tokens(self, image: Image) -> list[int]:
        """Return an image as tokens."""
        return image_tokens(self.model, image).tokens

    def score(
        self,
        tokens: Sequence[int],
        count: int,
        *,
        first: int = 0,
        seconds: float = math.inf,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> list[tuple[Alternative, ...]]:
        """Return the likely tokens in the place of each of these, or of some from `first` on."""
        self._require_idle()
        require_known(self.model.vocabulary, tokens, "tokens")
        if len(tokens) > self.context.capacity:
            raise too_long(len(tokens), self.context.capacity)
        self._abort.clear()
        found: list[tuple[Alternative, ...]] = [()] if tokens and not first else []
        with self._busy(()):
            if is_stopped():
                raise Cancelled(STOPPED)
            began, num_read = monotonic(), max(0, first - 1)
            self.parked.switch(self._places[0], tokens[: max(1, num_read)])
            self.context.prefill(tokens[:num_read])
            ends_at = monotonic() + max(seconds, monotonic() - began)
            for part in scores(self.context, tokens, count):
                found += part
                if is_stopped():
                    raise Cancelled(STOPPED)
                if monotonic() >= ends_at:
                    break
                self._waits.follow()
        return found

    def keep(self, is_stopped: Callable[[], bool] = lambda: False) -> None:
        """Keep what was read on disk."""
        self._require_idle()
        self.parked.save(is_stopped)

    def forget(self) -> None:
        """Forget every text."""
        self._require_idle()
        self._pair.empty()
        self.parked.clear()
        self._starts.read_texts.clear()
        self._close_drafters()

    def close(self) -> None:
        """Free the models and their memory; keep what was read on disk first, if asked for."""
        if not self._is_closed and not self._is_busy:
            self.keep()
        self._is_closed = True
        self._close_drafters()
        self.parked.clear()
        self._resources.close()

    def _decoded(self, answer: RunningAnswer) -> Generator[Update]:
        """Yield an answer step by step; meanwhile the engine is busy."""
        with self._busy([answer]):
            steps = self._steps(answer.decoding().steps(), answer.longest_pass)
            chunks = (event for event in steps if isinstance(event, Chunk))
            for update in answer.updates(chunks, self.pacing):
                self._follow_others(update.statistics)
                yield update
                self._require_open()

    def _decoded_together(
        self, answers: Mapping[int, RunningAnswer], failed: Mapping[int, SpecchatError]
    ) -> Generator[tuple[int, Update]]:
        """Yield answers step by step, each with its number; meanwhile the engine is busy."""
        decodings, errors = dict[int, Answer](), dict(failed)
        in_places = sorted(answers.items(), key=lambda pair: pair[1].place.number)
        for number, answer in in_places:
            try:
                decodings[number] = answer.decoding()
            except SpecchatError as error:
                errors[number] = error
        for number, failure in errors.items():
            yield number, Update(error=failure)
        numbers, running = list(decodings), [answers[number] for number in decodings]
        _await_beginnings(running, list(decodings.values()))
        with self._busy(running):
            given = [deque[Chunk]() for _ in running]
            updates = [
                answer.updates(iter(chunks.popleft, None), self.pacing)
                for answer, chunks in zip(running, given, strict=True)
            ]
            longest = min(
                (each.longest_pass for each in running if each.longest_pass), default=None
            )
            outcomes = decode_together(list(decodings.values()), self._joint)
            for place, outcome in self._steps(outcomes, longest):
                if isinstance(outcome, Chunk):
                    given[place].append(outcome)
                    update = next(updates[place])
                elif outcome is None:
                    update = Update(statistics=running[place].statistics)
                else:
                    update = Update(statistics=running[place].statistics, error=outcome)
                    if isinstance(outcome, NotNumbers):
                        self._spoiled.append(running[place].place)
                self._follow_others(update.statistics)
                yield numbers[place], update
                self._require_open()

    @contextmanager
    def _busy(self, answers: Sequence[RunningAnswer]) -> Iterator[None]:
        """Have the engine busy with answers, whose passes keep to what they may be."""
        self._require_idle()
        self._is_busy = True
        with ExitStack() as stack:
            for answer in answers:
                stack.enter_context(answer.place.context.exact_passes(answer.longest_pass))
            try:
                self._waits.begin()
                yield
            except NotNumbers:
                self._spoiled += [answer.place for answer in answers] or self._places[:1]
                raise
            finally:
                self._waits.close()
                self._is_busy = False
                self._forget_spoiled()

    def _forget_spoiled(self) -> None:
        """Forget the texts whose memory gave NaN, so that others do not read it.

        Copies may hold it, too: of a text that was stopped before it could give any.
        """
        spoiled, self._spoiled = self._spoiled, []
        if spoiled and not self._is_closed:
            self._pair.clear([each.context for each in self._places if each not in spoiled])
            self.parked.clear()
            for place in spoiled:
                place.close_drafters()

    def _follow_others(self, statistics: Statistics) -> None:
        """Give way to other programs, and say so."""
        self._waits.follow()
        notice = self._waits.notice
        if notice and notice not in statistics.notices:
            statistics.notices += (notice,)

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
                self._note_costs()
                if not only_exactness:
                    self.pacing.measure(pair, report)  # with other kernels, if these are in use now
            self._note_costs()
        report("measuring", 1.0)

    def _note_costs(self) -> None:
        at_once = self.pacing.best_at_once(len(self._places))
        self.facts = replace(self.facts, knows_costs=self.pacing.is_settled, at_once=at_once)

    def _apply_exactness(self) -> None:
        """Apply what is known about exact drafts to the pair and the facts."""
        self._close_drafters()  # what they are made from may change
        self.facts = self._exact_drafts.apply(self._pair, self._plain_facts)
        self._materials = self._make_materials(self._pair)
        for place in self._places:
            model = self._materials.draft_model and place.draft
            place.materials = replace(self._materials, draft_model=model)

    def _close_drafters(self) -> None:
        for place in self._places:
            place.close_drafters()

    def _steps(self, steps: Iterator[Step], longest_pass: int | None) -> Iterator[Step]:
        """Yield what decoding gives; each is decoded with the kernels that the answers need."""
        if longest_pass is None:
            yield from steps
            return
        while True:
            with kernels_for(longest_pass):
                step = next(steps, END)
            if step is END:
                return
            yield step

    def _make_materials(self, pair: LoadedPair) -> Materials:
        contexts = filter(None, (self.context, self._draft_context))
        vocabularies = [context.model.vocabulary for context in contexts]
        # a head reads the target's states of images
        is_head = bool(pair.files.kind and pair.files.kind.is_head)
        size = min(vocabulary.size for vocabulary in vocabularies)
        tokens = TokenMap(size, keeps_images=is_head, cells_for=pair.draft_cells)
        if common := pair.files.common_vocabulary if self._draft_context else None:
            tokens = CommonTokenMap(common, *vocabularies, cells_for=pair.draft_cells)
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


def _await_beginnings(answers: Sequence[RunningAnswer], decodings: Sequence[Answer]) -> None:
    """Let each answer wait while one before it reads the beginning of its prompt, too."""
    stops = [decoding.places_to_stop for decoding in decodings]
    for place, answer in enumerate(answers):
        before = enumerate(zip(answers[:place], stops, strict=False))
        shared = [(answer.would_share(*each), number) for number, each in before]
        num_shared, number = max(shared, default=(0, 0))
        if num_shared:
            reads = answers[number].place.context, decodings[number], num_shared
            decodings[place].awaits = partial(_is_about_to_read, *reads)


def _is_about_to_read(context: TextMemory, answer: Answer, num_tokens: int) -> bool:
    return answer.is_reading and context.num_evaluated < num_tokens


def _with_format(facts: EngineFacts, model: Model) -> EngineFacts:
    """Return facts that include how the model's chat template handles reasoning."""
    if model.header.chat_template is None:
        return facts
    form = chat_format(model)
    return replace(facts, thinking=form.thinking, keeps_reasoning=form.keeps_reasoning)
