"""From tokens to text, without broken characters or parts of stop strings."""

import codecs
from collections.abc import Callable, Collection, Sequence
from operator import itemgetter


class TextAssembler:
    """Assembles the bytes of tokens into text that can be shown at once.

    Incomplete characters, and text that may be the beginning of a stop string, are held back until
    later tokens decide. Bytes that are not valid UTF-8 become U+FFFD; those of a character cut off
    by the end of the answer are dropped.
    """

    def __init__(
        self,
        piece: Callable[[int], bytes],
        stop_strings: Sequence[str] = (),
        end_tokens: Collection[int] = (),
    ) -> None:
        """Get a token's bytes from `piece`; the given strings and tokens end the text."""
        self._piece = piece
        self._end_tokens = end_tokens
        self._stop_strings = tuple(stop for stop in stop_strings if stop)
        self._bytes = b""
        self._held = ""
        self.is_stopped = False
        """True once a stop string or end token was found; the text ends just before it."""
        self.stop_string = ""
        """The stop string that was found."""

    def push(self, token: int) -> str:
        """Add a token; return the text that can now be shown, possibly empty."""
        if token in self._end_tokens:
            text = self.finish()
            self.is_stopped = True
            return text
        text = self._held + self._decoded(self._piece(token))
        self._held = ""
        if not self._stop_strings:
            return text
        matches = [(start, stop) for stop in self._stop_strings if (start := text.find(stop)) >= 0]
        if matches:
            start, self.stop_string = min(matches, key=itemgetter(0))
            self.is_stopped = True
            return text[:start]
        split = len(text) - self._num_undecided(text)
        self._held = text[split:]
        return text[:split]

    def finish(self) -> str:
        """Return what was held back, once no more tokens follow."""
        if self.is_stopped:
            return ""
        text, self._held, self._bytes = self._held, "", b""
        return text

    def piece(self, token: int) -> str:
        """Return the text of a token on its own, for display."""
        return self._piece(token).decode("utf-8", "replace")

    def _decoded(self, added: bytes) -> str:
        """Return the whole characters up to here; an incomplete one is kept until later."""
        if not self._bytes and added.isascii():
            return added.decode("ascii")
        waiting = self._bytes + added
        text, num_decoded = codecs.utf_8_decode(waiting, "replace", False)
        self._bytes = waiting[num_decoded:]
        return text

    def _num_undecided(self, text: str) -> int:
        """Return the number of characters at the end that may begin a stop string."""
        longest = max(len(stop) for stop in self._stop_strings) - 1
        for length in range(min(longest, len(text)), 0, -1):
            tail = text[-length:]
            if any(stop.startswith(tail) for stop in self._stop_strings):
                return length
        return 0
