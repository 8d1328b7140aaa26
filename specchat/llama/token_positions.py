"""The positions of a text's tokens, where an image takes fewer of them than cells."""

from collections.abc import Iterable


class Positions:
    """The positions of the tokens in a memory, each of which has a cell.

    They are the same as the tokens' places in the text, but for models with positions in height and
    width (M-RoPE): there an image takes as many as its longer side has cells.
    """

    def __init__(self) -> None:
        """Begin with an empty memory."""
        self._gaps: list[tuple[int, int]] = []

    def __bool__(self) -> bool:
        """Whether some positions are not the tokens' places."""
        return bool(self._gaps)

    @property
    def gaps(self) -> tuple[tuple[int, int], ...]:
        """The ends of images that take fewer positions than cells, and how many fewer."""
        return tuple(self._gaps)

    def begin_with(self, gaps: Iterable[tuple[int, int]]) -> None:
        """Begin with those of a memory that is restored."""
        self._gaps = list(gaps)

    def at(self, length: int) -> int:
        """Return the position after the first `length` tokens."""
        if not self._gaps:
            return length
        return length - sum([saved for end, saved in self._gaps if end <= length])

    def note(self, end: int, num_saved: int) -> None:
        """Note an image whose last cell is before `end`, with so many positions less than cells."""
        if num_saved:
            self._gaps.append((end, num_saved))

    def cut(self, length: int) -> None:
        """Forget what is not among the first `length` tokens."""
        if self._gaps:
            self._gaps = [gap for gap in self._gaps if gap[0] <= length]
