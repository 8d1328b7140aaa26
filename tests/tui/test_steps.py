"""Steps of an answer on the screen: after a restart, and continuing from a token of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from textual.containers import VerticalScroll
from textual.widgets import Static

from scripted_chat import Script, chat
from specchat.chat.store import Store
from specchat.decoding.chunk import Chunk
from specchat.tui.screens.steps_screen import StepsScreen
from specchat.tui.step_text import (
    DROPPED,
    KEPT,
    OWN,
    fate,
    index_in_answer,
    marked_tokens,
    sentence,
    story,
)
from specchat.tui.step_text import FORCED as MARK_FORCED
from tui.driving import say, screen_text, until

pytestmark = pytest.mark.anyio
SIZE = (100, 34)
OTHERS = ((0, "abcd", 0.6), (77, " other", 0.3), (2, "ijkl", 0.1))


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
        assert app.conversations.version(answer) == (2, 2)
        await until(pilot, lambda: "2/2" in screen_text(app))


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


async def test_another_targets_answer_is_not_continued(tmp_path: Path) -> None:
    """Its tokens mean something else to this one; the notice names who wrote it."""
    script = Script(["abcdefghijkl"], alternatives=OTHERS)
    app = chat(script)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await say(pilot, "Steps")
        steps = app.conversations.steps(app.conversations.branch[-1].id)
        assert steps is not None
        await app.answers.branch_off(app.conversations.branch[-1].id, steps.steps, "Other 1B")
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


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (120, 36)], ids=str)
async def test_steps_explain_themselves_on_every_screen(size: tuple[int, int]) -> None:
    """What a step is, where it stands, what the colours mean, and what 1 to 6 do, at one look."""
    app = chat(Script())
    async with app.run_test(size=size) as pilot:
        await app.push_screen(StepsScreen([*LONG[:200], DRAFTED, *LONG[200:]]))
        await until(pilot, lambda: bool(re.search(r"(?<!\w)6 ijkl ", screen_text(app))))
        assert "step 201 of 401" in screen_text(app)
        shown = " ".join(each.strip("│ ") for each in screen_text(app).splitlines())
        assert "3 tokens were drafted and checked in one pass: the target kept 2 and" in shown
        assert "word199 a b c word200" in shown
        for mark in ("✔ accepted: draft model", "✔ accepted: suffix lookup", "✘ rejected"):
            assert mark in shown
        assert "[a] kept · probability: drafter 80 % · target 90 %" in shown.replace("a·", "a")
        assert "Most probable here" in shown
        for number in range(1, 7):
            assert re.search(rf"(?<!\w){number} (abcd|·other|ijkl) ", shown)
        for key in ("esc Close", "←→ Step", "↑↓ Token", "1-6 Go on", "d Draft", "x Rejected"):
            assert key in shown
        area = app.screen.query_one(VerticalScroll)
        assert area.max_scroll_y == 0


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (LONG[0], "Nothing was drafted: the target wrote 1 token in one pass."),
        (DRAFTED, "the target kept 2 and replaced the next one."),
        (DRAFTED._replace(rejected=()), "the target kept all and added 1 of its own."),
        (Chunk("a", (1,), ("draft",), ("a",)), "1 token was drafted"),
        (
            Chunk("a", (1,), ("target",), ("a",), (2,), ("no",)),
            "the target kept none and wrote its own.",
        ),
        (Chunk("a", (1,), ("chosen",), ("a",)), "You chose the last token"),
        (FORCED, "2 tokens were drafted and checked in one pass: the target kept 1 and replaced"),
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
    marks = [(mark, text) for mark, text, _ in marked_tokens(FORCED)]
    assert marks == [
        (KEPT, "a"), (MARK_FORCED, "b"), (DROPPED, "no"), (OWN, "c"), (MARK_FORCED, "d"),
        (MARK_FORCED, "e"),
    ]  # fmt: skip
    assert [index_in_answer(FORCED, chip) for chip in range(6)] == [0, 1, 2, 2, 3, 4]
    assert "forced by the grammar" in fate(FORCED, 1).plain
    assert "rejected" in fate(FORCED, 2).plain
    assert "correction" in fate(FORCED, 3).plain


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
