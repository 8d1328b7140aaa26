"""Answers whose passes are made together are, token by token, those that they would be alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import pytest

from decoding.toy_answers import GREEDY, WHOLE, ToyPair, tokens_of
from specchat.decoding import joint_loop, loop
from specchat.decoding import statistics as decoding_statistics
from specchat.decoding.chunk import Chunk
from specchat.decoding.draft_passes import TargetPass
from specchat.decoding.fixed_pacer import FixedPacer
from specchat.decoding.joint_loop import decode_together
from specchat.decoding.loop import Answer
from specchat.decoding.noise import Noise
from specchat.decoding.ports import Rows
from specchat.decoding.request import Request
from specchat.decoding.statistics import Statistics
from specchat.drafting.draft_model import DraftModelDrafter
from specchat.drafting.token_map import TokenMap
from specchat.errors import Cancelled, EngineFailed, SpecchatError
from specchat.options.declarations import Sampling
from specchat.testing.toy import ToyLanguageModel, random_logits

VOCABULARY = 12


@dataclass
class Passes:
    """Makes passes of toys as one, notes them, and fails or stops when asked to."""

    most_rows: int = 1000
    made: list[list[int]] = field(default_factory=list)
    num_settled: int = 0
    before: Callable[[Sequence[TargetPass]], None] = lambda _: None
    may_differ: bool = True

    def may_join(self, passes: Sequence[TargetPass]) -> bool:
        """Whether they are equally long, unless any may join."""
        return self.may_differ or len({each.num_tokens for each in passes}) == 1

    def run(self, passes: Sequence[TargetPass]) -> list[Rows]:
        """Make the passes."""
        self.before(passes)
        assert self.may_join(passes)
        counts = [each.num_tokens for each in passes]
        assert len(counts) * max(counts) <= self.most_rows
        self.made.append(counts)
        lengths = [each.target.length for each in passes]
        try:
            return [each.target.evaluate(each.tokens, each.num_rows) for each in passes]
        except SpecchatError:
            for each, length in zip(passes, lengths, strict=True):
                each.target.rollback(length)
            raise

    def seconds_apart(self, wanted: TargetPass) -> float:
        """Count a second for each token."""
        return float(wanted.num_tokens)

    def settle(self) -> None:
        """Count."""
        self.num_settled += 1


class PausingToy(ToyLanguageModel):
    """A toy that reads its prompt three tokens at a time, and notes whether it was to be brief."""

    def reading(self, tokens: Sequence[int], on_progress: Any, is_brief: Callable[[], bool]) -> Any:
        """Pause after each pass."""
        num_cached = self.count_known(tokens)
        self.brief: list[bool] = []
        for end in range(num_cached + 3, len(tokens), 3):
            self.brief.append(is_brief())
            self.prefill(tokens[:end])
            yield
        self.prefill(tokens, on_progress)
        return num_cached


def brief_passes(pair: ToyPair) -> list[bool]:
    """Return whether each pass over its prompt was to be brief."""
    assert isinstance(pair.target, PausingToy)
    return pair.target.brief


def pair_of(number: int) -> ToyPair:
    """Return a toy pair of its own text; every third one has no draft."""
    draft = None if number % 3 == 2 else random_logits(VOCABULARY, 100 + number // 2)
    pair = ToyPair(random_logits(VOCABULARY, 100 + number), draft, vocabulary=VOCABULARY)
    pair.target = PausingToy(random_logits(VOCABULARY, 100 + number))
    return pair


def request(number: int, sampling: Sampling, **options: Any) -> Request:
    """Return the request of a number, always the same."""
    prompt = np.random.default_rng(number).integers(0, VOCABULARY, 2 + 5 * number).tolist()
    given: dict[str, Any] = {"max_tokens": 20 + number, "draft_length": number % 4}
    given |= {"tokens": prompt, "noise": Noise(number)}
    generator = np.random.default_rng(number)
    return Request(sampling=sampling, random=generator.random, **given | options)


def answer_of(pair: ToyPair, asked: Request) -> Answer:
    """Return an answer that has not begun."""
    return Answer(pair.target, pair.drafter, asked, pair.statistics)


def alone(number: int, sampling: Sampling, **options: Any) -> list[Chunk]:
    """Return the chunks of an answer by itself."""
    steps = answer_of(pair_of(number), request(number, sampling, **options)).steps()
    return [event for event in steps if isinstance(event, Chunk)]


def together(
    numbers: Sequence[int], sampling: Sampling, passes: Passes, **options: Any
) -> dict[int, list[Chunk | SpecchatError]]:
    """Return what comes of each answer, by its number."""
    pairs = [pair_of(number) for number in numbers]
    asked = [request(number, sampling, **options) for number in numbers]
    answers = [answer_of(pair, each) for pair, each in zip(pairs, asked, strict=True)]
    found: dict[int, list[Chunk | SpecchatError]] = {number: [] for number in numbers}
    for place, outcome in decode_together(answers, passes):
        if outcome is not None:
            found[numbers[place]].append(outcome)
    return found


def chunks_of(outcomes: Sequence[Chunk | SpecchatError]) -> list[Chunk]:
    """Return the chunks, of which an answer that did not fail has nothing but."""
    assert not [each for each in outcomes if isinstance(each, SpecchatError)]
    return [each for each in outcomes if isinstance(each, Chunk)]


def said(chunks: Sequence[Chunk]) -> list[Any]:
    """Return what chunks say, without their times."""
    return [chunk._replace(seconds=0.0) for chunk in chunks]


@pytest.mark.parametrize("sampling", [GREEDY, WHOLE], ids=["greedy", "sampled"])
def test_each_answer_is_the_one_it_is_alone(sampling: Sampling) -> None:
    """In 50 random companies and orders, with and without drafts, all steps are the same."""
    wanted = {number: said(alone(number, sampling)) for number in range(8)}
    random = np.random.default_rng(1)
    for _ in range(50):
        count = int(random.integers(1, 9))
        numbers = [int(number) for number in random.permutation(8)[:count]]
        passes = Passes()
        found = together(numbers, sampling, passes)
        for number in numbers:
            assert said(chunks_of(found[number])) == wanted[number]
        assert passes.num_settled >= len(passes.made)


class WithoutRows(Passes):
    """Passes that give what no step can be concluded from."""

    def run(self, passes: Sequence[TargetPass]) -> list[Rows]:
        """Make them, and give nothing."""
        return [() for _ in super().run(passes)]


def test_a_fault_in_one_step_leaves_no_padding_behind() -> None:
    """The memories of all are used again, by an engine that outlives a bug."""
    passes = WithoutRows()
    with pytest.raises((IndexError, ValueError)):
        together([0, 1], GREEDY, passes)
    assert passes.num_settled == len(passes.made) == 1


def test_answers_that_write_share_their_passes() -> None:
    """Four answers of 20 plain steps take about as many passes as one."""
    passes = Passes()
    together([0, 1, 2, 3], GREEDY, passes, draft_length=0, max_tokens=40)
    assert passes.made.count([1, 1, 1, 1]) >= 25
    assert len(passes.made) <= 60


class NotingPacer(FixedPacer):
    """Notes how many answers share the pass of each step."""

    def __init__(self) -> None:
        """Begin with no step."""
        super().__init__()
        self.sharing: list[int] = []

    def begin_step(self, depth: int, limit: int, num_forced: int = 0, num_sharing: int = 1) -> None:
        """Begin a step."""
        self.sharing.append(num_sharing)
        super().begin_step(depth, limit, num_forced, num_sharing)


def test_answers_that_go_on_share_their_passes_from_the_first_step() -> None:
    """Each turn begins with some that have written before: no step of theirs is made alone."""
    for begun, sharing in ((False, [1, 2, 3]), (True, [3, 3, 3])):
        pacers = [NotingPacer() for _ in range(3)]
        answers = list[Answer]()
        for number, pacer in enumerate(pacers):
            pair, steps = pair_of(number), list[Chunk]()
            asked = request(number, GREEDY, draft_length=0, tokens=[1, 2])
            if begun:
                chunks = answer_of(pair, asked).steps()
                steps = [each for each in islice(chunks, 8) if isinstance(each, Chunk)]
                asked = request(number, GREEDY, draft_length=0, tokens=[1, 2], begun=steps)
            answers.append(Answer(pair.target, pair.drafter, asked, pair.statistics, pacer=pacer))
        for _ in decode_together(answers, Passes()):
            pass
        assert [pacer.sharing[0] for pacer in pacers] == sharing
        assert [pacer.sharing[1] for pacer in pacers] == [3, 3, 3]


def test_a_long_prompt_is_read_between_the_passes_of_the_others() -> None:
    """While one prompt is read, another answer takes a step after each of its passes."""
    pairs = [pair_of(0), pair_of(1)]
    asked = [
        request(0, GREEDY, draft_length=0, max_tokens=30),
        request(1, GREEDY, draft_length=0, tokens=list(range(10)) * 6),
    ]
    answers = [answer_of(pair, each) for pair, each in zip(pairs, asked, strict=True)]
    outcomes = list(decode_together(answers, Passes()))
    order = [number for number, outcome in outcomes if outcome is not None]
    before = order.index(1)
    assert 15 <= before <= 22  # 59 tokens in passes of three, a step of the other after each
    first = outcomes.index((1, None))
    assert [outcome is None for _, outcome in outcomes[first : first + 20]] == [True, False] * 10
    assert brief_passes(pairs[1]) == [True] * 19


@pytest.mark.parametrize("options", [{}, {"longest_pass": 3}])
@pytest.mark.parametrize("may_differ", [True, False])
def test_no_answer_waits_longer_than_the_others(
    options: dict[str, Any], *, may_differ: bool
) -> None:
    """Between two steps of one that writes, others take one each, and a part of a prompt is read.

    That is so with long and short prompts, of answers that begin and end at any time.
    """
    random, num_waits = np.random.default_rng(4), 0
    for _ in range(30):
        numbers = random.permutation(8)[: random.integers(2, 8)].tolist()
        pairs = [pair_of(number) for number in numbers]
        asked = [
            request(number, GREEDY, tokens=[1] * int(random.integers(2, 90)), **options)
            for number in numbers
        ]
        answers = list(map(answer_of, pairs, asked))
        since: dict[int, list[int | None]] = {}  # what came since the last step of each
        for number, outcome in decode_together(answers, Passes(may_differ=may_differ)):
            event = None if outcome is None else number
            for other, events in since.items():
                if other != number or outcome is None:
                    assert event not in events
                    events.append(event)
                    num_waits += event is None
            if isinstance(outcome, Chunk):
                since[number] = []
                if outcome.finish:
                    del since[number]
    assert num_waits > 500


def test_prompts_are_read_in_whole_passes_while_nothing_is_written() -> None:
    """Answers that only read hold up none that write."""
    pairs = [pair_of(2), pair_of(5)]
    asked = [request(number, GREEDY, tokens=[*range(10)] * 3) for number in (2, 5)]
    list(decode_together(list(map(answer_of, pairs, asked)), Passes()))
    first, last = sorted(map(brief_passes, pairs))
    assert not any(first)
    assert not last[0]  # until the other one writes


def test_the_draft_reads_a_prompt_between_the_passes_of_the_others_too() -> None:
    """Its passes over the prompt are as short as the target's, and a step of another follows."""
    pairs = [pair_of(2), pair_of(1)]
    draft = PausingToy(random_logits(VOCABULARY, 100))
    pairs[1].drafter = DraftModelDrafter(draft, TokenMap(VOCABULARY))
    asked = [
        request(2, GREEDY, draft_length=0, max_tokens=60, tokens=[1, 2]),
        request(1, GREEDY, draft_length=2, tokens=[*range(10)] * 3),
    ]
    numbers = [
        number
        for number, outcome in decode_together(list(map(answer_of, pairs, asked)), Passes())
        if outcome is not None
    ]
    assert draft.brief == brief_passes(pairs[1]) == [True] * 9
    assert numbers.index(1) >= 18


