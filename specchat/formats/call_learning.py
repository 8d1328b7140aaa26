"""Learning how a template writes tool calls."""

import re
from collections.abc import Sequence

from specchat.formats.call_pattern import CallPattern, learn_call_pattern, typed_arguments
from specchat.formats.call_syntax import (
    KEY_AGAIN,
    NAME_PATTERN,
    CallSyntax,
    NamedJson,
    TaggedArguments,
    read_json,
    read_python,
)
from specchat.formats.chat_format import Wrapping
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
    conversation,
    user,
)
from specchat.formats.template import Variables

OTHER_BEGINNINGS = r"<[\w:]+=|<\w+ name=\"|```\w*|[a-z]{3,}(?=\[\{)|[A-Z]\w+:(?=\s)"
"""Call openings that are not complete marks: `<function=`, `functools[{`, `Action:`."""
TEXT_ARGUMENTS = f'{{"{KEY}": "{VALUE}", "{OTHER_KEY}": "{OTHER_VALUE}"}}'


def call_cases() -> dict[str, Variables]:
    """Return the conversations to render for learning the syntax of calls."""
    asked = user(QUESTION)

    def calling(*calls: dict[str, object]) -> Variables:
        return conversation(asked, assistant("", tool_calls=list(calls)), tools=TOOLS)

    second = {"name": OTHER_FUNCTION, "number": OTHER_CALL_ID}
    in_text = {"arguments": TEXT_ARGUMENTS}
    return {
        "no call": conversation(asked, assistant(), tools=TOOLS),
        "one call": calling(call()),
        "one call as text": calling(call(**in_text)),
        "two calls": calling(call(), call(**second)),
        "two calls as text": calling(call(**in_text), call(**second, **in_text)),
        "no arguments": calling(call(arguments={})),
        **{case: calling(call(arguments=given)) for case, given in typed_arguments().items()},
    }


def learn_calls(probes: Probes, reasoning: Wrapping | None) -> CallSyntax | None:
    """Return the syntax of calls; None if the template writes none or the syntax is unknown."""
    text = probes["one call"]
    if not text or "{'" in text:
        text = probes["one call as text"]
    text = text[text.rfind(QUESTION) + len(QUESTION) :]
    if FUNCTION not in text or VALUE not in text:
        return None
    written = _without_reasoning(text, reasoning)
    name, key = written.find(FUNCTION), written.find(KEY)
    before, between = written[:name], written[name + len(FUNCTION) : key]
    begin = _begin_mark(probes, before)
    if re.search(r'[:{]\s*"$', before):
        return CallSyntax(begin or "{", _end_mark(written, begin), read_json)
    if re.search(r"\[\s*$", before) and between == "(":
        return CallSyntax(begin or "[", _end_mark(written, begin), read_python)
    if re.search(r'[{,]\s*"$', between):
        pattern = _named_json(before, between, begin)
        return CallSyntax(begin or before.strip(), _end_mark(written, begin), NamedJson(pattern))
    tagged = _tagged_arguments(probes, written, before)
    return CallSyntax(begin, _end_mark(written, begin), tagged) if begin and tagged else None


def learn_pattern(
    probes: Probes, calls: CallSyntax | None, ends: Sequence[str], reasoning: Wrapping | None
) -> CallPattern | None:
    """Return the exact text of calls; None if the template does not show it."""
    if calls is None:
        return None
    marks = (reasoning.begin.strip(), reasoning.end.strip()) if reasoning else ()
    return learn_call_pattern(probes, (calls.begin, calls.end), _turn_start(probes), ends, marks)


def _without_reasoning(text: str, reasoning: Wrapping | None) -> str:
    """Remove reasoning marks from a text, as some templates write an empty pair before a call."""
    for mark in (reasoning.begin.strip(), reasoning.end.strip()) if reasoning else ():
        text = text.replace(mark, "") if mark else text
    return text


def _turn_start(probes: Probes) -> str:
    """Return what the template writes between a question and its answer."""
    text = probes["no call"] or probes["last"]
    return text[text.rfind(QUESTION) + len(QUESTION) : text.rfind(ANSWER)]


