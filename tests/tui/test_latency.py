"""How soon things show: keys, and the text of an answer."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from time import monotonic

import pytest

from scripted_chat import Script, chat
from specchat.tui.widgets.message_views import AnswerView
from tui.driving import say, until

ROOT = Path(__file__).parents[2]
PERIOD = "import specchat.tui.app, textual.screen as screen; print(screen.UPDATE_PERIOD)"


@pytest.mark.parametrize(("chosen", "expected"), [({}, 120), ({"TEXTUAL_FPS": "30"}, 30)])
def test_keys_show_soon(chosen: dict[str, str], expected: int) -> None:
    """Textual updates the screen often, unless the user chose otherwise."""
    environment = {name: value for name, value in os.environ.items() if name != "TEXTUAL_FPS"}
    period = subprocess.check_output(
        [sys.executable, "-c", PERIOD], env=environment | chosen, cwd=ROOT, text=True
    )
    assert float(period) == pytest.approx(1 / expected)


@pytest.mark.anyio
async def test_text_shows_soon_after_it_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within some 50 ms, the last step before a pause of the engine too; here 10 at once."""
    added: list[tuple[float, int]] = []
    add = AnswerView.add

    def add_and_note(view: AnswerView, chunks: list[object]) -> None:
        added.append((monotonic(), len(chunks)))
        add(view, chunks)  # type: ignore[arg-type]

    monkeypatch.setattr(AnswerView, "add", add_and_note)
    script = Script(["x" * 12 * 40], pause=0.005)
    app = chat(script)
    async with app.run_test() as pilot:
        began = monotonic()
        await say(pilot, "Quick")
        took = monotonic() - began
        assert sum(count for _, count in added) == 40
        assert len(added) <= 2 + took / 0.05
        added.clear()
        script.hold = threading.Event()
        await say(pilot, "Wait in the middle", wait=False)
        await until(pilot, lambda: bool(added))
        script.hold.set()
        await until(pilot, lambda: app.answers.current is None)
