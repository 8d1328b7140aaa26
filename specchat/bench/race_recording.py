"""A race as what a terminal is sent, moment by moment, and all files it can be exported to."""

import io
import json
from collections.abc import Callable, Iterator, Mapping

from rich.console import Console

from specchat.bench.race_frame import frame
from specchat.bench.race_picture import animate
from specchat.bench.race_record import Race

INTERVAL = 1 / 15
"""Seconds between two frames."""
LAST_SECONDS = 3.0
"""How long a recording shows the result."""
SIZE = (96, 28)


def moments(race: Race) -> Iterator[float]:
    """Yield the times of the frames; the last one is the end."""
    yield from (INTERVAL * number for number in range(int(race.seconds / INTERVAL) + 1))
    yield race.seconds


def play(race: Race, console: Console) -> Iterator[tuple[float, str]]:
    """Yield times, and what draws what has changed since the time before.

    The lines fill a screen of the console's size from its top.
    """
    width, height = console.size
    shown: list[str | None] = [None] * height
    for seconds in moments(race):
        lines = []
        for line in frame(race, seconds, width, height):
            with console.capture() as drawn:
                console.print(line, end="", no_wrap=True, highlight=False, soft_wrap=True)
            lines.append(drawn.get())
        changes = [
            f"\x1b[{row};1H\x1b[0m\x1b[K{line}"
            for row, (line, before) in enumerate(zip(lines, shown, strict=True), 1)
            if line != before
        ]
        if changes:
            yield seconds, "".join(changes)
        shown = [*lines]


def as_cast(race: Race) -> str:
    """Return a recording in version 2 of asciinema's format."""
    width, height = SIZE
    console = Console(
        file=io.StringIO(), force_terminal=True, color_system="truecolor", no_color=False,
        width=width, height=height, legacy_windows=False,
    )  # fmt: skip
    header = {"version": 2, "width": width, "height": height, "title": "specchat race"}
    events = [[0.0, "o", "\x1b[2J\x1b[?25l"]]
    events += [[round(seconds, 3), "o", out] for seconds, out in play(race, console)]
    events.append([round(race.seconds + LAST_SECONDS, 3), "o", "\x1b[?25h"])
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in [header, *events])


EXPORTS: Mapping[str, Callable[[Race], str]] = {
    ".svg": animate,
    ".cast": as_cast,
    ".json": lambda race: json.dumps(race.as_record(), ensure_ascii=False) + "\n",
}
"""What turns a race into the text of a file, by the ending of its name."""
