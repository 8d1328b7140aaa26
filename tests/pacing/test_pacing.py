"""Pacing: near the best constant on machines that were measured, never much slower than none."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from functools import partial
from itertools import takewhile

import numpy as np
import pytest

from scripts.support.simulated_pair import (
    CHANGE_ON_H200,
    MACHINES,
    ORIGIN,
    RIGHT,
    USUAL,
    Drawing,
    NoisyMachine,
    SimulatedMachine,
    always,
    best_constant,
    measured,
    stair,
    told,
)
from specchat.decoding.distribution import LARGEST_TABLE, Distribution
from specchat.decoding.fixed_pacer import FixedPacer
from specchat.decoding.proposal import DraftToken, Hint
from specchat.decoding.verification import Verdict, verify_by_argmax, verify_by_block
from specchat.pacing import pacer as pacing
from specchat.pacing import way_choice
from specchat.pacing.knowledge import (
    INITIAL_CREDIT,
    LONGEST_KNOWN,
    MOST_CREDIT,
    Knowledge,
    SplitTarget,
)
from specchat.pacing.outcomes import MIN_CHANCE
from specchat.pacing.pacer import LearningPacer
from specchat.pacing.recent_drafts import PastDraft, Way
from specchat.passes.pass_costs import QUANTISED, REPACKED, PassCosts, Stair
from tables import table

LENGTHS = (0, 1, 2, 3, 4, 5, 7, 9, 12, 15)
LINE = [0.0, *(1 + 0.3 * more for more in range(LONGEST_KNOWN + 1))]


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Callable[..., LearningPacer]:
    """Return a function that makes the pacer of a machine, whose clock is the machine's."""

    def paced(
        machine: SimulatedMachine, pair: Knowledge | None = None, *, is_greedy: bool = True
    ) -> LearningPacer:
        monkeypatch.setattr(pacing, "perf_counter", machine.clock)
        pair = pair or measured(machine, Knowledge())
        return LearningPacer(pair, is_greedy=is_greedy, pass_origin=ORIGIN)

    return paced


def answers_of(
    make: Callable[[int], SimulatedMachine],
    on: Callable[..., LearningPacer],
    seed: int,
    *,
    usual: Stair = QUANTISED,
    num_answers: int = 8,
    num_tokens: int = 128,
    is_greedy: bool = True,
) -> list[float]:
    """Return the tokens per second of answers, each in a process of its own.

    Passes are measured once the first answer is over, and what is known is kept.
    """
    machine, record, rates = make(seed), None, []
    for number in range(num_answers):
        pair = Knowledge(record, usual)
        if number == 1:
            measured(machine, pair)
        pacer = on(machine, pair, is_greedy=is_greedy)
        pacer.expects_drafting(10)
        rates.append(machine.decode(pacer, num_tokens))
        record = pair.as_record()
    return rates


def machine_of(name: str, draft_cost: float, chance: float, seed: int) -> NoisyMachine:
    """Return a pair with a text that stays as it is and a confidence that says nothing."""
    change = CHANGE_ON_H200 if name == "H200" else 0.0
    return NoisyMachine(MACHINES[name], draft_cost, always(chance), seed, change=change)


@pytest.mark.slow
@pytest.mark.parametrize("name", MACHINES)
def test_answers_are_near_the_best_constant(name: str, on: Callable[..., LearningPacer]) -> None:
    """Later ones above 0.94 in each cell and 0.97 on average, first ones above 0.88 on average."""
    first, later = [], []
    for draft_cost in (0.1, 0.25):
        for chance in (0.4, 0.6, 0.75, 0.9):
            make = partial(machine_of, name, draft_cost, chance)
            best = best_constant(make, LENGTHS)
            series = [answers_of(make, on, seed, usual=USUAL[name]) for seed in range(4)]
            first.append(statistics.mean(rates[0] for rates in series) / best)
            later.append(statistics.mean(rate for rates in series for rate in rates[1:]) / best)
            assert later[-1] > 0.94, (draft_cost, chance)
    assert statistics.mean(later) > 0.97
    assert statistics.mean(first) > 0.88


@pytest.mark.slow
@pytest.mark.parametrize("name", MACHINES)
def test_a_hopeless_draft_costs_next_to_nothing(
    name: str, on: Callable[..., LearningPacer]
) -> None:
    """Less than 2.5 % over the answers of a pair, its first one included."""
    for draft_cost in (0.1, 0.3):
        make = partial(machine_of, name, draft_cost, 0.02)
        rates = [rate for seed in range(3) for rate in answers_of(make, on, seed, num_answers=12)]
        assert statistics.mean(rates) * MACHINES[name][1] > 0.975