def test_prompts_take_turns_by_the_time_that_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass over one takes five times as long as a pass over the other."""
    now = [0.0]
    for module in (joint_loop, loop, decoding_statistics):
        monkeypatch.setattr(module, "perf_counter", lambda: now[0])
    pairs, order = [pair_of(2), pair_of(5)], list[int]()
    for number, pair in enumerate(pairs):

        def slow(*arguments: Any, read: Any = pair.target.prefill, number: int = number) -> int:
            now[0] += 5 if number else 1
            order.append(number)
            held: int = read(*arguments)
            return held

        monkeypatch.setattr(pair.target, "prefill", slow)
    asked = [request(number, GREEDY, tokens=[*range(10)] * 6) for number in (2, 5)]
    list(decode_together(list(map(answer_of, pairs, asked)), Passes()))
    assert order[:12].count(0) in (9, 10)


def test_an_answer_waits_while_another_reads_the_beginning_of_its_prompt() -> None:
    """It reads nothing until then; others go on meanwhile."""
    pairs = [pair_of(2), pair_of(5), pair_of(8)]
    asked = [request(number, GREEDY, tokens=[*range(10)] * 3) for number in (2, 5, 8)]
    answers = list(map(answer_of, pairs, asked))
    answers[1].awaits = lambda: answers[0].is_reading and pairs[0].target.length < 20
    begun: list[int] = []
    answers[1].before_reading = lambda: begun.append(pairs[0].target.length)
    found: dict[int, list[Any]] = {0: [], 1: [], 2: []}
    for number, outcome in decode_together(answers, Passes()):
        found[number] += [outcome] if outcome is not None else []
    assert 20 <= begun[0] <= 23
    for number, each in zip((2, 5, 8), found.values(), strict=True):
        assert said(chunks_of(each)) == said(alone(number, GREEDY, tokens=[*range(10)] * 3))


def test_nothing_is_awaited_of_an_answer_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one reads its prompt itself."""
    pairs = [pair_of(2), pair_of(5)]
    asked = [request(number, GREEDY, tokens=[*range(10)] * 3) for number in (2, 5)]
    answers = list(map(answer_of, pairs, asked))
    answers[1].awaits = lambda: answers[0].is_reading

    def broken(*_: Any) -> Any:
        raise EngineFailed("this text cannot be read")

    monkeypatch.setattr(pairs[0].target, "prefill", broken)
    found: dict[int, list[Any]] = {0: [], 1: []}
    for number, outcome in decode_together(answers, Passes()):
        found[number] += [outcome] if outcome is not None else []
    assert [str(each) for each in found[0]] == ["this text cannot be read"]
    assert said(chunks_of(found[1])) == said(alone(5, GREEDY, tokens=[*range(10)] * 3))


