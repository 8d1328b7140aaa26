"""The documentation that ships with specchat: one Markdown file per topic.

`specchat help TOPIC` and the chat's help screen read it here. Comments in the files mark what the
tests check; readers never see them. This package imports nothing but specchat.errors.
"""

import re
from itertools import takewhile
from pathlib import Path

from specchat.errors import InvalidOption, nearest

__all__ = ["read", "section", "topics"]

FOLDER = Path(__file__).parent
READING_ORDER = (
    "chat",
    "models",
    "formats",
    "settings",
    "speculation",
    "pacing",
    "benchmarks",
    "lab",
    "python",
    "drafters",
    "glossary",
    "troubleshooting",
    "changes",
)
"""Topics that are not listed here come last."""

COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)


def topics() -> dict[str, str]:
    """Return the title of each topic by name, in reading order."""
    others = sorted({path.stem for path in FOLDER.glob("*.md")}.difference(READING_ORDER))
    firsts = {name: _text(name).partition("\n")[0] for name in (*READING_ORDER, *others)}
    return {name: first.removeprefix("# ") for name, first in firsts.items()}


def read(topic: str) -> str:
    """Return a topic's Markdown; InvalidOption names the nearest topic if there is none."""
    known = topics()
    if topic in known:
        return COMMENT.sub("", _text(topic))
    topics_known = ", ".join(known)
    raise InvalidOption(f"no help topic {topic!r}{nearest(topic, known)}; topics: {topics_known}")


def section(topic: str, heading: str) -> str:
    """Return the Markdown below a heading of a topic, up to the next one; empty without it."""
    lines = iter(read(topic).splitlines())
    any(line.lstrip("#") == f" {heading}" for line in lines)  # skips the lines before it
    return "\n".join(takewhile(lambda line: not line.startswith("#"), lines)).strip()


def _text(topic: str) -> str:
    return (FOLDER / f"{topic}.md").read_text("utf-8")
