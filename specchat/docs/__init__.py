"""The documentation that ships with specchat: one Markdown file per topic.

`specchat help TOPIC` and the chat's help screen read it here. Comments in the files mark what the
tests check; readers never see them. This package imports nothing but specchat.errors.
"""

import re
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path

from specchat.errors import InvalidOption, nearest

__all__ = ["DASHBOARD", "read", "section", "topics"]

FOLDER = Path(__file__).parent
DASHBOARD = FOLDER / "grafana.json"
"""A dashboard of a server's figures, for Grafana."""
READING_ORDER = (
    "chat",
    "models",
    "formats",
    "structured",
    "server",
    "more-than-one-machine",
    "settings",
    "speculation",
    "benchmarks",
    "python",
    "drafters",
    "glossary",
    "troubleshooting",
)
"""Topics that are not listed here come last."""

COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)
KEY = re.compile(r"<!-- key: (?P<command>\w+) -->(?P<key>[\w+]+)")
"""A key of the chat, behind the id of its command."""


def topics() -> dict[str, str]:
    """Return the title of each topic by name, in reading order."""
    others = sorted({path.stem for path in FOLDER.glob("*.md")}.difference(READING_ORDER))
    firsts = {name: _text(name).partition("\n")[0] for name in (*READING_ORDER, *others)}
    return {name: first.removeprefix("# ") for name, first in firsts.items()}


def read(topic: str, key_of: Callable[[str], str] | None = None) -> str:
    """Return a topic's Markdown; InvalidOption names the nearest topic if there is none.

    `key_of` returns the keys in effect of a command of the chat, by its id.
    """
    known = topics()
    if topic in known:
        text = _text(topic)
        if key_of is not None:
            text = KEY.sub(lambda found: key_of(found["command"]), text)
        return COMMENT.sub("", text)
    topics_known = ", ".join(known)
    raise InvalidOption(f"no help topic {topic!r}{nearest(topic, known)}; topics: {topics_known}")


def section(topic: str, heading: str, key_of: Callable[[str], str] | None = None) -> str:
    """Return the Markdown below a heading of a topic, up to the next one; empty without it."""
    lines = iter(read(topic, key_of).splitlines())
    any(line.lstrip("#") == f" {heading}" for line in lines)  # skips the lines before it
    return "\n".join(takewhile(lambda line: not line.startswith("#"), lines)).strip()


def _text(topic: str) -> str:
    return (FOLDER / f"{topic}.md").read_text("utf-8")
