"""What the screen says about an answer that was cut, a long step, an edit, and keys in vain."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from textual.widgets import Footer, Input, Static

from scripted_chat import Script, chat
from specchat.chat.store import Store
from specchat.decoding.chunk import Chunk
from specchat.tui.app import ChatApp
from specchat.tui.screens.dialogs import ChoiceScreen, LineScreen
from specchat.tui.screens.steps_screen import StepsScreen
from specchat.tui.widgets.composer import Composer
from tui.driving import ask_twice, say, screen_text, status, stop_halfway, type_keys, until

pytestmark = pytest.mark.anyio
SIZE = (110, 34)


def note(app: ChatApp) -> str:
    """Return the line below the last answer."""
    return str(app.query(".note").last(Static).render())


def notices(app: ChatApp) -> list[str]:
    """Return what notices say."""
    return [each.message for each in app._notifications]


@pytest.mark.slow
async def test_a_long_draft_is_shown_with_its_correction_and_the_keys() -> None:
    """Where its chips do not fit the step scrolls, and nothing else leaves the dialog."""
    texts = tuple(f"kept{number}" for number in range(20))
    step = Chunk("".join(texts), tuple(range(21)), ("draft",) * 20, texts, rejected=("no",) * 9)
    step = step._replace(origins=(*step.origins, "target"), texts=(*texts, "right"))
    app = chat(Script())
    async with app.run_test(size=(60, 20)) as pilot:
        screen = StepsScreen([step])
        await app.push_screen(screen)
        await until(pilot, lambda: "step 1 of 1" in screen_text(app))
        dialog = screen.query_one(".dialog").region
        for part in (screen.query_one("#place"), *screen.query(Footer)):
            assert part.region.bottom < dialog.bottom
            assert part.region.height > 0
        keys = ("Close", "Step", "Token", "Go on", "Draft", "Rejected")
        await until(pilot, lambda: "+ right" in screen_text(app))
        await until(pilot, lambda: all(key in screen_text(app) for key in keys))


@pytest.mark.slow
async def test_the_cursor_stays_in_view_in_a_long_draft() -> None:
    """It scrolls the step, down and up again."""
    texts = tuple(f"kept{number}" for number in range(40))
    step = Chunk("".join(texts), tuple(range(40)), ("draft",) * 40, texts)
    app = chat(Script())
    async with app.run_test(size=(60, 20)) as pilot:
        await app.push_screen(StepsScreen([step]))
        await until(pilot, lambda: "[✔ kept0]" in screen_text(app))
        for key, places in ("down", range(1, 40)), ("up", reversed(range(39))):
            for place in places:
                await pilot.press(key)
                await until(pilot, lambda chip=f"[✔ kept{place}]": chip in screen_text(app))  # type: ignore[misc]


async def test_keys_jump_to_the_next_draft_and_to_the_next_rejected_token() -> None:
    """Over plain steps and kept tokens; at the end they say that there is no other."""
    plain = Chunk("a", (1,), ("target",), ("a",))
    kept = Chunk("bc", (2, 3), ("draft", "target"), ("b", "c"))
    mixed = Chunk("de", (4, 5), ("draft", "target"), ("d", "e"), rejected=("no", "nor"))
    app = chat(Script())
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await app.push_screen(StepsScreen([plain, plain, kept, plain, mixed]))
        await until(pilot, lambda: "[✔ b]" in screen_text(app))  # the first draft
        await pilot.press("home")
        await until(pilot, lambda: "[+ a]" in screen_text(app))
        keys = screen_text(app)
        assert "d Draft" in keys
        assert "x Rejected" in keys
        for key, number, chip in (
            ("d", 3, "[✔ b]"),
            ("d", 5, "[✔ d]"),
            ("home", 1, "[+ a]"),
            ("x", 5, "[✘ no]"),
            ("x", 5, "[✘ nor]"),
            ("x", 5, "[✘ nor]"),
        ):
            assert notices(app) == []
            await pilot.press(key)
            await until(pilot, lambda words=f"step {number} of": words in screen_text(app))  # type: ignore[misc]
            await until(pilot, lambda words=chip: words in screen_text(app))  # type: ignore[misc]
        await until(pilot, lambda: notices(app) == ["No rejected token after this one."])


@pytest.mark.slow
async def test_the_token_that_ends_an_answer_is_named() -> None:
    """It has no text, but it is not a part of a character; an unfinished answer has none."""
    steps = [
        Chunk("Hi", (1, 2), ("draft", "target"), ("Hi", "")),
        Chunk("!", (3, 4), ("draft", "target"), ("!", "")),
        Chunk("", finish="stop"),
    ]
    app = chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        await app.push_screen(StepsScreen(steps))
        await until(pilot, lambda: "part of a character" in screen_text(app))
        await pilot.press("right")
        await until(pilot, lambda: "+ (end of answer)" in screen_text(app))
        await pilot.press("escape")
        await app.push_screen(StepsScreen([*steps[:2], Chunk("", finish="length")]))
        await pilot.press("right")
        await until(pilot, lambda: "step 2 of 2" in screen_text(app))
        assert "end of answer" not in screen_text(app)


@pytest.mark.slow
async def test_a_stopped_answer_stays_marked(tmp_path: Path) -> None:
    """After a switch of versions and after reopening."""
    script = Script(["one two three four five six"], hold=threading.Event())
    app = chat(script, tmp_path / "history.db")
    async with app.run_test(size=SIZE) as pilot:
        await stop_halfway(pilot, script)
        await pilot.press("f5")
        await until(pilot, lambda: app.answers.current is None and len(script.asked) == 2)
        assert "stopped" not in note(app)
        app.view.transcript.views[-1].focus()
        await pilot.press("left")
        await until(pilot, lambda: note(app).startswith("stopped"))
        number = app.conversations.number or 0
        await app.actions.conversations.new()
        await app.actions.conversations.open(number)
        await until(pilot, lambda: note(app).startswith("stopped"))


async def test_an_answer_cut_by_a_crash_is_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store has no word of how it ended; Ctrl+G continues it."""
    # it was some time ago
    monkeypatch.setattr("specchat.tui.texts.line_below.WRITTEN_SECONDS", 0.0)
    with Store(tmp_path / "history.db") as store:
        number = store.begin().id
        question = store.add(number, "user", "Count")
        answer = store.add(number, "assistant", "", question.id)
        store.write(answer.id, "one two")
    app = chat(Script([" three"]), tmp_path / "history.db")
    async with app.run_test(size=SIZE) as pilot:
        await app.actions.conversations.open(number)
        await until(pilot, lambda: "interrupted" in note(app))
        await pilot.press("ctrl+g")
        await until(pilot, lambda: "one two three" in screen_text(app))
        await until(pilot, lambda: app.answers.current is None)
        assert "interrupted" not in note(app)


