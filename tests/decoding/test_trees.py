"""Token trees on toy models: the target's own text, whatever hangs beside the draft."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding.test_loop import SAMPLINGS, transition_p_value
from decoding.test_seeds import sampling_at
from decoding.toy_answers import GREEDY, WHOLE, ToyPair, tokens_of
from specchat.decoding import verification
from specchat.decoding.distribution import Distribution, Random, excess_of
from specchat.decoding.draft_tree import DraftTree, some_of, valid_branches
from specchat.decoding.ports import Drafter, DraftTask, Pacer
from specchat.decoding.proposal import Branch, DraftToken
from specchat.drafting.combined import CombinedDrafter
from specchat.drafting.suffix import SuffixDrafter
from specchat.options.declarations import Sampling
from specchat.testing.toy import LogitsAfter, ToyGrammar, random_logits

WIDE: dict[str, Any] = {"most_branches": 40}


class Bushes(Drafter):
    """Adds random branches to another drafter's drafts: deep, wrong, twice, beyond the draft."""

    def __init__(self, other: Drafter, seed: int = 3, count: int = 24) -> None:
        self._other, self._count = other, count
        self._random = np.random.default_rng(seed)

    def begin(self, task: DraftTask) -> None:
        """Begin with the other one."""
        self._other.begin(task)

    def propose(self, pacer: Pacer) -> Sequence[DraftToken]:
        """Propose what it proposes."""
        return self._other.propose(pacer)

    def branches(self) -> Sequence[Branch]:
        """Return random branches."""
        found: list[Branch] = []
        for number in range(self._count):
            behind = int(self._random.integers(-3, number)) if number else -1
            fork = found[behind].fork if behind >= 0 else int(self._random.integers(0, 7))
            token, confidence = int(self._random.integers(0, 5)), float(self._random.random())
            found.append(Branch(token, fork, "draft", confidence, max(behind, -1)))
        return found

    def observe(self, emitted: Sequence[int], num_accepted: int) -> None:
        """Let the other one observe."""
        self._other.observe(emitted, num_accepted)


DRAFTERS: dict[str, Callable[[Drafter], Drafter]] = {
    "model": lambda drafter: drafter,
    "auto": lambda drafter: CombinedDrafter(SuffixDrafter(), drafter),  # type: ignore[arg-type]
    "bushes": Bushes,
    "bushes on suffix": lambda drafter: Bushes(
        CombinedDrafter(SuffixDrafter(), drafter)  # type: ignore[arg-type]
    ),
}


def drafts_of(seed: int = 1) -> tuple[LogitsAfter, LogitsAfter]:
    """Return a target, and a draft model that is right about half of the time."""
    target, other = random_logits(5, seed), random_logits(5, seed + 50)
    return target, lambda tokens: 0.6 * target(tokens) + 0.4 * other(tokens)


def pair_of(wrap: Callable[[Drafter], Drafter], seed: int = 1, **options: Any) -> ToyPair:
    """Return such a pair."""
    return ToyPair(*drafts_of(seed), wrap=wrap, **{**WIDE, **options})


@pytest.mark.slow(keep=7)
@pytest.mark.parametrize("most_nodes", [1, 4, 40])
@pytest.mark.parametrize("length", [0, 1, 6])
@pytest.mark.parametrize("name", DRAFTERS)
def test_greedy_text_is_plain_decodings(name: str, length: int, most_nodes: int) -> None:
    """At temperature 0, with every drafter and any number of branches."""
    for seed in range(2):
        pair = pair_of(DRAFTERS[name], seed)
        plain = pair_of(DRAFTERS[name], seed).answer(draft_length=0)
        answer = pair.answer(draft_length=length, most_nodes=most_nodes)
        assert answer == plain
        assert pair.target.tokens == [1, 2, *answer[:-1]]
        assert not pair.target.branches


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    length=st.integers(0, 6),
    most_nodes=st.integers(1, 40),
    num_tokens=st.integers(1, 40),
    capacity=st.integers(20, 60),
)
def test_any_tree_leaves_the_text_and_the_memory_right(
    seed: int, length: int, most_nodes: int, num_tokens: int, capacity: int
) -> None:
    """With seeds, ends inside accepted runs, stop tokens and contexts that fill up."""
    given_options: dict[str, Any] = {"sampling": sampling_at(0.8), "is_seeded": True, "seed": seed}
    pair = pair_of(lambda inner: Bushes(inner, seed), seed % 7, capacity=capacity)
    pair.end_tokens = (4,)
    plain = pair_of(DRAFTERS["model"], seed % 7, capacity=capacity)
    plain.end_tokens = (4,)
    options = {**given_options, "max_tokens": num_tokens}
    chunks = pair.chunks(draft_length=length, most_nodes=most_nodes, **options)
    wanted = plain.chunks(draft_length=0, **options)
    answer = tokens_of(chunks)
    assert answer == tokens_of(wanted)
    assert chunks[-1].finish == wanted[-1].finish
    assert pair.target.tokens == [1, 2, *answer][: len(pair.target.tokens)]
    assert len(pair.target.tokens) >= 1 + len(answer)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize("temperature", [0.3, 0.8, 1.5])
