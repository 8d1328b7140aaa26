"""What stands around an answer: its line of figures, and the column of the text."""

from __future__ import annotations

import threading

import pytest
from textual.widgets import Static

from scripted_chat import Script, chat
from specchat.decoding.chunk import Finish
from specchat.options.declarations import ChatOptions, ScreenOptions
from specchat.tui.app import ChatApp
from specchat.tui.texts.fitting import fitted
from specchat.tui.widgets.composer import Composer
from specchat.tui.widgets.panel import Panel
from specchat.tui.widgets.strip import Strip
from tui.driving import panel_text, say, screen_text, stop_halfway, until

pytestmark = pytest.mark.anyio


def note(app: ChatApp) -> Static:
    """Return the line below the last answer."""
    return app.query(".note").last(Static)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("size", [(60, 20), (120, 36)])
async def test_one_line_stands_below_an_answer(size: tuple[int, int]) -> None:
    """All figures are there while the answer has the focus."""
    app = chat(Script(["abcdefghijkl"]))
    async with app.run_test(size=size) as pilot:
        await say(pilot, "A question")
        assert str(note(app).content) == "scripted · 3 tokens · first token 0.12 s"
        await until(pilot, lambda: note(app).size.height == 1)
        app.view.transcript.views[-1].focus()
        await until(pilot, lambda: note(app).size.height > 1 or size[0] > 100)
        await until(pilot, lambda: "tokens per target pass" in str(note(app).render()))
        app.query_one(Composer).focus()
        await until(pilot, lambda: note(app).size.height == 1)
        assert "tokens per target pass" not in str(note(app).render())


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (42, "scripted · 3 tokens · first token 0.12 s"),
        (39, "scripted · 3 tokens"),
        (1, "scripted"),
    ],
)
def test_facts_that_do_not_fit_are_left_out_from_the_end(width: int, shown: str) -> None:
    """As a whole: the first one stays in any case."""
    assert fitted("scripted · 3 tokens · first token 0.12 s", width) == shown


@pytest.mark.slow
@pytest.mark.parametrize("width", [60, 80, 100, 160])
async def test_no_fact_below_an_answer_is_cut(width: int) -> None:
    """What ended the answer comes first, and what to do about it."""
    script = Script(["round and round\n" * 10_000], finds_loops=True, pause=0.002)
    app = chat(script, chat=ChatOptions(repeat_limit=100))
    async with app.run_test(size=(width, 30)) as pilot:
        await say(pilot, "Sing")
        whole = str(note(app).content).split(" · ")
        await until(pilot, lambda: whole[0] in screen_text(app))
        shown = str(note(app).render()).split(" · ")
        assert shown == whole[: len(shown)]
        assert len(shown) > 1
        assert len(" · ".join(shown)) <= note(app).content_size.width


@pytest.mark.slow
@pytest.mark.parametrize("size", [(60, 20), (200, 55)])
async def test_nothing_stands_twice_below_the_newest_answer(size: tuple[int, int]) -> None:
    """What is above the composer or in the panel is not in its line; older answers have all."""
    app = chat(Script(["abcdefghijkl" * 10]))
    async with app.run_test(size=size) as pilot:
        await say(pilot, "A question")
        await say(pilot, "Another")
        older, newest = (str(each.content) for each in app.query(".note").results(Static))
        strip, panel = str(app.query_one(Strip).content), panel_text(app)
        assert app.query_one(Strip).display or app.query_one(Panel).display
        above = strip if app.query_one(Strip).display else panel
        said = [part for part in older.split(" · ") if part.removesuffix(" tokens/s") in above]
        assert len(said) >= 2
        assert not [part for part in said if part in newest]
        assert older.startswith("scripted · ")
        assert older.endswith("67 % accepted")

        await app.view.show_branch()
        again = [str(each.content) for each in app.query(".note").results(Static)]
        assert again == [older, newest]


@pytest.mark.slow
async def test_a_stopped_answer_names_the_key_that_continues_it() -> None:
    """Until it is continued."""
    script = Script(["one two three four five six"], hold=threading.Event())
    app = chat(script)
    async with app.run_test(size=(120, 36)) as pilot:
        await stop_halfway(pilot, script)
        await until(pilot, lambda: "stopped · Ctrl+G continues" in screen_text(app))
        await pilot.press("ctrl+g")
        await until(pilot, lambda: app.answers.current is None and len(script.asked) == 2)
        assert "Ctrl+G" not in screen_text(app)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("finish", "words"), [("context", "without older messages"), ("length", "limit")]
)
async def test_the_key_that_is_named_continues_an_answer(finish: Finish, words: str) -> None:
    """Also where the context was full."""
    script = Script(["zero", "one two", " three"], finish=finish)
    app = chat(script)
    async with app.run_test(size=(120, 36)) as pilot:
        await say(pilot, "Begin")
        await say(pilot, "Count")
        assert words in str(note(app).content)
        assert "Ctrl+G continues" in str(note(app).content)
        await pilot.press("ctrl+g")
        await until(pilot, lambda: app.answers.current is None and len(script.asked) == 3)
        assert app.conversations.branch[-1].text == "one two three"


@pytest.mark.slow
async def test_a_context_that_one_question_fills_needs_to_be_larger() -> None:
    """There is nothing to leave out: to continue could only fail."""
    app = chat(Script(["one two"], finish="context"))
    async with app.run_test(size=(120, 36)) as pilot:
        await say(pilot, "Count")
        assert "context full · F9 sets a larger ctx" in str(note(app).content)


@pytest.mark.slow
@pytest.mark.parametrize("width", [60, 200])
async def test_the_text_column_is_centred_and_about_100_wide(width: int) -> None:
    """The composer stands in the same column."""
    app = chat(Script(["word " * 200]), screen=ScreenOptions(statistics=False))
    async with app.run_test(size=(width, 40)) as pilot:
        await say(pilot, "A question")
        chat_width = app.query_one("#chat").size.width
        for widget in (app.view.transcript.views[-1], app.query_one(Composer)):
            left = widget.region.x - app.query_one("#chat").region.x
            right = chat_width - left - widget.region.width
            assert abs(left - right) <= 3
            assert widget.region.width <= 108
        assert app.view.transcript.views[-1].size.width >= min(width - 8, 100)