@pytest.mark.slow
def test_a_confidence_that_tells_is_used(on: Callable[..., LearningPacer]) -> None:
    """Ending a draft at the first doubtful token beats every constant where most are certain."""
    shares = []
    for seed in range(12):
        chances, confidences = told(seed, 0.8)

        def make(
            seed: int,
            chances: Callable[[int], float] = chances,
            confidences: Callable[[int], float] = confidences,
        ) -> NoisyMachine:
            return NoisyMachine(MACHINES["F16"], 0.1, chances, seed, confidences)

        best = best_constant(make, LENGTHS)
        shares.append(statistics.mean(answers_of(make, on, seed)[1:]) / best)
    assert statistics.mean(shares) > 1.02


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("noise", [0.25, 0.35])
def test_sampled_answers_are_near_the_best_constant(
    noise: float, on: Callable[..., LearningPacer]
) -> None:
    """Above temperature 0 too, where later tokens of a draft are accepted more often."""

    def make(seed: int) -> Drawing:
        return Drawing(MACHINES["F16"], 0.1, always(0), seed, noise=noise)

    best = best_constant(make, LENGTHS)
    rates = [rate for seed in range(4) for rate in answers_of(make, on, seed, is_greedy=False)[1:]]
    assert statistics.mean(rates) > 0.95 * best


def test_a_step_of_the_staircase_is_used(on: Callable[..., LearningPacer]) -> None:
    """Where 4 tokens cost hardly more than 2, drafts of 1 and 2 are avoided."""
    machine = machine_of("AVX-512", 0.05, 0.7, 1)
    pacer = on(machine)
    machine.decode(pacer, 300)
    machine.drafted.clear()
    machine.decode(pacer, 300)
    assert machine.drafted.count(3) > 0.8 * len(machine.drafted)


def test_looking_back_finds_a_draft_that_became_good(on: Callable[..., LearningPacer]) -> None:
    """Useless for 1000 tokens, then excellent: used within 300 tokens."""
    machine = NoisyMachine(LINE, 0.05, lambda index: 0.95 if index >= 1000 else 0.02, 1)
    pacer = on(machine)
    machine.decode(pacer, 1300)
    machine.drafted.clear()
    machine.decode(pacer, 200)
    assert statistics.mean(machine.drafted) > 2


def test_looking_back_becomes_rare(on: Callable[..., LearningPacer]) -> None:
    """A useless draft is looked at now and then, within its credit, and never drafts."""
    machine = NoisyMachine(LINE, 0.1, always(0.0), 1)
    pacer = on(machine)
    machine.decode(pacer, 300)
    machine.drafted.clear()
    before = machine.num_passes
    machine.decode(pacer, 1000)
    assert 0 < (machine.num_passes - before) * 0.1 < 1000 * way_choice.CREDIT_SHARE + 1.0
    assert set(machine.drafted) == {0}


def test_a_race_does_not_look_back(on: Callable[..., LearningPacer]) -> None:
    """It would learn nothing, at the price of the answers after it."""
    machine = NoisyMachine(LINE, 0.1, always(0.0), 1)
    pacer = on(machine)
    machine.decode(pacer, 1000)
    before, passes = dict(pacer._knowledge.credits), machine.num_passes
    pacer.is_replay = True
    pacer.expects_drafting(10)
    machine.decode(pacer, 300)
    assert machine.num_passes == passes
    assert pacer._knowledge.credits[f"{ORIGIN} greedy"] >= before[f"{ORIGIN} greedy"]
    pacer.is_replay = False
    pacer.expects_drafting(10)
    machine.decode(pacer, 1000)
    assert machine.num_passes > passes


def test_a_race_gives_up_drafts_that_do_not_pay_now(on: Callable[..., LearningPacer]) -> None:
    """Other programs came: nothing of the text is learned there, but what passes take is."""
    machine = NoisyMachine(LINE, 0.1, always(0.8), 1)
    pacer = on(machine, Knowledge())
    machine.decode(pacer, 100)
    pacer.is_replay = True
    pacer.expects_drafting(10)
    machine.costs = [float(number) for number in range(LONGEST_KNOWN + 2)]
    machine.drafted.clear()
    machine.decode(pacer, 200)
    assert 0 < sum(map(bool, machine.drafted)) < 20