@pytest.mark.parametrize("options", [{"longest_pass": 4}, {}])
def test_prompts_are_read_in_whole_passes_alone_or_where_bits_matter(
    options: dict[str, Any],
) -> None:
    """Short passes have other bits, and an answer by itself holds nobody up."""
    numbers = [2, 3] if options else [3]
    pairs = [pair_of(number) for number in numbers]
    asked = [request(number, GREEDY, **options) for number in numbers]
    list(decode_together(list(map(answer_of, pairs, asked)), Passes()))
    assert all(brief_passes(pair) and not any(brief_passes(pair)) for pair in pairs)


@pytest.mark.parametrize("longest", [1, 2, 3, 5, 8])
def test_no_pass_is_longer_than_is_exact(longest: int) -> None:
    """Passes of all that take part have at most as many tokens as each of them allows."""
    wanted = {number: tokens_of(alone(number, GREEDY)) for number in range(6)}
    passes = Passes(most_rows=64)

    def require_short(made: Sequence[TargetPass]) -> None:
        assert len(made) * max(each.num_tokens for each in made) <= longest

    passes.before = require_short
    found = together(list(range(6)), GREEDY, passes, longest_pass=longest)
    assert {number: tokens_of(chunks_of(each)) for number, each in found.items()} == wanted
    assert (longest == 1) == (not passes.made)  # each pass is then one answer's own


