"""Steps of an answer on the screen: after a restart, and continuing from a token of them."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from textual.containers import VerticalScroll
from textual.widgets import Static

from scripted_chat import Script, chat
from specchat.chat.store import Store
from specchat.decoding.chunk import Chunk, TreeToken
from specchat.tui.screens.steps_screen import StepsScreen
from specchat.tui.texts.step_drawing import drawn
from specchat.tui.texts.step_text import sentence, story
from specchat.tui.texts.step_tokens import (
    DROPPED,
    KEPT,
    OWN,
    fate,
    index_in_answer,
    tokens_of,
)
from specchat.tui.texts.step_tokens import FORCED as MARK_FORCED
from tables import table
from tui.driving import say, screen_text, until

pytestmark = pytest.mark.anyio
SIZE = (100, 34)
OTHERS = ((0, "abcd", 0.6), (77, " other", 0.3), (2, "ijkl", 0.1))


@pytest.mark.slow
async def test_steps_are_there_after_a_restart(tmp_path: Path) -> None:
    """With their alternatives; an answer from before says why it has none."""
    path = tmp_path / "history.db"
    async with chat(Script(["abcdefghijkl"], alternatives=OTHERS), path).run_test(size=SIZE) as p:
        await say(p, "Steps")
    with Store(path) as store:
        question = store.add(1, "user", "Old", 2)
        store.write(store.add(1, "assistant", "", question.id).id, "old answer", finish="stop")
    app = chat(Script(), path)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await app.actions.conversations.open(1)
        await pilot.press("f6")
        await until(pilot, lambda: bool(app._notifications))
        assert "has no stored steps" in next(iter(app._notifications)).message
        app.view.transcript.views[1].arm()
        await pilot.press("s")
        await until(
            pilot, lambda: "1 abcd    ███████       60 %  in the answer" in screen_text(app)
        )
        assert "2 ·other  ████          30 %" in screen_text(app)


@pytest.mark.slow
async def test_the_first_draft_is_shown_first() -> None:
    """Plain steps before it are skipped; without drafts the first step is shown."""
    plain = Chunk("a", (1,), ("target",), ("a",))
    rejected = Chunk("b", (2,), ("target",), ("b",), proposed=(3,), rejected=("no",))
    app = chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        await app.push_screen(StepsScreen([plain, plain, rejected, plain]))
        await until(pilot, lambda: "step 3 of 4" in screen_text(app))
        await pilot.press("escape")
        await app.push_screen(StepsScreen([plain, plain]))
        await until(pilot, lambda: "step 1 of 2" in screen_text(app))


@pytest.mark.slow
@pytest.mark.parametrize("is_clicked", [False, True])
async def test_another_token_begins_a_version_of_its_own(is_clicked: bool) -> None:
    """What came before it is kept by its tokens; the answer before stays beside it."""
    script = Script(["abcdefghijkl", "more"], alternatives=OTHERS)
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Steps")
        await pilot.press("f6", "down")
        await until(pilot, lambda: "[✔ efgh]" in screen_text(app))
        if is_clicked:
            line = app.screen.query_one("#step", Static)
            rows = str(line.render()).split("\n")
            row = next(place for place, words in enumerate(rows) if words.startswith("2 ·other"))
            await pilot.click(line, offset=(4, row))
        else:
            await pilot.press("2")
        await until(pilot, lambda: app.answers.current is None and len(script.asked) == 2)
        turns, options = script.asked[1]
        assert [each["role"] for each in turns] == ["user"]
        (begun,) = options["begun"]
        assert (begun.tokens, begun.origins) == ((0, 77), ("draft", "chosen"))
        assert begun.texts == ("abcd", "")
        answer = app.conversations.branch[-1].id
        assert app.conversations.tree.version(answer) == (2, 2)
        await until(pilot, lambda: "2/2" in screen_text(app))


@pytest.mark.slow
async def test_a_number_without_an_alternative_says_so() -> None:
    """A rejected token after the first one has no place in the answer."""
    steps = [
        Chunk("a", (1,), ("target",), ("a",), (2, 3), ("no", "nor"), alternatives=(OTHERS,)),
    ]
    app = chat(Script())
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await app.push_screen(StepsScreen(steps))
        await until(pilot, lambda: "[✘ no]" in screen_text(app))
        assert "2 ·other" in screen_text(app)
        await pilot.press("down", "1")
        await until(pilot, lambda: bool(app._notifications))
        assert "No alternative" in next(iter(app._notifications)).message
        assert "2 ·other" not in screen_text(app)
        await pilot.press("down")
        await until(pilot, lambda: "[+ a]" in screen_text(app))
        assert "2 ·other" in screen_text(app)


@pytest.mark.slow
async def test_another_targets_answer_is_not_continued(tmp_path: Path) -> None:
    """Its tokens mean something else to this one; the notice names who wrote it."""
    script = Script(["abcdefghijkl"], alternatives=OTHERS)
    app = chat(script)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await say(pilot, "Steps")
        steps = app.conversations.store.steps(app.conversations.branch[-1].id)
        assert steps is not None
        await app.state.questions.branch_off(
            app.conversations.branch[-1].id, steps.steps, "Other 1B"
        )
        await until(pilot, lambda: bool(app._notifications))
        assert "Other 1B wrote this answer" in next(iter(app._notifications)).message
        assert len(script.asked) == 1


LONG = [
    Chunk(f"word{number} ", (number,), ("target",), (f"word{number} ",)) for number in range(400)
]
DRAFTED = Chunk(
    "abc", (1, 2, 3), ("draft", "suffix", "target"), ("a ", "b ", "c "), (1, 2, 9), ("no ",),
    chances=((0.9, 0.8), (0.5, 1.0), (0.1, 0.7)), alternatives=((*OTHERS, *OTHERS),) * 3,
)  # fmt: skip

FORCED = Chunk(
    "abcde", (1, 2, 3, 4, 5), ("draft", "grammar", "target", "grammar", "grammar"), tuple("abcde"),
    (1, 2, 9), ("no",), chances=((0.9, 0.8), (1.0, 1.0), (0.1, 0.7)),
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("size", [(60, 20), (80, 24), (120, 36)], ids=str)
async def test_steps_explain_themselves_on_every_screen(size: tuple[int, int]) -> None:
    """What a step is, where it stands, what the colours mean, and what 1 to 6 do, at one look."""
    app = chat(Script())
    async with app.run_test(size=size) as pilot:
        await app.push_screen(StepsScreen([*LONG[:200], DRAFTED, *LONG[200:]]))
        await until(pilot, lambda: bool(re.search(r"(?<!\w)6 ijkl ", screen_text(app))))
        assert "step 201 of 401" in screen_text(app)
        shown = " ".join(each.strip("│ ") for each in screen_text(app).splitlines())
        assert "3 tokens drafted and checked in one pass: the target accepted 2 and" in shown
        assert "word199 a b c word200" in shown
        for mark in ("✔ accepted: draft model", "✔ accepted: suffix lookup", "✘ rejected"):
            assert mark in shown
        assert "[a] accepted · probability: drafter 80 % · target 90 %" in shown.replace("a·", "a")
        assert re.search("Most probable (here )?at temperature 1 · ", shown)
        for number in range(1, 7):
            assert re.search(rf"(?<!\w){number} (abcd|·other|ijkl) ", shown)
        for key in ("Esc Close", "←→ Step", "↑↓ Token", "1-6 Go on", "d Draft", "x Rejected"):
            assert key in shown
        area = app.screen.query_one(VerticalScroll)
        assert area.max_scroll_y == 0


@table(
    ("step", "words"),
    [
        (LONG[0], "Nothing was drafted: the target wrote 1 token in one pass."),
        (DRAFTED, "the target accepted 2 and replaced the next one."),
        (DRAFTED._replace(rejected=()), "the target accepted all and added 1 of its own."),
        (Chunk("a", (1,), ("draft",), ("a",)), "1 token drafted"),
        (
            Chunk("a", (1,), ("target",), ("a",), (2,), ("no",)),
            "the target accepted none and wrote its own.",
        ),
        (Chunk("a", (1,), ("chosen",), ("a",)), "You chose the last token"),
        (
            FORCED,
            "2 tokens drafted and checked in one pass: the target accepted 1 and replaced",
        ),
        (
            FORCED,
            "The grammar forced 1 in between. The grammar forced the next 2 tokens.",
        ),
    ],
)
def test_what_a_step_did_is_said_in_a_sentence(step: Chunk, words: str) -> None:
    """In numbers that agree with its tokens."""
    assert words in story(step)


def test_what_a_grammar_forces_is_told_from_what_was_drafted() -> None:
    """Within a draft and behind it; what a token is replaced by has that one's place."""
    marks = [(each.mark, each.text) for each in tokens_of(FORCED)]
    assert marks == [
        (KEPT, "a"), (MARK_FORCED, "b"), (DROPPED, "no"), (OWN, "c"), (MARK_FORCED, "d"),
        (MARK_FORCED, "e"),
    ]  # fmt: skip
    assert [index_in_answer(FORCED, chip) for chip in range(6)] == [0, 1, 2, 2, 3, 4]
    assert "forced by the grammar" in fate(FORCED, 1, 0.8).plain
    assert "rejected" in fate(FORCED, 2, 0.8).plain
    assert "correction" in fate(FORCED, 3, 0.8).plain


