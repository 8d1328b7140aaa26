"""Several answers at once, whose passes are made together.

Every answer that writes takes part in each pass, with its own draft. Prompts are read between such
passes, one short pass of one prompt at a time, so a long one delays the others by that.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol, TypeAlias, cast

from specchat.decoding.chunk import Chunk
from specchat.decoding.draft_passes import PassResult, TargetPass
from specchat.decoding.loop import Answer, Steps
from specchat.decoding.ports import Rows
from specchat.errors import Cancelled, SpecchatError

Outcome: TypeAlias = tuple[int, Chunk | SpecchatError | None]
"""The number of an answer, and a chunk of it or the error that it has failed with. None comes
before a part of its prompt is read: what the others have said should not wait for that."""


class SharedPasses(Protocol):
    """What makes the passes of several answers as one, of up to `most_rows` tokens in all."""

    most_rows: int

    def may_join(self, passes: Sequence[TargetPass]) -> bool:
        """Whether passes, in the order of their answers, can be made as one."""

    def run(self, passes: Sequence[TargetPass]) -> Sequence[Rows]:
        """Return the rows of each. Raises as a model does; the memories are then as they were."""

    def seconds_apart(self, wanted: TargetPass) -> float:
        """Return what a pass would take by itself, 0 if that is not known."""

    def settle(self) -> None:
        """Called once what a pass has given is used."""


def decode_together(answers: Sequence[Answer], passes: SharedPasses) -> Iterator[Outcome]:
    """Decode answers until all have ended, yielding the chunks of each as they come.

    An answer that fails ends alone. Whenever something is yielded, the memory of each answer holds
    what `decode` promises.
    """
    with ExitStack() as stack:
        running = [
            _Running(number, answer, stack.enter_context(closing(answer.steps())))
            for number, answer in enumerate(answers)
        ]
        for each in running:
            each.is_writing = each.answer.has_begun
        yield from _Joint(running, passes).outcomes()


@dataclass(slots=True, eq=False)
class _Running:
    """An answer in progress: the pass that it wants, unless it reads its prompt.

    It `is_writing` from its first pass on, in an earlier turn perhaps.
    """

    number: int
    answer: Answer
    steps: Steps
    wanted: TargetPass | None = None
    is_writing: bool = False


class _Joint:
    """Answers in progress, whose passes are made together."""

    def __init__(self, running: list[_Running], passes: SharedPasses) -> None:
        self._running, self._passes = running, passes

    def outcomes(self) -> Iterator[Outcome]:
        for each in list(self._running):
            yield from self._advance(each)  # to its first pass, or into its prompt
        while self._running:
            reading = [each for each in self._running if each.wanted is None]
            if reading:
                ready = [each for each in reading if not each.answer.awaits()] or reading
                least = min(ready, key=lambda each: each.answer.prompt_s)
                yield least.number, None
                yield from self._advance(least)
            for group in self._groups():
                try:
                    concluded = self._concluded(group)
                finally:
                    self._passes.settle()  # else the padding stays in the others' texts
                for each, outcome in concluded:
                    yield each.number, outcome
                    yield from self._advance(each)

    def _groups(self) -> Iterator[list[_Running]]:
        """Yield answers whose passes can be made as one: no larger than is exact for each."""
        left = [each for each in self._running if each.wanted]
        while left:
            group, most, longest = list[_Running](), self._passes.most_rows, 0
            for each in left:
                own = each.answer.longest_pass or most
                count = each.wanted.num_tokens if each.wanted else 0
                longest = max(longest, count)
                is_too_long = (len(group) + 1) * longest > min(most, own)
                if group and (is_too_long or not self._passes.may_join(_wanted([*group, each]))):
                    break
                most = min(most, own)
                group.append(each)
            left = left[len(group) :]
            yield group

    def _concluded(self, group: list[_Running]) -> list[tuple[_Running, Chunk | SpecchatError]]:
        """Make the passes of a group as one, and return the steps that they end.

        If it fails, each pass is made by itself, so that only those fail that have to.
        """
        wanted = _wanted(group)
        results = list[PassResult | None]([None] * len(group))
        error: Cancelled | None = None
        if len(group) > 1:
            # before the pass, which leaves nothing to be read again
            apart = list(map(self._passes.seconds_apart, wanted))
            drafting = sum(each.num_rows > 1 for each in wanted)
            longest = max(each.num_tokens for each in wanted)
            began = perf_counter()
            try:
                rows = self._passes.run(wanted)
            except Cancelled as raised:
                error = raised
            except SpecchatError:
                pass
            else:
                seconds = perf_counter() - began
                results = [
                    PassResult(own, seconds, len(group), each, drafting, longest)
                    for own, each in zip(rows, apart, strict=True)
                ]
        concluded: list[tuple[_Running, Chunk | SpecchatError]] = []
        for each, result in zip(group, results, strict=True):
            each.wanted = None
            try:
                event = each.steps.throw(error) if error else each.steps.send(result)
            except SpecchatError as raised:
                self._running.remove(each)
                concluded.append((each, raised))
            else:
                concluded.append((each, cast(Chunk, event)))  # a step ends with one
        return concluded

    def _advance(self, each: _Running) -> Iterator[Outcome]:
        """Go on with an answer until it wants a pass, pauses in its prompt, or ends."""
        if each not in self._running:
            return
        others = sum(other.is_writing for other in self._running if other is not each)
        each.answer.num_sharing = 1 + others
        while True:
            before = each.answer.prompt_s
            try:
                event = next(each.steps)
            except StopIteration:
                self._running.remove(each)
                return
            except SpecchatError as raised:
                self._running.remove(each)
                yield each.number, raised
                return
            finally:
                for other in self._running:  # those that write have waited for a part of its prompt
                    if other.wanted:
                        other.answer.waited_s += each.answer.prompt_s - before
            if isinstance(event, Chunk):
                yield each.number, event
            else:
                each.wanted = event
                each.is_writing = event is not None
                return


def _wanted(group: Sequence[_Running]) -> list[TargetPass]:
    return [each.wanted for each in group if each.wanted]
