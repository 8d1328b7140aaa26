"""What measurements of draft trees record, and the simulated pair that decodes by it."""

from __future__ import annotations

from scripts.support.branching_machine import Branching, recorded_places
from scripts.support.pacing_ablations import ablated
from scripts.support.simulated_pair import always, knowledge_of
from scripts.support.tree_record import MISSED, Place, hit_rates, recording
from specchat.decoding.distribution import Distribution
from specchat.decoding.fixed_pacer import FixedPacer
from specchat.decoding.proposal import Branch, DraftToken, Hint
from specchat.pacing.pacer import LearningPacer

FLAT = [0.0, *(1.0 + 0.001 * more for more in range(40))]
HITS = (Place(0.9, True, (0.6, 0.4), MISSED), Place(0.6, False, (0.6, 0.4), 1))


def test_a_record_has_the_places_up_to_the_first_wrong_token() -> None:
    """With the branch that was right there; drafts outside the with statement are not recorded."""
    draft = [DraftToken(token, Distribution.certain(token), "draft") for token in (5, 6, 7)]
    branches = [
        Branch(8, 0, "draft", 0.7),
        Branch(9, 1, "draft", 0.6),
        Branch(10, 1, "draft", 0.2),
        Branch(11, 2, "draft", 0.3),
    ]
    with recording() as record:
        step(draft, branches, [5, 10, 3])
        step(draft, branches, [5, 6, 4])
    step(draft, branches, [5, 6, 4])

    assert record.num_passes == 6
    first, second = Place(0.8, True, (0.7,), MISSED), Place(0.8, False, (0.6, 0.2), 1)
    assert record.places == [
        first,
        second,
        first,
        second._replace(is_right=True, hit=MISSED),
        Place(0.8, False, (0.3,), MISSED),
    ]
    assert hit_rates(record.places) == [0.0, 0.5, 0.0]


def step(draft: list[DraftToken], branches: list[Branch], emitted: list[int]) -> None:
    """Make a step of a fixed length."""
    pacer = FixedPacer()
    pacer.begin_step(10, len(draft))
    for each in draft:
        pacer.wants_token("draft", Hint(0.8, each.distribution))
    pacer.choose_branches(draft, branches, 8)
    pacer.end_step(emitted, 0.0)


def test_a_branch_that_is_right_saves_a_simulated_pass() -> None:
    """Where the drafted token is wrong half the time, and a branch then always right."""
    speeds = []
    for mechanism in (None, "side branches"):
        machine = Branching(FLAT, 0.05, always(0.5), 1, places=HITS)
        pacer = LearningPacer(knowledge_of(machine), is_greedy=True, pass_origin="draft")
        with ablated(mechanism):
            speeds.append(machine.decode(pacer, 400))
        assert (machine.num_branches > 0) == (mechanism is None)
    assert speeds[0] > 1.2 * speeds[1]


def test_places_were_recorded_with_two_pairs() -> None:
    """A head and a draft model, each with right and with wrong tokens, and right branches."""
    for pair in ("head", "model"):
        places = recorded_places(pair)
        assert {each.is_right for each in places} == {True, False}
        assert 0.1 < hit_rates(places)[0] < 0.7