@pytest.mark.slow
async def test_an_answer_being_written_is_not_called_interrupted() -> None:
    """Nor is the empty one before its first token."""
    script = Script(["one two three four"], hold=threading.Event())
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Count", wait=False)
        await until(pilot, lambda: "one two thre" in screen_text(app))
        await app.view.show_branch()
        assert "interrupted" not in screen_text(app)
        script.hold.set() if script.hold else None
        await until(pilot, lambda: app.answers.current is None)


@pytest.mark.slow
async def test_a_refused_attachment_leaves_the_cursor_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text comes back to be corrected."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "noise.bin").write_bytes(b"\x00\x01\xff")
    app = chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Read @noise.bin", wait=False)
        composer = app.query_one(Composer)
        await until(pilot, lambda: composer.text == "Read @noise.bin")
        assert composer.cursor_location == (0, len(composer.text))


@pytest.mark.slow
async def test_editing_is_marked_until_it_ends() -> None:
    """The border of the composer says so, whatever notices come and go."""
    script = Script(["first", "second"])
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "Old words")
        await pilot.press("shift+up", "up", "e")
        await until(pilot, lambda: "Editing: Enter resends" in screen_text(app))
        app.clear_notifications()
        await pilot.pause()
        assert "Editing: Enter resends" in screen_text(app)
        await pilot.press("escape")
        await until(pilot, lambda: "Editing" not in screen_text(app))
        await pilot.press("shift+up", "up", "e")
        await until(pilot, lambda: "Editing" in screen_text(app))
        await say(pilot, "New words")
        assert "Editing" not in screen_text(app)


@pytest.mark.slow
async def test_clearing_a_setting_is_not_called_saving(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The notice says that the default is back, and what it is."""
    path = tmp_path / "config.toml"
    path.write_text("[sampling]\ntemperature = 0.5\n", "utf-8")
    monkeypatch.setenv("SPECCHAT_CONFIG", str(path))
    app = chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("f9")
        await until(pilot, lambda: isinstance(app.screen, ChoiceScreen))
        await type_keys(pilot, *"sampling.temperature", "enter")
        await until(pilot, lambda: isinstance(app.screen, LineScreen))
        app.screen.query_one(Input).value = ""
        await pilot.press("enter")
        await until(pilot, lambda: bool(notices(app)))
        assert "Temperature is the default again" in notices(app)[0]


@pytest.mark.slow
async def test_continuing_nothing_says_so() -> None:
    """The chat is empty."""
    app = chat(Script())
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await pilot.press("ctrl+g")
        await until(pilot, lambda: notices(app) == ["There is no answer to continue yet."])


@pytest.mark.slow
async def test_messages_left_out_do_not_make_the_context_full() -> None:
    """The share at the top may be small then: the answer needs room too."""
    script = Script(left_out=2)
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        await ask_twice(pilot, script, "Long talk")
        await until(pilot, lambda: "oldest 2 messages no longer fit" in status(app))
        assert "full" not in status(app)
