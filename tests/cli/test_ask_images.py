"""Images in questions on the command line: files, and what comes through a pipe."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from conftest import WriteModel
from image_files import encoded, picture
from in_process import run_here as run
from scripts.support.tiny_gguf import write_projector
from specchat.cli import image_arguments
from specchat.images.image import LONGEST_BEGINNING, Image

pytestmark = [pytest.mark.usefixtures("image_library", "engines_here")]
SEEN, OTHER = encoded(picture(1)), encoded(picture(2), "JPEG")


@pytest.fixture
def model(tiny: WriteModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the options that name a tiny model with its projector; nothing is set up for it."""
    monkeypatch.setattr("specchat.cli.ask.set_up_images", lambda _: "")
    projector = write_projector(tmp_path / "mmproj.gguf", "mlp")
    greedy = ("--temperature", "0", "--max-tokens", "8", "--ctx", "512", "--json")
    return ["--target", str(tiny("llama")), "--projector", str(projector), *greedy]


def answer(*words: str, stdin: bytes = b"") -> dict[str, Any]:
    """Return the object that is printed."""
    done = run("ask", *words, stdin=stdin)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_an_image_from_a_pipe_is_shown_as_a_file_is(model: list[str], tmp_path: Path) -> None:
    """Whatever its name; files that are named come first, then the pipe's."""
    files = [tmp_path / "a.png", tmp_path / "b.jpg"]
    for path, data in zip(files, (SEEN, OTHER), strict=True):
        path.write_bytes(data)
    first, second = (("--image", str(path)) for path in files)
    piped = answer("What is it?", *model, stdin=SEEN)
    named = answer("What is it?", *model, *first)
    assert piped["tokens"] == named["tokens"]
    assert piped["stats"]["image_tokens"] == named["stats"]["image_tokens"] > 0
    both = answer("What is it?", *model, *first, stdin=OTHER)
    assert both["stats"]["image_tokens"] == 2 * piped["stats"]["image_tokens"]
    assert both["tokens"] == answer("What is it?", *model, *first, *second)["tokens"]


def test_a_broken_image_from_a_pipe_is_refused_before_loading(
    model: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line that says where it came from."""
    monkeypatch.setattr("specchat.cli.ask.open_answerer", lambda *_: pytest.fail("loads"))
    done = run("ask", "What?", *model, stdin=SEEN[:200])
    assert done.returncode == 2
    assert done.stderr.decode() == "specchat: standard input is damaged or cut off\n"


def test_a_set_up_that_failed_is_said_before_loading(
    model: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says why no image can be read."""
    monkeypatch.setattr("specchat.cli.ask.set_up_images", lambda _: "images cannot be read: why")
    monkeypatch.setattr("specchat.cli.ask.open_answerer", lambda *_: pytest.fail("loads"))
    done = run("ask", "What?", *model, stdin=SEEN)
    assert done.returncode == 2
    assert done.stderr.decode() == "specchat: images cannot be read: why\n"


def test_no_more_of_a_pipe_is_read_than_an_image_may_have(
    model: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A film that begins as an image does would fill the memory."""
    monkeypatch.setattr("specchat.images.picture.MOST_BYTES", 100)
    rest: list[int] = []
    given = image_arguments.images_of

    def note(arguments: argparse.Namespace, piped: bytes = b"") -> list[Image]:
        rest.append(len(piped))
        return given(arguments, piped)

    monkeypatch.setattr("specchat.cli.ask.images_of", note)
    done = run("ask", "What?", *model, stdin=SEEN)
    assert done.returncode == 2
    assert done.stderr.decode().startswith("specchat: standard input is too large")
    assert rest == [100 + LONGEST_BEGINNING]


def test_an_image_from_a_pipe_is_no_question(model: list[str]) -> None:
    """The words say what is asked."""
    done = run("ask", *model, stdin=SEEN)
    assert done.returncode == 2
    assert done.stderr.startswith(b"specchat: no question given")


def test_an_image_from_a_pipe_needs_a_projector(model: list[str]) -> None:
    """The line says what to add."""
    done = run("ask", "What?", *model[:2], stdin=SEEN)
    assert done.returncode == 2
    assert b"reads text only: load it with --projector" in done.stderr
