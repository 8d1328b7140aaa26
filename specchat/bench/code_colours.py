"""The colours of code in a text, as in an editor, in the terminal's own colours."""

import re
from functools import lru_cache

FENCED = re.compile(r"^```([\w+#-]+)[^\n]*\n(.*?)(?=^```|\Z)", re.MULTILINE | re.DOTALL)
COLOURS = {
    "Token.Comment": "dim italic",
    "Token.Keyword": "cyan",
    "Token.Literal.String": "yellow",
    "Token.Literal.Number": "blue",
    "Token.Name.Function": "bold",
    "Token.Name.Class": "bold",
    "Token.Operator.Word": "cyan",
}
"""Neither red nor green: these stand for rejected and accepted tokens."""


@lru_cache(maxsize=4)
def code_colours(text: str) -> tuple[str, ...]:
    """Return a style for each character of a text, empty outside fenced blocks of known languages.

    The last block may still be open, as in an answer that is being written.
    """
    from rich.syntax import Syntax

    styles = [""] * len(text)
    for block in FENCED.finditer(text):
        lexer = Syntax("", block[1]).lexer
        if lexer is None:
            continue
        for offset, kind, word in lexer.get_tokens_unprocessed(block[2]):
            style = next((COLOURS[name] for name in _names(str(kind)) if name in COLOURS), "")
            start = block.start(2) + offset
            styles[start : start + len(word)] = [style] * len(word)
    return tuple(styles[: len(text)])


def _names(kind: str) -> list[str]:
    """Return the name of a kind of token and those of what it is a kind of, the closest first."""
    parts = kind.split(".")
    return [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