def test_no_process_begins_with_a_new_credit(on: Callable[..., LearningPacer]) -> None:
    """A hopeless draft cannot overdraw it by being asked in many short processes."""

    def make(seed: int) -> SimulatedMachine:
        return NoisyMachine(LINE, 0.3, always(0.0), seed)

    machine, record, passes = make(1), None, []
    for _ in range(12):
        pair = measured(machine, Knowledge(record))
        before = machine.num_passes
        machine.decode(on(machine, pair), 40)
        passes.append(machine.num_passes - before)
        record = pair.as_record()
    assert sum(passes[2:]) * 0.3 <= 10 * 40 * way_choice.CREDIT_SHARE + 1.0


def test_plain_steps_keep_showing_what_drafting_brings(on: Callable[..., LearningPacer]) -> None:
    """In runs, among drafting steps, and at most a small share of the time."""
    machine = machine_of("F16", 0.1, 0.8, 1)
    pacer = on(machine)
    machine.decode(pacer, 2000)
    plain = "".join(str(min(count, 1)) for count in machine.drafted)
    assert 2 < plain.count("0" * way_choice.PLAIN_RUN) < 0.01 * len(plain)
    assert plain.count("0") < 0.03 * len(plain)


def test_answers_of_usual_length_show_what_they_gain(on: Callable[..., LearningPacer]) -> None:
    """Of 250 tokens, nearly all have plain steps in a row, at a hundredth of the time in all."""
    machine = machine_of("F16", 0.1, 0.55, 1)
    pacer, plain, gains = on(machine), list[int](), list[float]()
    for _ in range(12):
        pacer.expects_drafting(10)
        first = len(machine.drafted)
        gains.append(machine.decode(pacer, 250) * machine.costs[1])
        plain.append(machine.drafted[first:].count(0))
    gain = statistics.mean(gains)
    assert 1.2 < gain < 1.45
    assert sum(count >= way_choice.PLAIN_RUN for count in plain) >= 10
    assert sum(plain) * (1 - 1 / gain) < 0.01 * 12 * 250 / gain


def test_short_answers_show_what_they_gain_too(on: Callable[..., LearningPacer]) -> None:
    """Of 40 tokens each, some have plain steps in a row: the steps of all of them count."""
    machine = machine_of("F16", 0.1, 0.6, 1)
    pacer = on(machine)
    for _ in range(40):
        pacer.expects_drafting(10)
        machine.decode(pacer, 40)
    plain = "".join(str(min(count, 1)) for count in machine.drafted)
    assert plain.count("0" * way_choice.PLAIN_RUN) >= 3


def test_a_busy_second_does_not_end_drafting(on: Callable[..., LearningPacer]) -> None:
    """What slows every pass down is not taken for a property of the length in use."""
    machine = machine_of("F16", 0.1, 0.8, 1)
    pacer = on(machine)
    machine.decode(pacer, 300)
    usual = statistics.mean(machine.drafted[-50:])
    machine.slowdown = 3.0
    machine.decode(pacer, 100)
    machine.slowdown = 1.0
    machine.drafted.clear()
    machine.decode(pacer, 100)
    assert statistics.mean(machine.drafted) > 0.8 * usual


def test_what_a_busy_machine_took_is_not_kept(on: Callable[..., LearningPacer]) -> None:
    """Another process begins with the costs that were measured when nothing else ran."""
    machine = machine_of("F16", 0.1, 0.8, 1)
    pair = measured(machine, Knowledge())
    machine.slowdown = 3.0
    machine.decode(on(machine, pair), 300)
    again = Knowledge(pair.as_record())
    for length in (1, 2, 3, 4):
        assert again.target.seconds(length, 10) == pytest.approx(MACHINES["F16"][length])


def test_the_price_of_a_change_of_length_is_measured(on: Callable[..., LearningPacer]) -> None:
    """On a machine that has one, and none is seen where there is none. It is kept."""
    for name, chance in (("H200", 0.7), ("F16", 0.7)):
        machine = machine_of(name, 0.1, chance, 3)
        chances, confidences = told(3, 0.6)
        machine.chance, machine.confidence = chances, confidences
        pacer = on(machine)
        machine.decode(pacer, 1500)
        change = pacer._knowledge.change
        assert change == pytest.approx(CHANGE_ON_H200, abs=0.2) if name == "H200" else change < 0.1
        assert Knowledge(pacer._knowledge.as_record()).change == pytest.approx(change, abs=0.002)


# --- what it learns from


def drafting(on: Callable[..., LearningPacer], length: int) -> LearningPacer:
    """Return a pacer that drafts this many tokens, above temperature 0."""
    machine = SimulatedMachine(LINE, 0.01, always(0.9))
    pacer = on(machine, is_greedy=False)
    pacer._choice.way = Way(length)
    pacer._choice._num_left = 100
    pacer.begin_step(10, 16)
    assert pacer.wants_pass(ORIGIN, 1)
    return pacer


