"""How soon things show: keys, and the text of an answer."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Footer

from scripted_chat import Script, chat
from specchat.decoding.chunk import Chunk
from specchat.tui import command_app
from specchat.tui.actions.chat_actions import ChatActions
from specchat.tui.answer_parts import AnswerParts
from specchat.tui.app import ChatApp
from specchat.tui.screens.help_screen import HelpScreen
from specchat.tui.widgets.message_views import AnswerView
from tui.driving import panel_text, say, screen_text, until

ROOT = Path(__file__).parents[2]
PERIOD = "import specchat.tui.app, textual.screen as screen; print(screen.UPDATE_PERIOD)"


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(("chosen", "expected"), [({}, 120), ({"TEXTUAL_FPS": "30"}, 30)])
def test_keys_show_soon(chosen: dict[str, str], expected: int) -> None:
    """Textual updates the screen often, unless the user chose otherwise."""
    environment = {name: value for name, value in os.environ.items() if name != "TEXTUAL_FPS"}
    period = subprocess.check_output(
        [sys.executable, "-c", PERIOD], env=environment | chosen, cwd=ROOT, text=True
    )
    assert float(period) == pytest.approx(1 / expected)


def test_the_first_frame_waits_for_no_heavy_library() -> None:
    """NumPy alone would double the time of the chat's imports."""
    heavy = {
        "PIL",
        "numpy",
        "llama_cpp",
        "huggingface_hub",
        "httpx2",
        "jinja2",
        "msgspec",
        "tomlkit",
    }
    code = f"import specchat.tui.app, sys; print(*({heavy} & sys.modules.keys()))"
    shown = subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True)
    assert shown.split() == []


LATER = {
    "PIL",
    "multiprocessing",
    "psutil",
    "statistics",
    "specchat.bench.race_picture",
    "specchat.catalogue.draft_choice",
    "specchat.catalogue.local_models",
    "specchat.chat.export",
    "specchat.cli.offers",
    "specchat.connection.connected_engine",
    "specchat.gguf.draft_kinds",
    "specchat.hub.client",
    "specchat.images.picture",
    "specchat.images.thumbnail",
    "specchat.planning",
    "specchat.server.client_setups",
    "specchat.sharing.process_engine",
    "specchat.tui.actions",
    "specchat.tui.widgets.shown_picture",
    "specchat.tui.screens",
    "specchat.workers",
}
"""What loading a pair, commands and their screens need."""
CHOOSING = """
from specchat.cli.arguments import parse
from specchat.cli.option_arguments import complete
from specchat.cli.chat import _first_choice
complete(arguments := parse([]))
_first_choice(arguments)
import specchat.tui.app, sys
print(*sys.modules)
"""


def test_the_first_frame_waits_for_no_code_that_comes_later(tmp_path: Path) -> None:
    """Neither the choice of what to load nor the screen imports what is only used after it."""
    environment = os.environ | {"XDG_STATE_HOME": str(tmp_path)}
    shown = subprocess.check_output(
        [sys.executable, "-c", CHOOSING], env=environment, cwd=ROOT, text=True
    )
    assert LATER.isdisjoint(shown.split())


@pytest.mark.anyio
async def test_text_shows_soon_after_it_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within some 50 ms, the last step before a pause of the engine too; here 10 at once."""
    added: list[int] = []
    show = AnswerView.show

    def show_and_note(view: AnswerView, parts: AnswerParts, *drafted: Any) -> None:
        if len(parts.text) > len(view.text):
            added.append(len(parts.text) - len(view.text))
        show(view, parts, *drafted)

    monkeypatch.setattr(AnswerView, "show", show_and_note)
    script = Script(["x" * 12 * 40], pause=0.005)
    app = chat(script)
    async with app.run_test() as pilot:
        began = monotonic()
        await say(pilot, "Quick")
        took = monotonic() - began
        assert sum(added) == 12 * 40
        assert len(added) <= 2 + took / 0.05
        added.clear()
        script.hold = threading.Event()
        await say(pilot, "Wait in the middle", wait=False)
        await until(pilot, lambda: bool(added))
        script.hold.set()
        await until(pilot, lambda: app.answers.current is None)


@pytest.mark.slow
@pytest.mark.anyio
async def test_the_screen_is_laid_out_once_for_new_lines_and_not_for_new_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A layout of the whole screen is most of what an update costs."""
    layouts = []
    lay_out = Screen._refresh_layout

    def lay_out_and_count(screen: Screen[object], *how: Any, **more: Any) -> None:
        layouts.append(1)
        lay_out(screen, *how, **more)

    app = chat(Script(["abc def " * 40]))
    async with app.run_test(size=(150, 40)) as pilot:
        await say(pilot, "Quick")
        await pilot.pause(0.2)
        monkeypatch.setattr(Screen, "_refresh_layout", lay_out_and_count)
        stats = app.answers.figures.statistics
        before = panel_text(app)
        stats.decode_s *= 1.001
        stats.prompt_tokens += 1000
        app.view.show_state()
        await pilot.pause(0.2)
        assert panel_text(app) != before
        assert not layouts
        view = app.query(AnswerView).last()
        view._parts.add([Chunk("\n\nmore\n\nlines")], stats)
        view.show(view._parts)
        await until(pilot, lambda: bool(layouts))
        await pilot.pause(0.2)
        assert len(layouts) == 1


