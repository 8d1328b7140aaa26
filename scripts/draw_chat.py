"""Draw the chat as it looks after two answers of the demo pair, for README.md.

python scripts/draw_chat.py            # writes scripts/chat.svg
"""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from specchat.catalogue.pairs import DEMO, find_pair  # noqa: E402
from specchat.engine.api import Loading  # noqa: E402
from specchat.engine.offers import PairChoice  # noqa: E402
from specchat.tui.app import ChatApp  # noqa: E402
from specchat.tui.setup import Setup  # noqa: E402

SIZE = (112, 34)
MOST_SECONDS = 60
ROUNDS = 3
"""The last one is drawn: what was learned in the ones before is what a user's second day shows."""
QUESTIONS = ("What is a draft model?", "What is speculative decoding?")
PICTURE = ROOT / "scripts" / "chat.svg"
FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""Fonts that a reader would have to fetch from elsewhere."""


async def draw() -> str:
    """Ask the demo pair, and return the screen as SVG."""
    pair = find_pair(DEMO)
    options = {"temperature": 0.0}
    choice = PairChoice("demo pair", "", Loading(pair.target, pair.draft), options)
    app = ChatApp(Setup(choice, list, None))
    async with app.run_test(size=SIZE) as pilot:
        for _ in range(ROUNDS):
            await app.chats.new()
            for question in QUESTIONS:
                await pilot.press(*question, "enter")
                await pilot.pause(0.5)  # a quick answer may be over by now
                async with asyncio.timeout(MOST_SECONDS):
                    while app.answers.current is not None:  # noqa: ASYNC110
                        await asyncio.sleep(0.05)
        await pilot.pause(0.3)
        return app.export_screenshot(title="specchat")


if __name__ == "__main__":
    PICTURE.write_text(FONTS.sub("", asyncio.run(draw())), "utf-8")
    print(f"wrote {PICTURE}")
