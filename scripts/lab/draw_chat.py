r"""Draw the chat after the answers to some questions, as an SVG picture.

The picture in README.md shows a real model, SmolLM2-135M-Instruct in Q4_1, without a draft model:

    python scripts/lab/draw_chat.py --target SmolLM2-135M-Instruct.Q4_1.gguf --threads 2 --compare
        --system "Reply with code only."
        --question "Write a Python class for a bank account with deposit, withdraw and transfer
        methods."
        --question "Add type hints to the class."
"""

from __future__ import annotations

import argparse
import asyncio
import re
from pathlib import Path

from scripts.support.picture_arguments import greedy_options, picture_parser
from specchat.catalogue.catalogue_file import DEMO
from specchat.catalogue.pairs import find_pair
from specchat.engine.api import Loading
from specchat.options.declarations import ScreenOptions
from specchat.tui.app import ChatApp
from specchat.tui.setup import PairChoice, Setup

SIZE = (112, 34)
MOST_SECONDS = 120
ROUNDS = 3
"""The last one is drawn: pacing has learned from the ones before, as on a user's second day."""
QUESTIONS = ["What is a draft model?", "What is speculative decoding?"]
PICTURE = Path(__file__).with_name("chat.svg")
FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""Fonts that a reader would have to fetch from elsewhere."""


async def draw(words: argparse.Namespace) -> str:
    """Ask the questions at temperature 0, and return the screen as SVG."""
    choice = _choice(words)
    screen = ScreenOptions(model_titles=False)  # the first question tells more
    app = ChatApp(Setup(choice, list, None, system_prompt=words.system, screen=screen))
    async with app.run_test(size=tuple(words.size)) as pilot:
        for _ in range(ROUNDS):
            await app.actions.conversations.new()
            for question in words.question or QUESTIONS:
                await pilot.press(*question, "enter")
                await pilot.pause(0.5)  # a quick answer may be over by now
                await _until_answered(app)
        await pilot.pause(0.5)
        picture = app.export_screenshot(title="specchat")
        if words.compare:
            await pilot.press("f7")
            await pilot.pause(0.5)
            await _until_answered(app)
            print(f"speedup of the last answer, measured: {app.answers.figures.speedup:.2f}")
        return picture


def _choice(words: argparse.Namespace) -> PairChoice:
    """Return the pair to ask."""
    options = greedy_options(words)
    if words.target is None:
        demo = find_pair(DEMO)
        return PairChoice("demo pair", "", Loading(demo.target, demo.draft), options)
    loading = Loading(words.target, words.draft, threads=words.threads)
    return PairChoice(words.target.stem, "", loading, options)


async def _until_answered(app: ChatApp) -> None:
    async with asyncio.timeout(MOST_SECONDS):
        while app.answers.current is not None:  # noqa: ASYNC110  # nothing to wait for
            await asyncio.sleep(0.05)


def _parsed() -> argparse.Namespace:
    """Return the words of the command line."""
    parser = picture_parser("Draw the chat as an SVG picture.", PICTURE)
    parser.add_argument("--compare", action="store_true", help="measure the speedup too (F7)")
    parser.add_argument("--size", type=int, nargs=2, default=SIZE, metavar=("WIDTH", "HEIGHT"))
    return parser.parse_args()


if __name__ == "__main__":
    parsed = _parsed()
    parsed.output.write_text(FONTS.sub("", asyncio.run(draw(parsed))), "utf-8")
    print(f"wrote {parsed.output}")
