"""The pictures and recordings of a race show what its record says."""

from __future__ import annotations

import io
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest

from bench.race_script import PLAIN, QUESTION, SPECULATIVE, RacingEngine, race_of
from specchat import __version__
from specchat.bench.race_frame import frame
from specchat.bench.race_picture import ENDINGS, REST_SECONDS, ROWS_EACH, SIZE, animate, as_cast
from specchat.bench.race_record import Race, RaceStep, run_race
from specchat.bench.race_scene import (
    LANE_WIDTH,
    MAX_PROMPT_LINES,
    MAX_ROWS,
    PAD,
    SMALL,
    Group,
    Scene,
    Words,
    scene_of,
)
from specchat.decoding.step_times import Gain
from tables import table

RASTER = (".png", ".gif")
needs_pillow = pytest.mark.skipif(find_spec("PIL") is None, reason="Pillow is not installed")
SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "</text><script>alert(1)</script>&\x1b]0;x\x07\u202e\u200f\ufffe\0]]>"


def long_race() -> Race:
    """Return a race whose answers have more lines than are shown."""
    lines = [f"line {number}\n" for number in range(MAX_ROWS + 5)]
    steps = [
        RaceStep(0.1 * (number + 1), (text,), ("target",)) for number, text in enumerate(lines)
    ]
    return race_of(plain=steps, speculative=[*SPECULATIVE, *steps[-1:]])


def parsed(picture: str) -> ET.Element:
    """Return a picture's root; it must be well-formed."""
    return ET.fromstring(picture)  # noqa: S314  # our own


def value_at(animation: ET.Element, share: float) -> str:
    """Return what a discrete animation sets at a share of its length."""
    times = [*map(float, animation.attrib["keyTimes"].split(";")), 2.0]
    values = animation.attrib["values"].split(";")
    assert animation.attrib["calcMode"] == "discrete"
    assert times[0] == 0
    assert len(values) == len(times) - 1
    assert all(before <= after for before, after in pairwise(times))
    return next(
        value
        for value, start, end in zip(values, times, times[1:], strict=False)
        if start <= share < end
    )


def apply(element: ET.Element, share: float) -> None:
    """Set what the animations of an element and of those in it set at a share of the length."""
    for child in list(element):
        if child.tag in {f"{SVG}animate", f"{SVG}animateTransform"}:
            value = value_at(child, share)
            is_move = child.tag.endswith("Transform")
            name = child.attrib["attributeName"]
            element.set(name, f"translate({value})" if is_move else value)
            element.remove(child)
        else:
            apply(child, share)


def shown(element: ET.Element) -> list[str]:
    """Return the texts of a picture that can be seen, and where text is moved to."""
    if element.get("opacity") == "0":
        return []
    found = [element.text or ""] if element.tag == f"{SVG}text" else []
    found += [element.attrib["transform"]] if "transform" in element.attrib else []
    return [*found, *(text for child in element for text in shown(child))]


def shown_at(races: Sequence[Race], seconds: float) -> list[str]:
    """Return what the loop of races shows at a moment."""
    scene = scene_of(races)
    moving = parsed(animate(scene))
    apply(moving, seconds / (scene.seconds + REST_SECONDS))
    return shown(moving)


def words_of(groups: Sequence[Group], seconds: float) -> list[Words]:
    """Return the lines of text of those groups that are shown at a moment."""
    parts = [part for each in groups if each.start <= seconds < each.end for part in each.parts]
    return [part for part in parts if isinstance(part, Words)]


def still(scene: Scene, seconds: float) -> list[str]:
    """Return the texts of a scene at a moment, and where those of answers are moved to."""
    found = [each.text for each in words_of(scene.groups, seconds)]
    for answer in scene.answers:
        scrolled = [by for time, by in answer.scrolls if time <= seconds][-1]
        found += [f"translate({answer.x:g} {answer.y:g})", f"translate(0 {-scrolled:g})"]
        found += [each.text for each in words_of(answer.groups, seconds)]
    return found


CARDS = {"short": [race_of()], "long": [long_race()], "three": [race_of(), long_race(), race_of()]}