def test_a_seed_has_one_text(name: str, temperature: float) -> None:
    """12 seeds, at draft lengths 1 to 6 and with up to 20 nodes."""
    for seed in range(12):
        options = {"sampling": sampling_at(temperature), "is_seeded": True, "seed": seed}
        plain = pair_of(DRAFTERS["model"]).answer(draft_length=0, max_tokens=20, **options)
        pair = pair_of(DRAFTERS[name])
        answer = pair.answer(
            draft_length=1 + seed % 6, most_nodes=4 + seed % 17, max_tokens=20, **options
        )
        assert answer == plain


def tree_p_value(name: str, sampling: Sampling, **options: object) -> float:
    """Return the p-value of the target's own odds in texts decoded with trees."""
    given: dict[str, Any] = {
        "wrap": DRAFTERS[name],
        "draft_length": 3,
        "most_nodes": 14,
        **WIDE,
        **options,
    }
    return transition_p_value(*drafts_of(), sampling, **given)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("name", "sampling"),
    [*(("model", each) for each in SAMPLINGS.values()), ("bushes", SAMPLINGS["everything"])],
)
def test_sampled_texts_have_the_targets_own_odds(name: str, sampling: Sampling) -> None:
    """Goodness of fit, with the target's exact distribution for every sampling option."""
    assert tree_p_value(name, sampling) > 1e-3


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(("length", "most_nodes"), [(1, 5), (2, 2), (2, 9), (3, 5), (3, 16)])
def test_all_shapes_have_the_targets_own_odds(length: int, most_nodes: int) -> None:
    """Trees up to 3 drafted tokens deep, with up to 4 children in a place."""
    value = tree_p_value("model", WHOLE, draft_length=length, most_nodes=most_nodes)
    assert value > 1e-3


@pytest.mark.slow
def test_a_branch_read_by_the_wrong_row_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The row of the place before it, which is another token's."""
    followed = DraftTree.followed

    def wrong(
        tree: DraftTree, num_accepted: int, token: int, draw: Callable[[int, int], int]
    ) -> tuple[list[int], int]:
        return followed(
            tree, num_accepted, token, lambda place, count: draw(tree.parents[place - 1], count)
        )

    monkeypatch.setattr(DraftTree, "followed", wrong)
    assert tree_p_value("model", WHOLE) < 1e-6