def test_only_passes_that_may_join_are_made_as_one() -> None:
    """Where they must be equally long, others are made apart, with the same text."""
    wanted = {number: tokens_of(alone(number, GREEDY)) for number in range(6)}
    passes = Passes(may_differ=False)
    found = together(list(range(6)), GREEDY, passes)
    assert {number: tokens_of(chunks_of(each)) for number, each in found.items()} == wanted
    assert passes.made


def test_only_the_answer_that_fails_ends() -> None:
    """A pass that fails is made again one by one; those of the others go on."""
    passes = Passes()

    def fail(made: Sequence[TargetPass]) -> None:
        if len(made) > 2:
            raise EngineFailed("a pass of three fails")

    passes.before = fail
    pairs = [pair_of(number) for number in range(3)]

    def broken(_: Sequence[int]) -> Any:
        raise EngineFailed("this text cannot be read")

    pairs[1].target._logits_after = broken
    answers = [
        answer_of(pair, request(number, GREEDY, draft_length=0))
        for number, pair in enumerate(pairs)
    ]
    found: dict[int, list[Any]] = {0: [], 1: [], 2: []}
    for number, outcome in decode_together(answers, passes):
        found[number] += [outcome] if outcome is not None else []

    assert [str(each) for each in found[1]] == ["this text cannot be read"]
    for number in (0, 2):
        plain = alone(number, GREEDY, draft_length=0)
        assert tokens_of(chunks_of(found[number])) == tokens_of(plain)


