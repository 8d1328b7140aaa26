"""Steps of answers in the store: read back as they were, bounded, and gone with their answer."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from specchat.chat import stored_steps
from specchat.chat.store import Store
from specchat.chat.stored_steps import StoredSteps, steps_column, steps_of
from specchat.decoding.chunk import Chunk, TreeToken
from tables import table

STEPS = (
    Chunk(
        "Hello w", (5, 6), ("draft", "target"), ("Hello", " w"), (5, 9, 7), ("orld", "!"),
        chances=((0.91, 0.5), (0.004, 1.0)),
        alternatives=(((5, "Hello", 0.8), (8, "\ud800\0", 0.1)), ((6, " w", 1.0),)),
    ),
    Chunk("", (3,), ("target",), ("",), finish="stop"),
)  # fmt: skip
TREE = (
    TreeToken("Hello", 0, "draft", is_accepted=True),
    TreeToken("\ud800", 1, "draft", is_accepted=False),
    TreeToken(" you", 1, "head", is_accepted=True),
    TreeToken(" they", 3, "suffix", is_accepted=False),
)


def written(store: Store, steps: tuple[Chunk, ...] = STEPS) -> int:
    """Add an answer with its steps; return its number."""
    question = store.add(store.begin().id, "user", "What?")
    answer = store.add(1, "assistant", "", question.id).id
    store.write(answer, "Hello w", finish="stop", steps=StoredSteps("Tiny", steps))
    return answer


def test_steps_survive_closing(tmp_path: Path) -> None:
    """All that a step shows; text that SQLite cannot hold is replaced."""
    with Store(tmp_path / "history.db") as store:
        answer = written(store)
        store.write(answer, "Hello w", finish="stop", statistics={"speedup": 2.0})  # a race
    with Store(tmp_path / "history.db") as store:
        found = store.steps(answer)
        assert store.steps(answer + 1) is None

    assert found is not None
    assert found.target == "Tiny"
    shown = STEPS[0]._replace(
        alternatives=(((5, "Hello", 0.8), (8, "?\ufffd", 0.1)), ((6, " w", 1.0),))
    )
    assert found.steps == (shown, STEPS[1])


def test_trees_survive_closing(tmp_path: Path) -> None:
    """With the origins of branches that no emitted token has; other steps have none."""
    step = Chunk(
        "Hello you!", (5, 7, 8), ("draft", "head", "target"), ("Hello", " you", "!"), (5, 7, 6),
        ("\ud800",), tree=TREE,
    )  # fmt: skip
    with Store(tmp_path / "history.db") as store:
        answer = written(store, (step, *STEPS))
    with Store(tmp_path / "history.db") as store:
        found = store.steps(answer)

    assert found is not None
    assert found.steps[0].tree == (TREE[0], TREE[1]._replace(text="?"), *TREE[2:])
    assert [each.tree for each in found.steps[1:]] == [(), ()]


def test_steps_stored_before_there_were_trees_are_read() -> None:
    """Rows without a tree are those of older conversations."""
    step = '[[5], [0], ["Hi"], [5, 6], 1, [], [], "stop"]'
    record = f'{{"origins": ["draft"], "pieces": [[6, "no"]], "steps": [{step}]}}'
    (found,) = steps_of(zlib.compress(record.encode()))
    assert found == Chunk("Hi", (5,), ("draft",), ("Hi",), (5, 6), ("no",), "stop")


@table(
    "tree",
    [
        '["a", 0, 0]',
        '["a", 1, 0, 0]',
        '["a", -1, 0, 0]',
        '["a", 0, 1, 0]',
        '["a", 0, 0, 0, "b", 1, 0, 1]',
        '["a", 0, 0, 1, "b", 0, 0, 1]',
        '["a", 0, 0, 1, "b", 1, 0, 1]',
        '["a", null, 0, 0]',
        '["a", Infinity, 0, 0]',
        "7",
    ],
)
def test_trees_that_are_none_of_their_draft_are_damaged(tree: str) -> None:
    """Parents come first, and what was accepted is one path, no longer than the step."""
    start, end = '{"origins": ["draft"], "pieces": [], "steps": [[[5], [0], ["Hi"], [5], 0', "]]}"
    assert steps_of(zlib.compress(f'{start}, [], [], "stop", ["a", 0, 0, 1]{end}'.encode()))
    assert steps_of(zlib.compress(f'{start}, [], [], "stop", {tree}{end}'.encode())) == ()


def test_an_answer_that_grows_again_has_no_steps(tmp_path: Path) -> None:
    """They would end before its text does if the chat crashed now."""
    with Store(tmp_path / "history.db") as store:
        answer = written(store)
        store.write(answer, "Hello wo")
        assert store.steps(answer) is None


def test_steps_go_with_their_answer(tmp_path: Path) -> None:
    """Once a deletion cannot be undone any more."""
    with Store(tmp_path / "history.db") as store:
        answer = written(store)
        store.delete_messages([answer])
        store.delete_messages([answer], undo=True)
        assert store.steps(answer) is not None
        store.delete_messages([answer])
        store.purge(older_than=-1.0)
        assert store.rows("SELECT * FROM steps", ()) == []


def test_the_steps_of_the_oldest_answers_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All together have a limit; their answers stay."""
    with Store(tmp_path / "history.db") as store:
        answers = [written(store) for _ in range(3)]
        size = len(steps_column(STEPS) or b"")
        monkeypatch.setattr("specchat.chat.store.MAX_TOTAL_BYTES", 2 * size)
        store.purge()
        assert [store.steps(each) is not None for each in answers] == [False, True, True]
        assert len(store.rows("SELECT * FROM message WHERE role = 'assistant'", ())) == 3


def test_too_many_steps_are_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor none at all."""
    assert steps_column(()) is None
    assert steps_column([Chunk("", finish="stop")]) is None
    monkeypatch.setattr(stored_steps, "MAX_BYTES", 20)
    assert steps_column(STEPS) is None


@table(
    "record",
    [
        b"",
        b"no zlib",
        zlib.compress(b"[1]"),
        zlib.compress(
            b'{"origins": [], "pieces": [], "steps": [[[1], [], [""], [], 0, [], [], 0]]}'
        ),
        zlib.compress(
            b'{"origins": ["a"], "pieces": [], "steps": [[[1], [7], [""], [], 0, [], []]]}'
        ),
        zlib.compress(b'{"origins": [], "pieces": [], "steps": [[[], [], [], [4], 1, [], [], 0]]}'),
        zlib.compress(b"[" * 100_000),
    ],
)
def test_damaged_records_hold_no_steps(record: bytes) -> None:
    """Whatever is damaged, nothing is raised."""
    assert steps_of(record) == ()