def test_the_text_around_a_step_is_cut_at_both_ends() -> None:
    """A token without a text, such as a part of a character, has its place too."""
    for step in (DRAFTED, DRAFTED._replace(texts=("", "", ""))):
        lines = sentence([*LONG[:200], step, *LONG[200:]], 200, 0, 40, 5)
        words = "\n".join(line.plain for line in lines)
        assert len(lines) == 5
        assert words.startswith("… ")
        assert "word199" in words
        assert "word200" in words
    assert sentence([DRAFTED], 0, 0, 40, 5)[0].plain.rstrip() == "a b c"


def tree_of(*tokens: tuple[str, int], accepted: tuple[int, ...]) -> tuple[TreeToken, ...]:
    """Return a tree of tokens and their parents, of which some were accepted."""
    return tuple(
        TreeToken(text, parent, "draft", number in accepted)
        for number, (text, parent) in enumerate(tokens, 1)
    )


TREE = Chunk(
    "The cat ran away", (1, 2, 5, 9), ("draft", "draft", "draft", "target"),
    ("The", " cat", " ran", " away"), (1, 2, 5, 3, 4), (" sat", " on"),
    chances=((0.9, 0.8), (0.5, 0.4), (0.1, 0.7)), alternatives=(OTHERS,) * 4,
    tree=tree_of(
        ("The", 0), (" cat", 1), (" sat", 2), (" on", 3), (" dog", 1), (" ran", 2), ("A", 0),
        ("\n", 2), (" big", 5), (" bad", 5), accepted=(1, 2, 6),
    ),
)  # fmt: skip


