"""Printing an answer on stdout while it is decoded."""

import os
import sys

from specchat.chat.safe_text import harmless
from specchat.decoding.chunk import Chunk
from specchat.drafter_registry import TARGET

GREEN, UNDERLINED, PLAIN = "\x1b[32m", "\x1b[4m", "\x1b[0m"


class AnswerPainter:
    """Prints an answer chunk by chunk; on a terminal control characters are replaced."""

    def __init__(self, shows_drafts: bool) -> None:
        """Colour accepted draft tokens if asked; underline them if NO_COLOR is set."""
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
        """Return a piece with control characters replaced; a Windows line end is one newline."""
        text = "\r" * self._holds_return + text
        self._holds_return = text.endswith("\r")  # its newline may come with the next piece
        return harmless(text.removesuffix("\r").replace("\r\n", "\n"))

    def _painted(self, text: str, origin: str) -> str:
        text = self._shown(text)
        return text if origin == TARGET.name or not text else f"{self._mark}{text}{PLAIN}"
