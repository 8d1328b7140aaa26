"""The card of a race: what stands where and when, in pixels, for every writer of pictures."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple, TypeAlias

from rich.cells import cell_len, chop_cells, set_cell_size

from specchat.bench.race_frame import (
    INK,
    Chip,
    chips,
    drawable,
    label_of,
    lane_figures,
    legend,
    shades,
)
from specchat.bench.race_record import Lane, Race

COLUMNS, MAX_ROWS, LEAST_ROWS = 46, 18, 5
"""The width of an answer in characters, and its visible lines, fewer where there are more races;
longer answers scroll."""
MAX_PROMPT_LINES = 3
MAX_LABELS = 3
"""More labels of the legend are shortened."""
FIGURES_SECONDS = 0.2
"""The shortest time to show a figure, so that it can be read."""

CELL, LINE = 8.0, 21
"""The width of a character and the height of a line."""
EM = 0.6
"""The width of a character of a monospaced font, by its size."""
SIZE, SMALL, LARGE, LARGEST = CELL / EM, 12.0, 15.0, 19.0
PAD, GAP = 22, 26
LANE_WIDTH = COLUMNS * CELL
WIDTH = round(2 * PAD + 2 * LANE_WIDTH + GAP)
BAR_HEIGHT = 4
HEAD = 32
"""The baseline of a race's first line."""
SMALL_WIDTH = int((WIDTH - 2 * PAD) / (SMALL * EM))
"""The width of a card in small characters."""

PAGE, EDGE, TRACK = "#171a21", "#3a4150", "#2c323e"
LIGHT, DIM = "#e6e9ef", "#98a1b3"
NAMES, BARS = ("#d5d9e0", "#93dd9b"), ("#b9c0cc", "#68c474")
"""The colours of the plain lane and of the one with drafts."""
VERDICT = {"faster": "#93dd9b", "slower": "#f2a9a9"}


class Box(NamedTuple):
    """A filled rectangle."""

    x: float
    y: float
    width: float
    height: float
    fill: str
    radius: float = 3.0


class Words(NamedTuple):
    """A line of text on the baseline `y`, from `x` on, or up to there if it `is_right`.

    The text is drawable: without control characters.
    """

    x: float
    y: float
    text: str
    fill: str = LIGHT
    size: float = SIZE
    is_bold: bool = False
    is_right: bool = False

    @property
    def width(self) -> float:
        """The width that its characters have in any font."""
        return cell_len(self.text) * self.size * EM


Part: TypeAlias = Box | Words


class Group(NamedTuple):
    """Parts shown from a time until another, in seconds."""

    parts: Sequence[Part]
    start: float = 0.0
    end: float = inf


class Bar(NamedTuple):
    """A bar that grows: its widths, each with the time from which it has it."""

    box: Box
    widths: Sequence[tuple[float, float]]


class Answer(NamedTuple):
    """The visible lines of an answer, its chips, and by time how far they are scrolled.

    Chips are placed within the answer.
    """

    x: float
    y: float
    width: float
    height: float
    groups: Sequence[Group]
    scrolls: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Scene:
    """All of a card, on a page with a border; `seconds` after its start the race is over."""

    title: str
    seconds: float
    width: int
    height: int
    groups: list[Group]
    bars: list[Bar]
    answers: list[Answer]