@pytest.mark.slow
@pytest.mark.anyio
async def test_folded_reasoning_grows_without_a_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only its title is drawn anew; opened, all of it is there."""
    layouts = []
    lay_out = Screen._refresh_layout

    def lay_out_and_count(screen: Screen[object], *how: Any, **more: Any) -> None:
        layouts.append(1)
        lay_out(screen, *how, **more)

    app = chat(Script(["An answer."], reasoning="Some thoughts. " * 10))
    async with app.run_test(size=(120, 40)) as pilot:
        await say(pilot, "Think")
        await pilot.pause(0.2)
        monkeypatch.setattr(Screen, "_refresh_layout", lay_out_and_count)
        view, stats = app.query(AnswerView).last(), app.answers.figures.statistics
        stats.reasoning_tokens += 1
        view._parts.add([Chunk("", reasoning="\n\nlast\n\nlines")], stats)
        view.show(view._parts)
        await until(pilot, lambda: f"{stats.reasoning_tokens} tokens" in screen_text(app))
        await pilot.pause(0.2)
        assert not layouts
        view.action_fold()
        await until(pilot, lambda: "lines" in screen_text(app))


@pytest.mark.slow
@pytest.mark.anyio
async def test_what_can_wait_begins_after_the_first_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading, looking for pairs and collecting garbage would delay it."""
    events = []
    draw, begin = Screen._refresh_layout, ChatApp._begin

    def draw_and_note(screen: Screen[object], *how: Any, **more: Any) -> None:
        events.append("drawn")
        draw(screen, *how, **more)

    def begin_and_note(app: ChatApp) -> None:
        events.append("begun")
        assert not gc.isenabled()
        begin(app)

    monkeypatch.setattr(Screen, "_refresh_layout", draw_and_note)
    monkeypatch.setattr(ChatApp, "_begin", begin_and_note)
    script = Script()
    app = chat(script)
    gc.disable()  # as the command that opens the chat does
    try:
        async with app.run_test() as pilot:
            await until(pilot, lambda: script.num_loads == 1)
            assert gc.isenabled()
    finally:
        gc.enable()
    assert events.index("drawn") < events.index("begun")


@pytest.mark.anyio
async def test_keys_wait_for_no_code_of_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is imported in a thread; meanwhile a question can be written and asked."""
    ready = threading.Event()
    threads = []
    import_actions = command_app._import_actions

    def import_and_note() -> type[ChatActions]:
        threads.append(threading.current_thread())
        if threads[-1] is not threading.main_thread():
            ready.wait()
        return import_actions()

    monkeypatch.setattr(command_app, "_import_actions", import_and_note)
    app = chat(Script(["Soon."]))
    async with app.run_test() as pilot:
        try:
            await say(pilot, "Quick")
        finally:
            ready.set()
        assert "Soon." in screen_text(app)
        assert len(threads) == 1
        assert threads[0] is not threading.main_thread()
        await pilot.press("f1")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))


@pytest.mark.slow
@pytest.mark.anyio
async def test_the_keys_below_are_drawn_anew_only_if_they_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each time takes 15 ms, and Textual asks for it whenever the focus moves."""
    composed = []
    compose = Footer.compose

    def compose_and_count(footer: Footer) -> ComposeResult:
        composed.append(1)
        yield from compose(footer)

    app = chat(Script())
    async with app.run_test(size=(160, 40)) as pilot:
        await say(pilot, "Quick")
        await pilot.pause(0.2)
        monkeypatch.setattr(Footer, "compose", compose_and_count)
        app.screen.refresh_bindings()
        await pilot.pause(0.2)
        assert not composed
        await pilot.press("shift+up")
        await until(pilot, lambda: "Regenerate" in screen_text(app).splitlines()[-1])
        assert composed