def plain_lines(step: Chunk, cursor: int, width: int) -> list[str]:
    """Return a step as it is drawn, without colours."""
    return [line.plain.rstrip() for line in drawn(step, cursor, width)[0]]


def test_a_tree_is_drawn_with_its_branches_below() -> None:
    """Where they fork; heavy lines join what was accepted."""
    assert plain_lines(TREE, 0, 60) == [
        "┯[✔ The]┯ ✔ ·cat ┱ ✘ ·sat ─ ✘ ·on",
        "│       │        ┡ ✔ ·ran ━ + ·away",
        "│       │        └ ✘ ⏎",
        "│       └ ✘ ·dog ┬ ✘ ·big",
        "│                └ ✘ ·bad",
        "└ ✘ A",
    ]


def test_a_narrow_tree_goes_on_below() -> None:
    """A line ends where the next token would not fit with what hangs below it."""
    assert plain_lines(TREE, 5, 24) == [
        "┯ ✔ The ┯ ✔ ·cat ━",
        "│       └ ✘ ·dog ─",
        "│        ┬ ✘ ·big",
        "│        └[✘ ·bad]",
        "└ ✘ A",
        "┱ ✘ ·sat ─ ✘ ·on",
        "┡ ✔ ·ran ━ + ·away",
        "└ ✘ ⏎",
    ]
    assert drawn(TREE, 5, 24)[1] == 3


@table("accepted", [(), (1,), (1, 2)])
def test_the_targets_own_token_is_in_the_tree(accepted: tuple[int, ...]) -> None:
    """Behind the accepted ones: on the draft, beside it, or below the first token."""
    tree = tree_of(("a", 0), ("b", 1), ("c", 0), accepted=accepted)
    texts = (*"ab"[: len(accepted)], "x")
    origins = (*["draft"] * len(accepted), "target")
    step = Chunk("", tuple(range(len(texts))), origins, texts, tree=tree)
    own = next(each for each in tokens_of(step) if each.mark == OWN)
    assert own.place == len(accepted)
    assert (
        plain_lines(step, 9, 40)
        == {
            0: ["┱ ✘ a ─ ✘ b", "┠ ✘ c", "┗ + x"],
            1: ["┯ ✔ a ┱ ✘ b", "│     ┗ + x", "└ ✘ c"],
            2: ["┯ ✔ a ━ ✔ b ━ + x", "└ ✘ c"],
        }[len(accepted)]
    )


