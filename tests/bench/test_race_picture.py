"""The pictures and recordings of a race show what its record says."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import pairwise

import pytest

from bench.race_script import PLAIN, SPECULATIVE, race_of
from specchat.bench.race_frame import frame
from specchat.bench.race_picture import (
    EXPORTS,
    MAX_ROWS,
    REST_SECONDS,
    SIZE,
    animate,
    as_cast,
    draw,
)
from specchat.bench.race_record import Race, RaceStep
from tables import table

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


@pytest.mark.slow
@table("race", [race_of(), long_race()], ids=["short", "long"])
@table("seconds", [0.15, 0.75, 1.05, 1.76, 2.55, 3.3])
def test_the_loop_shows_every_moment_as_it_was(race: Race, seconds: float) -> None:
    """At its own time the animation shows what a picture of that moment shows."""
    moving = parsed(animate(race))
    apply(moving, seconds / (race.seconds + REST_SECONDS))

    assert shown(moving) == shown(parsed(draw(race, seconds)))


@pytest.mark.parametrize("race", [race_of(), long_race()], ids=["short", "long"])
def test_without_animation_the_loop_shows_the_end(race: Race) -> None:
    """As some viewers do not animate, what is drawn before any animation is the result."""
    assert shown(parsed(animate(race))) == shown(parsed(draw(race)))


def test_the_figures_of_the_picture_are_those_of_the_record() -> None:
    """Rates, speedup and details are the record's."""
    race = race_of()
    texts = shown(parsed(draw(race)))

    assert "1.0 tokens/s · 3 tokens done in 3.0 s" in texts
    assert "2.0 tokens/s · 3 tokens done in 1.5 s" in texts
    assert race.verdict in texts
    assert race.details() in texts
    assert race.verdict not in shown(parsed(draw(race, 2.9)))


@pytest.mark.parametrize("drawn", [draw, animate])
def test_hostile_text_stays_text(drawn: object) -> None:
    """What a model or a prompt says can neither add elements nor break the file."""
    assert callable(drawn)
    steps = [replace(PLAIN[0], texts=(HOSTILE,)), *PLAIN[1:]]
    race = replace(race_of(plain=steps), prompt=HOSTILE, target=HOSTILE)
    root = parsed(drawn(race))

    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {
        *("svg", "title", "style", "rect", "text", "g", "defs", "clipPath"),
        *("animate", "animateTransform"),
    }
    names = {name for element in root.iter() for name in element.attrib}
    assert not [name for name in names if name.startswith("on") or "href" in name]
    assert "<script>" in "".join(root.itertext())
    assert not set("".join(root.itertext())) & set("\x1b\x07\u202e\u200f\ufffe")


def screen_after(events: list[list[object]]) -> list[str]:
    """Return the lines that a terminal shows after the events of a recording."""
    lines = [""] * SIZE[1]
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
    header, *events = map(json.loads, as_cast(race).splitlines())

    assert (header["version"], header["width"], header["height"]) == (2, *SIZE)
    assert all(kind == "o" for _, kind, _ in events)
    times = [time for time, _, _ in events]
    assert times == sorted(times)
    assert times[-2] == pytest.approx(race.seconds)
    expected = [line.plain.rstrip() for line in frame(race, race.seconds, *SIZE)]
    assert [line.rstrip() for line in screen_after(events)] == expected


def test_a_recording_holds_no_escape_sequences_of_the_model() -> None:
    """Only those that place and colour the lines."""
    race = race_of(plain=[replace(PLAIN[0], texts=(HOSTILE,))])
    out = "".join(json.loads(line)[2] for line in as_cast(race).splitlines()[1:])

    assert set(re.findall(r"\x1b(?!\[[?\d;]*[HKJmhl])", out)) == set()
    assert "\x07" not in out


@table("ending", EXPORTS)
def test_every_export_is_small_and_never_empty(ending: str) -> None:
    """A race of 256 tokens stays below a limit that a README can hold."""
    steps = [RaceStep(0.02 * (number + 1), ("word ",), ("target",)) for number in range(256)]
    text = EXPORTS[ending](race_of(plain=steps, speculative=steps))

    assert 1000 < len(text.encode()) < 300_000
