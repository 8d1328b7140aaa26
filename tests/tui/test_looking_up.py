"""Search results, long questions, offline pairs, names of pairs and of exports."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import OptionList, Static

from scripted_chat import Script, chat
from specchat.chat.store import Store
from specchat.hub.offline import OFFLINE
from specchat.tui.screens.dialogs import ChoiceScreen, ConfirmScreen
from specchat.tui.screens.model_screen import ModelScreen
from specchat.tui.setup import Offer
from specchat.tui.widgets.composer import Composer
from specchat.tui.widgets.fold import TextFold
from tui.driving import header_text, hint, say, screen_text, type_keys, until

pytestmark = pytest.mark.anyio
SIZE = (120, 40)
OFFERS = (Offer("big", "Everyday questions", "3.14 GB", is_recommended=True),)


@pytest.mark.slow
async def test_search_results_have_a_date_a_role_and_one_line(tmp_path: Path) -> None:
    """What was typed is highlighted in them."""
    with Store(tmp_path / "history.db") as store:
        number = store.begin().id
        question = store.add(number, "user", "Two\nlines about Llamas\nthere")
        answer = store.add(number, "assistant", "", question.id)
        store.write(answer.id, "wool\n\nof llamas", finish="stop")
    app = chat(Script(), tmp_path / "history.db")
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("ctrl+f")
        await until(pilot, lambda: isinstance(app.screen, ChoiceScreen))
        await type_keys(pilot, *"llamas")
        listed = app.screen.query_one(OptionList)
        await until(pilot, lambda: listed.option_count == 2)
        found = [listed.get_option_at_index(place).prompt for place in range(2)]
        assert [str(each).count("\n") for each in found] == [1, 1]
        assert "· Assistant: wool of llamas" in str(found[0])
        assert "· User: Two lines about Llamas there" in str(found[1])
        for each in found:
            bold = [span for span in each.spans if "bold" in str(span.style)]  # type: ignore[union-attr]
            words = {str(each)[span.start : span.end].lower() for span in bold}
            assert words == {"llamas"}


@pytest.mark.slow
async def test_a_long_question_is_folded(tmp_path: Path) -> None:
    """Its ends are shown, all of it on request, and editing brings all of it back."""
    text = "Sum up. " + "\n".join(f"line {number}" for number in range(600)) + " That is all."
    app = chat(Script(), tmp_path / "history.db")
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, text)
        view = app.view.transcript.views[0]
        assert view.region.height < 170
        fold = view.query_one(TextFold)
        await app.view.navigation.reveal(view.message_id)
        await until(pilot, lambda: "Sum up. line 0" in screen_text(app))
        assert "line 300" not in str(view.query("QuestionView > Static").first(Static).content)
        assert f"all {len(text):,} characters" in str(fold.query_one(".title", Static).render())
        before = view.region.height
        fold.toggle()
        await until(pilot, lambda: view.region.height > before + 400)
        view.arm()
        await pilot.press("e")
        assert app.query_one(Composer).text == text


async def test_offline_nothing_is_offered_for_download(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list says so before anything is chosen; the top line has it too."""
    monkeypatch.setenv(OFFLINE[0], "1")
    app = chat(Script(), offers=lambda: OFFERS, is_first_run=True)
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: "offline" in header_text(app))
        assert "downloads" not in hint(app)
        await pilot.press("f8")
        await until(pilot, lambda: "To download (specchat is offline)" in screen_text(app))
        await pilot.press("down", "enter")
        await until(pilot, lambda: bool(app._notifications))
        assert "cannot be downloaded offline" in next(iter(app._notifications)).message
        assert isinstance(app.screen, ModelScreen)
        assert not any(isinstance(each, ConfirmScreen) for each in app.screen_stack)


@pytest.mark.slow
async def test_what_is_not_saved_says_so(tmp_path: Path) -> None:
    """Only where nothing is stored."""
    for history in (None, tmp_path / "history.db"):
        app = chat(Script(), history)
        async with app.run_test(size=SIZE):
            assert ("not saved" in header_text(app)) == (history is None)


@pytest.mark.slow
async def test_every_answer_names_its_pair(tmp_path: Path) -> None:
    """Also after reopening."""
    app = chat(Script(), tmp_path / "history.db")
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "A question")
        assert str(app.query(".note").last(Static).render()).startswith("scripted · ")
        number = app.conversations.number or 0
        await app.actions.conversations.new()
        await app.actions.conversations.open(number)
        assert str(app.query(".note").last(Static).render()).startswith("scripted · ")


@pytest.mark.slow
async def test_an_export_is_named_after_the_title(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In words that every file system takes."""
    monkeypatch.chdir(tmp_path)
    app = chat(Script())
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "What is a/b: *really* über?")
        await say(pilot, "/export json", wait=False)
        await until(pilot, lambda: names(tmp_path) != [])
    (name,) = names(tmp_path)
    assert name.startswith("specchat-1-what-is-a-b-really-über-")


def names(folder: Path) -> list[str]:
    """Return the names of the exported files."""
    return [path.name for path in folder.glob("*.json")]
