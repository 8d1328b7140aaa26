"""The conversation on the screen: only the part around the reader is mounted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from scripted_chat import Script, chat
from specchat.chat.store import Store
from specchat.tui.app import ChatApp
from specchat.tui.widgets.transcript import NUM_AT_ONCE
from tui.driving import say, screen_text, until

pytestmark = pytest.mark.anyio

NUM_MESSAGES = 400
FAR = 101
"""A message far from both ends."""


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """Return the store of a long conversation whose messages are numbered from 1."""
    path = tmp_path / "history.db"
    with Store(path) as store:
        conversation, parent = store.begin(), None
        for number in range(1, NUM_MESSAGES + 1):
            role: Any = "assistant" if number % 2 == 0 else "user"
            parent = store.add(conversation.id, role, f"message {number}", parent).id
    return path


def texts(app: ChatApp) -> list[str]:
    """Return the mounted messages."""
    return [view.text for view in app.view.transcript.views]


async def reveal(app: ChatApp, pilot: Pilot[None], number: int) -> None:
    """Open the conversation at a message, as a search does."""
    await app.actions.conversations.open(1, number)
    await until(pilot, lambda: f"message {number}\n" in screen_text(app) + "\n")


async def test_a_found_message_is_mounted_with_its_neighbours_only(history: Path) -> None:
    """However far it is from the end, only as many messages are mounted as a screen needs."""
    app = chat(Script(["An answer"]), history)
    async with app.run_test(size=(80, 24)) as pilot:
        await reveal(app, pilot, FAR)

        assert len(texts(app)) == NUM_AT_ONCE
        assert f"message {FAR}" in texts(app)
        assert app.focused is not None
        assert app.focused in app.view.transcript.views
        assert app.focused.text == f"message {FAR}"


@pytest.mark.slow
async def test_the_reader_scrolls_on_in_both_directions(history: Path) -> None:
    """The top mounts older messages, the end newer ones; the others keep their place."""
    app = chat(Script(["An answer"]), history)
    async with app.run_test(size=(80, 24)) as pilot:
        await reveal(app, pilot, FAR)
        first, last = texts(app)[0], texts(app)[-1]
        app.view.transcript.scroll_end(animate=False)
        await until(pilot, lambda: len(texts(app)) == 2 * NUM_AT_ONCE)
        await until(pilot, lambda: last in screen_text(app))
        assert texts(app)[-1] == f"message {int(last.split()[1]) + NUM_AT_ONCE}"
        app.view.transcript.scroll_home(animate=False)
        await until(pilot, lambda: len(texts(app)) == 3 * NUM_AT_ONCE)
        await until(pilot, lambda: first in screen_text(app))
        numbers = [int(text.split()[1]) for text in texts(app)]
        assert numbers == list(range(numbers[0], numbers[0] + 3 * NUM_AT_ONCE))


@pytest.mark.slow
async def test_the_end_is_reached_by_scrolling(history: Path) -> None:
    """At the end the newest message is followed again."""
    app = chat(Script(["An answer"]), history)
    async with app.run_test(size=(80, 24)) as pilot:
        await reveal(app, pilot, NUM_MESSAGES - NUM_AT_ONCE - 2)

        def is_at_the_end() -> bool:
            app.view.transcript.scroll_end(animate=False)
            return f"message {NUM_MESSAGES}" in screen_text(app)

        await until(pilot, is_at_the_end)
        assert texts(app)[-1] == f"message {NUM_MESSAGES}"
        assert app.view.transcript._newer == []


@pytest.mark.slow
async def test_asking_scrolls_to_the_end(history: Path) -> None:
    """The question follows the newest message and is in sight."""
    app = chat(Script(["An answer"]), history)
    async with app.run_test(size=(80, 24)) as pilot:
        await reveal(app, pilot, FAR)
        await say(pilot, "A question")

        assert texts(app)[-3:] == [f"message {NUM_MESSAGES}", "A question", "An answer"]
        await until(pilot, lambda: "An answer" in screen_text(app))
        assert len(texts(app)) == NUM_AT_ONCE + 2


@pytest.mark.slow
async def test_the_edges_can_be_clicked(history: Path) -> None:
    """On a screen too tall to scroll they show how many messages are beyond."""
    app = chat(Script(["An answer"]), history)
    async with app.run_test(size=(80, 150)) as pilot:
        await reveal(app, pilot, FAR)
        for place, sign in ((-1, "▼"), (0, "▲")):
            end = int(texts(app)[place].split()[1])
            waiting = NUM_MESSAGES - end if place else end - 1
            words = f"{sign} {waiting} {'newer' if place else 'older'} messages"
            await until(pilot, lambda words=words: words in screen_text(app))  # type: ignore[misc]
            before = len(texts(app))
            row = [words in line for line in screen_text(app).splitlines()].index(True)
            await pilot.click(offset=(35, row))
            await until(pilot, lambda before=before: len(texts(app)) > before)  # type: ignore[misc]
            app.view.transcript.scroll_home(animate=False)
            await pilot.pause()


@pytest.mark.slow
async def test_another_version_far_from_the_end_stays_in_sight(history: Path) -> None:
    """Switching versions does not scroll to the end of the conversation."""
    with Store(history) as store:
        store.add(1, "assistant", "message 101, said otherwise", 100)
    app = chat(Script(["An answer"]), history)
    async with app.run_test(size=(80, 24)) as pilot:
        await app.actions.conversations.open(1, 401)
        await until(pilot, lambda: "said otherwise" in screen_text(app))
        await pilot.press("left")
        await until(pilot, lambda: f"message {FAR}\n" in screen_text(app) + "\n")
        assert texts(app)[-1] != f"message {NUM_MESSAGES}"
        await pilot.press("right")
        await until(pilot, lambda: "said otherwise" in screen_text(app))