@pytest.mark.slow
@table("races", CARDS.values(), ids=CARDS)
@table("seconds", [0.15, 0.75, 1.05, 1.76, 2.55, 3.3])
def test_the_loop_shows_every_moment_as_it_was(races: list[Race], seconds: float) -> None:
    """At its own time the animation shows what the card has at that moment."""
    assert shown_at(races, seconds) == still(scene_of(races), seconds)


@table("races", CARDS.values(), ids=CARDS)
def test_without_animation_the_loop_shows_the_end(races: list[Race]) -> None:
    """As some viewers do not animate, what is drawn before any animation is the result."""
    scene = scene_of(races)

    assert shown(parsed(animate(scene))) == still(scene, scene.seconds)


def test_the_figures_of_the_picture_are_those_of_the_record() -> None:
    """Rates, speedup and details are the record's."""
    race = race_of()
    texts = shown_at([race], 3.1)

    assert "1.0 tokens/s · 3 tokens done in 3.0 s" in texts
    assert "2.0 tokens/s · 3 tokens done in 1.5 s" in texts
    assert race.verdict in texts
    assert race.details() in texts
    assert race.verdict not in shown_at([race], 2.9)


def test_hostile_text_stays_text() -> None:
    """What a model or a prompt says can neither add elements nor break the file."""
    steps = [replace(PLAIN[0], texts=(HOSTILE,)), *PLAIN[1:]]
    race = replace(race_of(plain=steps), prompt=HOSTILE, target=HOSTILE)
    root = parsed(animate(scene_of([race])))

    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {
        *("svg", "title", "style", "rect", "text", "g", "clipPath"),
        *("animate", "animateTransform"),
    }
    names = {name for element in root.iter() for name in element.attrib}
    assert not [name for name in names if name.startswith("on") or "href" in name]
    assert "<script>" in "".join(root.itertext())
    assert not set("".join(root.itertext())) & set("\x1b\x07\u202e\u200f\ufffe")


def screen_after(events: list[list[object]], height: int) -> list[str]:
    """Return the lines that a terminal shows after the events of a recording."""
    lines = [""] * height
    row = 0
    for part in re.split(r"(\x1b\[[?\d;]*[A-Za-z])", "".join(str(each[2]) for each in events)):
        if found := re.fullmatch(r"\x1b\[(\d+);1H", part):
            row = int(found[1]) - 1
            lines[row] = ""
        elif not part.startswith("\x1b"):
            lines[row] += part
    return lines


def test_a_recording_ends_with_the_last_moment() -> None:
    """It has a header, events in order, and what a terminal shows at the end is the result."""
    race = race_of(plain=[*PLAIN[:2], replace(PLAIN[2], seconds=3.02)])  # between two frames
    header, *events = map(json.loads, as_cast([race]).splitlines())

    assert (header["version"], header["width"], header["height"]) == (2, *SIZE)
    assert all(kind == "o" for _, kind, _ in events)
    times = [time for time, _, _ in events]
    assert times == sorted(times)
    assert times[-2] == pytest.approx(race.seconds)
    lines = frame(race, race.seconds, SIZE[0], SIZE[1] - 1)
    expected = [*(line.plain.rstrip() for line in lines), race.target]
    assert [line.rstrip() for line in screen_after(events, SIZE[1])] == expected


def test_a_recording_of_several_models_has_a_part_for_each() -> None:
    """Below the prompt each has its name and benchmark, both lanes, and its verdict at the end."""
    races = [replace(race_of(), target=f"model {name}", benchmark=f"of {name}") for name in "abc"]
    races[0] = replace(races[0], machine="A machine")
    header, *events = map(json.loads, as_cast(races).splitlines())
    lines = [line.rstrip() for line in screen_after(events, header["height"])]

    assert lines[0] == races[0].prompt
    assert lines[-1] == "A machine"
    assert header["height"] == len(lines) == 1 + ROWS_EACH * len(races) + 1
    for place, race in enumerate(races):
        part = lines[1 + ROWS_EACH * place :][:ROWS_EACH]
        assert part[0] == f"{race.target} · {race.benchmark}"
        assert race.verdict in part[1]
        assert any("plain decoding" in line and "with draft model" in line for line in part)


