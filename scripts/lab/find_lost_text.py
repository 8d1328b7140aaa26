"""Find characters that the chat does not show: every example of a Markdown specification, drawn.

Each example is drawn as the chat draws an answer, arriving in small pieces and at once, at several
widths. An example is reported if a letter, digit or sign of its source is missing on the screen,
unless the sign is markup whose effect is shown: `**` of bold text, the brackets of a link whose
address is shown, the `>` of a quotation. The reference's HTML says which markup an example has.

    python scripts/lab/find_lost_text.py spec.txt       # of CommonMark, or of cmark-gfm
    python scripts/lab/find_lost_text.py commonmark.json --verbose
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterator
from html import unescape
from itertools import product
from pathlib import Path
from typing import NamedTuple

from textual.strip import Strip
from textual.theme import BUILTIN_THEMES

from specchat.safe_text import harmless
from specchat.tui.markdown.growing_text import GrowingMarkdown, markdown_parser
from specchat.tui.markdown.prose import has_mark
from specchat.tui.markdown.style_marks import COPY, MARGIN, TITLE
from specchat.tui.markdown.typesetter import Typesetter

WIDTHS = (20, 40, 100)
SIZES = (3, 10**6)
"""Characters that arrive together: streaming, and a conversation that is opened again."""
EXAMPLE = re.compile(r"^`{32} example[^\n]*\n(.*?)^\.\n(.*?)^`{32}$", re.MULTILINE | re.DOTALL)
MARKS = {
    "<em>": "*_",
    "<strong>": "*_",
    "<del>": "~",
    "<code": "`~",
    "<a ": "[]()<>\"'",
    "<img": "![]()<>\"'",
    "<h1": "#=",
    "<h2": "#-",
    "<h3": "#",
    "<h4": "#",
    "<h5": "#",
    "<h6": "#",
    "<hr": "*-_",
    "<blockquote": ">",
    "<li": "*+-.)",
    "checkbox": "[]x",
    "<table": "|:-",
    "<br": "\\<>/br",
}
"""The markup of each HTML element; its effect is shown instead."""


class Example(NamedTuple):
    """An example of a specification."""

    number: int
    source: str
    html: str


def examples(path: Path) -> Iterator[Example]:
    """Yield the examples of a specification, as JSON or in its own format (→ for tabs)."""
    text = path.read_text("utf-8")
    if path.suffix == ".json":
        for each in json.loads(text):
            yield Example(each["example"], each["markdown"], each["html"])
        return
    for number, found in enumerate(EXAMPLE.finditer(text), 1):
        yield Example(number, found[1].replace("→", "\t"), found[2].replace("→", "\t"))


def screen_text(typesetter: Typesetter, text: str, width: int, size: int) -> str:
    """Return what is shown of a text that arrives in pieces of `size` characters."""
    growing = GrowingMarkdown()
    text = harmless(text)
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    blocks = [block for piece in pieces for block in growing.append(piece)]
    lines = [
        line for block in [*blocks, growing.tail] for line in typesetter.markdown(block, width)
    ]
    too_wide = [line.text for line in lines if line.cell_length > width]
    if too_wide:
        return f"(wider than the screen: {too_wide[0]!r})"
    return "\n".join(map(written, lines))


def written(line: Strip) -> str:
    """Return the text of a line without what the chat adds: the copy label, "text" above code."""
    is_title = has_mark(line, TITLE)
    added = COPY if is_title else MARGIN
    shown = "".join(text for text, style, _ in line if not style or not style.meta.get(added))
    return "" if is_title and shown.strip() == "text" else shown


def lost(example: Example, shown: str) -> Counter[str]:
    """Return the characters of an example's source that are not shown."""
    missing = signs(example.source) - signs(shown)
    if "&" in example.source:  # shown as the characters that they stand for, or as written
        missing &= signs(unescape(example.source)) - signs(shown)
    html = example.html + markdown_parser().render(example.source)  # markup in HTML is markup here
    explained = {mark for tag, marks in MARKS.items() if tag in html for mark in marks}
    if re.search(r"\\[*_`~#|<>$\n]|\]\(", example.source):
        explained |= {"\\"}  # before a mark, or in an address
    return Counter({each: n for each, n in missing.items() if each not in explained})


def signs(text: str) -> Counter[str]:
    """Return the visible characters of a text."""
    return Counter("".join(text.split()))


def main() -> None:
    """Draw every example, and print those that lose something."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("specification", type=Path, nargs="+")
    parser.add_argument("--verbose", action="store_true", help="print the source and the screen")
    options = parser.parse_args()
    typesetter = Typesetter(BUILTIN_THEMES["textual-dark"].to_color_system().generate())
    for path in options.specification:
        drawn, faults = 0, 0
        for example in examples(path):
            drawn += 1
            for width, size in product(WIDTHS, SIZES):
                shown = screen_text(typesetter, example.source, width, size)
                if missing := lost(example, shown):
                    faults += 1
                    way = "streaming" if size == SIZES[0] else "opened again"
                    characters = "".join(sorted(missing.elements()))
                    print(f"{path.name} {example.number}, {width} wide, {way}: lost {characters!r}")
                    if options.verbose:
                        print(f"{example.source}{'-' * width}\n{shown}\n")
                    break
        print(f"{path.name}: {faults} of {drawn} examples lose characters")


if __name__ == "__main__":
    main()
