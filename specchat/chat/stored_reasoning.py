"""Separates the reasoning in answers stored by versions that kept it in the answer's text.

Only the migration of the store needs this, as new answers are stored with separate reasoning.
"""

import json
import re
import sqlite3
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

from specchat.chat.message_rows import LETTERS

BATCH = 200
"""How many answers are held in memory at a time."""

Span: TypeAlias = tuple[int, int]
"""The start and end of a part of a text."""


class Form(NamedTuple):
    """How some models mark reasoning: patterns of both marks, and a mark after the answer."""

    begin: str
    end: str
    tail: str = ""


class Split(NamedTuple):
    """Where the reasoning and the answer are in a text."""

    reasoning: Span
    answer: Span


TAGS = ("think", "thinking", "reasoning", "thought", "seed:think", "mm:think")
FORMS = (
    *(Form(f"<{tag}>", f"</{tag}>") for tag in TAGS),
    Form(r"\[THINK\]", r"\[/THINK\]"),
    Form("◁think▷", "◁/think▷"),
    Form(r"<\|inner_prefix\|>", r"<\|inner_suffix\|>"),
    Form(
        r"<\|begin_of_thought\|>",
        r"<\|end_of_thought\|>\s*(?:<\|begin_of_solution\|>)?",
        "<|end_of_solution|>",
    ),
    Form(  # Command A
        r"<\|START_THINKING\|>",
        r"<\|END_THINKING\|>\s*(?:<\|START_RESPONSE\|>)?",
        "<|END_RESPONSE|>",
    ),
    Form(r"<\|channel>thought\n?", r"<channel\|>"),  # Gemma 4
    Form(  # gpt-oss
        r"<\|channel\|>analysis<\|message\|>",
        r"(?:<\|end\|>)?(?:<\|start\|>assistant)?<\|channel\|>final"
        r"(?: ?<\|constrain\|>\w+)?<\|message\|>",
        "<|return|>",
    ),
)
FORMS_OF_WORDS = (
    Form(r"analysis(?=\S)", "assistantfinal"),  # gpt-oss with its control tokens not printed
    Form("Here is my thought process:", "Here is my response:"),  # Granite
    Form(
        "Here are my reasoning steps:", r"\[BEGIN FINAL RESPONSE\]", "[END FINAL RESPONSE]"
    ),  # Apriel
)
"""Forms whose marks could be ordinary text, so both marks must be present."""
THINK = FORMS[0]
"""The form that some templates open in the prompt, so that answers have only the end mark."""
LONE_END = re.compile(
    rf"""(?<![`'"])(?:^[ \t]*{THINK.end}[ \t]*$ | {THINK.end}[ \t]*\n)""", re.VERBOSE | re.MULTILINE
)
"""An end mark that is alone on a line, or at the end of one."""
FENCE = "```"


def split_stored(text: str, finish: str | None = None) -> Split | None:
    """Return where the reasoning is in an answer; None if it has none.

    Reasoning comes first. Without an end mark, an answer that was cut short is all reasoning; one
    that ended by itself (`finish` is "stop") only mentions the mark.
    """
    for form in FORMS:
        if begin := re.match(rf"\s*{form.begin}", text):
            end = _find(form.end, text, begin.end())
            is_cut = finish != "stop" and (form is THINK or _ends_line(text, begin))
            return _split_at(text, begin.end(), end, form) if end or is_cut else None
    for form in FORMS_OF_WORDS:
        begin = re.match(rf"\s*{form.begin}", text)
        if begin and (end := _find(form.end, text, begin.end())):
            return _split_at(text, begin.end(), end, form)
    for line in LONE_END.finditer(text):
        end = _find(THINK.end, text, line.start())
        if (
            end
            and not _is_code(text[: end.start()])
            and not _find(THINK.begin, text, 0, end.start())
        ):
            return _split_at(text, 0, end, THINK)
    return None


def _ends_line(text: str, mark: re.Match[str]) -> bool:
    """Return True if nothing follows a mark on its line."""
    return mark[0].endswith("\n") or not text[mark.end() :].partition("\n")[0].strip()


def _is_code(before: str) -> bool:
    """Return True if a text ends inside a code fence or inline code."""
    return before.count(FENCE) % 2 == 1 or before.rpartition("\n")[2].count("`") % 2 == 1


def _find(pattern: str, text: str, start: int, before: int | None = None) -> re.Match[str] | None:
    return re.compile(pattern).search(text, start, len(text) if before is None else before)


def _split_at(text: str, start: int, end: re.Match[str] | None, form: Form) -> Split:
    """Return the parts before and after an end mark, without the empty lines around them."""
    stop, answer_start = end.span() if end else (len(text), len(text))
    answer = text[answer_start:]
    answer_start += len(answer) - len(answer.lstrip("\n"))
    answer_stop = len(text)
    if form.tail and answer.rstrip().endswith(form.tail):
        answer_stop = max(answer_start, len(text.rstrip()) - len(form.tail))
    reasoning = text[start:stop]
    start += len(reasoning) - len(reasoning.lstrip("\n"))
    return Split((start, max(start, len(text[:stop].rstrip("\n")))), (answer_start, answer_stop))


def separate_reasoning(database: sqlite3.Connection) -> None:
    """Move the reasoning of all stored answers into its own column; for an open transaction."""
    query = (
        "SELECT id, text, pieces, statistics, finish FROM message"
        " WHERE role = 'assistant' AND id > ? ORDER BY id LIMIT ?"
    )
    last = -(2**63)
    while rows := database.execute(query, (last, BATCH)).fetchall():
        last = rows[-1][0]
        database.executemany(
            "UPDATE message SET text = ?, reasoning = ?, pieces = ?, statistics = ? WHERE id = ?",
            [
                (text[slice(*split.answer)], text[slice(*split.reasoning)],
                 _with_kinds(pieces, finish), _with_seconds(statistics), number)
                for number, text, pieces, statistics, finish in rows
                if isinstance(text, str) and (split := split_stored(text, finish))
            ],
        )  # fmt: skip


def _with_kinds(column: str | None, finish: str | None) -> str | None:
    """Return an answer's stored pieces with their kinds added and the marks removed.

    They are split by their own text, because damaged pieces may differ from the answer's text.
    """
    with suppress(ValueError, TypeError, RecursionError):
        pieces = json.loads(column or "[]")
        if split := split_stored("".join([text for text, _ in pieces]), finish):
            return json.dumps(_cut(pieces, split), separators=(",", ":"))
    return column


def _cut(pieces: list[list[str]], split: Split) -> list[list[str]]:
    rows, position = [], 0
    for text, letter in pieces:
        for (start, stop), kind in ((split.reasoning, [LETTERS["reasoning"]]), (split.answer, [])):
            part = text[max(0, start - position) : max(0, stop - position)]
            # a token may have no text, for example if it is the first byte of a character
            if part or (not text and start <= position < stop):
                rows.append([part, letter, *kind])
        position += len(text)
    return rows


def _with_seconds(column: str | None) -> str | None:
    """Return statistics with the seconds of reasoning under the current field name."""
    with suppress(ValueError, RecursionError):
        statistics: Any = json.loads(column or "{}")
        if isinstance(statistics, dict) and statistics.get("thought_s"):
            return json.dumps({"reasoning_s": statistics["thought_s"], **statistics})
    return column
