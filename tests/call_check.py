"""What the grammar of a template's calls accepts: calls as its models and the template write them.

The tools have arguments of all types. Each text is checked with the marks of the format as tokens
of their own, and as ordinary text.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scripts.support.template_cases import BOS, QUESTION, families, tools
from specchat.errors import InvalidOption, TemplateError
from specchat.formats.call_grammar import OfferedTool, call_grammar
from specchat.formats.chat_format import ChatFormat
from specchat.formats.families import format_of
from specchat.formats.messages import with_object, with_text
from specchat.formats.probes import MADE_UP, marks_in
from specchat.formats.template import render
from specchat.structured.grammar_constraint import GrammarConstraint
from specchat.structured.grammar_source import grammar_of
from specchat.structured.grammar_vocabulary import GrammarVocabulary
from specchat.structured.structure import Structure

END = "<end>"
CONTROL = re.compile(r"<[|\uff5c][^ ]*|.*[|\uff5c]>|\[[A-Z_]+\]|</?tool_call>|\]<\]minimax\[>\[")
OTHER_ENDS = (
    "<|START_OF_TURN_TOKEN|>",
    "<|call|>",
    "<|calls|>",
    "<|eom_id|>",
    "<|message_sep|>",
    "<|tool_response>",
)
"""What some templates write after a call."""
NAME = "find_trains"
PLAN: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "plan",
        "description": "Plans.",
        "parameters": {
            "type": "object",
            "properties": {
                "goal": {"type": "string", "description": "goal"},
                "kind": {"type": "string", "enum": ["fast", "cheap"], "description": "kind"},
                "days": {"type": "integer", "description": "days"},
                "cost": {"type": "number", "description": "cost"},
                "open": {"type": "boolean", "description": "open"},
                "stops": {"type": "array", "items": {"type": "string"}, "description": "stops"},
                "who": {
                    "type": "object",
                    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
                    "required": ["name"],
                    "description": "who",
                },
                "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "note"},
                "code": {
                    "type": "string",
                    "pattern": "^[A-Z]{2}/[0-9]+$",
                    "maxLength": 5,
                    "description": "code",
                },
                "name": {"type": "string", "minLength": 2, "maxLength": 4, "description": "name"},
                "size": {"type": "integer", "minimum": 3, "maximum": 12, "description": "size"},
            },
            "required": ["goal", "days"],
        },
    },
}
PLANNED: Mapping[str, Mapping[str, Any]] = {
    "required only": {"goal": "see it", "days": 2},
    "text": {"goal": 'a "quoted" word\nand <b>two</b> lines \u00e9 \U0001f999', "days": 30},
    "scalars": {"goal": "x", "kind": "cheap", "days": 2, "cost": 1.5, "open": True},
    "null": {"goal": "x", "days": 2, "note": None},
    "array": {"goal": "x", "days": 2, "stops": ["Bern", "Lyon"]},
    "bounded text": {"goal": "x", "days": 2, "code": "AB/1", "name": "\u00e9-b", "size": 12},
    "object": {"goal": "x", "days": 2, "who": {"name": "Ada", "age": 36}},
}
"""Arguments of calls that must be allowed."""
WRONG: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "other name": ("find_trainz", {"origin": "Bern", "seats": 2}),
    "missing argument": (NAME, {"origin": "Bern"}),
    "other type": (NAME, {"origin": "Bern", "seats": "two"}),
    "other pattern": ("plan", {"goal": "x", "days": 2, "code": "Ab/1"}),
    "pattern too long": ("plan", {"goal": "x", "days": 2, "code": "AB/123"}),
    "text too short": ("plan", {"goal": "x", "days": 2, "name": "a"}),
    "text too long": ("plan", {"goal": "x", "days": 2, "name": "abcde"}),
    "number too large": ("plan", {"goal": "x", "days": 2, "size": 13}),
    "other argument": (NAME, {"origin": "Bern", "seats": 2, "class": "first"}),
}
"""Calls that must be refused."""

CALLS_OF: Mapping[str, set[str]] = {
    "Qwen-Qwen3-0.6B": set(),
    "Qwen3-Coder": set(),
    "meta-llama-Llama-3.1-8B-Instruct": set(),
    "Mistral-Small-3.2-24B-Instruct-2506": set(),
    "mistralai-Mistral-Nemo-Instruct-2407": set(),
    "openai-gpt-oss-120b": set(),
    "google-gemma-4-31B-it": {"null"},
    "deepseek-ai-DeepSeek-V3.2": set(),
    "Kimi-K2-Instruct": set(),
    "Kimi-K3": set(),
    "LFM2.5-8B-A1B": {"text", "array"},
    "muse-glimmer": set(),
}
"""Templates to test, with the cases that they write in a form of their own: Python's `None` and
lists, and line breaks within quotes."""

OTHERWISE = {"inclusionai-ling-3.0-flash"}
"""Templates that write calls in other lines than the recorded texts of their models."""


@dataclass(slots=True)
class CheckedCalls:
    """What was found about a template: whether each case is as it should be.

    `reason` says why there is no grammar.
    """

    name: str
    reason: str = ""
    uttered: dict[str, bool] = field(default_factory=dict)
    rendered: dict[str, bool] = field(default_factory=dict)
    refused: dict[str, bool] = field(default_factory=dict)

    @property
    def is_right(self) -> bool:
        """Whether calls are allowed as the models write them, and no wrong ones."""
        uttered = self.rendered if self.name in OTHERWISE else self.uttered
        found = [*uttered.values(), *self.refused.values()]
        return bool(found) and all(found)


class ByteVocabulary:
    """A vocabulary of all bytes, and of marks that are tokens of their own."""

    def __init__(self, marks: Sequence[str] = ()) -> None:
        """Make a vocabulary."""
        self.pieces = [bytes([value]) for value in range(256)]
        self.pieces += [each.encode() for each in (END, *marks)]
        self.grammars = GrammarVocabulary(
            len(self.pieces),
            self.pieces.__getitem__,
            lambda token: token >= 256,
            [256],
            lambda text: list(text.encode()),
        )

    def tokens(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        found: list[int] = []
        for part in self.grammars.split(text):
            found += [part] if isinstance(part, int) else part.encode()
        return found

    def allows(self, grammar: str, tokens: Sequence[Any]) -> bool:
        """Return True if a grammar allows these tokens as a whole answer."""
        constraint = GrammarConstraint(grammar_of(Structure("lark", grammar)), self.grammars)
        try:
            for token in tokens:
                constraint.push(token)
        except InvalidOption:
            return False
        return constraint.is_complete

    def allowed(self, grammar: str, text: str) -> str | None:
        """Return the longest beginning of a text that a grammar allows; None if there is none."""
        constraint = GrammarConstraint(grammar_of(Structure("lark", grammar)), self.grammars)
        read, found = b"", None
        for token in self.tokens(text):
            try:
                constraint.push(token)
            except InvalidOption:
                break
            read += self.pieces[token]
            found = read.decode("utf-8", "replace") if constraint.is_complete else found
        return found


def check_calls(name: str, template: str) -> CheckedCalls:
    """Return what the grammar of a template's calls allows."""
    family, checked = families()[name], CheckedCalls(name)
    form = format_of(template, BOS, family.eos)
    offered = [_offered(each) for each in (*tools(), PLAN)]
    if form.calls.is_generic:
        checked.reason = "the template does not show calls"
        return checked
    uttered = {each.kind: each.text for each in family.texts if each.kind in {"call", "calls"}}
    rendered = _rendered_all(form)
    marks = {mark for text in (*uttered.values(), *rendered.values()) for mark in marks_in(text)}
    for vocabulary in (ByteVocabulary(), ByteVocabulary(sorted(filter(CONTROL.fullmatch, marks)))):
        try:
            grammar = call_grammar(form.calls.text, offered, vocabulary.grammars.split)
        except InvalidOption as error:
            checked.reason = str(error)
            return checked
        for kind, text in uttered.items():
            said = _after_reasoning(form, text)
            is_right = vocabulary.allowed(grammar, said) == said
            checked.uttered[kind] = checked.uttered.get(kind, True) and is_right
        for case, text in rendered.items():
            allowed = vocabulary.allowed(grammar, text)
            is_whole = allowed is not None and _is_end(form, text.removeprefix(allowed))
            found = checked.refused if case in WRONG else checked.rendered
            found[case] = found.get(case, True) and is_whole == (case not in WRONG)
    return checked


