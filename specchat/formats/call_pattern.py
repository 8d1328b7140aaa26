"""Learning the exact text of a template's tool calls, for a grammar that allows only such calls.

The template writes made-up calls, and what is around their names, keys and values is the pattern.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from specchat.formats.call_syntax import KEY_AGAIN
from specchat.formats.probes import (
    CALL_ID,
    FUNCTION,
    KEY,
    NUMBER,
    OTHER_CALL_ID,
    OTHER_FUNCTION,
    OTHER_KEY,
    OTHER_VALUE,
    QUESTION,
    VALUE,
    Probes,
    common_start,
    marks_in,
)

ANY_ID, ANY_INDEX, ANY_NAME = "\x01", "\x02", "\x03"
"""Stand in a pattern's texts for a call's id, its number, and the name of any offered function."""
LONE_DIGIT = re.compile(r"(?<![\w.])\d(?![\w.])")
UNFINISHED_TAG = re.compile(r"<[^<>]*$")
QUOTES = "\"'"
TYPED_VALUES: Mapping[str, Any] = {
    "number": NUMBER,
    "boolean": True,
    "null": None,
    "object": {"a": 1},
    "array": ["x"],
}
"""A value of each JSON type but strings, as an argument of a made-up call."""
JSON_TYPES = ("string", *TYPED_VALUES)
PYTHON_WORDS: Mapping[str, str] = {"True": "true", "False": "false", "None": "null"}


@dataclass(frozen=True, slots=True)
class ArgumentPattern:
    """How arguments are written one by one: the texts around keys and values.

    `first` stands before the first key, `following` before each other one, `none` in place of all.
    `before` stands between key and value and `after` behind the value, by the value's JSON type;
    `KEY_AGAIN` in them stands for the key. A type that is missing cannot be written. A string is
    plain text that ends where `after` begins, or in `quotes` as in Python. With `has_words`,
    booleans and null are Python's. With `is_sorted`, arguments are in the order of their names, not
    in that of the schema. With `is_nested`, objects are written in the same way as all
    arguments, between braces, and arrays in brackets; otherwise both are JSON.
    """

    first: str
    following: str
    none: str
    before: Mapping[str, str]
    after: Mapping[str, str]
    quotes: str = ""
    has_words: bool = False
    is_sorted: bool = False
    is_nested: bool = False


def for_types(text: str) -> dict[str, str]:
    """Return the same text for every JSON type."""
    return dict.fromkeys(JSON_TYPES, text)


@dataclass(frozen=True, slots=True)
class CallPattern:
    """The text of calls: `begin`, name, arguments, `between` with another call, and so on, `end`.

    `begin` starts with the mark of the chat format's calls. Before the mark an answer has `lead`.
    `named` stands between a name and arguments in JSON, whose separators are `comma` and `colon`;
    they are `arguments` in other forms. `between` is None if an answer has one call only.
    """

    begin: str
    end: str
    between: str | None = None
    named: str = ""
    arguments: ArgumentPattern | None = None
    lead: str = ""
    comma: str = ", "
    colon: str = ": "

    @property
    def fixed_begin(self) -> str:
        """The text that all calls begin with: up to a name, or an id before it."""
        return re.split(f"[{ANY_ID}{ANY_INDEX}{ANY_NAME}]", self.begin)[0]


def typed_arguments() -> dict[str, dict[str, Any]]:
    """Return arguments to render for learning how values of each type are written, by case."""
    return {f"{kind} argument": {KEY: value} for kind, value in TYPED_VALUES.items()}


def learn_call_pattern(
    probes: Probes,
    marks: tuple[str, str],
    turn: str,
    ends: Sequence[str],
    reasoning: Sequence[str],
) -> CallPattern | None:
    """Return the pattern of the calls between two marks; None if they have no such form.

    The second mark may be "". `turn` is what the template writes between a question and an answer,
    `ends` the marks that may end a turn, and `reasoning` those of reasoning.
    """
    written = _Written(probes, *marks, turn, ends, reasoning)
    if not written.is_usable:
        return None
    is_json = re.search(r'\{\s*"$', written.named) is not None
    return written.with_json() if is_json else written.with_tags()


@dataclass(slots=True)
class _Written:
    """The made-up calls as the template writes them, taken apart."""

    probes: Probes
    mark: str
    end_mark: str
    turn: str
    ends: Sequence[str]
    reasoning: Sequence[str]
    is_usable: bool = False
    form: str = ""
    lead: str = ""
    begin: str = ""
    named: str = ""
    """From the name to the first key."""
    rest: str = ""
    """From the first key on."""
    joined: str = ""
    """From the last value of the first call to the name of the second one; "" if there is one."""
    tail: str = field(default="")
    """What follows the last value."""

    def __post_init__(self) -> None:
        text = self._said("one call")
        self.form = " as text" if not text or "{'" in text else ""
        text = self._said("one call")
        key, end = text.find(KEY), text.rfind(OTHER_VALUE) + len(OTHER_VALUE)
        name = text.rfind(FUNCTION, 0, max(0, key))
        start = text.rfind(self.mark, 0, max(0, name)) if self.mark else -1
        order = [text.find(each) for each in (KEY, VALUE, OTHER_KEY)]
        self.is_usable = 0 <= start < name < key and sorted(order) == order and order[-1] < end
        if not self.is_usable:
            return
        self.lead = self._lead(text[:start])
        self.begin = _generalized(text[start:name])
        self.named = text[name + len(FUNCTION) : key]
        self.rest, self.tail = text[key:end], self._cut(text[end:])
        two = self._said("two calls")
        first = two.find(OTHER_VALUE) + len(OTHER_VALUE)
        second = two.rfind(OTHER_FUNCTION, 0, max(0, two.rfind(KEY)))
        self.joined = two[first:second] if len(OTHER_VALUE) <= first < second else ""

    def with_json(self) -> CallPattern:
        """Return the pattern of calls with a JSON object as arguments."""
        closing = re.match(r'"\s*\}', self.tail)
        named = self.named[: self.named.rfind("{")]
        joined = re.match(r'"\s*\}', self.joined)
        between = _generalized(self.joined[joined.end() :], is_again=True) if joined else None
        return CallPattern(
            begin=self.begin,
            named=_generalized(named, is_again=ANY_INDEX in (between or "") or bool(joined)),
            between=between,
            end=_generalized(self.tail[closing.end() :] if closing else self.tail),
            lead=self.lead,
            colon=_between(self.rest, f'{KEY}"', f'"{VALUE}'),
            comma=_between(self.rest, f'{VALUE}"', f'"{OTHER_KEY}'),
        )

    def with_tags(self) -> CallPattern | None:
        """Return the pattern of calls whose arguments are written one by one."""
        assigned = _between(self.rest, KEY, VALUE).replace(KEY, KEY_AGAIN)
        parted = _between(self.rest, VALUE, OTHER_KEY).replace(KEY, KEY_AGAIN)
        tail = self.tail.replace(OTHER_KEY, KEY_AGAIN)
        shared = parted[: common_start(parted, tail)]
        after = UNFINISHED_TAG.sub("", shared)
        end = tail[len(after) :]
        joined = self.joined.replace(OTHER_KEY, KEY_AGAIN)
        if not assigned or (joined and not joined.startswith(after)):
            return None
        before, behind = {"string": assigned}, {"string": after}
        words = self._typed(before, behind, end)
        quotes = assigned[-1] if assigned[-1] in QUOTES and after[:1] == assigned[-1] else ""
        if quotes:
            before["string"], behind["string"] = assigned[:-1], after[1:]
        arguments = ArgumentPattern(
            first=_generalized(self.named, is_again=bool(joined)),
            following=parted[len(after) :],
            none=self._none(end),
            before=before,
            after=behind,
            quotes=quotes,
            has_words=words,
        )
        between = _generalized(joined[len(after) :], is_again=True) if joined else None
        return CallPattern(
            self.begin, _generalized(end), between, arguments=arguments, lead=self.lead
        )

    def _typed(self, before: dict[str, str], after: dict[str, str], end: str) -> bool:
        """Add the texts around values of other types; return whether words are Python's."""
        words = False
        for kind, value in TYPED_VALUES.items():
            text = self._said(f"{kind} argument")
            start = text.find(KEY) + len(KEY)
            value_text = json.dumps(value)
            if start < len(KEY):
                continue
            text = self._cut(text[start:]).replace(KEY, KEY_AGAIN)
            found = [each for each in (value_text, str(value)) if each and each in text]
            if not found or not end or not text.endswith(end):
                continue
            place = text.rfind(found[0], 0, len(text) - len(end))
            before[kind] = text[:place]
            after[kind] = text[place + len(found[0]) : len(text) - len(end)]
            words = words or (kind in {"boolean", "null"} and found[0] in PYTHON_WORDS)
        return words

    def _none(self, end: str) -> str:
        """Return what stands between a name and the end of a call without arguments."""
        text = self._said("no arguments")
        text = self._cut(text[text.rfind(FUNCTION) + len(FUNCTION) :])
        for each in (end, end.lstrip()):
            if each and text.endswith(each):
                return _generalized(text.removesuffix(each), is_again=True)
        return ""

    def _lead(self, before: str) -> str:
        """Return what an answer has before the mark of a call, without reasoning."""
        begun = self.probes["question"].rpartition(QUESTION)[2]
        only = self.probes["question only"].rpartition(QUESTION)[2]
        opening = begun[common_start(begun, only) :]
        for each in self.reasoning:
            before = before.replace(each, "") if each else before
            opening = opening.partition(each)[0] if each else opening
        at = before.rfind(opening.strip()) if opening.strip() else -1
        return _generalized(before[at + len(opening.strip()) :]).strip() if at >= 0 else ""

    def _said(self, case: str) -> str:
        """Return what the template writes after the question."""
        text = self.probes.texts.get(case + self.form, "") or self.probes.texts.get(case, "")
        return text[text.rfind(QUESTION) + len(QUESTION) :]

    def _cut(self, text: str) -> str:
        """Return a text up to where the turn ends."""
        ends = {*self.ends, *marks_in(self.turn), self.probes.eos} - {"", *self.reasoning}
        places = [text.find(end) for end in ends if end in text]
        if places or not self.end_mark or self.end_mark not in text:
            return text[: min(places)] if places else text
        return text[: text.rfind(self.end_mark) + len(self.end_mark)]


def _between(text: str, first: str, last: str) -> str:
    start = text.find(first) + len(first)
    return text[start : text.find(last, start)]


def _generalized(text: str, *, is_again: bool = False) -> str:
    """Return a text with marks in place of made-up names, ids and, in later calls, numbers."""
    for name in (FUNCTION, OTHER_FUNCTION):
        text = text.replace(name, ANY_NAME)
    for number in (CALL_ID, OTHER_CALL_ID):
        text = text.replace(number, ANY_ID)
    return LONE_DIGIT.sub(ANY_INDEX, text) if is_again else text