def test_a_stop_ends_all_answers_with_what_they_have() -> None:
    """Stopped in a shared pass, each answer ends as cancelled, and its memory holds its text."""
    passes = Passes()

    def stop(_: Sequence[TargetPass]) -> None:
        if len(passes.made) == 5:
            raise Cancelled("the answer was stopped")

    passes.before = stop
    found = together([0, 1, 2], GREEDY, passes, draft_length=0, max_tokens=40)
    for number, outcomes in found.items():
        chunks = chunks_of(outcomes)
        assert chunks[-1].finish == "cancelled"
        tokens = tokens_of(chunks)
        plain = alone(number, GREEDY, draft_length=0, max_tokens=40)
        assert tokens == tokens_of(plain)[: len(tokens)]
        assert len(tokens) >= 1


def test_an_answer_that_is_given_up_leaves_the_others_alone() -> None:
    """One answer is cancelled after a few steps; the others are what they would be."""
    pairs, stopped = [pair_of(number) for number in range(3)], [False]
    asked = [
        request(number, GREEDY, is_cancelled=(lambda: stopped[0]) if number == 1 else lambda: False)
        for number in range(3)
    ]
    answers = [answer_of(pair, each) for pair, each in zip(pairs, asked, strict=True)]
    found: dict[int, list[Any]] = {0: [], 1: [], 2: []}
    for number, outcome in decode_together(answers, Passes()):
        found[number] += [outcome] if outcome is not None else []
        stopped[0] = len(found[1]) >= 3

    assert found[1][-1].finish == "cancelled"
    assert len(found[1]) == 4
    for number in (0, 2):
        assert said(chunks_of(found[number])) == said(alone(number, GREEDY))


def test_statistics_are_each_answers_own() -> None:
    """What is counted of an answer does not depend on the others."""
    pairs = [pair_of(number) for number in range(3)]
    answers = [answer_of(pair, request(number, WHOLE)) for number, pair in enumerate(pairs)]
    made = Passes()
    list(decode_together(answers, made))
    counted = [pair.statistics for pair in pairs]
    num_alone = sum(each.steps for each in counted) - sum(map(len, made.made))
    assert sum(each.passes for each in counted) == pytest.approx(len(made.made) + num_alone)
    shared_rows = sum(map(sum, made.made))  # a second each, alone
    assert sum(each.apart_s for each in counted) == pytest.approx(shared_rows)
    assert sum(each.rows for each in counted) >= shared_rows + num_alone
    for number, pair in enumerate(pairs):
        own = pair_of(number)
        list(answer_of(own, request(number, WHOLE)).steps())
        for name in ("prompt_tokens", "generated_tokens", "steps", "drafted", "accepted"):
            found, wanted = getattr(pair.statistics, name), getattr(own.statistics, name)
            assert found == wanted, name
        assert own.statistics.passes == own.statistics.steps
        assert isinstance(pair.statistics, Statistics)


