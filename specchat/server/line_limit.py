"""Where an answer in an editor ends, beside its end token: llama-server's limits on lines."""

BLANKS = " \t"


class LineLimit:
    """Ends an answer at a line with too little indentation, or at a line's end once time is up."""

    def __init__(self, least_indent: int, most_seconds: float) -> None:
        """Limit an answer; 0 sets no limit."""
        self._least_indent, self._most_seconds = least_indent, most_seconds
        self._indent: int | None = None
        """That of the line in progress, until its text begins; the first line has none."""

    def find_end(self, text: str, seconds: float) -> int | None:
        """Return where in the next text the answer ends; None if it goes on.

        Until then, the answer has taken `seconds`.
        """
        for place, character in enumerate(text):
            if self._indent is not None:
                if character in BLANKS:
                    self._indent += 1
                    continue
                if self._indent < self._least_indent:
                    return place
                self._indent = None
            if character == "\n":
                if 0 < self._most_seconds < seconds:
                    return place + 1
                self._indent = 0
        return None