@pytest.mark.slow
def test_a_branch_accepted_unasked_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that the target did not choose, in place of its own token."""
    followed = DraftTree.followed

    def eager(
        tree: DraftTree, num_accepted: int, token: int, draw: Callable[[int, int], int]
    ) -> tuple[list[int], int]:
        offered = [own for own, parent in tree.links if parent == num_accepted]
        return followed(tree, num_accepted, offered[0] if offered else token, draw)

    monkeypatch.setattr(DraftTree, "followed", eager)
    assert tree_p_value("model", WHOLE) < 1e-6


def sibling_p_value(draft_length: int = 1, most_nodes: int = 4) -> float:
    """Return the p-value where all branches are drawn leaves, beside a bad draft."""
    target, other = random_logits(5, 1), random_logits(5, 51)
    return transition_p_value(
        target, lambda tokens: 0.2 * target(tokens) + 0.8 * other(tokens), WHOLE,
        draft_length=draft_length, most_nodes=most_nodes, most_branches=40,
    )  # fmt: skip


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(("length", "most_nodes"), [(1, 3), (2, 7), (3, 13)])
def test_drawn_siblings_have_the_targets_own_odds(length: int, most_nodes: int) -> None:
    """Leaves beside drawn tokens, up to 3 deep and with up to 4 children in a place."""
    assert sibling_p_value(draft_length=length, most_nodes=most_nodes) > 1e-3


def test_siblings_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a seed, where nothing hangs behind them; with one, and at temperature 0, chosen."""
    drawn: list[int] = []
    draw = Distribution.sample_others

    def counting(proposed: Distribution, token: int, count: int, random: Random) -> list[int]:
        drawn.append(count)
        return draw(proposed, token, count, random)

    monkeypatch.setattr(Distribution, "sample_others", counting)
    options: dict[str, Any] = {"draft_length": 3, "most_nodes": 12}
    pair = pair_of(DRAFTERS["model"])
    pair.answer(sampling=WHOLE, **options)
    assert max(drawn) > 1
    drawn.clear()
    pair.answer(sampling=WHOLE, is_seeded=True, **options)
    pair.answer(**options)
    assert not drawn


