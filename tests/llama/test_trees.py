"""Trees in real contexts: a branch reads what precedes it, and what is kept is all that stays."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from conftest import WriteModel
from llama.test_context import EXACT, KINDS, TEXT, TOLERANCE, fresh_logits
from specchat.errors import Cancelled
from specchat.llama.library import AbortFlag, api
from specchat.llama.model import Model
from specchat.llama.tree_context import TreeContext, lines_of
from specchat.planning.context_shape import MOST_BRANCHES
from tables import table

TREES = [name for name, kind in KINDS.items() if kind == "tail"]


@contextmanager
def tree_context(
    tiny: WriteModel, architecture: str, abort: AbortFlag | None = None, **options: Any
) -> Iterator[TreeContext]:
    """Load a tiny model and make a context with branches of it."""
    chosen = replace(EXACT, has_branches=True, **options)
    with Model(tiny(architecture), chosen) as model:
        context = TreeContext(model, chosen, abort)
        with context:
            yield context


def paths(tokens: list[int], links: list[tuple[int, int]], num_rows: int) -> list[list[int]]:
    """Return the text behind each row and each branch, with the tokens before the pass."""
    text = [*TEXT[:40], *tokens]
    first = len(text) - num_rows + 1
    found = [text[:end] for end in range(first, len(text) + 1)]
    for token, row in links:
        found.append([*(text[: first + row] if row < num_rows else found[row]), token])
    return found


def last_logits(tiny: WriteModel, path: list[int]) -> np.ndarray:
    """Return the logits after the last token of a path, read by itself."""
    with tree_context(tiny, "llama") as context:
        context.prefill(path[:-1])
        return np.array(context.evaluate(path[-1:], 1)[0])


def num_lines_beyond(context: TreeContext) -> int:
    """Return how many sequences have tokens in llama.cpp's memory that are not the text's."""
    memory, length = api.llama_get_memory(context.handle), context.num_evaluated
    count = int(api.llama_n_seq_max(context.handle))
    return sum(api.llama_memory_seq_pos_max(memory, line) >= length for line in range(1, count))


@table("architecture", TREES)
def test_each_branch_reads_its_own_path(tiny: WriteModel, architecture: str) -> None:
    """Random trees give the logits of each path read by itself."""
    random = np.random.default_rng(4)
    for _ in range(6):
        num_tokens, num_rows = int(random.integers(1, 6)), 1
        num_rows = int(random.integers(1, num_tokens + 1))
        tokens = [int(each) for each in random.integers(3, 250, num_tokens)]
        links = [
            (int(random.integers(3, 250)), int(random.integers(-5, num_rows + number)))
            for number in range(int(random.integers(1, 9)))
        ]
        with tree_context(tiny, architecture) as context:
            context.prefill(TEXT[:40])
            rows = [np.array(row) for row in context.evaluate_tree(tokens, links, num_rows)]
            assert context.tokens == [*TEXT[:40], *tokens]
            context.keep(40, ())
            for row, path in zip(rows, paths(tokens, links, num_rows), strict=True):
                context.rollback(30)
                alone = context.evaluate(path[30:], 1)[0]
                assert np.abs(row - alone).max() < TOLERANCE


@table("architecture", TREES)
@table(
    ("length", "branches"),
    [
        (46, []),
        (45, []),
        (41, []),
        (43, [0]),
        (44, [0, 2]),
        (45, [0, 2, 3]),
        (44, [0, 5]),
        (46, [4]),
        (44, [1]),
    ],
)
def test_what_is_kept_is_all_that_stays(
    tiny: WriteModel, architecture: str, length: int, branches: list[int]
) -> None:
    """The text goes on behind the accepted branches as one that was read in order."""
    tokens = [20, 21, 22, 23, 24, 25]
    links = [(7, 0), (8, 1), (9, 5), (10, 7), (11, 3), (12, 5)]  # rows 0 to 4 are the text's
    with tree_context(tiny, architecture) as context:
        context.prefill(TEXT[:40])
        context.evaluate_tree(tokens, links, 5)
        chosen = [links[number][0] for number in branches]
        kept = [*TEXT[:40], *tokens][: length - len(branches)] + chosen
        context.keep(length, branches)
        assert context.tokens == kept
        assert context.num_evaluated == length - len(branches)
        assert num_lines_beyond(context) == 0
        found = np.array(context.evaluate([42], 1)[0])
        context.rollback(length)
        again = np.array(context.evaluate([42], 1)[0])
    wanted = fresh_logits(tiny, architecture, kept)
    assert np.abs(found - wanted).max() < TOLERANCE
    assert np.abs(again - wanted).max() < TOLERANCE


def test_steps_with_trees_follow_one_another(tiny: WriteModel) -> None:
    """Thirty trees in a row, each kept in part, leave the memory of the text alone."""
    random = np.random.default_rng(1)
    with tree_context(tiny, "llama") as context:
        context.prefill(TEXT[:10])
        for _ in range(30):
            tokens = [int(each) for each in random.integers(3, 250, 4)]
            links = [(int(random.integers(3, 250)), int(random.integers(0, 4))) for _ in range(6)]
            start = context.length
            context.evaluate_tree(tokens, links, 4)
            number = int(random.integers(0, 6))
            context.keep(start + links[number][1] + 2, [number])
        text = list(context.tokens)
        found = np.array(context.evaluate([42], 1)[0])
        assert num_lines_beyond(context) == 0
    assert np.abs(found - fresh_logits(tiny, "llama", text)).max() < TOLERANCE


@table("architecture", [name for name, kind in KINDS.items() if kind != "tail"])
def test_other_memories_hold_no_branches(tiny: WriteModel, architecture: str) -> None:
    """Windows and recurrent states have no sequences for them, and take no more memory."""
    with tree_context(tiny, architecture) as context:
        assert context.most_branches == 0
        assert int(api.llama_n_seq_max(context.handle)) == 1


def test_a_tree_may_follow_more_tokens_than_fit_a_pass(tiny: WriteModel) -> None:
    """As behind a long run that a grammar forces, or with small batches."""
    links = [(7, 0), (8, 2), (9, 3)]
    with tree_context(tiny, "llama", batch=1) as context:
        context.prefill(TEXT[:40])
        tokens = TEXT[40:240]
        assert len(tokens) > context.shape.ubatch
        rows = [np.array(row) for row in context.evaluate_tree(tokens, links, 3)]
        context.keep(241, [1])
        assert num_lines_beyond(context) == 0
        found = np.array(context.evaluate([42], 1)[0])
    text = TEXT[:240]
    for row, path in zip(
        rows, [text[:-2], text[:-1], text, [*text[:-2], 7], [*text, 8], [*text[:-2], 7, 9]],
        strict=True,
    ):  # fmt: skip
        assert np.abs(row - last_logits(tiny, path)).max() < TOLERANCE
    assert np.abs(found - fresh_logits(tiny, "llama", [*text, 8])).max() < TOLERANCE


def test_a_copy_has_the_branches_that_were_kept(tiny: WriteModel) -> None:
    """They are read again before it is made, so that a text which is set aside is whole."""
    with tree_context(tiny, "llama") as context:
        context.prefill(TEXT[:40])
        context.evaluate_tree([5, 6], [(7, 1), (8, 2)], 2)
        context.keep(44, [0, 1])
        text = list(context.tokens)
        snapshot = context.snapshot()
        assert list(snapshot.tokens) == text
        context.prefill([9, 10, 11])
        context.restore(snapshot)
        found = np.array(context.evaluate([42], 1)[0])
    assert np.abs(found - fresh_logits(tiny, "llama", text)).max() < TOLERANCE


def test_too_many_branches_are_refused(tiny: WriteModel) -> None:
    """As is a tree with more rows than the context has."""
    with tree_context(tiny, "llama") as context:
        assert context.most_branches == MOST_BRANCHES
        for tokens, count in (([1], MOST_BRANCHES + 1), ([1, 2, 3, 4], MOST_BRANCHES - 2)):
            with pytest.raises(ValueError, match="too many"):
                context.evaluate_tree(tokens, [(5, 0)] * count, len(tokens))


@table("ending", ["rollback", "evaluate", "prefill", "snapshot", "keep"])
def test_a_tree_that_is_not_kept_leaves_no_sequence(tiny: WriteModel, ending: str) -> None:
    """Whatever is asked for next, as after an error between the pass and its end."""
    with tree_context(tiny, "llama") as context:
        context.prefill(TEXT[:10])
        context.evaluate_tree([1, 2], [(3, 0), (4, 2), (5, 1)], 2)
        assert num_lines_beyond(context) == 3 - 1
        if ending == "rollback":
            context.rollback(10)
        elif ending == "evaluate":
            context.evaluate([6], 1)
        elif ending == "prefill":
            context.prefill(TEXT[:5])
        elif ending == "snapshot":
            context.snapshot()
        else:
            context.keep(11, ())
        assert num_lines_beyond(context) == 0


def test_a_stopped_tree_leaves_the_memory_as_it_was(tiny: WriteModel) -> None:
    """The pass may end at any of llama.cpp's operations."""
    abort = AbortFlag()
    with tree_context(tiny, "llama", abort, ctx=4096) as context:
        context.prefill(TEXT[:20])
        num_stopped = 0
        for number in range(60):
            timer = threading.Timer(number * 2e-5, abort.set)
            timer.start()
            try:
                context.evaluate_tree([1, 2, 3], [(4, 0), (5, 1), (6, 3)], 3)
                timer.join()
                abort.clear()
                context.keep(20, ())
            except Cancelled:
                num_stopped += 1
                timer.join()
                abort.clear()
            assert context.tokens == TEXT[:20]
            assert context.num_evaluated == 20
            assert num_lines_beyond(context) == 0
        found = np.array(context.evaluate([42], 1)[0])
    assert num_stopped
    assert np.abs(found - fresh_logits(tiny, "llama", TEXT[:20])).max() < TOLERANCE


def test_lines_end_where_nothing_hangs_behind() -> None:
    """Each has all branches from the fork to its end."""
    assert lines_of([(1, 0), (2, 2), (3, 3), (4, 1), (5, 2)], 2) == [[0, 1, 2], [3], [0, 4]]