def test_every_tree_fits_its_lines() -> None:
    """With all of its tokens, whatever their texts; a tree of too many forks is not drawn."""
    texts = ["a", "\n", "世界世界世界世界", " of a long token without an end", "\x1b[31m", ""]
    randomly = random.Random(5)
    for width in (34, 60, 100):
        for _ in range(60):
            count = randomly.randrange(1, 33)
            parents = [max(0, at - randomly.choice([0, 0, 1, 2, 5])) for at in range(count)]
            kept = [number for number in range(1, count + 1) if number <= count % 4]
            kept = [number for number in kept if parents[:number] == list(range(number))]
            tree = tree_of(
                *((randomly.choice(texts), parent) for parent in parents), accepted=tuple(kept)
            )
            origins = (*["draft"] * len(kept), "target")
            step = Chunk("", (1,) * len(origins), origins, ("x",) * len(origins), tree=tree)
            lines, row = drawn(step, count, width)
            words = "".join(line.plain for line in lines)
            assert all(line.cell_length <= width for line in lines)
            assert words.count("✘") + words.count("✔") + words.count("+") == count + 1
            assert "[" in lines[row].plain.replace("[31m", "")
            assert "\x1b" not in words
    forks = ((f"t{at}", max(0, at - at % 2 - 1)) for at in range(2000))
    deep = Chunk("", (1,), ("target",), ("x",), tree=tree_of(*forks, accepted=()))
    assert len(drawn(deep, 0, 80)[0]) > 100


def test_tokens_of_a_tree_say_what_became_of_them() -> None:
    """What competed for a place has its index; probabilities are those of the draft alone."""
    found = {each.text: place for place, each in enumerate(tokens_of(TREE))}
    words = {text: fate(TREE, place, 0.2).plain.partition("] ")[2] for text, place in found.items()}
    assert list(found) == [
        "The", "A", " cat", " dog", " big", " bad", " sat", " ran", " away", "\n", " on"
    ]  # fmt: skip
    assert "drafter 40 % · target 50 %" in words[" cat"]
    assert "rejected · at temperature 0.2: drafter 70 % · target 10 %" in words[" sat"]
    assert words[" ran"] == "accepted: a branch beside the draft"
    assert words[" dog"] == words["\n"] == "rejected: a branch beside the draft"
    assert words[" big"] == words[" on"] == "not checked: a token before it was rejected"
    assert words[" away"] == "free token: it follows an accepted branch"
    assert [index_in_answer(TREE, found[text]) for text in ("A", " dog", " sat", " away")] == [
        0, 1, 2, 3,
    ]  # fmt: skip
    assert index_in_answer(TREE, found[" on"]) == len(TREE.tokens)
    assert story(TREE) == "A tree of 10 tokens: the target accepted 3 (1 on a branch) and added 1."


@pytest.mark.slow
@pytest.mark.parametrize("size", [(40, 20), (120, 36)], ids=str)
async def test_a_tree_can_be_walked_and_left_at_a_branch(size: tuple[int, int]) -> None:
    """The tokens before the chosen one stay, with what is known of them."""
    app = chat(Script())
    chosen: list[Chunk] = []
    async with app.run_test(size=size) as pilot:
        await app.push_screen(
            StepsScreen([*LONG[:3], TREE]), lambda steps: chosen.extend(steps or ())
        )
        await until(pilot, lambda: "[✔ The]" in screen_text(app))
        await pilot.press("x")
        await until(pilot, lambda: "[✘ ·sat]" in screen_text(app))
        await pilot.press("down", "down")
        await until(pilot, lambda: "[+ ·away]" in screen_text(app))
        await pilot.press("2")
        await until(pilot, lambda: bool(chosen))
    last = chosen[-1]
    assert last.tokens == (1, 2, 5, 77)
    assert last.origins == ("draft", "draft", "draft", "chosen")
    assert last.chances == ((0.9, 0.8), (0.5, 0.4))
    assert last.tree == ()


@pytest.mark.slow
async def test_trees_are_drawn_after_a_restart(tmp_path: Path) -> None:
    """As they were stored with their answer; texts that control a terminal are not shown."""
    path = tmp_path / "history.db"
    tree = tree_of(("abcd", 0), ("no", 1), ("\x1b[2J", 0), ("efgh", 1), accepted=(1, 4))
    async with chat(Script(["abcdefghijkl"], tree=tree), path).run_test(size=SIZE) as pilot:
        await say(pilot, "Steps")
    app = chat(Script(), path)
    async with app.run_test(size=SIZE) as pilot:
        await app.actions.conversations.open(1)
        await pilot.press("f6")
        await until(pilot, lambda: "┱ ✘ no" in screen_text(app))
        assert "┗ ✔ efgh ━ + ijkl" in screen_text(app)
        assert "└ ✘ \ufffd[2J" in screen_text(app)
