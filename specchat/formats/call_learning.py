"""Learning how a template writes tool calls.

The template writes made-up calls, and what is around their names, keys and values describes calls.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from specchat.formats.call_format import (
    ANY_ID,
    ANY_INDEX,
    ANY_NAME,
    KEY_AGAIN,
    PYTHON_WORDS,
    ArgumentText,
    CallFormat,
    CallText,
)
from specchat.formats.call_reading import parser_of
from specchat.formats.probes import (
    ANSWER,
    CALL_ID,
    FUNCTION,
    KEY,
    MARK,
    NUMBER,
    OTHER_CALL_ID,
    OTHER_FUNCTION,
    OTHER_KEY,
    OTHER_VALUE,
    QUESTION,
    TOOLS,
    VALUE,
    Probes,
    assistant,
    call,
    common_start,
    conversation,
    marks_in,
    user,
)
from specchat.formats.template import Variables

OTHER_BEGINNINGS = r"<[\w:]+=|<\w+ name=\"|```\w*|[a-z]{3,}(?=\[\{)|[A-Z]\w+:(?=\s)"
"""Call openings that are not complete marks: `<function=`, `functools[{`, `Action:`."""
TEXT_ARGUMENTS = f'{{"{KEY}": "{VALUE}", "{OTHER_KEY}": "{OTHER_VALUE}"}}'
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


def call_cases() -> dict[str, Variables]:
    """Return the conversations to render for learning the text of calls."""
    asked = user(QUESTION)

    def calling(*calls: dict[str, object]) -> Variables:
        return conversation(asked, assistant("", tool_calls=list(calls)), tools=TOOLS)

    second = {"name": OTHER_FUNCTION, "number": OTHER_CALL_ID}
    in_text = {"arguments": TEXT_ARGUMENTS}
    typed = {f"{kind} argument": {KEY: value} for kind, value in TYPED_VALUES.items()}
    return {
        "no call": conversation(asked, assistant(), tools=TOOLS),
        "one call": calling(call()),
        "one call as text": calling(call(**in_text)),
        "two calls": calling(call(), call(**second)),
        "two calls as text": calling(call(**in_text), call(**second, **in_text)),
        "no arguments": calling(call(arguments={})),
        **{case: calling(call(arguments=given)) for case, given in typed.items()},
    }


def learn_calls(probes: Probes, ends: Sequence[str], reasoning: Sequence[str]) -> CallFormat | None:
    """Return how calls are written; None if the template writes none, or none that can be read.

    `ends` are the marks that may end a turn, and `reasoning` those around reasoning.
    """
    return _Written(probes, ends, reasoning).format()


class _Written:
    """The made-up calls as the template writes them."""

    def __init__(self, probes: Probes, ends: Sequence[str], reasoning: Sequence[str]) -> None:
        self._probes, self._ends = probes, ends
        self._reasoning = [mark for mark in reasoning if mark]
        self._form, self._end = "", ""
        text = self._said("one call")
        self._form = " as text" if not text or "{'" in text else ""
        self._text = self._said("one call")
        turn = probes["no call"] or probes["last"]
        self._turn = turn[turn.rfind(QUESTION) + len(QUESTION) : turn.rfind(ANSWER)]

    def format(self) -> CallFormat | None:
        """Return how calls are written, if that is known."""
        if FUNCTION not in self._text or VALUE not in self._text:
            return None
        before, _, after = self._text.partition(FUNCTION)
        before = self._without_reasoning(before)
        is_json = re.search(r'[:{]\s*"$', before) is not None
        is_python = before.rstrip().endswith("[") and after.startswith(f"({KEY}")
        begin = self._begin_mark(before) or ("{" if is_json else "[" if is_python else "")
        self._end = self._end_mark(begin)
        text = self._call_text(begin) if begin else None
        return CallFormat(begin, self._end, text) if text else None

    def _begin_mark(self, before: str) -> str:
        """Return the first mark before a call's name that ordinary answers do not begin with."""
        found = re.findall(f"{MARK}|{OTHER_BEGINNINGS}", before)
        return next((mark for mark in found if mark not in self._turn), "")

    def _end_mark(self, begin: str) -> str:
        """Return the mark after a call that closes its opening mark; "" if there is none."""
        after = self._without_reasoning(self._text.rpartition(OTHER_VALUE)[2])
        closers = {
            begin.replace("<", "</", 1),
            begin.replace("[", "[/", 1),
            begin.replace("begin", "end"),
            begin.replace("start", "end"),
            begin.replace("START", "END"),
            begin.replace("prefix|", "suffix|"),
            "```" if begin.startswith("```") else "",
            f"</{begin[1:].partition('=')[0].partition(' ')[0]}>" if begin.startswith("<") else "",
        } - {begin, ""}
        found = [(after.rfind(closer), closer) for closer in closers if closer in after]
        return max(found)[1] if found else ""

    def _call_text(self, begin: str) -> CallText | None:
        """Return the text of calls that begin with a mark; None if they have no such form."""
        text = self._text
        key, last = text.find(KEY), text.rfind(OTHER_VALUE) + len(OTHER_VALUE)
        name = text.rfind(FUNCTION, 0, max(0, key))
        start = text.rfind(begin, 0, max(0, name))
        order = [text.find(each) for each in (KEY, VALUE, OTHER_KEY)]
        if not (0 <= start < name < key and sorted(order) == order and order[-1] < last):
            return None
        two = self._said("two calls")
        first = two.find(OTHER_VALUE) + len(OTHER_VALUE)
        second = two.rfind(OTHER_FUNCTION, 0, max(0, two.rfind(KEY)))
        shown = CallText(
            begin=_generalized(text[start:name]),
            named=text[name + len(FUNCTION) : key],
            between=two[first:second] if len(OTHER_VALUE) <= first < second else "",
            end=self._cut(text[last:]),
            lead=self._lead(text[:start]),
        )
        is_json = re.search(r'\{\s*"$', shown.named) is not None
        finish = _with_json if is_json else self._one_by_one
        return finish(shown, text[key:last], shown.between or "")

    def _one_by_one(self, shown: CallText, rest: str, joined: str) -> CallText | None:
        """Return the text of calls whose arguments are not JSON; None if it cannot be read.

        `shown` has the texts around both arguments, `rest` is from the first key on, and `joined`
        from the last value to another call's name; "" if there is none.
        """
        assigned = _between(rest, KEY, VALUE).replace(KEY, KEY_AGAIN)
        parted = _between(rest, VALUE, OTHER_KEY).replace(KEY, KEY_AGAIN)
        tail, joined = (each.replace(OTHER_KEY, KEY_AGAIN) for each in (shown.end, joined))
        after = UNFINISHED_TAG.sub("", parted[: common_start(parted, tail)])
        end = tail[len(after) :]
        if not assigned or (joined and not joined.startswith(after)):
            return None
        quotes = assigned[-1] if assigned[-1] in QUOTES and after[:1] == assigned[-1] else ""
        known = {"string": (assigned.removesuffix(quotes), "", after.removeprefix(quotes))}
        for kind, value in TYPED_VALUES.items():
            if found := self._around(kind, value, end):
                known[kind] = found
        arguments = ArgumentText(
            first=_generalized(shown.named, is_again=bool(joined)),
            following=parted[len(after) :],
            none=self._none(end),
            before={kind: each[0] for kind, each in known.items()},
            after={kind: each[2] for kind, each in known.items()},
            quotes=quotes,
            has_words=any(written in PYTHON_WORDS for _, written, _ in known.values()),
        )
        between = _generalized(joined[len(after) :], is_again=True) if joined else None
        end = _generalized(end)
        text = replace(shown, named="", between=between, end=end, arguments=arguments)
        return text if parser_of(text) else None

    def _around(self, kind: str, value: Any, end: str) -> tuple[str, str, str] | None:
        """Return what is before a value of a type, the value as it is written, and what follows."""
        _, key, text = self._said(f"{kind} argument").partition(KEY)
        text = self._cut(text).replace(KEY, KEY_AGAIN)
        if not key or not end or not text.endswith(end):
            return None
        text = text.removesuffix(end)
        written = next((each for each in (json.dumps(value), str(value)) if each in text), "")
        return text.rpartition(written) if written else None

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
        begun = self._probes["question"].rpartition(QUESTION)[2]
        only = self._probes["question only"].rpartition(QUESTION)[2]
        opening = begun[common_start(begun, only) :]
        for mark in self._reasoning:
            opening = opening.partition(mark)[0]
        before, opening = self._without_reasoning(before), opening.strip()
        at = before.rfind(opening) if opening else -1
        return _generalized(before[at + len(opening) :]).strip() if at >= 0 else ""

    def _said(self, case: str) -> str:
        """Return what the template writes after the question."""
        text = self._probes.texts.get(case + self._form, "") or self._probes.texts.get(case, "")
        return text[text.rfind(QUESTION) + len(QUESTION) :]

    def _without_reasoning(self, text: str) -> str:
        """Return a text without reasoning's marks, of which some templates write an empty pair."""
        for mark in self._reasoning:
            text = text.replace(mark, "")
        return text

    def _cut(self, text: str) -> str:
        """Return a text up to where the turn ends."""
        ends = {*self._ends, *marks_in(self._turn), self._probes.eos} - {"", *self._reasoning}
        places = [text.find(end) for end in ends if end in text]
        if places or self._end not in text:
            return text[: min(places, default=len(text))]
        return text[: text.rfind(self._end) + len(self._end)]


def _with_json(shown: CallText, rest: str, joined: str) -> CallText:
    """Return the text of calls with a JSON object as arguments, as `_one_by_one`."""
    closing, again = (re.match(r'"\s*\}', text) for text in (shown.end, joined))
    named = shown.named[: shown.named.rfind("{")]
    return replace(
        shown,
        named=_generalized(named, is_again=again is not None),
        between=_generalized(joined[again.end() :], is_again=True) if again else None,
        end=_generalized(shown.end[closing.end() :] if closing else shown.end),
        colon=_between(rest, f'{KEY}"', f'"{VALUE}'),
        comma=_between(rest, f'{VALUE}"', f'"{OTHER_KEY}'),
    )


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