def test_a_recording_holds_no_escape_sequences_of_the_model() -> None:
    """Only those that place and colour the lines."""
    race = race_of(plain=[replace(PLAIN[0], texts=(HOSTILE,))])
    out = "".join(json.loads(line)[2] for line in as_cast([race]).splitlines()[1:])

    assert set(re.findall(r"\x1b(?!\[[?\d;]*[HKJmhl])", out)) == set()
    assert "\x07" not in out


@pytest.mark.parametrize(
    "ending",
    [pytest.param(name, marks=[needs_pillow] if name in RASTER else []) for name in ENDINGS],
)
def test_every_card_is_small_and_never_empty(ending: str) -> None:
    """A race of 256 tokens stays below a limit that a README can hold."""
    steps = [RaceStep(0.02 * (number + 1), ("word ",), ("target",)) for number in range(256)]
    content = ENDINGS[ending]([race_of(plain=steps, speculative=steps)])

    assert 1000 < len(content) < (1_000_000 if ending == ".gif" else 300_000)


def all_words(scene: Scene) -> list[Words]:
    """Return the texts outside of the answers."""
    return [part for group in scene.groups for part in group.parts if isinstance(part, Words)]


def test_a_card_says_what_was_raced_where_and_when_and_nothing_else() -> None:
    """The file by its name alone: no path, no user, no name of the machine."""
    engine = RacingEngine()
    engine.facts = replace(engine.facts, target="A model", target_file="a.gguf", gpu="A GPU")
    race = run_race(engine, QUESTION, {"drafter": "auto"}, lambda _: None, lambda _: None)
    shown = "\n".join(words.text for words in all_words(scene_of([race])))

    assert race.machine.endswith(", A GPU")
    parts = ("A model", "a.gguf", race.machine, f"specchat {__version__}", race.date)
    for part in (*parts, race.prompt, race.verdict, race.details(), "±"):
        assert part in shown
    assert str(Path.home()) not in shown
    assert race.files == "a.gguf"
    assert race.where == f"{race.machine} · specchat {__version__} · {race.date}"
    recorded = as_cast([race])
    assert "A model · a.gguf" in recorded
    assert race.where in recorded


PROMPTS = {
    "empty": "",
    "short": "Hi",
    "long": "Explain recursion with an example. " * 30,
    "one word": "x" * 500,
    "wide": "日本語の文章を" * 60,
    "right to left": "שלום עולם " * 40,
    "control": "\x1b[31m\u202e\x00\n\t " * 20,
}


def sides(words: Words) -> tuple[float, float]:
    """Return where a line of text begins and ends."""
    left = words.x - words.width * words.is_right
    return left, left + words.width


@table("number", [1, 3])
@table("prompt", PROMPTS.values(), ids=PROMPTS)
def test_nothing_on_a_card_overlaps_or_leaves_it(prompt: str, number: int) -> None:
    """However long the prompt is, or the name of the model, and however many models there are."""
    race = replace(
        race_of(), prompt=prompt, target="A very long name of a model, " * 9, file="f" * 99,
        benchmark="b" * 200, machine="m" * 200,
    )  # fmt: skip
    scene = scene_of([race] * number)
    words = [each for each in words_of(scene.groups, scene.seconds) if each.text]
    first = scene.bars[0].box.y

    assert len({each.y for each in words if each.y < first and each.x == PAD}) <= (
        3 + MAX_PROMPT_LINES
    )
    for each in words:
        left, right = sides(each)
        assert PAD <= left <= right <= scene.width - PAD + 0.01
        assert each.y < scene.height
        assert not any(box.y < each.y < box.y + box.height for box in scene.answers)
    for one, other in combinations(words, 2):
        if abs(one.y - other.y) < SMALL:
            assert sides(one)[1] < sides(other)[0] or sides(other)[1] < sides(one)[0]


def test_each_answer_stands_under_its_name_and_scrolls() -> None:
    """Both have the same height; the longer one ends at its last line."""
    race = long_race()
    scene = scene_of([race])

    assert {(answer.y, answer.height, answer.width) for answer in scene.answers} == {
        (scene.answers[0].y, 21.0 * MAX_ROWS, LANE_WIDTH)
    }
    assert [answer.x for answer in scene.answers] == [bar.box.x for bar in scene.bars]
    assert scene.answers[0].scrolls[-1] == (race.plain.seconds, 21.0 * 5)


