"""README.md and the documentation point to what exists and name what specchat has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from documents import PAGES, ROOT, blocks, code_spans, links, name_of
from specchat.cli.arguments import parse
from specchat.docs import topics
from specchat.errors import InvalidOption
from tables import table

LANGUAGES = {"sh", "python", "toml", "text"}
WIDEST = 120
REPOSITORY_PATH = re.compile(r"(?:specchat|scripts|tests)/[\w./-]+")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@table("page", PAGES, ids=name_of)
def test_no_line_is_too_wide(page: Path) -> None:
    """A page can be read in an editor, and a diff of it too."""
    wide = [line for line in page.read_text("utf-8").splitlines() if len(line) > WIDEST]
    assert wide == []


@table("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    """A link names a file that exists, and a heading in it."""
    broken = []
    for link in links(page):
        place, _, anchor = link.partition("#")
        goal = page.parent / place if place else page
        if "://" not in link and (not goal.exists() or (anchor and anchor not in _anchors(goal))):
            broken.append(link)
    assert broken == []


def _anchors(page: Path) -> set[str]:
    headings = HEADING.findall(page.read_text("utf-8"))
    return {re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in headings}


@table("page", PAGES, ids=name_of)
def test_files_named_in_the_text_exist(page: Path) -> None:
    """Code spans such as `scripts/README.md`, and maps of the code, name what is there."""
    maps = [block.text for block in blocks("text") if block.page == page]
    words = [*code_spans(page), *(line.split()[0] for text in maps for line in text.splitlines())]
    named = [each for each in words if REPOSITORY_PATH.fullmatch(each)]
    assert [each for each in named if not (ROOT / each).exists()] == []


@table("page", PAGES, ids=name_of)
def test_every_block_names_its_language(page: Path) -> None:
    """The language decides how the tests check it."""
    assert {block.language for block in blocks() if block.page == page} <= LANGUAGES


@pytest.mark.slow(keep=5)
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_in_the_text_exist(page: Path) -> None:
    """A code span such as `specchat history list` begins as a command line of specchat does."""
    spans = [each for each in code_spans(page) if each.startswith("specchat ")]
    assert [each for each in spans if _complaint(each.split()[1:])] == []


def _complaint(words: list[str]) -> str:
    """Return what is wrong with a command line; one that lacks words is only cut short."""
    try:
        parsed = parse(words) if "COMMAND" not in words else None
    except InvalidOption as error:
        return "" if "required" in str(error) else str(error)
    except SystemExit:  # --help and --version
        return ""
    topic = getattr(parsed, "topic", None)
    return "" if topic in {None, "TOPIC", *topics()} else f"no topic {topic}"


def test_options_in_the_text_exist(capsys: pytest.CaptureFixture[str]) -> None:
    """A code span such as `--ctx 4096` names an option of some command."""
    for command in parse(["help"]).commands.values():
        command.print_help()
    known = {*re.findall(r"--[\w-]+", capsys.readouterr().out), "--stats", "--version"}
    named = {each for page in PAGES for span in code_spans(page) for each in _options(span)}
    assert named - known == set()


def _options(span: str) -> list[str]:
    is_ours = span.startswith(("--", "specchat"))
    return re.findall(r"(?<!\S)--[a-z][\w-]+", span) if is_ours else []
