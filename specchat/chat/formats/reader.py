"""Reading an answer as it streams: what is reasoning, what is the answer, what calls a tool."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from specchat.chat.formats.chat_format import ChatFormat, Mark, State
from specchat.decoding.chunk import Kind, ToolCall

Part: TypeAlias = tuple[Kind, str]
"""Some text and what it is."""

KNOWN = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("◁think▷", "◁/think▷"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
)
"""Marks of models whose templates do not mention reasoning. They count at the very beginning of an
answer only: anywhere else they are text."""


class AnswerReader:
    """Splits an answer into its parts while it streams. Marks may be cut anywhere.

    Text that may be the beginning of a mark is held back until it is decided, and so is white space
    at the edges of the reasoning. What a mark begins is not part of the text; a call that cannot
    be read is given back as text.
    """

    def __init__(
        self, form: ChatFormat, state: State = "start", tools: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        """Begin in the state that the prompt ends in; `tools` are those offered to the model."""
        self.calls: list[ToolCall] = []
        """The calls that are complete."""
        self._format = form
        self._tools = tools
        self._held = ""
        self._raw = ""
        self._end_mark = ""
        self._has_begun = state in {"reasoning", "answer"}
        self._is_at_edge = True
        self._marks: dict[State, _Marks] = {}
        self._parts: list[Part] = []
        self._go_to(state)

    @property
    def kind(self) -> Kind:
        """What the latest text was."""
        return {"reasoning": "reasoning", "call": "call"}.get(self.state, "answer")  # type: ignore[return-value]

    def read(self, text: str) -> list[Part]:
        """Take more text; return the parts that are certain now."""
        self._take(text, is_last=False)
        parts, self._parts = self._parts, []
        return parts

    def finish(self) -> list[Part]:
        """Return what was held back, once no more text follows."""
        self._take("", is_last=True)
        if self.state == "call":
            self._end_call("")
        parts, self._parts = self._parts, []
        return parts

    def _take(self, text: str, *, is_last: bool) -> None:
        waiting = self._held + text
        while True:
            marks = self._current
            found = marks.pattern.search(waiting) if marks.pattern else None
            if found and self.state == "start" and waiting[: found.start()].strip():
                found = None
            if found is None:
                break
            self._emit(waiting[: found.start()])
            waiting = waiting[found.end() :]
            self._pass(found[0], marks.targets[found[0]])
        num_held = 0 if is_last else marks.num_undecided(waiting)
        place = len(waiting) - num_held
        if self.state == "start":
            if waiting[:place].strip():
                self._go_to("answer")
                self._held = ""
                self._take(waiting, is_last=is_last)
                return
            place = 0
            if is_last:
                self._put("answer", waiting)
                waiting = ""
        elif self.state == "reasoning":
            place = len(waiting[:place].rstrip())
        self._held = waiting[place:]
        self._emit(waiting[:place])
        if is_last:
            self._held = ""

    def _emit(self, text: str) -> None:
        """Add text to the part that the state stands for."""
        if self.state in {"reasoning", "answer"} and self._is_at_edge and self._has_begun:
            text = text.lstrip()
        if not text:
            return
        if self.state == "reasoning":
            self._put("reasoning", text)
        elif self.state == "answer":
            self._put("answer", text)
        elif self.state == "call":
            self._raw += text
            self._put("call", text)
        elif self.state == "header":
            self._raw += text
        self._is_at_edge = False

    def _put(self, kind: Kind, text: str) -> None:
        if text:
            self._parts.append((kind, text))

    def _pass(self, mark: str, to: State) -> None:
        """Go where a mark leads."""
        if self.state == "reasoning" and self._parts and self._parts[-1][0] == "reasoning":
            self._parts[-1] = ("reasoning", self._parts[-1][1].rstrip())
        self._has_begun = True
        if self.state == "call":
            if to == "call":
                self._raw += mark
                self._put("call", mark)
                return
            self._end_call(mark)
        if self.state == "header" and to == "header":
            self._raw += mark
            return
        if self.state == "header" and self._format.decide is not None:
            header, self._raw = self._raw, ""
            to = self._format.decide(header)
            if to == "call":
                self._begin_call(header + mark)
                return
        if to == "call":
            self._begin_call(mark)
        else:
            if to == "header":
                self._raw = mark
            self._go_to(to)

    def _begin_call(self, mark: str) -> None:
        self._go_to("call")
        self._raw = mark
        self._put("call", mark)

    def _end_call(self, mark: str) -> None:
        """Read a call that is complete."""
        raw, self._raw = self._raw + mark, ""
        syntax = self._format.calls
        calls = syntax.read(raw, self._tools, len(self.calls)) if syntax else None
        if calls is None:
            self._put("answer", raw)
        else:
            self._put("call", mark)
            self.calls += calls

    def _go_to(self, state: State) -> None:
        self.state = state
        self._is_at_edge = True
        if state not in self._marks:
            wanted = self._format.marks.get(state, ())
            if state == "answer" and not self._tools:
                wanted = tuple(mark for mark in wanted if mark.to != "call" or len(mark.text) > 1)
            self._marks[state] = _marks_of(wanted)
        self._current = self._marks[state]


class _Marks:
    """The marks that may end a state, found in text; the longest one where several begin."""

    def __init__(self, marks: Sequence[Mark]) -> None:
        self.targets = {mark.text: mark.to for mark in marks}
        texts = sorted(self.targets, key=len, reverse=True)
        self.pattern = re.compile("|".join(map(re.escape, texts))) if texts else None
        self._longest = max(map(len, texts), default=0)
        self._firsts = frozenset(text[0] for text in texts)
        self._beginnings = frozenset(
            text[:length] for text in texts for length in range(1, len(text))
        )

    def num_undecided(self, text: str) -> int:
        """Return the number of characters at the end that may begin a mark."""
        for place in range(max(0, len(text) - self._longest + 1), len(text)):
            if text[place] in self._firsts and text[place:] in self._beginnings:
                return len(text) - place
        return 0


@lru_cache(maxsize=64)
def _marks_of(marks: tuple[Mark, ...]) -> _Marks:
    return _Marks(marks)
