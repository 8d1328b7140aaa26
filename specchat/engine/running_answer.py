"""An answer in progress: what decodes it, and the updates that its steps become."""

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass

from specchat import drafter_registry
from specchat.decoding.chunk import Chunk
from specchat.decoding.loop import Answer
from specchat.decoding.ports import Drafter, PromptProgress
from specchat.decoding.request import Request
from specchat.decoding.statistics import Statistics
from specchat.engine.pair_pacing import PairPacing
from specchat.engine.parked_memories import pays_to_copy
from specchat.engine.read_texts import ReadBefore
from specchat.engine.text_place import TextPlace
from specchat.llama.text_memory import count_common
from specchat.pacing.pacer import LearningPacer
from specchat.prompts.prompt import Prompt
from specchat.requests.answer_update import Update

REASON_INTERVAL = 8
"""While nothing is drafted, the reason is updated once in this many chunks; this also lets pacing
learn from plain passes before the answer ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningAnswer:
    """An answer in the place of its text, ready to be decoded.

    `draft_label` names the draft where it is paused. Passes have up to `longest_pass` tokens if the
    answer must repeat or be exact. `read_before` says what was read before of its prompt.
    """

    place: TextPlace
    prompt: Prompt
    request: Request
    drafter: Drafter
    pacer: LearningPacer | None
    longest_pass: int | None
    statistics: Statistics
    read_before: ReadBefore
    draft_label: str
    on_prompt: PromptProgress
    share: Callable[[], object]
    """Takes the beginning of the prompt from another place, if that saves reading it."""
    draft_prompt_before: float
    """The seconds that the draft had spent on prompts before this one."""
    images_before: float
    """The same for encoding images."""

    def decoding(self) -> Answer:
        """Return what decodes it. Raises ContextFull."""
        answer = Answer(
            self.place.context,
            self.drafter,
            self.request,
            self.statistics,
            self.on_prompt,
            self.pacer,
        )
        answer.before_reading = self.share
        return answer

    def would_share(self, other: "RunningAnswer", places: Sequence[int]) -> int:
        """Return how much of the prompt can be copied from another answer that reads it first.

        The other one pauses at `places` of its prompt, where states are saved. Returns 0 if waiting
        for that does not pay.
        """
        context, own, others = self.place.context, self.prompt.text[:-1], other.prompt.text[:-1]
        kind, stops = context.rollback_kind, [*places, len(others)]
        num_common = count_common(own, others)
        if self.longest_pass:  # what keeps its bits comes from whole passes only
            if not (other.longest_pass and kind.restores_bits):
                return 0
            size = context.native.chunk
            num_common = min(num_common, next((stop for stop in stops if stop % size), num_common))
            num_common -= num_common % size
        if not kind.removes_any_tail:
            num_common = max((stop for stop in stops if stop <= num_common), default=0)
        # what is copied is all that the other one has by then: up to the end of its pass
        stop = next((stop for stop in stops if stop >= num_common), num_common)
        num_copied = min(stop, num_common + context.native.chunk - 1)
        num_copied = max(num_copied, other.place.context.reachable(others))
        is_worth_it = pays_to_copy(context, num_common - context.reachable(own), num_copied)
        return num_common if is_worth_it else 0

    def updates(self, chunks: Iterator[Chunk], pacing: PairPacing) -> Generator[Update]:
        """Yield an update for each chunk that decoding gives."""
        statistics, draft = self.statistics, self.place.draft
        uses_model = bool(drafter_registry.DRAFTERS[statistics.drafter].needs)
        before = self.draft_prompt_before
        for number, chunk in enumerate(self.prompt.read(chunks, statistics)):
            statistics.draft_prompt_s = draft.prompt_seconds - before if draft else 0.0
            statistics.image_s = self.place.image_seconds - self.images_before
            is_due = chunk.finish or chunk.proposed or number % REASON_INTERVAL == 0
            if uses_model and is_due:
                reason = self.pacer.why_not() if self.pacer else None
                paused = f"the {self.draft_label} is paused: {reason}" if reason else None
                unfit: str | None = getattr(self.drafter, "unfit_reason", None)
                statistics.draft_off_reason = unfit or paused
            if uses_model and self.pacer and (chunk.finish or number % REASON_INTERVAL == 0):
                statistics.short_drafts_reason = self.pacer.why_short()
            if chunk.finish or not number:
                statistics.read_again = self.read_before.read_again(statistics)
            if chunk.finish:
                self.place.is_unfinished = chunk.finish == "cancelled"
                statistics.pass_costs = pacing.pass_costs(self.place.context.length)
                pacing.save()
            yield Update((chunk,), statistics, finish=chunk.finish)