def test_learning_uses_the_chance_that_tokens_were_accepted(
    on: Callable[..., LearningPacer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each token that could be reached, given those before it, and of the declined one."""
    random = np.random.default_rng(0)
    for _ in range(100):
        wanted, offered = random.dirichlet(np.ones(5), (2, 4))
        rows = [Distribution(np.arange(5), row) for row in wanted]
        proposed = [Distribution(np.arange(5), row) for row in offered]
        pacer = drafting(on, 3)
        for distribution in proposed:  # the last one is declined
            pacer.wants_token(ORIGIN, Hint(0.9, distribution))
        draft = [DraftToken(each.sample(random.random), each, ORIGIN) for each in proposed[:3]]
        verdict = verify_by_block(draft, rows.__getitem__, random.random)
        seen: list[PastDraft] = []
        monkeypatch.setattr(
            pacer._choice.drafts, "add", lambda draft, *, is_look, to=seen: to.append(draft)
        )
        pacer.learn(draft, rows.__getitem__, verdict)

        reached = list(takewhile(lambda kept: kept >= MIN_CHANCE, verdict.prefix_probabilities))
        assert len(seen[0].chances) == len(reached)
        assert len(seen[0].confidences) == 4
        for chance, kept, p, q in zip(seen[0].chances, reached, wanted, offered, strict=False):
            assert chance == pytest.approx((q * np.minimum(1.0, kept * p / q)).sum() / kept)


def test_learning_uses_the_outcome_where_distributions_are_long(
    on: Callable[..., LearningPacer],
) -> None:
    """Comparing them token by token would take too long."""
    long = Distribution(np.arange(LARGEST_TABLE + 1), np.ones(LARGEST_TABLE + 1))
    pacer = drafting(on, 3)
    for _ in range(3):
        assert pacer.wants_token(ORIGIN, Hint(0.9, long))
    draft = [DraftToken(token, long, ORIGIN) for token in range(3)]
    pacer.learn(draft, lambda _: long, Verdict(1, 0, [1.0] * 4))
    assert pacer._choice.drafts.as_record() == [[[0.9, 0.9, 0.9], [1.0, 0.0]]]


def test_a_grammar_does_not_mislead(
    on: Callable[..., LearningPacer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A draft that it cut was a shorter pass, and forced tokens make a pass longer."""
    for num_forced, size in ((0, 2), (3, 5)):
        pacer = on(SimulatedMachine(LINE, 0.05, always(0.0)))
        seen: list[int] = []
        observe = pacer._knowledge.verifying.observe
        monkeypatch.setattr(
            pacer._knowledge.verifying,
            "observe",
            lambda size, depth, seconds, to=seen, then=observe: (
                to.append(size), then(size, depth, seconds)
            ),
        )  # fmt: skip
        pacer.begin_step(10, 16, num_forced)
        assert pacer.take("suffix", [Hint(0.98, Distribution.certain(5))] * 6) > 3
        cut = [DraftToken(5, Distribution.certain(5), "suffix")]
        pacer.learn(cut, lambda _: Distribution.certain(5), Verdict(1, 5, (1.0, 1.0)))
        pacer.end_step([5, 5], 1.0)
        assert seen == [size]


@pytest.mark.parametrize(("emitted", "is_believed"), [([5, 5, 5, 7], True), ([9], False)])
def test_a_passage_that_was_not_taken_is_learned_from(
    emitted: list[int], is_believed: bool, on: Callable[..., LearningPacer]
) -> None:
    """Not taken as unlikely, it is taken once it would have been right for a while."""
    pacer = on(SimulatedMachine(LINE, 0.05, always(0.5)))
    doubtful, taken = [Hint(0.1, Distribution.certain(5))] * 3, []
    for _ in range(40):
        pacer.begin_step(10, 16)
        taken.append(pacer.take("suffix", doubtful))
        pacer.end_step(emitted, 1.0)
    assert taken[0] == 0
    assert (taken[-1] > 0) == is_believed


@pytest.mark.parametrize(("num_drafting", "pays"), [(4, True), (1, False)])
def test_a_draft_must_pay_for_all_that_wait_for_its_pass(
    num_drafting: int, pays: bool, on: Callable[..., LearningPacer]
) -> None:
    """Where all draft, each pays its share; one that drafts alone pays for the others, too."""
    knowledge = measured(SimulatedMachine(LINE, 0.05, always(0.5)), Knowledge()).shared(
        always_pads=False
    )
    pacer, passage = (
        on(SimulatedMachine(LINE, 0.05, always(0.5)), knowledge),
        Distribution.certain(5),
    )
    pacer.join([1, 2, 3, 4])
    pacer.expects_drafting(10)
    taken = list[int]()
    for _ in range(60):
        pacer.begin_step(10, 16, 0, 4)
        taken.append(pacer.take("suffix", [Hint(0.98, passage)] * 3))
        length = max(taken) + 1
        pacer.end_step([5], LINE[4 * length] / 4, num_drafting, length)
    assert taken[0] > 0
    assert (taken[-1] > 0) == pays
    pacer.join([1, 2, 3, 5])
    pacer.expects_drafting(10)
    pacer.begin_step(10, 16, 0, 4)
    assert pacer.take("suffix", [Hint(0.98, passage)] * 3) > 0  # the others may draft by now


@pytest.mark.parametrize(("share", "pays"), [(LINE[4] / 4, False), (LINE[1], True)])
def test_a_draft_costs_no_more_than_a_pass_by_itself(
    share: float, pays: bool, on: Callable[..., LearningPacer]
) -> None:
    """As after long prompts, where four texts take four times as long as one: each has its own."""
    machine = SimulatedMachine(LINE, 0.05, always(0.5))
    pacer = on(machine, measured(machine, Knowledge()).shared(always_pads=False))
    pacer.join([1, 2, 3, 4])
    pacer.expects_drafting(10)
    for _ in range(60):
        pacer.begin_step(10, 16, 0, 4)
        pacer.end_step([5], share, 1, 1)  # another drafts, who is not in this pass
    pacer.begin_step(10, 16, 0, 4)
    assert (pacer.take("suffix", [Hint(0.98, Distribution.certain(5))] * 3) > 0) == pays


def test_a_pass_that_others_lengthen_is_not_a_plain_one(on: Callable[..., LearningPacer]) -> None:
    """Else plain decoding would seem as slow as their drafts, and drafting cost nothing more."""
    machine = SimulatedMachine(LINE, 0.05, always(0.5))
    knowledge = measured(machine, Knowledge()).shared(always_pads=False)
    pacer = on(machine, knowledge)
    pacer.join([1, 2, 3, 4])
    plain = knowledge.verifying.expected(1, 10)
    for _ in range(40):
        pacer.begin_step(10, 16, 0, 4)
        pacer.end_step([5], LINE[16] / 4, 1, 4)
    assert knowledge.verifying.expected(1, 10) == pytest.approx(plain, rel=0.05)


def test_an_answer_that_is_left_alone_drafts_as_one_by_itself(
    on: Callable[..., LearningPacer],
) -> None:
    """Of four it alone drafted, so its drafts had to pay for all; nobody waits for them now."""
    steep = [0.0, *(1 + 0.6 * more for more in range(4 * LONGEST_KNOWN))]
    machine = SimulatedMachine(steep, 0.05, always(0.8))
    knowledge = measured(machine, Knowledge())
    by_itself, shared = on(machine, knowledge), knowledge.shared(always_pads=False)
    left, hints = on(machine, shared), [Hint(0.98, Distribution.certain(5))] * 3
    left.join([1, 2, 3, 4])
    left.expects_drafting(10)
    taken = list[int]()
    for _ in range(60):
        left.begin_step(10, 16, 0, 4)
        taken.append(left.take("suffix", hints))
        left.end_step([5], steep[4 * (taken[-1] + 1)] / 4, 1, taken[-1] + 1)
    assert taken[-1] == 0
    by_itself.begin_step(10, 16)
    left.begin_step(10, 16, 0, 1)
    assert left.take("suffix", hints) == by_itself.take("suffix", hints) > 0
    for length in (1, 2, 4):
        alone = knowledge.verifying.seconds(length, 10)
        assert shared.verifying.seconds(length, 10) == pytest.approx(alone, rel=0.1)


def test_an_answer_that_is_left_alone_makes_draft_passes_again(
    on: Callable[..., LearningPacer],
) -> None:
    """At once, though it has learned nothing since it gave them up among others."""
    steep = [0.0, *(1 + 0.5 * more for more in range(4 * LONGEST_KNOWN))]
    machine = SimulatedMachine(steep, 0.05, always(0.8))
    knowledge = measured(machine, Knowledge())
    machine.decode(on(machine, knowledge), 128)
    left = on(machine, knowledge.shared(always_pads=False))
    left.is_replay = True  # it does not look back
    left.join([1, 2, 3, 4])
    left.expects_drafting(10)
    drafts = list[bool]()
    for _ in range(60):
        left.begin_step(10, 16, 0, 4)
        drafts.append(left.wants_pass(ORIGIN, 1))
        left.end_step([5], steep[4] / 4, 0, 1)
    assert not drafts[-1]
    left.begin_step(10, 16, 0, 1)
    assert left.wants_pass(ORIGIN, 1)


def test_passages_are_taken_as_far_as_they_pay(on: Callable[..., LearningPacer]) -> None:
    """They cost no draft pass, only a longer target pass."""
    pacer = on(SimulatedMachine(LINE, 0.05, always(0.0)))
    taken = []
    for hints in ([Hint(0.98)] * 12, [Hint(0.9), Hint(0.9), *[Hint(0.1)] * 10], [Hint(0.05)] * 5):
        pacer.begin_step(10, 16)
        taken.append(pacer.take("suffix", hints))
    assert taken == [12, 2, 0]
    assert pacer.room == 16


def test_a_passage_is_cut_where_a_pass_is_cheap(on: Callable[..., LearningPacer]) -> None:
    """Where 32 tokens cost twice as much as 16, two passes over 16 risk less than one over 32."""
    costs = [0.0, *[1.0] * 16, *[2.0] * 50]
    pacer = on(SimulatedMachine(costs, 0.05, always(0.0)))
    pacer.begin_step(10, 32)
    assert pacer.take("suffix", [Hint(0.98)] * 32) == 15


def test_long_passages_are_taken_where_only_they_pay(on: Callable[..., LearningPacer]) -> None:
    """As with mixtures of experts, whose first additional tokens cost most."""
    known = {1: 1.0, 2: 2.0, 8: 6.0, 16: 8.0, 33: 9.5, 65: 10.5}
    costs = [0.0, *np.interp(range(1, LONGEST_KNOWN + 1), list(known), list(known.values()))]
    pair = Knowledge()
    pair.target.begin_with({length: costs[length] for length in known})
    for chance, least, most in ((0.99, 48, 64), (0.3, 0, 0)):
        pacer = on(SimulatedMachine(costs, 0.05, always(0.0)), pair)
        pacer.begin_step(10, 64)
        assert least <= pacer.take("suffix", [Hint(chance)] * 64) <= most


def test_only_a_draft_in_use_competes_with_passages(on: Callable[..., LearningPacer]) -> None:
    """A doubtful token pays compared with plain decoding, not compared with good drafts."""
    machine = SimulatedMachine(LINE, 0.05, always(0.9))
    pacer = on(machine)
    machine.decode(pacer, 240)
    pacer.begin_step(10, 16)
    assert pacer.take("suffix", [Hint(0.4)], rival=ORIGIN) == 0
    assert pacer.take("suffix", [Hint(0.4)]) == 1


def test_draft_passes_of_any_origin_are_learned_from(on: Callable[..., LearningPacer]) -> None:
    """The pacer knows drafters only by the origin they name; each has costs of its own."""
    machine = SimulatedMachine(LINE, 0.05, always(0.9))
    pacer, used = on(machine), []
    for origin, cost in (("head", 0.05), ("other", 3.0)):
        num_drafted = 0
        for _ in range(60):
            pacer.begin_step(10, 8)
            num_drafted = 0
            while pacer.wants_pass(origin, 1):
                machine.seconds += cost
                if not pacer.wants_token(origin, Hint(0.9, Distribution.certain(RIGHT))):
                    break
                num_drafted += 1
            certain = Distribution.certain(RIGHT)
            draft = [DraftToken(RIGHT, certain, origin)] * num_drafted
            target = [certain] * (num_drafted + 1)
            pacer.learn(
                draft, target.__getitem__, verify_by_argmax(draft, target.__getitem__, float)
            )
            machine.seconds += LINE[num_drafted + 1]
            pacer.end_step([RIGHT] * (num_drafted + 1), LINE[num_drafted + 1])
        used.append(num_drafted)
    assert used[0] > 2
    assert used[1] == 0


def test_a_known_pair_drafts_from_the_first_step_on(on: Callable[..., LearningPacer]) -> None:
    """What was learned in another session counts."""
    machine = machine_of("F16", 0.05, 0.9, 1)
    pair = measured(machine, Knowledge())
    machine.decode(on(machine, pair), 200)
    machine.drafted.clear()
    machine.decode(on(machine, Knowledge(pair.as_record())), 20)
    assert machine.drafted[0] > 1


def test_drafting_that_does_not_pay_is_explained(on: Callable[..., LearningPacer]) -> None:
    """The reason has figures, and is gone where drafts are made."""
    machine = SimulatedMachine(LINE, 1.0, always(0.5))
    pacer = on(machine)
    machine.decode(pacer, 60)
    assert set(machine.drafted[-20:]) == {0}
    reason = pacer.why_not() or ""
    assert "of the time of a plain one, and checking 2 tokens" in reason
    assert "checking 2 tokens costs 1.3x checking one" in reason
    machine = SimulatedMachine(LINE, 0.01, always(0.9))
    pacer = on(machine)
    machine.decode(pacer, 60)
    assert pacer.why_not() is None


SPLIT = SplitTarget(
    "because the experts of 3 blocks are on the CPU",
    PassCosts(LONGEST_KNOWN, {1: 1.0, LONGEST_KNOWN: 1.5}),
)
STEEP = [0.0, *(1 + 0.8 * more for more in range(LONGEST_KNOWN + 1))]
STEEP_LATER = [0.0, 1.0, 1.3, 1.6, *(1.6 + 0.9 * more for more in range(1, LONGEST_KNOWN))]


@table(
    ("costs", "chance", "split", "says_off", "says_short"),
    [
        (STEEP_LATER, 0.9, SPLIT, False, True),  # two tokens instead of many
        (STEEP, 0.55, SPLIT, True, False),  # none instead of some
        (STEEP_LATER, 0.9, None, False, False),  # that is how this machine is
        (STEEP, 0.02, SPLIT, False, False),  # nor would any be drafted on GPUs
        ([0.0, 1.0, *(1.4 for _ in range(LONGEST_KNOWN))], 0.9, SPLIT, False, False),
    ],
)
def test_drafts_are_short_because_of_the_placement_only_where_they_are(
    costs: list[float],
    chance: float,
    split: SplitTarget | None,
    says_off: bool,
    says_short: bool,
    on: Callable[..., LearningPacer],
) -> None:
    """Where passes cost what they would on GPUs, or nothing is accepted, it is not the reason."""
    machine = NoisyMachine(costs, 0.05, always(chance), 1)
    knowledge = measured(machine, Knowledge())
    knowledge.split = split
    pacer = on(machine, knowledge)
    pacer.expects_drafting(10)
    machine.decode(pacer, 300)
    off, short = pacer.why_not() or "", pacer.why_short() or ""
    assert off.endswith("1.8x checking one, " + SPLIT.cause) == says_off
    assert bool(short) == says_short
    assert short.endswith(" checking one, " + SPLIT.cause) or not short


def test_a_fixed_pacer_drafts_all_it_may() -> None:
    """Whatever it costs and whatever is accepted, less only at the end of an answer."""
    machine = SimulatedMachine(LINE, 1.0, always(0.1))
    machine.decode(FixedPacer(), 100, longest=5)
    assert set(machine.drafted[:-5]) == {5}


def test_malformed_records_count_as_none() -> None:
    """What is kept in a file may have been changed by anybody."""
    pair = Knowledge()
    pair.target.begin_with({1: 1.0, 4: 1.5})
    record = pair.as_record()
    record.recent = {"draft greedy": [[[0.5], [2.0]], [[0.5]], [[0.5, 0.7], [1.0]]]}
    record.calibrations = {"suffix greedy": [1.0] * 5}
    record.credits = {"draft greedy": math.nan, "head greedy": -1e9, "draft sampled": 0.5}
    record.changes = [[1.0] * 20, [math.nan, -1.0, 1e9, 0.0] * 20]
    record.target = [(0, 1, -3.0), (0, 999, 1.0), (0, 4, 1.5)]
    found = Knowledge(record)
    assert len(found.drafts_of("draft greedy")) == 1
    assert found.calibration_of("suffix greedy").chance(0.5) == pytest.approx(0.5)
    assert found.target.as_record() == [(0, 4, 1.5)]
    assert found.credits["draft greedy"] == INITIAL_CREDIT
    assert found.credits["head greedy"] == -MOST_CREDIT
    assert found.credits["draft sampled"] == 0.5
    assert found.change == 0.0


def test_passes_longer_than_any_known_are_not_kept() -> None:
    """A grammar that forces many tokens makes such; what is kept stays sound."""
    pair = Knowledge(stair=USUAL["F16"])
    measured(machine_of("F16", 0.1, 0.8, 2), pair)
    for _ in range(20):
        pair.verifying.observe(1, 1000, 0.02)
        pair.verifying.observe(81, 1000, 0.2)
    record = pair.as_record()
    assert {size for bucket, size, _ in record.target if bucket} == {1}
    assert Knowledge(record).verifying.seconds(81, 1000) > 0


def test_what_passes_take_is_kept_only_beside_what_was_measured() -> None:
    """The time of one length says what plain decoding takes only by a shape that may be wrong."""
    pair = Knowledge()
    for _ in range(20):
        pair.verifying.observe(4, 100, 0.1)
    assert not pair.as_record().target


def test_a_wrong_shape_is_not_taken_for_a_slow_machine(on: Callable[..., LearningPacer]) -> None:
    """Nothing is measured, and checking a token takes far longer than this kind of file's usual."""
    costs = stair({1: 1.0, 2: 1.8, 3: 2.7, 4: 2.9, 5: 3.75, 8: 5.2, 16: 7.7, 33: 15.0})
    rates = []
    for seed in range(6):
        machine = NoisyMachine(costs, 0.1, always(0.65), seed)
        rates.append(machine.decode(on(machine, Knowledge(stair=REPACKED)), 128))
    assert statistics.mean(rates) > 0.9


def test_measuring_between_answers_is_believed_at_once(on: Callable[..., LearningPacer]) -> None:
    """What was learned before was in other units, and is forgotten."""
    machine = machine_of("F16", 0.1, 0.8, 2)
    pair = Knowledge(stair=USUAL["F16"])
    machine.decode(on(machine, pair), 20)
    measured(machine, pair)
    machine.decode(on(machine, pair), 60)
    for size in (0, 2, 3, 4):
        expected = MACHINES["F16"][max(1, size)]
        assert pair.verifying.seconds(size, 10) == pytest.approx(expected, rel=0.35)


def test_a_new_pair_drafts_whatever_its_passes_take(on: Callable[..., LearningPacer]) -> None:
    """The guess of what a draft pass takes is a share of the target's, in the same unit."""
    for unit in (0.001, 1.0, 50.0):
        costs = [unit * cost for cost in MACHINES["F16"]]
        machine = NoisyMachine(costs, 0.1, always(0.8), 1)
        machine.decode(on(machine, Knowledge(stair=USUAL["F16"])), 60)
        assert statistics.mean(machine.drafted) > 1


def test_keeping_changes_nothing(on: Callable[..., LearningPacer]) -> None:
    """What is known is asked for after each answer, also far into a context."""
    machine = machine_of("F16", 0.1, 0.8, 2)
    pair = measured(machine, Knowledge())
    pair.verifying.observe(1, 1000, 0.5)
    for _ in range(30):
        for size in (1, 4):
            pair.verifying.observe(size, 1000, 1.3 * MACHINES["F16"][size])
        before = pair.verifying.seconds(4, 1000)
        record = pair.as_record()
        assert pair.verifying.seconds(4, 1000) == before
        assert pair.as_record().target == record.target


def test_no_draft_is_longer_than_it_may_be(on: Callable[..., LearningPacer]) -> None:
    """Where a step may draft two tokens, three are not weighed: two may not pay."""
    machine = machine_of("AVX-512", 0.1, 0.6, 1)
    pacer = on(machine)
    began, emitted = machine.seconds, machine.emitted
    machine.decode(pacer, 1000, longest=2)
    rate = (machine.emitted - emitted) / (machine.seconds - began)
    assert rate > 0.95


def test_a_check_of_plain_steps_ends_where_grammars_force_tokens(
    on: Callable[..., LearningPacer],
) -> None:
    """No step is plain then, and yet drafting goes on."""
    machine = machine_of("F16", 0.1, 0.8, 1)
    pacer = on(machine)
    machine.decode(pacer, 300)
    made = 0
    for _ in range(400):
        pacer.begin_step(10, 8, num_forced=1)
        made += pacer.wants_pass(ORIGIN, 1)
        pacer.learn((), lambda _: Distribution.certain(RIGHT), Verdict(0, RIGHT, (1.0,)))
        pacer.end_step([RIGHT], machine.costs[2])
    assert made > 300


@pytest.mark.filterwarnings("error")
def test_a_price_of_changes_needs_no_drafts(on: Callable[..., LearningPacer]) -> None:
    """It may be known from answers at another temperature."""
    machine = machine_of("H200", 0.1, 0.7, 3)
    machine.chance, machine.confidence = told(3, 0.6)
    pair = measured(machine, Knowledge())
    machine.decode(on(machine, pair), 1000)
    assert pair.change > 0
    pacer = on(machine, pair, is_greedy=False)
    assert pacer.expects_drafting(10)
