"""The suffix drafter: it finds what came before, and counts what followed."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding.toy_answers import WHOLE, ToyPair, tokens_of
from specchat.decoding.fixed_pacer import FixedPacer
from specchat.decoding.noise import Noise
from specchat.decoding.ports import DraftTask
from specchat.drafting.suffix import SuffixAutomaton, SuffixDrafter
from specchat.options.declarations import Sampling
from specchat.testing.toy import random_logits, scripted_logits


def automaton(text: list[int]) -> SuffixAutomaton:
    """Return the automaton of a text."""
    whole = SuffixAutomaton()
    for token in text:
        whole.append(token)
    return whole


def continuation(whole: SuffixAutomaton, limit: int) -> list[int]:
    """Return the tokens of the automaton's continuation."""
    return [token for token, *_ in whole.continuation(limit)]


def longest_match(text: list[int]) -> int:
    """Return the length of the longest suffix that also occurs earlier, by brute force."""
    for length in range(len(text) - 1, 0, -1):
        end = text[-length:]
        if any(text[start : start + length] == end for start in range(len(text) - length)):
            return length
    return 0


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=40))
def test_the_longest_match_is_found(text: list[int]) -> None:
    """What the automaton holds for a match is what a search of the whole text finds."""
    whole = automaton(text)
    link = whole._states[whole._last].link

    assert whole._states[link].length == longest_match(text)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, 2), min_size=2, max_size=40), st.integers(1, 6))
def test_a_proposal_occurred_in_the_text_after_a_match(text: list[int], limit: int) -> None:
    """Every proposal follows an earlier occurrence of some suffix, token by token."""
    draft = continuation(automaton(text), limit)

    assert len(draft) <= limit
    if draft:
        passages = [[text[-1], *draft][: size + 1] for size in range(1, len(draft) + 1)]
        for passage in passages:
            starts = range(len(text) - len(passage) + 1)
            assert any(text[start : start + len(passage)] == passage for start in starts)


def test_the_most_frequent_continuation_is_proposed() -> None:
    """Of what followed the same passage before, the majority is proposed."""
    text = [1, 2, 7, 1, 2, 8, 1, 2, 8, 1, 2, 8, 1, 2]

    assert continuation(automaton(text), 1) == [8]


def test_a_repeated_passage_is_followed_to_the_limit() -> None:
    """A long match allows a long draft."""
    passage = list(range(10, 40))

    assert continuation(automaton([*passage, 1, *passage[:20]]), 8) == passage[20:28]


def test_nothing_is_proposed_without_a_match() -> None:
    """A text of different tokens gives no draft."""
    assert continuation(automaton(list(range(50))), 5) == []


def test_one_repeated_token_stays_cheap() -> None:
    """The number of states grows with the text, and the proposal is that token."""
    whole = automaton([7] * 5000)

    assert len(whole._states) <= 10_001
    assert continuation(whole, 4) == [7] * 4


def test_an_edited_text_is_mostly_drafted() -> None:
    """Copying a text with few changes keeps most of what is proposed."""
    original = np.random.default_rng(0).integers(0, 90, 300).tolist()
    copy = [token if place % 40 else 95 for place, token in enumerate(original)]
    script = [*original, 96, *copy, 97]
    pair = ToyPair(scripted_logits(100, script), vocabulary=100)
    pair.drafter = SuffixDrafter()

    chunks = pair.chunks([*original, 96], draft_length=8, max_tokens=len(copy))

    assert tokens_of(chunks) == copy
    assert pair.statistics.acceptance_rate > 0.7
    assert pair.statistics.tokens_per_step > 3
    origins = Counter(origin for chunk in chunks for origin in chunk.origins)
    assert origins["suffix"] == pair.statistics.accepted


def proposed(drafter: SuffixDrafter, emitted: list[int]) -> list[int]:
    """Return what is proposed next, after these tokens."""
    drafter.observe(emitted, 0)
    return [drafted.token for drafted in drafter.propose(FixedPacer(4))]


