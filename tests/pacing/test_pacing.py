"""Pacing: near the best draft length wherever that lies, and never much slower than none."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest

from scripts.support.simulated_pair import (
    CPU,
    FLAT,
    LINE,
    RIGHT,
    STAIRS,
    Drawing,
    SimulatedMachine,
    always,
    best_fixed,
    knowledge_of,
    verify_greedily,
)
from specchat.decoding.distribution import LARGEST_TABLE, Distribution
from specchat.decoding.fixed_pacer import FixedPacer
from specchat.decoding.proposal import DraftToken, Hint
from specchat.decoding.verification import Verdict, verify_by_block
from specchat.pacing import acceptance, exploration
from specchat.pacing import pacer as pacing
from specchat.pacing.acceptance import MIN_CHANCE, AcceptanceModel
from specchat.pacing.draft_economics import DraftEconomics
from specchat.pacing.knowledge import TARGET, Knowledge
from specchat.pacing.pacer import LearningPacer
from specchat.passes.pass_costs import PLAIN, SETTLED


def paced(
    machine: SimulatedMachine, monkeypatch: pytest.MonkeyPatch, *, is_greedy: bool = True
) -> LearningPacer:
    """Return a pacer whose clock is the machine's."""
    monkeypatch.setattr(pacing, "perf_counter", machine.clock)
    return LearningPacer(knowledge_of(machine), is_greedy=is_greedy, pass_origin="draft")


