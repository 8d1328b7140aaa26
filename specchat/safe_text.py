"""Making text safe to print on a terminal: untrusted text, and addresses with passwords."""

import json
import re

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters except tab and newline, characters that reorder a line, and lone surrogates,
which cannot be encoded."""


def harmless(text: str) -> str:
    """Return a text with its control characters replaced by U+FFFD."""
    return CONTROL.sub("\ufffd", text)


def safe_json(record: object, indent: int | None = None) -> str:
    """Return a record as JSON, with characters that would control a terminal escaped."""
    text = json.dumps(record, ensure_ascii=False, indent=indent)
    return CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def in_one_line(text: str) -> str:
    """Return a harmless text on one line, with newlines and tabs replaced by spaces."""
    return harmless(text.replace("\n", " ").replace("\t", " "))


def without_password(text: str) -> str:
    """Return a text with users and passwords removed from its URLs."""
    return re.sub(r"(?<=://)[^/\s]*@", "", text)