def test_the_verdict_is_the_last_to_appear() -> None:
    """Until both lanes have ended, nothing on the card gives it away."""
    race = replace(race_of(), benchmark="1.2x faster")
    scene, results = scene_of([race]), {race.verdict, race.details(), race.benchmark}

    assert not set(still(scene, race.seconds - 0.01)) & results
    assert results <= set(still(scene, race.seconds))


def test_a_card_says_that_nothing_was_drafted() -> None:
    """Instead of figures, which would be those of the machine."""
    race = race_of(gain=Gain())
    race = replace(race, speculative=replace(race.plain, drafter="suffix"))
    texts = still(scene_of([race]), race.seconds)

    assert race.verdict in texts
    assert "drafted nothing" in race.verdict
    assert json.loads(ENDINGS[".json"]([race]))["verdict"] == race.verdict
    assert not [text for text in texts if "tokens/s" in text or "faster" in text]


def test_several_models_share_a_card() -> None:
    """The prompt stands once, and below it each with its lanes, its verdict and its file."""
    races = [
        replace(race_of(), target=f"model {name}", file=f"{name}.gguf", benchmark=f"of {name}")
        for name in "abc"
    ]
    scene = scene_of(races)
    words = words_of(scene.groups, scene.seconds)
    placed = {each.text: each.y for each in words}

    assert [each.text for each in words].count(races[0].prompt) == 1
    assert len(scene.answers) == len(scene.bars) == 2 * len(races)
    for race, answer in zip(races, scene.answers[::2], strict=True):
        end = answer.y + answer.height
        assert placed[race.target] < answer.y < end < placed[race.benchmark] < placed[race.file]
    assert json.loads(ENDINGS[".json"](races).splitlines()[2])["target"] == "model c"


def opened(content: bytes) -> Any:
    """Return a picture as Pillow reads it."""
    from PIL import Image

    return Image.open(io.BytesIO(content))


def is_drawn(picture: Any, box: tuple[int, ...]) -> bool:
    """Return whether a part of a picture has more than one colour."""
    return len(picture.convert("RGB").crop(box).getcolors(1 << 20)) > 1


@needs_pillow
def test_a_png_shows_the_end() -> None:
    """Every line of text is painted where the scene has it, at twice the size."""
    scene = scene_of([race_of()])
    picture = opened(ENDINGS[".png"]([race_of()]))

    assert picture.size == (2 * scene.width, 2 * scene.height)
    for group in scene.groups:
        if group.start <= scene.seconds < group.end:
            for part in group.parts:
                if isinstance(part, Words) and part.text:
                    left = part.x - part.width * part.is_right
                    corners = left, part.y - part.size, left + part.width, part.y
                    assert is_drawn(picture, tuple(round(2 * at) for at in corners)), part.text


@needs_pillow
@table("race", [race_of(), long_race()], ids=["short", "long"])
def test_a_gif_plays_the_race_at_its_own_speed(race: Race) -> None:
    """It loops, and shows the verdict at the end alone."""
    scene = scene_of([race])
    picture = opened(ENDINGS[".gif"]([race]))
    verdict = next(words for words in all_words(scene) if words.is_right)
    corners = verdict.x - verdict.width, verdict.y - verdict.size, verdict.x, verdict.y
    times, shown = [0.0], list[bool]()
    for number in range(picture.n_frames):
        picture.seek(number)
        times.append(times[-1] + picture.info["duration"] / 1000)
        shown.append(is_drawn(picture, tuple(round(at) for at in corners)))

    assert picture.size == (scene.width, scene.height)
    assert picture.info["loop"] == 0
    assert times[-1] == pytest.approx(race.seconds + REST_SECONDS, abs=0.02)
    assert shown == [False] * (len(shown) - 1) + [True]
    assert times[-2] == pytest.approx(race.seconds, abs=0.02)


@needs_pillow
def test_hostile_text_is_painted_as_text() -> None:
    """Also what no font has, and an answer without a line."""
    steps = [replace(PLAIN[0], texts=(f"{HOSTILE}\U0010fffe日本語 שלום a\u0301",)), *PLAIN[1:]]
    race = replace(race_of(plain=steps), prompt=HOSTILE, target=HOSTILE)

    assert opened(ENDINGS[".png"]([race])).size[0] == 2 * scene_of([race]).width
