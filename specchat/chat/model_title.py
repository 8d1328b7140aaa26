"""Titles that a model writes for a conversation: what it is asked, and what is taken of it."""

import re

from specchat.chat.message_rows import MAX_TITLE_LENGTH
from specchat.safe_text import harmless

REQUEST = (
    "Write a title for this conversation, in its language: at most six words, without quotation"
    " marks. Answer with the title only."
)
MOST_TOKENS = 32
MOST_WORDS = 9
"""Models count badly: a title of a few more words is taken, too."""
LABEL = re.compile(
    r"^(?:title|titel|titre|t\u00edtulo|\u6807\u9898|\u30bf\u30a4\u30c8\u30eb)\s*[:\uff1a]\s*",
    re.IGNORECASE,
)
MARKS = "#*_`~\"'\u201c\u201d\u201e\u00ab\u00bb\u2018\u2019\u300c\u300d\u300e\u300f "
"""Marks around a title: of Markdown, and quotation marks."""
MARKUP = re.compile(r"[<>{}\[\]|\\`]|https?:|\*\*")


def title_from(text: str) -> str:
    """Return the title in what a model wrote; empty if that is no title.

    Only a single line of a few words is one, without markup and control characters.
    """
    line = LABEL.sub("", text.strip().strip(MARKS), count=1).strip().strip(MARKS).rstrip(".\u3002")
    is_line = line == harmless(line) and "\n" not in line and "\t" not in line
    is_short = 0 < len(line) <= MAX_TITLE_LENGTH and len(line.split()) <= MOST_WORDS
    has_words = any(character.isalpha() for character in line)
    return line if is_line and is_short and has_words and not MARKUP.search(line) else ""