def _offered(tool: Mapping[str, Any]) -> OfferedTool:
    function = tool["function"]
    schema = {**function["parameters"], "additionalProperties": False}
    return OfferedTool(function["name"], schema)


def _after_reasoning(form: ChatFormat, text: str) -> str:
    end = form.reasoning.end.strip() if form.reasoning else ""
    return text.partition(end)[2] if end and end in text else text


def _rendered_all(form: ChatFormat) -> dict[str, str]:
    """Return calls as the template writes them, by case, from their begin on."""
    cases = {**{case: ("plan", given) for case, given in PLANNED.items()}, **WRONG}
    found = {}
    for case, (name, arguments) in cases.items():
        text = _rendered(form, name, arguments)
        if text:
            found[case] = text
    return found


def _rendered(form: ChatFormat, name: str, arguments: Mapping[str, Any]) -> str:
    """Return a call as the template writes it; "" if it does not."""
    function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
    call: Mapping[str, Any] = {"id": "call00001", "type": "function", "function": function}
    call = with_object(call) if form.roles.wants_object_arguments else with_text(call)
    said = [*QUESTION, {"role": "assistant", "content": "", "tool_calls": [call]}]
    variables = {**MADE_UP, "bos_token": form.bos, "eos_token": form.eos}
    given = {**variables, "messages": said, "tools": [*tools(), PLAN]}
    try:
        text = render(form.template, given).rpartition(QUESTION[-1]["content"])[2]
    except TemplateError:
        return ""
    begin = form.calls.text.fixed_begin
    start = text.rfind(begin or name, 0, text.rfind(name) + len(name))
    return text[start:] if start >= 0 and name in text else ""


def _is_end(form: ChatFormat, rest: str) -> bool:
    """Return True if a text is the end of a turn."""
    ends = filter(None, (*form.ends, form.eos, *OTHER_ENDS))
    return not rest.strip() or rest.lstrip().startswith(tuple(ends))
