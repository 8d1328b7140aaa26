"""Measure what draft trees take beside the models: choosing branches, and llama.cpp's bookkeeping.

    python scripts/measure/measure_trees.py [--depths 1000 8000]

The model is tiny, with a vocabulary of 152 000 tokens, so nearly all time is that of the tree.
Prints medians in microseconds of processor time, for a tree of 16 tokens: 4 drafted ones, and 3
branches beside each. A pass over the tree is measured beside one over a chain of as many tokens,
and keeping a branch beside a rollback.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import thread_time_ns

import numpy as np

from scripts.support.counts import positive
from scripts.support.tiny_gguf import write_big_vocabulary
from specchat.decoding.distribution import Distribution
from specchat.decoding.draft_tree import DraftTree, some_of, valid_branches
from specchat.decoding.fixed_pacer import FixedPacer
from specchat.decoding.ports import DraftTask
from specchat.decoding.proposal import Branch, DraftToken, Hint
from specchat.drafting.side_branches import SideBranches
from specchat.engine import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.llama.tree_context import TreeContext
from specchat.options.declarations import Sampling
from specchat.pacing.knowledge import Knowledge
from specchat.pacing.pacer import LearningPacer

LENGTH, BESIDE = 4, 3
NUM_NODES = LENGTH * (1 + BESIDE)
ORIGIN = "draft"
VOCABULARY = 152_000
Action = Callable[[], object]


def microseconds(actions: Sequence[Action], rounds: int) -> list[float]:
    """Return the median processor time of each action, taken in turn."""
    found: list[list[int]] = [[] for _ in actions]
    for _ in range(rounds):
        for times, action in zip(found, actions, strict=True):
            began = thread_time_ns()
            action()
            times.append(thread_time_ns() - began)
    return [statistics.median(times) / 1000 for times in found]


def draft_and_branches() -> tuple[list[DraftToken], list[Branch]]:
    """Return a draft of certain tokens, and the branches beside it with the drafted tokens."""
    draft = [DraftToken(100 + at, Distribution.certain(100 + at), ORIGIN) for at in range(LENGTH)]
    branches = [
        Branch(100 + fork + 1000 * rank, fork, ORIGIN, 0.5 / (1 + rank))
        for fork in range(LENGTH)
        for rank in range(1 + BESIDE)
    ]
    return draft, branches


def planned_pacer() -> LearningPacer:
    """Return a pacer in a step that drafted, on a machine whose passes hardly grow."""
    knowledge = Knowledge()
    knowledge.target.begin_with({count: 1.0 + 0.01 * count for count in range(1, 34)})
    knowledge.costs_of(ORIGIN).begin_with({1: 0.05, 32: 0.06})
    pacer = LearningPacer(knowledge, is_greedy=True, pass_origin=ORIGIN)
    pacer.begin_step(10, 16)
    pacer.wants_pass(ORIGIN, 1)
    for _ in range(LENGTH):
        pacer.wants_token(ORIGIN, Hint(0.7, Distribution.certain(1)))
    return pacer


def report_decisions(rounds: int) -> None:
    """Print the times of finding, choosing and laying out branches."""
    draft, offered = draft_and_branches()
    branches = valid_branches(offered, draft, lambda *_: True)
    pacer, fixed = planned_pacer(), FixedPacer()
    most = NUM_NODES - LENGTH
    numbers = fixed.choose_branches(draft, branches, most)
    tree = DraftTree(draft, some_of(branches, numbers))
    logits = np.random.default_rng(0).normal(size=VOCABULARY).astype(np.float32)
    certain = Distribution.certain(int(logits.argmax()))
    task = DraftTask([1], Sampling(temperature=0.0), lambda *_: 0)
    beside = SideBranches(task, _Same(), ORIGIN)  # type: ignore[arg-type]

    def find() -> None:
        beside.clear()
        for fork in range(LENGTH):
            beside.add(logits, certain, fork, fork, BESIDE)

    def follow() -> None:
        tree.followed(0, branches[0].token, lambda *_: -1)

    actions: dict[str, Action] = {
        f"find branches beside {LENGTH} tokens, {VOCABULARY:,} in the vocabulary": find,
        "decide how many to look for": lambda: pacer.num_siblings(ORIGIN),
        "leave out useless ones": lambda: valid_branches(offered, draft, lambda *_: True),
        "choose, by what is known": lambda: pacer.choose_branches(draft, branches, most),
        "choose, at a fixed length": lambda: fixed.choose_branches(draft, branches, most),
        "number the places": lambda: DraftTree(draft, some_of(branches, numbers)),
        "follow the target's tokens": follow,
    }
    print("| in Python | microseconds |\n| --- | --- |")
    for name, median in zip(actions, microseconds(list(actions.values()), rounds), strict=True):
        print(f"| {name} | {median:.0f} |", flush=True)


class _Same:
    """A token map of one vocabulary."""

    def named(self, distribution: Distribution) -> Distribution:
        """Return the same tokens."""
        return distribution


def report_passes(context: TreeContext, depth: int, rounds: int) -> None:
    """Print what a pass over a tree and keeping a branch take, beside those of a chain."""
    context.prefill([1 + at % 1000 for at in range(depth)])
    tokens = list(range(7, 7 + LENGTH + 1))
    links = [(50 + number, number % LENGTH) for number in range(NUM_NODES - LENGTH)]
    chain = list(range(7, 7 + NUM_NODES + 1))

    def tree_pass() -> None:
        context.evaluate_tree(tokens, links, len(tokens))

    def keep() -> None:
        context.keep(depth + 2, [0])

    def after() -> None:
        context.rollback(depth)

    def chain_pass() -> None:
        context.evaluate(chain, len(chain))

    actions: list[Action] = [tree_pass, keep, after, chain_pass, after]
    on_tree, kept, _, on_chain, rolled = microseconds(actions, rounds)
    print(
        f"| {context.shape.ctx} | {depth} | {on_tree:.0f} | {on_chain:.0f}"
        f" | {kept:.0f} | {rolled:.0f} |",
        flush=True,
    )


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--depths", type=positive, nargs="+", default=[1000, 8000])
    parser.add_argument("--rounds", type=positive, default=200)
    parser.add_argument("--target", type=Path, help="a model, in place of the tiny one")
    options = parser.parse_args()
    report_decisions(options.rounds)
    print("\n| context | depth | pass, tree | pass, chain | keep | rollback |")
    print("| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        path = options.target or write_big_vocabulary(Path(folder) / "big.gguf")
        for depth in options.depths:
            ctx = depth + 192
            with LocalEngine(Loading(path, ctx=ctx, threads=1, learn=False, exact="off")) as engine:
                report_passes(engine.context, depth, options.rounds)


if __name__ == "__main__":
    main()