def _begin_mark(probes: Probes, before: str) -> str:
    """Return the first mark before a call's name that ordinary answers do not begin with."""
    turn = _turn_start(probes)
    for found in re.finditer(f"{MARK}|{OTHER_BEGINNINGS}", before):
        if found[0] not in turn:
            return found[0]
    return ""


def _end_mark(written: str, begin: str) -> str:
    """Return the mark after a call that closes its opening mark; "" if there is none."""
    after = written[written.rfind(OTHER_VALUE) + len(OTHER_VALUE) :]
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


def _pattern(text: str) -> str:
    """Return a pattern that matches a text with any white space between its words."""
    parts = [re.escape(part) for part in re.split(r"\s+", text)]
    return r"\s*+".join(parts)


def _named_json(before: str, between: str, begin: str) -> re.Pattern[str]:
    """Return a pattern that matches from a call's mark up to the brace of its arguments.

    For `[TOOL_CALLS]find[ARGS]{"what": 1}`: `[TOOL_CALLS]`, the name, and `[ARGS]`.
    """
    prefix = before[before.rfind(begin) if begin else 0 :]
    marks = list(re.finditer(MARK, prefix))
    if (marks and marks[-1].end() == len(prefix.rstrip())) or not begin:
        prefix = prefix[marks[-1].start() :] if marks else prefix
    separator = between[: between.rfind("{")]
    middle = _pattern(separator.strip())
    if CALL_ID in separator:
        first, _, last = separator.partition(CALL_ID)
        middle = rf"(?:{_pattern(first.strip())}(?P<id>[\w-]+))?{_pattern(last.strip())}"
    opening = rf"{_pattern(prefix.strip())}\s*+(?P<name>{NAME_PATTERN})\s*+"
    return re.compile(rf"{opening}{middle}\s*+(?={{|$)" if middle else rf"{opening}(?={{|$)")


def _tagged_arguments(probes: Probes, written: str, before: str) -> TaggedArguments | None:
    """Return a parser for arguments in tags; None if `written` does not look like that.

    In `<call>NAME <key>KEY</key><value>VALUE</value>...` the marks are whatever surrounds the probe
    words: `<call>` starts a call, `<key>` a name, `</key><value>` a value; `</value>` ends a value.
    """
    name, key = written.find(FUNCTION), written.find(KEY)
    value, other_key = written.find(VALUE), written.find(OTHER_KEY)
    last = written.rfind(OTHER_VALUE) + len(OTHER_VALUE)
    if not 0 <= name < key < value < other_key < last:
        return None
    opening = re.search(rf"(?:{MARK}|<[^<>]*+)\s*$", before)
    between, assigned = written[name + len(FUNCTION) : key], written[key + len(KEY) : value]
    closing = written[value + len(VALUE) : other_key]
    key_begin = re.search(r"<[^<>]*+$|<[^<>]*+>\s*$", closing)
    if opening is None or key_begin is None:
        return None
    value_end = closing[: key_begin.start()].strip()
    name_end = between.removesuffix(key_begin[0]).strip() if key_begin[0] in between else ""
    after = re.match(r"\s*(?:<[^<>]*>\s*)*", written[last:])
    ends = re.findall(r"<[^<>]*>", after[0] if after else "")
    key_pattern = rf"{_pattern(key_begin[0].strip())}(?P<key>[^<>\"]{{1,256}}?)"
    return TaggedArguments(
        re.compile(
            rf"{_pattern(opening[0].strip())}\s*+(?P<name>{NAME_PATTERN}){_pattern(name_end)}"
        ),
        next((end for end in ends if end != value_end), ""),
        re.compile(key_pattern + _assignment(probes, assigned)),
        value_end.replace(KEY, KEY_AGAIN),
        (assigned[len(assigned.rstrip()) :], closing[: len(closing) - len(closing.lstrip())]),
    )


def _assignment(probes: Probes, assigned: str) -> str:
    """Return a pattern for the text between an argument's name and its value.

    The text may depend on the type, as in `string="true">`; a number in another probe shows that.
    """
    text = probes["number argument"]
    start = text.rfind(KEY) + len(KEY)
    end = text.rfind(str(NUMBER))
    other = text[start:end] if 0 < start <= end else assigned
    if other.strip() == assigned.strip():
        return _pattern(assigned.strip())
    return rf"{re.escape(assigned[:1])}[^<>]*>"
