"""Compare specchat's own growing text with Textual's Markdown: CPU time to stream, show and scroll.

Both stand in the same screen of 120 x 40, drawn as in a terminal but for the writing itself. CPU
time of the process is what other programs on the machine disturb least.

    python scripts/measure/measure_markdown.py
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
from time import process_time

from textual.app import App, ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Markdown
from textual.widgets.markdown import MarkdownStream

from scripts.support.counts import positive
from scripts.support.machine_line import machine_line
from specchat.tui.markdown.prose import Prose
from specchat.tui.markdown.typesetter import Typesetter

SIZE = (120, 40)
TOKEN = 4
"""Characters of a token."""
UPDATE_TOKENS = 5
"""Tokens that arrive between two updates: 100 a second, shown every 50 ms."""
PROSE = (
    "Speculative decoding lets a **small model** propose several tokens, which the large one checks"
    " in a single pass: what it would have written itself is kept, the rest is thrown away. As the"
    " check costs little more than one token does, `acceptance_rate` decides how much faster it is;"
    " see [the paper](https://arxiv.org/abs/2211.17192) for the proof that *nothing* is lost.\n\n"
)
PASSAGE = f"""## A part of the answer

{PROSE}{PROSE}1. one item of a list, long enough to take two lines on any terminal that is not wide
2. another, with `code` in it
3. a third

{PROSE}```python
def accept(drafted: list[int], target: list[float], draft: list[float]) -> int:
    for place, token in enumerate(drafted):
        if random() * draft[token] > target[token]:  # rejected
            return place
    return len(drafted)
```

| draft length | tokens per pass | speedup |
| --- | --- | --- |
| 2 | 2.1 | 1.4 |
| 4 | 2.9 | 1.6 |

{PROSE}"""
ANSWER = PASSAGE * 10
"""About 3,000 words."""


class Column(App[None]):
    """A conversation: a column of texts."""

    def compose(self) -> ComposeResult:
        """Start without a text."""
        yield VerticalScroll()

    @property
    def column(self) -> VerticalScroll:
        """The column."""
        return self.query_one(VerticalScroll)


class Ours:
    """An answer in specchat's widget."""

    name = "specchat"

    def __init__(self, app: Column, text: str = "") -> None:
        """Show a text."""
        self.widget = Prose(Typesetter(app.theme_variables))
        self.widget.append(text)

    async def append(self, text: str) -> None:
        """Add text."""
        self.widget.append(text)

    async def end(self) -> None:
        """Do nothing."""


class Theirs:
    """An answer in Textual's widget."""

    name = "Textual"

    def __init__(self, app: Column, text: str = "") -> None:
        """Show a text."""
        del app
        self.widget = Markdown(text)
        self._stream: MarkdownStream | None = None

    async def append(self, text: str) -> None:
        """Add text."""
        self._stream = self._stream or Markdown.get_stream(self.widget)
        await self._stream.write(text)

    async def end(self) -> None:
        """End the stream."""
        if self._stream is not None:
            await self._stream.stop()


Contender = type[Ours] | type[Theirs]


async def measure_streaming(kind: Contender, text: str) -> list[float]:
    """Return the milliseconds of CPU per token, in each tenth of an answer."""
    app = Column()
    async with app.run_test(size=SIZE) as pilot:
        answer = kind(app)
        await app.column.mount(answer.widget)
        app.column.anchor()
        step = TOKEN * UPDATE_TOKENS
        updates = [text[place : place + step] for place in range(0, len(text), step)]
        tenth = len(updates) // 10
        taken = []
        for place in range(0, tenth * 10, tenth):
            used = process_time()
            for update in updates[place : place + tenth]:
                await answer.append(update)
                await pilot.pause()
            taken.append(1e3 * (process_time() - used) / (tenth * UPDATE_TOKENS))
        await answer.end()
    return taken


async def measure_showing(kind: Contender, num_messages: int) -> float:
    """Return the seconds of CPU until a conversation is on the screen."""
    app = Column()
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        used = process_time()
        await app.column.mount(*(kind(app, PASSAGE).widget for _ in range(num_messages)))
        app.column.anchor()
        await pilot.pause()
        return process_time() - used


async def measure_scrolling(kind: Contender, text: str) -> float:
    """Return the milliseconds of CPU for a page up in a long answer."""
    app = Column()
    async with app.run_test(size=SIZE) as pilot:
        await app.column.mount(kind(app, text).widget)
        await pilot.pause()
        app.column.scroll_end(animate=False)
        await pilot.pause()
        used, pages = process_time(), 0
        while app.column.scroll_y > 0:
            app.column.scroll_page_up(animate=False)
            await pilot.pause()
            pages += 1
        return 1e3 * (process_time() - used) / max(1, pages)


def main() -> None:
    """Measure both, alternating."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--messages", type=int, default=40)
    options = parser.parse_args()
    print(machine_line())
    print(f"{len(ANSWER.split())} words, {len(ANSWER) // TOKEN} tokens of {TOKEN} characters")
    found: dict[str, list[list[float]]] = {}
    for _ in range(options.rounds):
        for kind in (Ours, Theirs):
            stream = asyncio.run(measure_streaming(kind, ANSWER))
            show = asyncio.run(measure_showing(kind, options.messages // 2))
            scroll = asyncio.run(measure_scrolling(kind, ANSWER))
            figures = [statistics.mean(stream), stream[0], stream[-1], show, scroll]
            found.setdefault(kind.name, []).append(figures)
    for name, rounds in found.items():
        mean, first, last, show, scroll = map(statistics.median, zip(*rounds, strict=True))
        print(
            f"{name:<9} {mean:.2f} ms of CPU per token ({first:.2f} in the first tenth, {last:.2f}"
            f" in the last); {options.messages} messages in {show:.2f} s; {scroll:.0f} ms a page"
        )


if __name__ == "__main__":
    main()
