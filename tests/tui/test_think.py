"""The thinking switch: /think and F9 set it, the top line shows it, and answers follow it."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from textual.events import Key
from textual.pilot import Pilot
from textual.widgets import OptionList

from scripted_chat import FACTS, Script, chat
from specchat.decoding.statistics import Statistics
from specchat.options.declarations import think_values
from specchat.settings.schema import find_setting
from specchat.tui.app import ChatApp
from specchat.tui.screens.dialogs import ChoiceScreen, LineScreen
from specchat.tui.widgets.composer import Composer
from specchat.tui.widgets.suggestions import Suggestions
from tables import table
from tui.driving import frame_text, say, screen_text, type_keys, until
from tui.test_asking import notes
from tui.test_settings import choose, file, says

__all__ = ["file"]
pytestmark = pytest.mark.anyio
SIZE = (110, 40)


def listed(app: ChatApp) -> list[str]:
    """Return the words of the list on the screen."""
    options = app.screen.query_one(OptionList).options
    return [str(each.prompt).split()[0] for each in options if not each.disabled]


async def load(pilot: Pilot[None], app: ChatApp) -> None:
    """Wait until the pair is loaded."""
    await until(pilot, lambda: app.pair_controller.facts is not None)


async def test_a_word_sets_the_switch_for_the_session() -> None:
    """The next answer follows it, and the top line shows it unless it is auto."""
    script = Script(thinking=("on", "off"))
    app = chat(script)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await load(pilot, app)
        assert "thinking auto" in frame_text(app)
        await say(pilot, "/think OFF")
        assert "thinking off" in frame_text(app)
        assert "Reasoning: off from the next answer." in notes(app)
        await say(pilot, "Hello")
        assert script.asked[-1][1]["think"] == "off"
        await say(pilot, "/think auto")
        assert "thinking auto" in frame_text(app)
        await say(pilot, "Hello")
        assert script.asked[-1][1]["think"] == "auto"


async def test_without_a_word_the_models_own_levels_are_offered() -> None:
    """The one in effect is highlighted."""
    app = chat(Script(thinking=("low", "medium", "high")), options={"think": "medium"})
    async with app.run_test(size=SIZE) as pilot:
        await load(pilot, app)
        await say(pilot, "/think")
        await until(pilot, lambda: isinstance(app.screen, ChoiceScreen))
        assert listed(app) == ["auto", "low", "medium", "high"]
        await pilot.press("down", "enter")
        await until(pilot, lambda: "thinking high" in frame_text(app))


@pytest.mark.slow
async def test_a_word_that_the_model_does_not_know_changes_nothing() -> None:
    """One line names those it knows."""
    app = chat(Script(thinking=("low", "high")))
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await load(pilot, app)
        await say(pilot, "/think off")
        assert "/think does not accept off: use auto, low or high." in notes(app)
        assert app.state.options.thinking == "auto"


@pytest.mark.slow
async def test_a_model_may_take_a_number_of_tokens() -> None:
    """Chosen from the list, the number is to be written."""
    app = chat(Script(thinking=("on", "off", "NUMBER")))
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await load(pilot, app)
        await say(pilot, "/think 512")
        assert "thinking 512" in frame_text(app)
        await say(pilot, "/think number")
        refusal = "/think does not accept number: use auto, on, off or a number of tokens."
        assert refusal in notes(app)
        await say(pilot, "/think")
        await until(pilot, lambda: isinstance(app.screen, ChoiceScreen))
        await type_keys(pilot, *"number", "enter")
        await until(pilot, lambda: app.query_one(Composer).text == "/think ")


@pytest.mark.slow
@pytest.mark.parametrize("command", ["/think", "/think off"])
async def test_a_model_without_a_switch_says_so(command: str) -> None:
    """In one line; a word chosen for another model can be taken back."""
    app = chat(Script(), options={"think": "high"})
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await load(pilot, app)
        await say(pilot, command)
        assert "scripted has no reasoning to switch." in notes(app)
        assert app.state.options.thinking == "high"
        await say(pilot, "/think auto")
        assert app.state.options.thinking == "auto"


@pytest.mark.slow
async def test_before_a_model_is_loaded_its_words_are_unknown() -> None:
    """A notice says to wait."""
    script = Script(load_hold=threading.Event(), thinking=("on", "off"))
    app = chat(script)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await say(pilot, "/think off")
        assert "not loaded yet" in notes(app)
        assert script.load_hold is not None
        script.load_hold.set()
        await load(pilot, app)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("thinking", "word"), [(("low", "high"), "high"), ((), "high"), (("NUMBER",), "512")]
)
async def test_f9_offers_the_words_of_the_model(
    file: Path, thinking: tuple[str, ...], word: str
) -> None:
    """Where these are unknown, or may be a number, the word is typed; it applies at once."""
    script = Script(thinking=thinking)
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        await load(pilot, app)
        await pilot.press("f9")
        await choose(pilot, app, "chat.think")
        if thinking == ("low", "high"):
            await until(pilot, lambda: "default" in listed(app))
            assert listed(app) == ["auto", "low", "high", "default"]
            await type_keys(pilot, *word, "enter")
        else:
            await until(pilot, lambda: isinstance(app.screen, LineScreen))
            await pilot.press(*["backspace"] * 4, *word, "enter")
        await until(pilot, lambda: says(file, f'think = "{word}"'))
        await until(pilot, lambda: isinstance(app.screen, ChoiceScreen))
        assert find_setting("chat.think").help in screen_text(app)
        await pilot.press("escape")
        await until(pilot, lambda: f"thinking {word}" in frame_text(app))
        await say(pilot, "Hello")
    assert script.asked[-1][1]["think"] == word


@pytest.mark.slow
async def test_an_argument_typed_quickly_is_sent() -> None:
    """Enter may follow it before the list of commands does."""
    app = chat(Script(thinking=("low", "high")))
    async with app.run_test(size=SIZE) as pilot:
        await load(pilot, app)
        composer = app.query_one(Composer)
        await type_keys(pilot, *"/think")
        await until(pilot, lambda: app.query_one(Suggestions).display)
        composer.text = "/think high"
        composer.on_key(Key("enter", None))
        await until(pilot, lambda: "thinking high" in frame_text(app))


@pytest.mark.slow
async def test_what_the_engine_could_not_do_is_reported_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For each conversation, not for each answer of it."""
    notice = "the model's template has no system role"
    script = Script()
    app = chat(script)

    def with_notice(**figures: object) -> Statistics:
        return Statistics(notices=(notice,), **figures)  # type: ignore[arg-type]

    monkeypatch.setattr("scripted_chat.Statistics", with_notice)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await say(pilot, "One")
        assert notice in notes(app)
        await say(pilot, "Two")  # drops the notices of what was done before
        assert notice not in notes(app)
        await pilot.press("ctrl+n")
        await say(pilot, "Three")
        assert notice in notes(app)


def test_facts_have_no_words_by_default() -> None:
    """A model has no switch unless its engine says so."""
    assert FACTS.thinking == () == replace(FACTS).thinking


def test_a_number_is_taken_but_not_the_word_that_stands_for_it() -> None:
    """That would reach the template, or be refused later."""
    facts = replace(FACTS, thinking=("on", "NUMBER"))
    takes = [facts.takes_think(word) for word in ("512", "ON", "auto", "NUMBER", "number", "low")]
    others = replace(FACTS, thinking=("on",))

    assert takes == [True, True, True, False, False, False]
    assert [others.takes_think(word) for word in ("512", "NUMBER")] == [False, False]


@table(
    ("supported", "last", "words"),
    [
        ((), " or ", "auto"),
        (("on",), " or ", "auto or on"),
        (("on", "NUMBER"), " or ", "auto, on or a number of tokens"),
        (("on", "off"), ", ", "auto, on, off"),
    ],
)
def test_the_values_of_think_in_words(supported: tuple[str, ...], last: str, words: str) -> None:
    """As messages list them."""
    assert think_values(supported, last) == words
