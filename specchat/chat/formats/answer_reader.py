"""Reading an answer as it streams: what is reasoning, what is the answer, what calls a tool."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from specchat.chat.formats.chat_format import ChatFormat
from specchat.chat.formats.marks import KNOWN_REASONING, Mark, State
from specchat.decoding.chunk import Kind, ToolCall

Part: TypeAlias = tuple[Kind, str]
"""Some text and what it is."""

KINDS: Mapping[State, Kind] = {"answer": "answer", "reasoning": "reasoning", "call": "call"}
"""What the text in a state is; in the others it is shown nowhere."""


class AnswerReader:
    """Splits an answer into its parts while it streams. Marks may be cut anywhere.

    Text that may be the beginning of a mark is held back until it is decided, and so is white space
    at the edges of the reasoning. Marks are not part of the text, except those of calls. A call
    that cannot be read is given back as text.
    """

    def __init__(
        self,
        form: ChatFormat,
        state: State = "start",
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        goes_on: bool = False,
    ) -> None:
        """Begin in the state that the prompt ends in; `tools` are those offered to the model.

        `goes_on` is for an answer that is continued: white space at its beginning is part of it.
        """
        self.calls: list[ToolCall] = []
        """The calls that are complete."""
        self._format = form
        self._tools = tools
        self._parts: list[Part] = []
        self._waiting = ""
        self._space: list[str] = []
        """White space that counts only if text follows, and not a mark."""
        self._raw: list[str] = []
        """What a header or a call has so far, with its marks."""
        self._is_silent = True
        self._latest_mark = KNOWN_REASONING[0][0]
        self._drops_space = state in {"reasoning", "answer"} and not goes_on
        self._enter(state)

    @property
    def kind(self) -> Kind:
        """What the next text is likely to be."""
        return KINDS.get(self._state, "answer")

    def read(self, text: str) -> list[Part]:
        """Take more text; return the parts that are certain now."""
        self._waiting += text
        while self._pass_mark(is_last=False):
            pass
        num_certain = len(self._waiting) - self._marks.num_undecided(self._waiting)
        if self._state == "start" and self._waiting[:num_certain].strip():
            self._begin_answer()
            return self.read("")
        self._take(num_certain)
        return self._taken()

    def finish(self, *, is_cut: bool = False) -> list[Part]:
        """Return what was held back, once no more text follows.

        Of an answer that was cut, the beginning of a mark is left out: its rest did not come. White
        space at the end of its reasoning stays, for the answer may be continued. An answer that is
        nothing but a header without an end is text.
        """
        if is_cut:
            num_certain = len(self._waiting) - self._marks.num_undecided(self._waiting)
            self._waiting = self._waiting[:num_certain]
        while self._pass_mark(is_last=True):
            pass
        if self._state == "start":
            self._begin_answer()
        self._take(len(self._waiting))
        if self._state == "reasoning" and is_cut:
            self._add("reasoning", "".join(self._space))
        if self._state == "header" and self._is_silent and not is_cut:
            self._add("answer", "".join(self._raw))
        if self._state == "call":
            self._end_call()
        self._space, self._raw = [], []
        return self._taken()

    def _taken(self) -> list[Part]:
        parts, self._parts = self._parts, []
        return parts

    def _pass_mark(self, *, is_last: bool) -> bool:
        """Go where the next mark leads; False if none is certain."""
        found = self._marks.find(self._waiting)
        if found is None or (not is_last and self._marks.may_grow(self._waiting[found.start() :])):
            return False
        if self._state == "start" and self._waiting[: found.start()].strip():
            self._begin_answer()
            return True
        after = self._waiting[found.end() :]
        self._take(found.start())
        self._waiting = after
        self._latest_mark, self._drops_space = found[0], True
        self._space.clear()
        self._go_on(self._marks.targets[found[0]], found[0])
        return True

    def _take(self, num_characters: int) -> None:
        """Add waiting text to the part it belongs to."""
        text, self._waiting = self._waiting[:num_characters], self._waiting[num_characters:]
        if self._state in {"header", "call"}:
            self._raw.append(text)
        elif self._state in {"reasoning", "answer"}:
            text = self._trimmed(text)
        elif self._state == "start":
            self._space.append(text)
        self._add(KINDS.get(self._state), text)

    def _trimmed(self, text: str) -> str:
        """Return text without white space after a mark; in reasoning also that before a mark.

        Reasoning in the pieces "One. " and "Two." becomes "One." and " Two.": the space waits.
        """
        if self._drops_space:
            text = text.lstrip()
            self._space.clear()
        kept = text.rstrip() if self._state == "reasoning" else text
        if not kept:
            self._space.append(text)
            return ""
        whole = "".join([*self._space, kept])
        self._space = [text[len(kept) :]]
        self._drops_space = False
        return whole

    def _add(self, kind: Kind | None, text: str) -> None:
        if kind and text:
            self._parts.append((kind, text))
            self._is_silent = False

    def _begin_answer(self) -> None:
        """Enter the answer without a mark: white space at its beginning is part of it."""
        self._waiting = "".join([*self._space, self._waiting])
        self._space.clear()
        self._enter("answer")

    def _go_on(self, to: State, mark: str) -> None:
        """Enter the state after a mark.

        In gpt-oss "<|channel|>" begins a header; at its end, "<|message|>", the header's text
        "analysis" decides that reasoning follows.
        """
        if self._state == "call":
            self._raw.append(mark)
            self._add("call", mark)
            self._end_call()
        elif self._state == "header":
            if to != "header" and self._format.decide is not None:
                to = self._format.decide("".join(self._raw))
            self._raw.append(mark)
        elif to in {"header", "call"}:
            self._raw = [mark]
        if to == "call":
            self._raw = self._raw or [mark]
            self._add("call", "".join(self._raw))
        self._enter(to)

    def _end_call(self) -> None:
        """Read a call that is complete."""
        raw, self._raw = "".join(self._raw), []
        syntax = self._format.calls
        calls = syntax.read(raw, self._tools, len(self.calls)) if syntax else None
        if calls is None:
            self._add("answer", raw)
        else:
            self.calls += calls

    def _enter(self, state: State) -> None:
        self._state = state
        wanted = self._format.marks.get(state, ())
        if state == "start" and not self._tools:  # a brace begins a call only where one may come
            wanted = tuple(mark for mark in wanted if mark.to != "call" or len(mark.text) > 1)
        if state == "reasoning" and self._format.reasoning is None:  # a known mark began it
            wanted = (Mark(dict(KNOWN_REASONING)[self._latest_mark], "answer"), *wanted)
        self._marks = _search_for(wanted)


class _MarkSearch:
    """Finds in text the marks that may end a state; the longest one where several begin."""

    def __init__(self, marks: Sequence[Mark]) -> None:
        self.targets = {mark.text: mark.to for mark in marks}
        texts = sorted(self.targets, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, texts)) or r"(?!)")
        self._longest = max(map(len, texts), default=0)
        self._firsts = frozenset(text[0] for text in texts)
        self._beginnings = frozenset(text[:end] for text in texts for end in range(1, len(text)))

    def find(self, text: str) -> re.Match[str] | None:
        """Return the first mark in a text."""
        return self._pattern.search(text)

    def may_grow(self, text: str) -> bool:
        """Return True for a text that may be the beginning of a longer mark."""
        return text in self._beginnings

    def num_undecided(self, text: str) -> int:
        """Return the number of characters at the end that may begin a mark."""
        for place in range(max(0, len(text) - self._longest + 1), len(text)):
            if text[place] in self._firsts and text[place:] in self._beginnings:
                return len(text) - place
        return 0


@lru_cache(maxsize=64)
def _search_for(marks: tuple[Mark, ...]) -> _MarkSearch:
    return _MarkSearch(marks)
