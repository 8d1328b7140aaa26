"""The pages that users read, and what the tests find in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PAGES", "ROOT", "Block", "blocks", "code_spans", "links", "name_of"]

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "specchat" / "docs").glob("*.md")))

FENCED = re.compile(
    r"(?:^<!-- file: (?P<file>\S+) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block; `file` is the name to save it under, if the page gives one."""

    page: Path
    line: int
    language: str
    text: str
    file: str | None

    @property
    def place(self) -> str:
        """The page and the line where the block starts."""
        return f"{name_of(self.page)}:{self.line}"


def name_of(page: Path) -> str:
    """Return a page's path in the repository."""
    return page.relative_to(ROOT).as_posix()


def blocks(language: str | None = None) -> list[Block]:
    """Return the fenced blocks of all pages, or those in one language."""
    found = [
        Block(page, text.count("\n", 0, match.start("text")), match["language"], *_parts(match))
        for page in PAGES
        for text in [page.read_text("utf-8")]
        for match in FENCED.finditer(text)
    ]
    return [block for block in found if language in {None, block.language}]


def code_spans(page: Path) -> list[str]:
    """Return the inline code of a page."""
    return SPAN.findall(FENCED.sub("", page.read_text("utf-8")))


def links(page: Path) -> list[str]:
    """Return where a page's links and pictures lead."""
    return LINK.findall(FENCED.sub("", page.read_text("utf-8")))


def _parts(match: re.Match[str]) -> tuple[str, str | None]:
    return match["text"], match["file"]
