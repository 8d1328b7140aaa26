"""Writing an answer to a terminal: harmless whatever it says, draft tokens coloured if asked."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from specchat.chat.safe_text import harmless, in_one_line
from specchat.drafters import TARGET

if TYPE_CHECKING:  # it needs NumPy, which errors must do without
    from specchat.decoding.chunk import Chunk

__all__ = ["Painter", "ask", "harmless", "in_one_line", "say"]

GREEN, UNDERLINED, PLAIN = "\x1b[32m", "\x1b[4m", "\x1b[0m"


def say(line: str) -> None:
    """Print one line on stderr, harmless whatever file names and templates put into it."""
    print(harmless(" ".join(line.split("\n"))), file=sys.stderr)


def ask(question: str) -> str:
    """Return the answer to a question; "" where there is none because the input ended."""
    print(f"{in_one_line(question)} ", end="", file=sys.stderr, flush=True)
    try:
        return sys.stdin.readline()
    except KeyboardInterrupt:
        print(file=sys.stderr)  # so that the shell's prompt begins a line
        raise


class Painter:
    """Prints an answer on stdout as it comes."""

    def __init__(self, shows_drafts: bool) -> None:
        """Colour accepted draft tokens if asked; underline them where NO_COLOR is set."""
        self._is_terminal = sys.stdout.isatty()
        colour = UNDERLINED if os.environ.get("NO_COLOR") else GREEN
        self._mark = colour if shows_drafts and self._is_terminal else ""
        self._last = ""
        self._holds_return = False

    def paint(self, chunk: Chunk) -> None:
        """Print what a step added."""
        if self._mark and chunk.texts:
            pieces = zip(chunk.texts, chunk.origins, strict=True)
            out = "".join(self._painted(text, origin) for text, origin in pieces)
        else:
            out = self._shown(chunk.text) if self._is_terminal else chunk.text
        self._last = chunk.text[-1:] or self._last
        sys.stdout.write(out)
        sys.stdout.flush()

    def finish(self) -> None:
        """End the last line."""
        if self._last != "\n":
            sys.stdout.write("\n")
        sys.stdout.flush()

    def _shown(self, text: str) -> str:
        """Make a piece of text harmless; a carriage return before a newline belongs to it."""
        text = "\r" * self._holds_return + text
        self._holds_return = text.endswith("\r")  # the newline may come with the next piece
        return harmless(text.removesuffix("\r").replace("\r\n", "\n"))

    def _painted(self, text: str, origin: str) -> str:
        text = self._shown(text)
        return text if origin == TARGET.name or not text else f"{self._mark}{text}{PLAIN}"