def test_other_continuations_are_branches() -> None:
    """Each at its fork, a few tokens long, surer behind long matches, however long the draft's."""
    beginning, one, other = [0, 1, 2, 3], [5, 6, 7, 8], [9, 10, 11, 12]
    text = [*beginning, *one, *beginning, *other, *beginning, *one, 20, *beginning]
    drafter = SuffixDrafter()
    drafter.begin(DraftTask(text, Sampling(), lambda *_: 0, has_branches=True))
    drafted = [each.token for each in drafter.propose(FixedPacer(8))]
    assert drafted[:4] == one
    branches = drafter.branches()
    line = [number for number, each in enumerate(branches) if each.fork == 0]
    assert [branches[number].token for number in line] == other[:3]
    assert [branches[number].behind for number in line] == [-1, 0, 1]
    assert 0.2 < branches[0].confidence < 0.8
    assert branches[1].confidence > branches[0].confidence
    drafter.observe([5], 1)
    without = DraftTask(text, Sampling(), lambda *_: 0)
    drafter.begin(without)
    drafter.propose(FixedPacer(8))
    assert drafter.branches() == []


def test_a_passage_goes_on_after_a_token_that_was_replaced() -> None:
    """Copying 10 to 29 with 15 replaced: at once what followed 15 is proposed; once, not for ever.

    Where too little was copied before it is not.
    """
    drafter = SuffixDrafter()
    drafter.begin(DraftTask([*range(10, 30), 1], Sampling(), Noise(0).draw))
    plain = [proposed(drafter, [token]) for token in (10, 11, 12)]
    assert plain[-1][:2] == [13, 14]

    assert proposed(drafter, [13, 14, 99])[:2] == [16, 17]
    assert proposed(drafter, [98]) == []

    proposed(drafter, [20])
    assert proposed(drafter, [97]) == []


def test_a_passage_goes_on_after_a_second_token_was_replaced() -> None:
    """Copying 10 to 29 with 15 and 18 replaced: both times what followed them is proposed."""
    drafter = SuffixDrafter()
    drafter.begin(DraftTask([*range(10, 30), 1], Sampling(), Noise(0).draw))
    for token in (10, 11, 12):
        proposed(drafter, [token])

    assert proposed(drafter, [13, 14, 99]) == [16, 17, 18, 19]
    assert proposed(drafter, [16, 17, 98]) == [19, 20, 21, 22]


def test_what_followed_a_short_match_has_an_even_chance() -> None:
    """It followed three tokens each time they occurred, then in one of two cases: 1/2 and 1/3."""
    for text, chance in (([1, 2, 3, 9], 1 / 2), ([1, 2, 3, 9, 1, 2, 3, 8, 4], 1 / 3)):
        first, *_ = automaton([*text, 1, 2, 3]).continuation(1)

        assert first.confidence == pytest.approx(chance)


def test_sampled_text_is_the_targets_with_suffix_drafts() -> None:
    """Each token is uniform in its exact distribution: q is 1 on the proposed token."""
    target = random_logits(5, 1)
    pair = ToyPair(target)
    pair.drafter = SuffixDrafter()
    observed, expected = np.zeros((5, 5, 5)), np.zeros((5, 5, 5))
    for seed in range(80):
        text = [1, 2, *pair.answer(sampling=WHOLE, seed=seed, draft_length=4)]
        for first, second, third in zip(text, text[1:], text[2:], strict=False):
            observed[first, second, third] += 1
            row = np.exp(target([first, second]).astype(np.float64))
            expected[first, second] += row / row.sum()
    cells = expected > 5
    statistic = ((observed - expected)[cells] ** 2 / expected[cells]).sum()

    # chi-square with about 75 degrees of freedom: mean 75, deviation 12; 6 deviations: 1e-7
    assert statistic < 75 + 6 * 12.3
    assert pair.statistics.drafted > 0


def test_a_conversation_goes_on_where_it_was() -> None:
    """Only what follows the last answer is appended from the next prompt."""
    drafter = SuffixDrafter()
    task = DraftTask([1, 2, 3], Sampling(), Noise(0).draw)
    drafter.begin(task)
    drafter.observe([4, 5], 0)
    drafter.begin(DraftTask([1, 2, 3, 4, 5, 6, 1, 2, 3], Sampling(), Noise(0).draw))

    assert [drafted.token for drafted in drafter.propose(FixedPacer(2))] == [4, 5]

    drafter.begin(DraftTask([9, 8], Sampling(), Noise(0).draw))

    assert drafter.propose(FixedPacer(2)) == []