def scene_of(races: Sequence[Race]) -> Scene:
    """Return the card of a race, or of several of one prompt, one below the other."""
    prompt, bottom = _wrapped(races[0].prompt), 0.0
    scene = Scene(
        drawable("; ".join(f"{race.target}: {race.summary()}" for race in races)),
        max(race.seconds for race in races),
        WIDTH, 0, [], [], [],
    )  # fmt: skip
    if len(races) > 1:
        scene.groups.append(Group(_lines(prompt, HEAD, LINE)))
        prompt, bottom = [], len(prompt) * LINE + 18.0
    most = max(LEAST_ROWS, MAX_ROWS // len(races))
    for race in races:
        bottom = _add(scene, race, prompt, bottom, most)
    where = [_cut(races[0].where, SMALL_WIDTH)] if races[0].where else []
    parts = [*_legend(races, bottom + 24), *_lines(where, bottom + 44, 17, SMALL)]
    scene.groups.append(Group(parts))
    return replace(scene, height=round(bottom) + 42 + 20 * len(where))


def _add(scene: Scene, race: Race, prompt: Sequence[str], y: float, most: int) -> float:
    """Add a race to a card, from `y` on, answers in `most` lines; return where it ends."""
    columns = [chips(lane, COLUMNS) for lane in race.lanes]
    rows = min(most, max(_num_rows(column) for column in columns))
    top = y + HEAD + 23 + LINE * len(prompt)
    foot = top + 64 + rows * LINE
    verdict = Words(
        WIDTH - PAD, y + HEAD + 2, race.verdict, VERDICT.get(race.gain.kind, LIGHT), LARGEST,
        is_bold=True, is_right=True,
    )  # fmt: skip
    room = int((WIDTH - 2 * PAD - verdict.width) / (LARGE * EM)) - 2
    name = Words(PAD, y + HEAD, _cut(race.target, room), LIGHT, LARGE, is_bold=True)
    scene.groups.append(Group([name, *_lines(prompt, y + HEAD + 23, LINE)]))
    for place, (lane, column) in enumerate(zip(race.lanes, columns, strict=True)):
        x = PAD + place * (LANE_WIDTH + GAP)
        words = _cut(lane.name, int(LANE_WIDTH / (LARGE * EM)))
        title = Words(x, top + 14, words, NAMES[place], LARGE, is_bold=True)
        track = Box(x, top + 46, LANE_WIDTH, BAR_HEIGHT, TRACK, 2.0)
        scene.groups.extend([Group([title, track]), *_figures(race, lane, x, top + 36)])
        scene.bars.append(Bar(track._replace(fill=BARS[place]), list(_shares(lane))))
        scene.answers.append(_answer(lane, column, x, top + 64, rows))
    results = [_cut(each, SMALL_WIDTH) for each in (race.details(), race.benchmark) if each]
    shown = _lines(results, foot + 20, 17, SMALL, LIGHT)
    scene.groups.append(Group([verdict, *shown], race.seconds))
    files = [_cut(race.files, SMALL_WIDTH)] if race.files else []
    scene.groups.append(Group(_lines(files, foot + 20 + 17 * len(results), 17, SMALL)))
    return foot + 8 + 17 * (len(results) + len(files))


def _lines(
    texts: Sequence[str], y: float, height: float, size: float = SIZE, fill: str = DIM
) -> list[Part]:
    """Return lines of text, the first one on the baseline `y`."""
    return [Words(PAD, y + height * row, text, fill, size) for row, text in enumerate(texts)]


def _cut(text: str, width: int) -> str:
    """Return a drawable line of at most so many characters' width."""
    line = " ".join(drawable(text).split())
    return line if cell_len(line) <= width else f"{set_cell_size(line, width - 1).rstrip()}…"


def _wrapped(prompt: str) -> list[str]:
    """Return the first lines of a prompt, the last one cut off if there are more."""
    width = round((WIDTH - 2 * PAD) / CELL)
    lines = [""]
    for word in drawable(prompt).split():
        for part in chop_cells(word, width):
            together = f"{lines[-1]} {part}".lstrip()
            if cell_len(together) <= width:
                lines[-1] = together
            else:
                lines.append(part)
    shown = lines[:MAX_PROMPT_LINES]
    if len(lines) > len(shown):
        shown[-1] = _cut(f"{shown[-1]} {lines[len(shown)]}…", width)
    return shown


def _num_rows(column: Sequence[Chip]) -> int:
    return column[-1].row + 1 if column else 1


def _legend(races: Sequence[Race], y: float) -> Iterator[Part]:
    """Yield a pair of chips and a label for each origin, in few words if there are many."""
    known = [(shades(origin), drawable(label_of(origin))) for origin in legend(races)]
    if len(known) > MAX_LABELS:
        known = [(pair, label.removeprefix("accepted: ")) for pair, label in known]
    x = float(PAD)
    for pair, text in known:
        for place, shade in enumerate(pair):
            yield Box(x + 10 * place, y - 11, 9, 13, shade)
        label = Words(x + 26, y, text, DIM, SMALL)
        yield label
        x += 26 + label.width + 24


def _figures(race: Race, lane: Lane, x: float, y: float) -> Iterator[Group]:
    """Yield a lane's figures at the times from which and until which they are shown."""
    times = [0.0]
    for step in lane.steps:
        if step.seconds - times[-1] >= FIGURES_SECONDS:
            times.append(step.seconds)
    if times[-1] < lane.seconds:
        times.append(lane.seconds)
    for start, end in zip(times, [*times[1:], inf], strict=True):
        yield Group([Words(x, y, lane_figures(race, lane.until(start), lane))], start, end)


def _shares(lane: Lane) -> Iterator[tuple[float, float]]:
    """Yield the widths of a lane's bar, by the part of the answer that is written."""
    num_tokens = 0
    yield 0.0, 0.0
    for step in lane.steps:
        num_tokens += len(step.texts)
        yield step.seconds, float(round(LANE_WIDTH * num_tokens / lane.num_tokens))


def _answer(lane: Lane, column: Sequence[Chip], x: float, y: float, rows: int) -> Answer:
    """Return a lane's answer, a group of chips for each step."""
    groups, scrolls, last = list[Group](), [(0.0, 0.0)], 0
    by_step = list[list[Chip]]([] for _ in lane.steps)
    for chip in column:
        by_step[chip.step].append(chip)
    for step, written in zip(lane.steps, by_step, strict=True):
        parts = [part for chip in written if chip.width for part in _chip(chip)]
        groups.append(Group(parts, step.seconds))
        last = max([last, *(chip.row for chip in written)])
        if last >= rows and (scrolled := LINE * (last + 1 - rows)) > scrolls[-1][1]:
            scrolls.append((step.seconds, float(scrolled)))
    return Answer(x, y, LANE_WIDTH, rows * LINE, groups, scrolls)


def _chip(chip: Chip) -> tuple[Box, Words]:
    x, y = chip.column * CELL, chip.row * LINE
    box = Box(x, y + 1, chip.width * CELL - 1, LINE - 3, chip.shade)
    return box, Words(x, y + 14, chip.text, INK)