@pytest.mark.slow
@pytest.mark.parametrize("costs", [LINE, FLAT, STAIRS], ids=["line", "flat", "stairs"])
def test_pacing_is_near_the_best_fixed_length_everywhere(
    costs: Sequence[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For each cost table, over draft costs and acceptance rates: each 95 %, on average 98 %.

    What is known of a token beforehand is nothing at all, so no pacing could beat the best length.
    """
    shares = []
    for draft_cost, chance in product([0.05, 0.1, 0.25], [0.3, 0.5, 0.7, 0.9]):
        machines = [SimulatedMachine(costs, draft_cost, always(chance), seed) for seed in (1, 2)]
        best = best_fixed(machines[0])
        found = [machine.decode(paced(machine, monkeypatch), 3_000) for machine in machines]
        shares.append(statistics.mean(found) / best)
        assert shares[-1] > 0.95, (costs[:5], draft_cost, chance)

    assert statistics.mean(shares) > 0.98


class Switching(SimulatedMachine):
    """A machine on which a pass takes 0.2 longer after one of another length."""

    last_length = 0

    def pass_seconds(self, length: int) -> float:
        """Return the time of a target pass."""
        changed, self.last_length = length != self.last_length, length
        return self.costs[length] + 0.2 * changed


def always_drafting(monkeypatch: pytest.MonkeyPatch) -> LearningPacer:
    """Return a pacer that finds every token worth drafting."""
    monkeypatch.setattr(DraftEconomics, "gain", lambda *_: 1.0)
    pacer = LearningPacer(Knowledge(), is_greedy=True)
    pacer._use("draft")
    return pacer


NO_LIMIT = [-1.0] * 40
"""Every token of a passage is looked at, however unlikely."""


def gain_of(pacer: LearningPacer, hints: Sequence[Hint]) -> float:
    """Return the gain from tokens that cost no pass, in tokens after their cost."""
    _, chances = pacer._acceptance("suffix").likely(hints, NO_LIMIT)
    return pacer._step.best_passage(chances)[1]


def drawing_rate(
    monkeypatch: pytest.MonkeyPatch,
    noise: float,
    draft_cost: float,
    length: int | None = None,
    seeds: int = 12,
) -> float:
    """Return the tokens per second of the first four answers of a pair, above temperature 0.

    With a fixed draft length, or with pacing.
    """
    rates = []
    for seed in range(seeds):
        machine = Drawing(CPU, draft_cost, always(0), seed, noise=noise)
        knowledge = paced(machine, monkeypatch)._knowledge
        for _ in range(4):
            pacer = FixedPacer() if length else LearningPacer(knowledge, is_greedy=False)
            rates.append(machine.decode(pacer, 128, length or 16))
    return statistics.mean(rates)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(("noise", "draft_cost"), [(0.25, 0.15), (0.35, 0.05), (0.3, 0.1)])
def test_sampled_answers_are_near_the_best_fixed_length(
    noise: float, draft_cost: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Above temperature 0 too, where later tokens of a draft are accepted more often."""
    best = max(drawing_rate(monkeypatch, noise, draft_cost, length) for length in (3, 7, 15, 16))

    assert drawing_rate(monkeypatch, noise, draft_cost) > 0.95 * best


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "draft_cost"), [(0.25, 0.15), (0.3, 0.1)])
def test_the_position_in_the_draft_makes_sampled_answers_faster(
    noise: float, draft_cost: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Block verification accepts later tokens more often: not knowing it gives drafts up early."""
    knowing = drawing_rate(monkeypatch, noise, draft_cost, seeds=36)
    monkeypatch.setattr(acceptance, "POSITIONS", [0.0] * len(acceptance.POSITIONS))

    assert drawing_rate(monkeypatch, noise, draft_cost, seeds=36) < 0.995 * knowing


def test_learning_uses_the_chance_that_tokens_were_accepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of each token that could be reached, given those before it, and of the declined one."""
    random = np.random.default_rng(0)
    learned: list[tuple[float, float]] = []
    monkeypatch.setattr(
        AcceptanceModel,
        "observe",
        lambda _, __, kept, reached, ___: learned.append((kept, reached)),
    )
    for _ in range(200):
        wanted, offered = random.dirichlet(np.ones(5), (2, 4))
        rows = [Distribution(np.arange(5), row) for row in wanted]
        proposed = [Distribution(np.arange(5), row) for row in offered]
        pacer = always_drafting(monkeypatch)
        pacer.begin_step(10, 3)
        for place, distribution in enumerate(proposed):  # the last one is declined
            if place == 3:
                monkeypatch.setattr(DraftEconomics, "gain", lambda *_: -1.0)
            pacer.wants_token("draft", Hint(0.9, distribution=distribution))
        draft = [DraftToken(each.sample(random.random), each, "draft") for each in proposed[:3]]
        verdict = verify_by_block(draft, rows.__getitem__, random.random)
        learned.clear()
        pacer.learn(draft, rows.__getitem__, verdict)

        reached = [kept for kept in verdict.prefix_probabilities if kept >= MIN_CHANCE]
        assert [kept for _, kept in learned] == reached[: len(learned)]
        assert len(learned) == len(reached)
        for (chance, kept), p, q in zip(learned, wanted, offered, strict=False):
            by_token = np.minimum(1.0, kept * p / q)
            assert chance == pytest.approx((q * by_token).sum() / kept)


def test_learning_uses_the_outcome_where_distributions_are_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Comparing them token by token would take too long."""
    learned: list[float] = []
    monkeypatch.setattr(AcceptanceModel, "observe", lambda _, __, kept, *___: learned.append(kept))
    long = Distribution(np.arange(LARGEST_TABLE + 1), np.ones(LARGEST_TABLE + 1))
    draft = [DraftToken(token, long, "draft") for token in range(3)]
    pacer = always_drafting(monkeypatch)
    pacer.begin_step(10, 3)
    for _ in range(3):
        pacer.wants_token("draft", Hint(0.9, distribution=long))
    pacer.learn(draft, lambda _: long, Verdict(1, 0, [1.0] * 4))

    assert learned == [1.0, 0.0]


@pytest.mark.slow
def test_a_draft_that_is_nearly_always_right_is_trusted_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Within the first 128 tokens of a pair, where drafting pays only if it is that good."""
    shares = []
    for draft_cost, seed in product([0.05, 0.1, 0.25], range(16)):
        machine = SimulatedMachine(CPU, draft_cost, always(0.99), seed)
        best = best_fixed(machine)
        shares.append(machine.decode(paced(machine, monkeypatch), 128) / best)

    assert statistics.mean(shares) > 0.9


def test_an_expensive_draft_of_low_confidence_is_watched_long_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A few right tokens must be seen before it is trusted."""
    shares = []
    for seed in range(16):
        machine = SimulatedMachine(CPU, 0.27, always(0.99), seed, confidence=lambda _: 0.6)
        rate = machine.decode(paced(machine, monkeypatch), 128)
        shares.append(rate / best_fixed(machine))

    assert statistics.mean(shares) > 0.82


@pytest.mark.slow
def test_a_lucky_step_does_not_raise_the_rate_to_beat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does the end of an answer return to plain decoding too early.

    Of a pair known to be right nearly always every step drafts far, from the first one on.
    """
    shares = []
    for draft_cost, seed in product([0.05, 0.1, 0.25], range(16)):
        machine = SimulatedMachine(CPU, draft_cost, always(0.99), seed)
        pacer = paced(machine, monkeypatch)
        machine.decode(pacer, 256)
        answer = LearningPacer(pacer._knowledge, is_greedy=True)
        shares.append(machine.decode(answer, 128) / best_fixed(machine))

    assert statistics.mean(shares) > 0.965


@pytest.mark.slow
def test_trying_lengths_costs_little_where_none_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most tokens are nearly certain to be accepted, yet an expensive draft does not quite pay."""
    rates = []
    for seed in range(8):
        is_sure = np.random.default_rng(seed).random(2000) < 0.6
        chances, confidences = np.where(is_sure, 0.95, 0.4), np.where(is_sure, 0.97, 0.6)
        machine = SimulatedMachine(CPU, 0.27, chances.__getitem__, seed, confidences.__getitem__)
        rates.append(machine.decode(paced(machine, monkeypatch), 1200))

    assert statistics.mean(rates) > 0.965


@pytest.mark.slow
def test_looking_and_trying_cost_a_known_pair_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """If nothing pays, short answers of a known pair reach 0.977 of plain decoding's speed."""
    rates = []
    for seed in range(6):
        machine = SimulatedMachine(CPU, 0.11, always(0.6), seed)
        knowledge = paced(machine, monkeypatch)._knowledge
        answers = [LearningPacer(knowledge, is_greedy=True) for _ in range(20)]
        rates += [machine.decode(pacer, 128) for pacer in answers]

    assert statistics.mean(rates) > 0.977


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("costs", [LINE, FLAT, STAIRS])
@pytest.mark.parametrize("draft_cost", [0.05, 0.1, 0.25, 0.6])
@pytest.mark.parametrize("chance", [0.0, 0.02])
def test_a_hopeless_draft_costs_next_to_nothing(
    costs: Sequence[float], draft_cost: float, chance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At least 0.97 of plain decoding over the first 256 tokens of a new pair."""
    rates = []
    for seed in range(20):
        machine = SimulatedMachine(costs, draft_cost, lambda _: chance, seed)
        rates.append(machine.decode(paced(machine, monkeypatch), 256))

    assert statistics.mean(rates) > 0.97


@pytest.mark.parametrize("costs", [LINE, STAIRS, CPU], ids=["line", "stairs", "cpu"])
@pytest.mark.parametrize("factor", [2.0, 5.0])
def test_a_hopeless_draft_is_given_up_though_plain_decoding_seems_slow(
    costs: Sequence[float], factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong cost that was kept would otherwise make every draft seem to pay, for good."""
    machine = SimulatedMachine(costs, 0.1, always(0.001))
    monkeypatch.setattr(pacing, "perf_counter", machine.clock)
    knowledge = Knowledge(drafts=knowledge_of(machine).drafts)
    knowledge.target.learn_record(
        (bucket, length, seconds * (factor if length <= 1 else 1.0))
        for bucket, length, seconds in knowledge_of(machine).target.as_record()
    )

    assert machine.decode(LearningPacer(knowledge, is_greedy=True), 256) > 0.8


@pytest.mark.parametrize("factor", [1.15, 1.3])
def test_drafting_at_a_loss_is_found_out(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain step is believed to take too long, and none would be made to show what it takes."""
    rates = []
    for seed in range(6):
        machine = SimulatedMachine(CPU, 0.25, always(0.75), seed)
        pacer = paced(machine, monkeypatch)
        machine.decode(pacer, 256)
        costs = pacer._knowledge.target
        costs.learn_record(
            (bucket, length, seconds * (factor if length <= 1 else 1.0))
            for bucket, length, seconds in costs.as_record()
        )
        machine.decode(LearningPacer(pacer._knowledge, is_greedy=True), 128)
        rates.append(machine.decode(LearningPacer(pacer._knowledge, is_greedy=True), 128))

    assert statistics.mean(rates) > 0.97


def test_a_draft_that_does_not_pay_is_not_weighed_in_every_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What costs a share of plain decoding is left out until there is budget for looking again."""
    machine = SimulatedMachine(LINE, 0.1, lambda _: 0.0)
    pacer = paced(machine, monkeypatch)
    machine.decode(pacer, 256)
    weighed = 0

    def counted(*args: Any, **options: Any) -> DraftEconomics:
        nonlocal weighed
        weighed += 1
        return DraftEconomics(*args, **options)

    monkeypatch.setattr(pacing, "DraftEconomics", counted)
    machine.decode(pacer, 320)

    assert 320 / exploration.COST_INTERVAL <= weighed < 0.15 * 320


def test_reading_the_last_token_of_an_accepted_draft_is_a_cost_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Drafts of one token do not pay then, though the two passes of a step alone would."""
    machine = SimulatedMachine(
        [0.0, 1.0, 1.45, *[2.6 + more for more in range(38)]], 0.3, always(0.85)
    )
    machine.decode(paced(machine, monkeypatch), 2_000)

    assert 1.85 / (machine.costs[2] + machine.draft_cost) > 1.05
    assert best_fixed(machine) == 1.0
    assert machine.drafted.count(0) > 0.9 * len(machine.drafted)


@pytest.mark.parametrize(("cost", "pays"), [(0.0, True), (0.2, False)])
def test_reading_accepted_tokens_is_a_cost_of_them(
    cost: float, pays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prediction head reads each of them, though the passes of a step alone would pay."""
    rise = [0.0, *(0.1 + cost * more for more in range(40))]
    costs, chance = [0.0, *(1 + 0.55 * more for more in range(40))], 0.75
    machine = SimulatedMachine(costs, 1.0, always(chance), draft_costs=rise, reads_accepted=True)
    machine.decode(paced(machine, monkeypatch), 2_000)

    assert (1 + chance) / (costs[2] + 0.1) > 1.05
    assert ((1 + chance) / (costs[2] + 0.1 + chance * cost) > 1.01) == pays
    assert (machine.drafted.count(0) < 0.1 * len(machine.drafted)) == pays


def test_what_lies_between_draft_passes_is_part_of_their_cost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Deciding and drawing take time too."""
    machine = SimulatedMachine(LINE, 0.1, always(0.99))
    pacer = paced(machine, monkeypatch)
    machine.decode(pacer, 200)
    for _ in range(60):
        pacer.begin_step(10, 3)
        for _ in range(3):
            assert pacer.wants_pass("draft", 1)
            machine.seconds += 0.1
            assert pacer.wants_token("draft", Hint(0.8, Distribution.certain(RIGHT)))
            machine.seconds += 0.05
        pacer.end_step([RIGHT], 1.9)

    assert 0.12 < pacer._knowledge.draft_seconds("draft", 1, 10) < 0.15


@pytest.mark.slow
@pytest.mark.parametrize("costs", [LINE, FLAT, STAIRS])
def test_a_text_that_changes_is_followed(
    costs: Sequence[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prose and code in turn: 0.9 of the speed with the best length for each.

    Each time the draft model has missed hundreds of tokens.
    """
    shares = []
    for seed in range(10):
        machine = SimulatedMachine(costs, 0.08, lambda at: 0.85 if at // 300 % 2 else 0.15, seed)
        best = [best_fixed(SimulatedMachine(costs, 0.08, always(c))) for c in (0.15, 0.85)]
        ideal = 2 / (1 / best[0] + 1 / best[1])
        shares.append(machine.decode(paced(machine, monkeypatch), 3000) / ideal)

    assert statistics.mean(shares) > 0.9


@pytest.mark.slow
def test_a_step_of_the_staircase_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where 4 tokens cost less than 2, drafts of 1 and 2 are avoided at an acceptance of 0.6."""
    machine = SimulatedMachine(STAIRS, 0.05, lambda _: 0.6)
    machine.decode(paced(machine, monkeypatch), 3000)
    shares = [machine.drafted.count(length) / len(machine.drafted) for length in range(4)]

    assert shares[3] > 0.7
    assert shares[1] + shares[2] < 0.1


def test_plain_decoding_is_chosen_where_drafting_is_expensive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A draft pass that costs as much as a target pass cannot pay; the reason has figures."""
    machine = SimulatedMachine(LINE, 1.0, lambda _: 0.8)
    pacer = paced(machine, monkeypatch)
    rate = machine.decode(pacer, 700)

    assert rate > 0.97
    assert "100 % of a target pass" in (pacer.why_not() or "")
    assert not pacer.expects_drafting(10)


def test_looking_again_finds_a_draft_that_became_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """Useless for 2000 tokens, then excellent: fully used within 300 tokens."""
    machine = SimulatedMachine(LINE, 0.05, lambda at: 0.0 if at < 2000 else 0.95)
    pacer = paced(machine, monkeypatch)
    machine.decode(pacer, 2000)
    machine.decode(pacer, 300)
    rate = machine.decode(pacer, 300)

    assert rate > 1.5
    assert pacer.why_not() is None


def test_looking_again_becomes_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    """A useless draft model is tried now and then, and never used."""
    machine = SimulatedMachine(LINE, 0.05, lambda _: 0.0)
    pacer = paced(machine, monkeypatch)
    machine.decode(pacer, 500)
    first, drafted = machine.num_passes, sum(machine.drafted)
    machine.decode(pacer, 2000)

    assert 0 < machine.num_passes - first < 2000 * 0.015 / 0.05
    assert sum(machine.drafted) == drafted


def test_a_fixed_pacer_drafts_all_it_may() -> None:
    """Whatever it costs and whatever is accepted, less only at the end of an answer."""
    machine = SimulatedMachine(LINE, 1.0, lambda _: 0.1)
    machine.decode(FixedPacer(), 100, longest=5)

    assert set(machine.drafted[:-5]) == {5}


def test_passages_from_the_text_cost_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """A passage is drafted as far as verifying it pays."""
    machine = SimulatedMachine(LINE, 0.05, lambda _: 0.0)
    pacer = paced(machine, monkeypatch)
    pacer.begin_step(10, 16)
    sure = [Hint(0.98)] * 12
    unsure = [Hint(0.9), Hint(0.9), *[Hint(0.1)] * 10]

    assert gain_of(pacer, sure) > gain_of(pacer, unsure) > 0
    assert gain_of(pacer, [Hint(0.05)] * 5) == 0
    assert pacer.take("suffix", unsure) == 2
    assert pacer.room == 14


@pytest.mark.parametrize(("num_forced", "learned"), [(0, [2]), (3, [])])
def test_a_grammar_does_not_mislead(
    num_forced: int, learned: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A draft that it cut was a shorter pass; a pass that read forced tokens says nothing."""
    machine = SimulatedMachine(LINE, 0.05, lambda _: 0.0)
    pacer = paced(machine, monkeypatch)
    seen: list[int] = []
    target = pacer._knowledge.target
    monkeypatch.setattr(target, "observe", lambda count, *_: seen.append(count))
    pacer.begin_step(10, 16, num_forced)
    assert pacer.take("suffix", [Hint(0.98, Distribution.certain(5))] * 6) > 3
    cut = [DraftToken(5, Distribution.certain(5), "suffix")]
    pacer.learn(cut, lambda _: Distribution.certain(5), Verdict(1, 5, (1.0, 1.0)))
    assert pacer.end_step([5, 5], 1.0) > 0
    assert seen == learned


@pytest.mark.parametrize(("emitted", "is_believed"), [([5, 5, 5, 7], True), ([9], False)])
def test_a_passage_that_was_not_taken_is_learned_from(
    emitted: list[int], is_believed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not taken as unlikely, it is taken once it would have been right for a while."""
    pacer = paced(SimulatedMachine(LINE, 0.05, always(0.5)), monkeypatch)
    doubtful = [Hint(0.1, distribution=Distribution.certain(5))] * 3
    taken = []
    for _ in range(40):
        pacer.begin_step(10, 16)
        taken.append(pacer.take("suffix", doubtful))
        pacer.end_step(emitted, 1.0)

    assert taken[0] == 0
    assert (taken[-1] > 0) == is_believed


def test_draft_passes_of_any_origin_are_learned_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pacer knows drafters only by the origin they name; each has costs of its own."""
    machine = SimulatedMachine(LINE, 0.05, always(0.9))
    pacer = paced(machine, monkeypatch)
    used, num_drafted = [], 0
    for origin, cost in (("head", 0.05), ("other", 3.0)):
        for _ in range(60):
            pacer.begin_step(10, 8)
            num_drafted = 0
            while pacer.wants_pass(origin, 1):
                machine.seconds += cost
                hint = Hint(0.9, distribution=Distribution.certain(RIGHT))
                if not pacer.wants_token(origin, hint):
                    break
                num_drafted += 1
            verify_greedily(pacer, num_drafted, [RIGHT] * (num_drafted + 1))
            pacer.end_step([RIGHT] * (num_drafted + 1), LINE[num_drafted + 1])
        used.append(num_drafted)

    assert used[0] > 4
    assert used[1] == 0


def test_only_a_draft_model_in_use_sets_the_rate_to_beat(monkeypatch: pytest.MonkeyPatch) -> None:
    """A doubtful token pays compared with plain decoding, not compared with good drafts."""
    doubtful = [Hint(0.36)]
    machine = SimulatedMachine(LINE, 0.05, always(0.9))
    pacer = paced(machine, monkeypatch)
    machine.decode(pacer, 240)
    pacer.begin_step(10, 16)
    assert pacer.take("suffix", doubtful) == 0

    without_passes = LearningPacer(pacer._knowledge, is_greedy=True)
    without_passes.begin_step(10, 16)
    assert without_passes.take("suffix", doubtful) == 1


def test_a_pair_that_is_known_drafts_from_the_first_step_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was learned in another session counts: nothing is watched again."""
    machine = SimulatedMachine(LINE, 0.05, always(0.9))
    pacer = paced(machine, monkeypatch)
    machine.decode(pacer, 200)
    knowledge = knowledge_of(machine)
    learned = pacer._knowledge.acceptance_of("draft", is_greedy=True).as_record()
    knowledge.acceptance_of("draft", is_greedy=True).learn_record(learned)
    machine.drafted.clear()
    machine.decode(LearningPacer(knowledge, is_greedy=True), 20)

    assert machine.drafted[0] > 1


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("chance", [0.3, 0.6, 0.8, 0.95])
@pytest.mark.parametrize("costs", [LINE, STAIRS])
def test_passes_that_take_longer_after_another_length_do_no_harm(
    costs: Sequence[float], chance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At least 0.96 of the best fixed length, whose passes change length least."""
    shares = []
    for seed in range(4):
        best = max(
            Switching(costs, 0.05, always(chance), seed).decode(FixedPacer(), 1500, length)
            for length in (0, 1, 2, 3, 4, 7, 11, 16)
        )
        machine = Switching(costs, 0.05, always(chance), seed)
        shares.append(machine.decode(paced(machine, monkeypatch), 1500) / best)

    assert statistics.mean(shares) > 0.96


class Settling(SimulatedMachine):
    """A machine on which plain passes take 1.4 at first after drafting, and ever less of the 0.4.

    Drafting reaches 0.8 of plain decoding.
    """

    num_plain = num_draft_passes = 0

    def pass_seconds(self, length: int) -> float:
        """Return the time of a target pass."""
        is_plain = length == 1 and self.num_passes == self.num_draft_passes
        self.num_draft_passes = self.num_passes
        self.num_plain = self.num_plain + 1 if is_plain else 0
        return 1.0 + 0.4 * 0.8 ** max(0, self.num_plain - 1) if length == 1 else 1.7


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("is_measured", [True, False])
def test_plain_decoding_is_judged_by_what_it_settles_to(
    is_measured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first pass after drafting takes longer than drafting, per token, but not its tenth.

    Without a measurement of that, it is found out while decoding. The first pass alone misleads.
    """
    settling, at_once = list[float](), list[float]()
    for seed, (settled, rates) in product(range(6), ((SETTLED, settling), (0, at_once))):
        monkeypatch.setattr(exploration, "SETTLED", settled)
        machine = Settling([0.0, 1.4, *[1.7] * 38], 0.15, always(0.5), seed)
        pacer = paced(machine, monkeypatch)
        if is_measured:
            pacer._knowledge.target.observe(PLAIN, 10, 1.0)
        machine.decode(pacer, 1024, 3)
        rates.append(machine.decode(pacer, 1024, 3))

    assert min(settling) > 0.97
    assert is_measured or statistics.mean(at_once) < 0.9


@pytest.mark.slow
def test_what_exploration_leaves_behind_is_charged_to_its_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A look that makes the next plain passes slower is taken less often."""
    num_passes = []
    for kind, seed in product((SimulatedMachine, Settling), range(8)):
        machine = kind([0.0, 1.0, *[1.7] * 38], 0.15, always(0.05), seed)
        pacer = paced(machine, monkeypatch)
        machine.decode(pacer, 256)
        first = machine.num_passes
        assert machine.decode(pacer, 2048) > 0.97
        num_passes.append(machine.num_passes - first)

    assert 0 < sum(num_passes[8:]) < 0.5 * sum(num_passes[:8])


@pytest.mark.parametrize(
    ("costs", "chance", "wrong_length", "wrong_cost"),
    [([0.0, *(1 + 0.8 * more for more in range(40))], 0.6, 1, 1.5), (STAIRS, 0.7, 4, 2.0)],
    ids=["plain decoding", "the best draft length"],
)
def test_a_cost_measured_wrongly_is_found_out(
    costs: Sequence[float],
    chance: float,
    wrong_length: int,
    wrong_cost: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What seems expensive is not chosen, so only exploration can correct it."""
    rates = []
    for interval in (exploration.COST_INTERVAL, 10**9):
        monkeypatch.setattr(exploration, "COST_INTERVAL", interval)
        monkeypatch.setattr(exploration, "PLAIN_INTERVAL", interval)
        monkeypatch.setattr(exploration, "SETTLING_INTERVAL", max(512, interval))
        wrong = [*costs[:wrong_length], wrong_cost, *costs[wrong_length + 1 :]]
        machine, believed = (
            SimulatedMachine(each, 0.05, always(chance)) for each in (costs, wrong)
        )
        monkeypatch.setattr(pacing, "perf_counter", machine.clock)
        knowledge = Knowledge(measured={TARGET, "draft"})
        knowledge.target.learn_record(knowledge_of(believed).target.as_record())
        knowledge.costs_of("draft").learn_record(
            knowledge_of(machine).costs_of("draft").as_record()
        )
        for _ in range(100):
            knowledge.acceptance_of("draft", is_greedy=True).observe(0.8, chance)
        pacer = LearningPacer(knowledge, is_greedy=True)
        rates.append(machine.decode(pacer, 2400) / best_fixed(machine))

    tried, never_tried = rates
    assert tried > 0.95
    assert never_tried < 0.9


@dataclass
class Disturbed(SimulatedMachine):
    """A pair whose first passes take six times as long; `lost` seconds of them."""

    num_slow: int = 0
    lost: float = 0.0

    def pass_seconds(self, length: int) -> float:
        """Return the time of a target pass."""
        return self._disturbed(super().pass_seconds(length))

    def draft_seconds(self, length: int) -> float:
        """Return the time of a draft pass."""
        return self._disturbed(super().draft_seconds(length))

    def _disturbed(self, seconds: float) -> float:
        more = 5.0 * seconds if self.num_slow else 0.0
        self.num_slow -= bool(self.num_slow)
        self.lost += more
        return seconds + more


DISTURBED = [
    (costs, draft_cost, chance, num_slow)
    for costs in (LINE, FLAT, STAIRS, CPU)
    for draft_cost, chance in product((0.05, 0.25), (0.5, 0.97))
    for num_slow in (0, 8, 20)
]


def unmeasured_shares(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the speed of unmeasured pairs, as a share of that of measured ones, without `lost`."""
    shares = []
    for costs, draft_cost, chance, num_slow in DISTURBED:
        known = SimulatedMachine(costs, draft_cost, always(chance))
        best = known.decode(paced(known, monkeypatch), 700)
        machine = Disturbed(costs, draft_cost, always(chance), num_slow=num_slow)
        monkeypatch.setattr(pacing, "perf_counter", machine.clock)
        pacer = LearningPacer(Knowledge(), is_greedy=True, pass_origin="draft")
        rate = machine.decode(pacer, 700)
        shares.append(700 / (700 / rate - machine.lost) / best)
    return shares


@pytest.mark.slow
def test_a_bad_beginning_is_overcome(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slow first passes neither end drafting nor make it seem to pay, even if none was measured."""
    shares = unmeasured_shares(monkeypatch)

    assert min(shares) > 0.8
    assert statistics.mean(shares) > 0.95


@pytest.mark.slow
def test_a_bad_beginning_would_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """If what answers taught were never doubted."""
    monkeypatch.setattr(exploration, "FIRST_DOUBT", 10**9)

    assert min(unmeasured_shares(monkeypatch)) < 0.5


def test_a_passage_is_taken_in_passes_that_are_cheap_per_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where 32 tokens cost twice as much as 16, two passes over 16 risk less than one over 32."""
    block = [1 + 2.5 * more / 15 for more in range(16)]
    blocks = [0.0, *block, *(block[-1] + more for more in block), *[9.0] * 8]
    pacer = paced(SimulatedMachine(blocks, 0.05, always(0.5)), monkeypatch)
    taken = []
    for sure in (0.5, 0.975, 0.9999):
        pacer.begin_step(10, 32)
        suffix = pacer._acceptance("suffix")
        monkeypatch.setattr(suffix, "probability", lambda *_, sure=sure: sure)
        taken.append(pacer.take("suffix", [Hint(0.9)] * 32))

    assert taken[1] == 15
    assert taken[0] < 15
    assert taken[2] in {15, 31}
