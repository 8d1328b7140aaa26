"""The documentation that ships with specchat: one Markdown file per topic.

`specchat help TOPIC` and the chat's help screen read it here. Comments in the files mark what the
tests check; readers never see them. This package imports nothing but specchat.errors.
"""

import difflib
import re
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable

from specchat.errors import InvalidOption

__all__ = ["read", "topics"]

READING_ORDER = (
    "chat",
    "models",
    "settings",
    "speculation",
    "pacing",
    "benchmarks",
    "python",
    "drafters",
    "troubleshooting",
    "changes",
)
"""Topics that are not listed here come last."""

COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)


def topics() -> dict[str, str]:
    """Return the title of each topic by name, in reading order."""
    found = (file.name.removesuffix(".md") for file in _folder() if file.name.endswith(".md"))
    return {name: _title(name) for name in sorted(found, key=_place)}


def read(topic: str) -> str:
    """Return a topic's Markdown; InvalidOption names the nearest topic if there is none."""
    known = topics()
    if topic in known:
        return COMMENT.sub("", _text(topic))
    near = difflib.get_close_matches(topic, known, 1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise InvalidOption(f"no help topic {topic!r}; {hint}topics: {', '.join(known)}")


def _folder() -> Iterator[Traversable]:
    return files(__name__).iterdir()


def _text(topic: str) -> str:
    return files(__name__).joinpath(f"{topic}.md").read_text("utf-8")


def _title(topic: str) -> str:
    return _text(topic).partition("\n")[0].removeprefix("# ")


def _place(topic: str) -> tuple[int, str]:
    is_listed = topic in READING_ORDER
    return (READING_ORDER.index(topic) if is_listed else len(READING_ORDER), topic)
