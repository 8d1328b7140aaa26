"""A streaming parser that splits a model's output into reasoning, answer and tool calls."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from specchat.decoding.chunk import Kind, ToolCall
from specchat.formats.call_reading import CallReader
from specchat.formats.chat_format import ChatFormat
from specchat.formats.marks import KNOWN_REASONING, Mark, State

Part: TypeAlias = tuple[Kind, str]
"""A piece of text and the part it belongs to."""

LONGEST_HEADER = 2
"""The most words in a header, such as "<|channel|>commentary to=functions.f"."""
MAX_QUOTED = 50
"""The most marks within the strings of a call, as each costs time."""
KINDS: Mapping[State, Kind] = {"answer": "answer", "reasoning": "reasoning", "call": "call"}
"""The part that text belongs to in each state; in other states, text is not shown."""


class AnswerReader:
    """Splits a streamed answer into its parts. A mark may be split across two pieces.

    Text that might be the start of a mark is held back until more text decides. White space at the
    end of reasoning is held back too, and dropped if the end mark follows. Marks are removed from
    the text, except around tool calls. A call that cannot be parsed is returned as answer text,
    unless the answer was cut short in it and tools are offered.
    """

    def __init__(
        self,
        form: ChatFormat,
        state: State = "start",
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        goes_on: bool = False,
        reads_calls: bool = True,
    ) -> None:
        """Start in the state that the prompt ends in; `tools` are those offered to the model.

        With `goes_on`, the answer continues an earlier one, so its leading white space is kept.
        Without `reads_calls`, what looks like a call is text.
        """
        self.calls: list[ToolCall] = []
        """The calls parsed so far."""
        self._format = form
        self._tools = tools
        self._call_reader = CallReader(form.calls, tools) if reads_calls else None
        self._knows_calls = reads_calls and bool(tools or not form.calls.needs_tools)
        self._parts: list[Part] = []
        self._waiting = ""
        self._space: list[str] = []
        """White space to emit if text follows, or to drop if a mark follows."""
        self._raw: list[str] = []
        """The header or call in progress, marks included."""
        self._quoted_end, self._num_quoted = 0, 0
        """Where the first mark within a string of the call ends in its text, and their number."""
        self._is_silent = True
        """Whether nothing has been emitted yet."""
        self._latest_mark = ""
        self._drops_space = state in {"reasoning", "answer"} and not goes_on
        self._enter(state)

    @property
    def kind(self) -> Kind:
        """The part that the next text probably belongs to."""
        return KINDS.get(self._state, "answer")

    def read(self, text: str) -> list[Part]:
        """Add text to the answer; return the parts that are now certain."""
        self._waiting += text
        while self._process_mark(is_last=False):
            pass
        num_certain = len(self._waiting) - self._marks.num_undecided(self._waiting)
        if self._state == "start" and self._waiting[:num_certain].strip():
            self._begin_answer()
            return self.read("")
        self._consume(num_certain)
        return self._take_parts()

    def finish(self, *, is_cut: bool = False, cuts_call: bool = False) -> list[Part]:
        """End the answer; return the parts that were held back.

        If the answer was cut short (`is_cut`), an incomplete mark at its end is dropped, and white
        space at the end of reasoning is kept, because the answer may be continued. If it consists
        only of an unfinished header, the header is returned as answer text. An end that only
        `cuts_call` is where an answer may well end, but not a call.
        """
        if is_cut:
            num_certain = len(self._waiting) - self._marks.num_undecided(self._waiting)
            self._waiting = self._waiting[:num_certain]
        while self._process_mark(is_last=True):
            pass
        if self._state == "start":
            self._begin_answer()
        self._consume(len(self._waiting))
        if self._state == "reasoning" and is_cut:
            self._add("reasoning", "".join(self._space))
        if self._state == "header" and not is_cut:
            self._add("answer", self._unfinished_header())
        if self._state == "call":
            self._end_call(is_cut=is_cut or cuts_call)
            if self._waiting:  # a call that could not be read ended before
                self._enter("answer")
                return self._take_parts() + self.finish(is_cut=is_cut, cuts_call=cuts_call)
        self._space, self._raw = [], []
        return self._take_parts()

    def _take_parts(self) -> list[Part]:
        parts, self._parts = self._parts, []
        return parts

    def _process_mark(self, *, is_last: bool) -> bool:
        """Process the next complete mark, if there is one; return whether there was."""
        found = self._marks.find(self._waiting)
        if found is None or (not is_last and self._marks.may_grow(self._waiting[found.start() :])):
            return False
        if self._state == "start" and self._waiting[: found.start()].strip():
            self._begin_answer()
            return True
        if self._state == "call" and self._is_quoted(self._waiting[: found.start()]):
            self._consume(found.end())
            self._quoted_end = self._quoted_end or len("".join(self._raw))
            self._num_quoted += 1
            return True
        after = self._waiting[found.end() :]
        self._consume(found.start())
        self._waiting = after
        self._latest_mark, self._drops_space = found[0], True
        self._space.clear()
        self._switch_state(self._marks.targets[found[0]], found[0])
        return True

    def _is_quoted(self, text: str) -> bool:
        """Return True if a call in progress ends within a JSON string after some more text."""
        reader = self._call_reader
        if reader is None or self._num_quoted == MAX_QUOTED:
            return False
        return reader.is_in_string("".join([*self._raw, text]))

    def _consume(self, num_characters: int) -> None:
        """Emit the first `num_characters` of the waiting text as part of the current state.

        In a header or a call, they are also kept for parsing at its end; before the first part (in
        the state "start"), they are white space, which is held back.
        """
        text, self._waiting = self._waiting[:num_characters], self._waiting[num_characters:]
        if self._state in {"header", "call"}:
            self._raw.append(text)
        elif self._state in {"reasoning", "answer"}:
            text = self._trim(text)
        elif self._state == "start":
            self._space.append(text)
        self._add(KINDS.get(self._state), text)

    def _trim(self, text: str) -> str:
        """Return text without white space after a mark; hold back that at the end of reasoning.

        For example, reasoning that arrives as "One. " and "Two." is returned as "One." and " Two.".
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
        """Start the answer without a mark; leading white space belongs to it."""
        self._waiting = "".join([*self._space, self._waiting])
        self._space.clear()
        self._enter("answer")

    def _switch_state(self, to: State, mark: str) -> None:
        """Leave the current state at a mark and enter the next one.

        In gpt-oss's "<|channel|>analysis<|message|>Hm", "<|channel|>" opens a header. At its end,
        `decide` maps its text "<|channel|>analysis" to "reasoning", which overrides `to`.
        """
        if self._state == "call":
            self._add("call", mark)
            self._end_call(mark)
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

    def _unfinished_header(self) -> str:
        """Return the text of an unfinished header that is really answer text; empty if none is.

        After other parts, a real header has at most two words; anything longer is text.
        """
        if self._is_silent:
            return "".join(self._raw)
        last = "".join(self._raw).rpartition(self._latest_mark)[2]
        if len(last.split()) <= LONGEST_HEADER:
            return ""
        is_control = self._latest_mark.startswith("<|")
        return last if is_control else self._latest_mark + last

    def _end_call(self, mark: str = "", *, is_cut: bool = False) -> None:
        """Parse the call that ends at `mark`, or at the end of the answer, which may cut it off.

        In formats without an end mark, text may follow the call.
        """
        raw, self._raw = "".join(self._raw), []
        reader = self._call_reader
        end = reader.tail(raw) if reader else len(raw)
        rest = raw[end:]
        raw = raw[:end] if rest else raw + mark
        leaves_out = is_cut and bool(self._tools)  # half a call is not text
        num_before = len(self.calls)
        calls = reader.read(raw, num_before, is_cut=is_cut and not rest) if reader else None
        quoted_end, self._quoted_end, self._num_quoted = self._quoted_end, 0, 0
        if calls is None and leaves_out and reader and reader.is_begun(raw):
            return
        if calls is None:
            whole = raw + rest
            named = 1 + len(self._before_call(whole[1:])) if leaves_out else len(whole)
            end = quoted_end or named
            self._add("answer", whole[:end])
            self._waiting = whole[end:] + self._waiting
            self._drops_space = False
        else:
            self.calls += calls
            self._add("answer", (self._before_call(rest) if leaves_out else rest).lstrip())

    def _before_call(self, text: str) -> str:
        """Return a text up to where another call begins, or may begin."""
        form = self._format.calls
        begin = form.opening or form.begin
        before = text.partition(begin)[0]
        return before[: len(before) - _search_for((Mark(begin, "call"),)).num_undecided(before)]

    def _enter(self, state: State) -> None:
        self._state = state
        wanted = self._format.marks.get(state, ())
        if not self._knows_calls:
            wanted = tuple(mark for mark in wanted if mark.to != "call")
        # a mark of `KNOWN_REASONING` opened it
        if state == "reasoning" and self._format.reasoning is None:
            known = dict(KNOWN_REASONING)
            ends = [known[self._latest_mark]] if self._latest_mark else known.values()
            wanted = (*(Mark(end, "answer") for end in ends), *wanted)
        self._marks = _search_for(wanted)


class _MarkSearch:
    """Finds the marks that can end a state, preferring the longest one at a position."""

    def __init__(self, marks: Sequence[Mark]) -> None:
        self.targets = {mark.text: mark.to for mark in marks}
        texts = sorted(self.targets, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, texts)) or r"(?!)")
        self._longest = max(map(len, texts), default=0)
        self._firsts = frozenset(text[0] for text in texts)
        self._beginnings = frozenset(text[:end] for text in texts for end in range(1, len(text)))

    def find(self, text: str) -> re.Match[str] | None:
        """Return the first mark in a text, or None."""
        return self._pattern.search(text)

    def may_grow(self, text: str) -> bool:
        """Return True if a text is a proper prefix of some mark."""
        return text in self._beginnings

    def num_undecided(self, text: str) -> int:
        """Return how many characters at the end of a text might be the start of a mark."""
        for start in range(max(0, len(text) - self._longest + 1), len(text)):
            if text[start] in self._firsts and text[start:] in self._beginnings:
                return len(text) - start
        return 0


@lru_cache(maxsize=64)
def _search_for(marks: tuple[Mark, ...]) -> _MarkSearch:
    return _MarkSearch(marks)