class ListeningPacer(FixedPacer):
    """Notes what it hears of passes that were shared."""

    def __init__(self) -> None:
        """Begin with nothing."""
        super().__init__()
        self.heard: list[tuple[int, int]] = []

    def end_step(
        self, emitted: Sequence[int], seconds: float, num_drafting: int = 0, num_longest: int = 0
    ) -> None:
        """Note it."""
        if num_longest:
            self.heard.append((num_drafting, num_longest))


class ReplayingToy(PausingToy):
    """A toy in whose memory two tokens wait before each pass that is shared."""

    def evaluate(self, tokens: Sequence[int], num_rows: int) -> Rows:
        """Read what waits, too."""
        self.num_waiting = 0
        return super().evaluate(tokens, num_rows)


def test_what_is_read_again_counts_in_the_longest_part() -> None:
    """Nothing waits any more once a pass is made, but it took the time for all that it read."""
    pairs, pacers = [pair_of(2), pair_of(5)], [ListeningPacer(), ListeningPacer()]
    replaying = pairs[1].target = ReplayingToy(random_logits(VOCABULARY, 105))
    answers = [
        Answer(pair.target, pair.drafter, request(number, GREEDY), pair.statistics, pacer=pacer)
        for number, pair, pacer in zip((2, 5), pairs, pacers, strict=True)
    ]
    passes = Passes()
    for _ in decode_together(answers, passes):
        replaying.num_waiting = 2
    assert passes.made.count([1, 3]) > 10
    for pacer in pacers:
        assert pacer.heard == [(0, max(made)) for made in passes.made]


def test_what_others_read_is_not_in_an_answers_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass over a prompt takes 100 seconds of a clock, a shared pass one."""
    now = [0.0]
    for module in (joint_loop, loop, decoding_statistics):
        monkeypatch.setattr(module, "perf_counter", lambda: now[0])
    pairs = [pair_of(0), pair_of(1)]
    read = pairs[1].target.prefill

    def slow(*arguments: Any) -> int:
        now[0] += 100
        return read(*arguments)

    monkeypatch.setattr(pairs[1].target, "prefill", slow)
    asked = [
        request(0, GREEDY, draft_length=0, max_tokens=30),
        request(1, GREEDY, draft_length=0, max_tokens=30, tokens=list(range(10)) * 3),
    ]

    def tick(_: Sequence[TargetPass]) -> None:
        now[0] += 1

    answers = list(map(answer_of, pairs, asked))
    list(decode_together(answers, Passes(before=tick)))
    writing, reading = (pair.statistics for pair in pairs)
    assert reading.prompt_s == 1000  # ten passes over 29 tokens
    assert reading.decode_s <= 30
    assert writing.prompt_s == 0
    assert 15 <= writing.decode_s <= 30  # the passes that it made by itself took no time


def test_the_first_token_comes_later_where_others_are_read_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two prompts of ten passes are read in turn, each pass in 100 seconds of a clock."""
    now = [0.0]
    for module in (joint_loop, loop, decoding_statistics):
        monkeypatch.setattr(module, "perf_counter", lambda: now[0])
    pairs = [pair_of(0), pair_of(1)]
    for pair in pairs:

        def slow(*arguments: Any, read: Any = pair.target.prefill) -> int:
            now[0] += 100
            number: int = read(*arguments)
            return number

        monkeypatch.setattr(pair.target, "prefill", slow)
    asked = [
        request(number, GREEDY, draft_length=0, max_tokens=5, tokens=[*range(10)] * 3)
        for number in range(2)
    ]
    list(decode_together(list(map(answer_of, pairs, asked)), Passes()))
    for pair in pairs:
        assert pair.statistics.prompt_s == 1000
        assert 1900 <= pair.statistics.time_to_first_token_s <= 2000
