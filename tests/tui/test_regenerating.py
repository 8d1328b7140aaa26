"""The last question answered again in another way: options, and other pairs."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from scripted_chat import Script, chat
from specchat.engine.api import Loading
from specchat.errors import InvalidOption
from specchat.tui.actions.regeneration import read_words
from specchat.tui.setup import Offer, PairChoice
from specchat.tui.widgets.composer import Composer
from tables import table
from tui.driving import say, screen_text, until

pytestmark = pytest.mark.anyio
SIZE = (120, 40)


@table(
    ("words", "name", "options"),
    [
        ("", "", {}),
        ("temperature=0.2", "", {"temperature": 0.2}),
        ("  qwen3-4b ", "qwen3-4b", {}),
        ("seed=7 my + pair top-k=5", "my + pair", {"seed": 7, "top_k": 5}),
        ("models/a.gguf temperature=0", "models/a.gguf", {"temperature": 0.0}),
    ],
)
def test_options_and_a_name_in_any_order(words: str, name: str, options: dict[str, object]) -> None:
    """Options have an equals sign."""
    assert read_words(words) == (name, options)


@table("words", ["temperature=-1", "temprature=1", "seed=", "ctx=5"])
def test_wrong_options_are_refused(words: str) -> None:
    """By the rules of the settings."""
    with pytest.raises(InvalidOption):
        read_words(words)


@pytest.mark.slow
async def test_an_answer_with_another_temperature_is_another_version(tmp_path: Path) -> None:
    """Both stay, and each says how it was sampled; the next question is asked as before."""
    script = Script(["An answer of some length", "Another answer", "A third", "A fourth"])
    app = chat(script, tmp_path / "history.db", {"temperature": 0.7})
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "One?")
        await say(pilot, "/regenerate temperature=0.2 seed=3 max_tokens=50", wait=False)
        await until(pilot, lambda: len(script.asked) == 2 and app.answers.current is None)
        assert script.asked[1][1]["temperature"] == 0.2
        assert script.asked[1][1]["seed"] == 3
        assert app.conversations.last is not None
        stored = app.conversations.last.statistics
        asked = {"temperature": 0.2, "max_tokens": 50}
        once = asked, ["temperature", "seed", "max_tokens"], 3
        assert (stored["asked_with"], stored["own"], stored["seed"]) == once
        assert not {"temperature", "sampling"} & stored.keys()
        shown = screen_text(app)
        assert "◂ 2/2 ▸" in shown
        assert "scripted · temperature 0.2, seed 3, max_tokens 50 ·" in shown
        await pilot.press("shift+up")
        await pilot.press("left")
        await until(pilot, lambda: "◂ 1/2 ▸" in screen_text(app))
        assert "scripted · temperature 0.7 ·" in screen_text(app)
        assert "temperature 0.2" not in screen_text(app)
        await say(pilot, "Two?")
        assert script.asked[2][1]["temperature"] == 0.7
    app = chat(script, tmp_path / "history.db")
    async with app.run_test(size=SIZE) as pilot:
        app.conversations.open(1)
        app.conversations.turn_to(2, 1)
        await app.view.show_branch()
        words = "scripted · temperature 0.2, seed 3, max_tokens 50 ·"
        await until(pilot, lambda: words in screen_text(app))


@pytest.mark.slow
async def test_a_stopped_version_is_continued_as_it_was_begun() -> None:
    """With its own options."""
    script = Script(["A long answer in many steps"] * 3)
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "One?")
        script.hold = threading.Event()
        await say(pilot, "/regenerate temperature=0.2", wait=False)
        await until(pilot, lambda: len(script.asked) == 2 and "A long answe" in screen_text(app))
        await pilot.press("escape")
        await until(pilot, lambda: app.answers.current is None)
        script.hold = None
        await pilot.press("ctrl+g")
        await until(pilot, lambda: len(script.asked) == 3 and app.answers.current is None)
        assert script.asked[2][1]["temperature"] == 0.2
        assert "temperature 0.2" in screen_text(app)


async def test_a_version_stopped_before_its_first_token_is_withdrawn(tmp_path: Path) -> None:
    """The answer before it is shown again, with its figures; a first answer stays to be asked."""
    loads = threading.Event()
    script = Script(["An answer of some length"], load_hold=loads)
    app = chat(script, tmp_path / "history.db")
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "One?", wait=False)
        await until(pilot, lambda: app.answers.current is not None)
        await pilot.press("escape")
        await until(pilot, lambda: app.answers.current is None)
        assert [each.text for each in app.conversations.branch] == ["One?", ""]
        loads.set()
        await pilot.press("f5")
        await until(pilot, lambda: len(script.asked) == 1 and app.answers.current is None)
        answer, figures = app.conversations.last, app.answers.figures.statistics.generated_tokens
        assert answer is not None
        loads.clear()
        app.pair_controller.unload("")
        await pilot.press("f5")
        await until(pilot, lambda: app.answers.current is not None)
        await pilot.press("escape")
        await until(pilot, lambda: app.view.transcript.views[-1].message_id == answer.id)
        assert app.conversations.last == answer
        assert app.answers.figures.statistics.generated_tokens == figures
        loads.set()


async def test_a_version_that_the_engine_ends_without_a_token_is_withdrawn() -> None:
    """The engine says that it has ended in a step without tokens."""
    script = Script(["An answer", ""])
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "One?")
        answer = app.conversations.last
        assert answer is not None
        script.finish = "cancelled"
        await pilot.press("f5")
        await until(pilot, lambda: len(script.asked) == 2 and app.answers.current is None)
        await until(pilot, lambda: app.view.transcript.views[-1].message_id == answer.id)
        assert app.conversations.last == answer
        assert app.conversations.tree.version(answer.id) == (1, 1)


async def test_another_pair_answers_again() -> None:
    """It is loaded first, and each version names its pair."""
    script = Script(["An answer of some length", "Another answer"])
    other = PairChoice("other", "", Loading(Path("other.gguf")))
    offers = [Offer("other", "", choose=lambda: other), Offer("absent", "")]
    app = chat(script, offers=lambda: offers)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await say(pilot, "/regenerate other", wait=False)
        await until(pilot, lambda: "no question to answer again" in screen_text(app))
        await say(pilot, "One?")
        await say(pilot, "/regenerate absent", wait=False)
        await until(pilot, lambda: "No pair absent on this machine" in screen_text(app))
        assert script.num_loads == 1
        await say(pilot, "/regenerate other temperature=0", wait=False)
        await until(pilot, lambda: len(script.asked) == 2 and app.answers.current is None)
        assert script.num_loads == 2
        assert app.pair_controller.pair.name == "other"
        shown = screen_text(app)
        assert "◂ 2/2 ▸" in shown
        assert "other · temperature 0.0 ·" in shown


@pytest.mark.slow
async def test_a_mistake_is_one_notice() -> None:
    """Nothing is asked, and the command stays to be corrected."""
    script = Script()
    app = chat(script)
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "One?")
        await say(pilot, "/regenerate temperature=hot", wait=False)
        await until(pilot, lambda: bool(app.notices.latest))
        assert "temperature must be" in app.notices.latest[-1].message
        assert app.query_one(Composer).text == "/regenerate temperature=hot"
        assert len(script.asked) == 1