MUTANTS: dict[str, tuple[object, str, Callable[..., object]]] = {
    "q not renormalised": (
        verification,
        "without",
        lambda shares, token: {each: share for each, share in shares.items() if each != token},
    ),
    "drawn from another distribution": (
        Distribution,
        "sample_others",
        lambda self, token, count, _: [each for each in self.shares() if each != token][:count],
    ),
    "the likeliest instead of drawn": (
        Distribution,
        "sample_others",
        lambda self, token, count, _: [
            each for each, _ in self.likeliest(count + 1) if each != token
        ][:count],
    ),
    "residual forgotten": (
        verification,
        "excess_of",
        lambda wanted, *rest: (wanted, excess_of(wanted, *rest)[1]),
    ),
}


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("name", MUTANTS)
def test_wrong_verifications_of_siblings_are_noticed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The goodness of fit is worth something."""
    monkeypatch.setattr(*MUTANTS[name])
    assert sibling_p_value() < 1e-5


def test_branches_save_passes() -> None:
    """The same draft passes give more tokens per target pass."""
    for sampling, seeded in ((GREEDY, False), (WHOLE, False), (WHOLE, True)):
        steps = []
        for most_nodes in (0, 16):
            pair = pair_of(DRAFTERS["model"])
            pair.answer(
                sampling=sampling, is_seeded=seeded, draft_length=4, max_tokens=200,
                most_nodes=most_nodes,
            )  # fmt: skip
            steps.append(pair.statistics.steps)
        assert steps[1] < 0.93 * steps[0]


@pytest.mark.parametrize("sampling", [GREEDY, WHOLE], ids=["greedy", "sampled"])
def test_numbers_that_are_none_end_a_draft_only(sampling: Sampling) -> None:
    """A draft model whose rows are NaN now and then drafts less, with and without branches."""
    target, draft = drafts_of()

    def broken(tokens: Sequence[int]) -> np.ndarray:
        row = draft(tokens)
        return np.full_like(row, np.nan) if tuple(tokens[-2:]) in {(0, 1), (3, 2)} else row

    for most_nodes in (0, 14):
        pair = ToyPair(target, broken, **WIDE)
        options: dict[str, Any] = {"sampling": sampling, "is_seeded": True, "max_tokens": 80}
        answer = pair.answer(draft_length=4, most_nodes=most_nodes, **options)
        assert answer == ToyPair(target).answer(draft_length=0, **options)


def test_branches_are_what_a_grammar_allows() -> None:
    """At temperature 0, too: the best of the tokens that may come, not the best of all."""
    rules = [{0: 0, 1: 0, 2: 0}]
    target, other = random_logits(5, 1), random_logits(5, 51)
    steps = []
    for most_nodes in (0, 14):

        def shy(tokens: Sequence[int]) -> np.ndarray:
            row: np.ndarray = other(tokens) + np.array([0, 0, 0, 40, 30], dtype=np.float32)
            return row

        pair = ToyPair(target, shy, **WIDE)
        pair.answer(
            constraint=ToyGrammar(rules, [0]), draft_length=3, most_nodes=most_nodes,
            max_tokens=150,
        )  # fmt: skip
        steps.append(pair.statistics.steps)
    assert steps[1] < 0.9 * steps[0]


@pytest.mark.slow
def test_a_grammar_holds_within_trees() -> None:
    """Branches that it forbids are not read; the answers are those without drafts."""
    rules = [{0: 1, 1: 1, 2: 0}, {0: 0, 1: 1, 3: 2}, {4: 0}]
    for seed in range(30):
        found = []
        for name, most_nodes in (("model", 0), ("model", 12), ("bushes", 30)):
            pair = pair_of(DRAFTERS[name])
            grammar = ToyGrammar(rules, [1], [])
            found.append(
                pair.answer(
                    sampling=WHOLE,
                    is_seeded=True,
                    seed=seed,
                    constraint=grammar,
                    draft_length=4 * bool(most_nodes),
                    most_nodes=most_nodes,
                    max_tokens=30,
                )
            )
        assert found == [found[0]] * 3


def test_a_step_records_its_tree() -> None:
    """All tokens with what they follow; the accepted ones are those of the path."""
    pair = pair_of(DRAFTERS["model"])
    chunks = pair.chunks(draft_length=3, most_nodes=9, max_tokens=60)
    assert any(chunk.tree for chunk in chunks)
    for chunk in chunks:
        accepted = [number for number, each in enumerate(chunk.tree, 1) if each.is_accepted]
        parents = [chunk.tree[number - 1].parent for number in accepted]
        if chunk.tree:
            assert parents == [0, *accepted][: len(parents)]
            assert len(accepted) == len(chunk.tokens) - ("target" in chunk.origins)
            assert len(chunk.tree) <= 9


def test_statistics_count_positions_and_nodes() -> None:
    """A position counts once, whatever hangs beside it; nodes are all that was verified."""
    pair = pair_of(DRAFTERS["model"])
    chunks = pair.chunks(draft_length=3, most_nodes=9, max_tokens=80)
    stats = pair.statistics
    assert stats.accepted + stats.steps - ("target" not in chunks[-1].origins) == 80
    assert stats.nodes == sum(len(chunk.tree) or len(chunk.proposed) for chunk in chunks)
    assert stats.drafted == sum(stats.drafted_by_position) < stats.nodes
    assert max(stats.accepted_by_position) <= 1.0
    assert sum(drafted for drafted, _ in stats.by_origin.values()) == stats.drafted
    assert sum(accepted for _, accepted in stats.by_origin.values()) == stats.accepted


def certain(*tokens: int) -> list[DraftToken]:
    """Return a draft of certain tokens."""
    return [DraftToken(token, Distribution.certain(token), "draft") for token in tokens]


def branch(token: int, fork: int, behind: int = -1) -> Branch:
    """Return a branch."""
    return Branch(token, fork, "draft", 0.5, behind)


def test_only_branches_of_use_are_valid() -> None:
    """None twice, none that the draft holds, none behind what is gone or may not come."""
    offered = [
        branch(7, 0),  # the drafted token
        branch(8, 0),
        branch(8, 0),
        branch(9, 0, behind=1),
        branch(9, 0, behind=2),  # behind a second one
        branch(5, 2),
        branch(5, 3),  # beyond the draft
        branch(6, 1),  # forbidden
        branch(4, 1, behind=7),
    ]
    found = valid_branches(offered, certain(7, 7), lambda _, token: token != 6)
    assert found == [branch(8, 0), branch(9, 0, behind=0), branch(5, 2)]
    assert some_of(found, [1, 2]) == [branch(5, 2)]
    tree = DraftTree(certain(7, 7), found)
    assert tree.links == [(8, 0), (9, 3), (5, 2)]
    assert [tree.tokens_to(place) for place in range(6)] == [
        [], [7], [7, 7], [8], [8, 9], [7, 7, 5],
    ]  # fmt: skip
    assert tree.depth == 3
    assert DraftTree(certain(7)).depth == 1
