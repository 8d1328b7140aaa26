"""From a request to an answer that is ready to be decoded, in the place of its text."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from time import perf_counter
from typing import NamedTuple

from specchat import drafter_registry
from specchat.decoding.noise import Noise
from specchat.decoding.ports import Drafter
from specchat.decoding.request import SHORTER_OR_LARGER, Request
from specchat.decoding.statistics import Statistics
from specchat.drafting.factory import Materials, choose_drafter
from specchat.drafting.prediction import PredictionDrafter
from specchat.engine.api import EngineFacts
from specchat.engine.draft_limits import DraftLimits
from specchat.engine.exact_drafts import NOT_MEASURED
from specchat.engine.loaded_pair import LoadedPair
from specchat.engine.pair_pacing import PairPacing
from specchat.engine.parked_memories import ParkedMemories
from specchat.engine.read_texts import ReadBefore, ReadTexts
from specchat.engine.running_answer import RunningAnswer
from specchat.engine.text_place import TextPlace
from specchat.errors import InvalidOption
from specchat.llama import tinyblas
from specchat.llama.library import AbortFlag
from specchat.llama.text_memory import count_common
from specchat.passes.exact_passes import LONGEST_COMPARED
from specchat.planning.text_copies import step_between_states
from specchat.prompts.preparing import Preparation
from specchat.prompts.prompt import Prompt
from specchat.requests.answer_request import AnswerRequest

NO_EXACT_DRAFT = (
    "the answer must be exact, and no draft is as the pair is loaded: `--exact on` may allow some"
)


class Known(NamedTuple):
    """What is known of a pair by now; with `may_draft` false nothing may be drafted yet."""

    facts: EngineFacts
    materials: Materials
    may_draft: bool


class AnswerStarts:
    """Starts answers: finds the drafter, the limits of its drafts, and the memory for the text."""

    def __init__(
        self,
        pair: LoadedPair,
        prompts: Preparation,
        parked: ParkedMemories,
        pacing: PairPacing,
        abort: AbortFlag,
        follow: Callable[[Statistics], None],
    ) -> None:
        """Start answers of a pair; `follow` is called with their statistics as prompts are read."""
        self._pair, self._prompts, self._parked, self._pacing = pair, prompts, parked, pacing
        self._abort, self._follow = abort, follow
        self.read_texts = ReadTexts()
        size = pair.context.model.sizes.state(pair.context.shape)
        drops_any_tail = pair.context.rollback_kind.removes_any_tail
        step = step_between_states(size, is_on_gpu=pair.uses_gpus)
        self._state_step = 0 if drops_any_tail else step

    def started(
        self,
        request: AnswerRequest,
        free: Sequence[TextPlace],
        known: Known,
        taken: Sequence[TextPlace],
        company: Sequence[int],
    ) -> RunningAnswer:
        """Return the answer to a request in one of the free places: that with most of its prompt.

        It shares its passes with a `company` of answers, some of them in the places `taken`. Raises
        InvalidOption and ContextFull.
        """
        prompt = self._prompts.prepare(request)
        place = _best_place(free, taken, prompt.text)
        if prompt.after_aside is not None:
            _protect_memory(place, prompt, prompt.after_aside)
        self._abort.clear()
        facts, pair = known.facts, self._pair
        limits = DraftLimits(facts, pair.loading.exact, pair.uses_gpus)
        name = choose_drafter(request.drafter, known.materials)
        name = name if known.may_draft else drafter_registry.PLAIN
        longest_pass = limits.longest_pass(name, request)
        of_images = {image.notice for image in prompt.images} - {""}
        notices = (*prompt.notices, *of_images, *limits.tree_notices(request, longest_pass))
        image_tokens = sum(token < 0 for token in prompt.tokens) if prompt.images else 0
        statistics = Statistics(
            left_out=prompt.num_left_out, notices=notices, image_tokens=image_tokens
        )

        def on_prompt(done: int, total: int) -> None:
            self._follow(statistics)
            if request.on_progress:
                request.on_progress("prompt", done / max(1, total))

        with kernels_for(longest_pass):
            self._pacing.follow_kernels()
        is_replay = request.replay is not None
        pacer = self._pacing.pacer(name, request, place.number, company, is_replay=is_replay)
        decoded = self._request(prompt, request, limits, longest_pass)
        label = drafter_registry.origin(drafter_registry.pass_origin(known.materials.kind)).label
        _describe(statistics, name, request, decoded, facts, label)
        statistics.pass_costs = self._pacing.pass_costs(len(prompt.tokens))
        keeps_bits = longest_pass is not None
        read_before = self._switch_memory(place, prompt, statistics, decoded)
        return RunningAnswer(
            place=place,
            prompt=prompt,
            request=decoded,
            drafter=_with_prediction(prompt, place.drafter(name), statistics),
            pacer=pacer,
            longest_pass=longest_pass,
            statistics=statistics,
            read_before=read_before,
            draft_label=label,
            on_prompt=on_prompt,
            share=partial(self._parked.share, place, prompt.text, repeats=keeps_bits),
            draft_prompt_before=place.draft.prompt_seconds if place.draft else 0.0,
            images_before=place.image_seconds,
        )

    def _switch_memory(
        self,
        place: TextPlace,
        prompt: Prompt,
        statistics: Statistics,
        decoded: Request,
    ) -> ReadBefore:
        """Restore the memory that suits a prompt best, and set aside the present one of its place.

        Returns what was read before of the prompt.
        """
        began, context = perf_counter(), place.context
        read = prompt.text[:-1]
        self.read_texts.add(context.tokens)
        num_known, num_moved = self.read_texts.compare(read)
        self._parked.switch(place, prompt.text, repeats=decoded.longest_pass is not None)
        num_known = max(num_known, context.count_known(read))
        statistics.prompt_s = perf_counter() - began
        num_kept = context.reachable(read)
        return ReadBefore(num_known, num_kept, num_moved, repeats=decoded.repeats)

    def _request(
        self,
        prompt: Prompt,
        options: AnswerRequest,
        limits: DraftLimits,
        longest_pass: int | None,
    ) -> Request:
        return Request(
            tokens=prompt.tokens,
            sampling=options,
            noise=None if options.seed is None else Noise(options.seed),
            draft_length=limits.draft_length(options, longest_pass),
            max_tokens=options.max_tokens,
            end_tokens=prompt.end_tokens,
            stop_strings=prompt.stop_strings,
            piece=self._pair.context.model.vocabulary.piece,
            is_cancelled=self._abort.is_set,
            num_shared=prompt.num_shared,
            state_step=self._state_step,
            begun=options.begun,
            replay=options.replay,
            num_alternatives=options.alternatives,
            constraint=prompt.constraint,
            longest_pass=longest_pass,
            repeats=longest_pass is not None and (options.seed is not None or options.is_exact),
            most_nodes=limits.most_nodes(options, longest_pass),
            if_too_long="shorten it" if self._pair.context.is_longest else SHORTER_OR_LARGER,
        )


def _best_place(
    free: Sequence[TextPlace], taken: Sequence[TextPlace], text: Sequence[int]
) -> TextPlace:
    """Return the place that saves reading most of a text, if that is more than is lost with it.

    Else it is one next to those taken, as llama.cpp divides a pass where places between are left
    out, and of these the one that has not been used for longest.
    """

    def saved(place: TextPlace) -> int:
        num_kept = place.context.reachable(text)
        return num_kept - (place.context.num_evaluated - num_kept)

    best = max(free, key=saved)
    if saved(best) > 0:
        return best

    def distance(place: TextPlace) -> int:
        return min((abs(place.number - other.number) for other in taken), default=0)

    return min(free, key=lambda place: (place.is_unfinished, distance(place), place.used))


def kernels_for(longest_pass: int | None) -> AbstractContextManager[None]:
    """Leave out inexact kernels for a while if the length of exact passes matters."""
    return nullcontext() if longest_pass is None else tinyblas.left_out(LONGEST_COMPARED)


def _describe(
    statistics: Statistics,
    name: str,
    options: AnswerRequest,
    decoded: Request,
    facts: EngineFacts,
    draft_label: str,
) -> None:
    """Record the drafter in the statistics, and why nothing better drafts."""
    statistics.drafter = name
    origins = drafter_registry.DRAFTERS[name].origins
    statistics.draft_length = options.draft_length if origins else 0
    if not origins:
        is_chosen = options.drafter == name
        reason = "switched off" if is_chosen else facts.speculation_off_reason
        statistics.speculation_off_reason = reason
    elif options.draft_length == 0:
        statistics.speculation_off_reason = "switched off: the draft length is 0"
    elif not decoded.draft_length:
        is_known = facts.repeatable_draft is not None
        statistics.speculation_off_reason = NO_EXACT_DRAFT if is_known else NOT_MEASURED
    if not drafter_registry.DRAFTERS[name].needs:
        statistics.draft_off_reason = facts.draft_off_reason or f"the {draft_label} is switched off"


def _protect_memory(place: TextPlace, prompt: Prompt, after_aside: Sequence[int]) -> None:
    """Save the state of the memory before an aside.

    Raises InvalidOption if the next prompt would share less with the memory after the aside.
    """
    context = place.context
    kind = context.rollback_kind
    held = context.count_known(after_aside)
    is_forgetting = count_common(prompt.tokens, after_aside) < held or not kind.can_speculate
    if prompt.num_left_out or is_forgetting:
        raise InvalidOption("the model would have to read the conversation again after this")
    kind.keep(context.num_evaluated)


def _with_prediction(prompt: Prompt, drafter: Drafter, statistics: Statistics) -> Drafter:
    """Return a drafter that first drafts the text that the request predicts, if there is one.

    Plain decoding stays plain.
    """
    if not prompt.predicted or statistics.speculation_off_reason:
        return drafter
    return PredictionDrafter(prompt.predicted, prompt.begun, drafter)
