"""Grammars that allow tool calls only, in the exact text of a chat format, in llguidance's Lark."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from specchat.formats.argument_grammar import arguments_rule
from specchat.formats.call_format import CallText
from specchat.formats.grammar_rules import Rules, Schema, Split


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool as a grammar needs it: its name, and the JSON Schema that its arguments follow.

    The schema may hold options of llguidance, which apply to all its parts.
    """

    name: str
    schema: Schema


def call_grammar(
    text: CallText,
    tools: Sequence[OfferedTool],
    split: Split,
    *,
    mark: str = "",
    is_parallel: bool = True,
) -> str:
    """Return the grammar of one or several calls of these tools, up to the end of the answer.

    It begins where an answer begins, or, with the `mark` that calls begin with, right after that
    mark. Raises InvalidOption for arguments that the format cannot write.
    """
    rules = Rules(split, (text.comma, text.colon))
    names = " | ".join(rules.said(tool.name) for tool in tools)
    calls = rules.add(" | ".join(_call(rules, text, tool) for tool in tools))
    begin = rules.literal(text.begin.removeprefix(mark))
    if not mark:
        lead = f"({rules.literal(text.lead)} SPACE?)? " if text.lead else ""
        begin = f"SPACE? {lead}{begin}"
    between = text.between if is_parallel else None
    rest = _rest(rules, text.end, between, calls)
    return rules.text(f"{begin} {calls} rest", rest, f"any_name: {names}")


def _rest(rules: Rules, ending: str, between: str | None, calls: str) -> str:
    """Return the rule for what follows a call: others, and the end.

    White space at the end may be left out.
    """
    end = ending.rstrip()
    space = ending[len(end) :]
    if between is None:
        return f"rest: {rules.literal(end)} ({rules.literal(space)})?"
    if space and between.startswith(ending):
        again = rules.literal(between.removeprefix(ending))
        return f"rest: {rules.literal(end)} ({rules.literal(space)} ({again} {calls} rest)?)?"
    shared, again, last = rules.parted(between, end)
    return f"rest: {shared} ({again} {calls} rest | {last} ({rules.literal(space)})?)"


def _call(rules: Rules, text: CallText, tool: OfferedTool) -> str:
    """Return the name of the rule for a call of a tool, from its name to its arguments' end."""
    if text.arguments is not None:
        written = arguments_rule(rules, text.arguments, tool.schema)
        return rules.add(f"{rules.said(tool.name)} {written}")
    is_quoted = text.begin.endswith('"')
    name = json.dumps(tool.name, ensure_ascii=False)[1:-1] if is_quoted else tool.name
    named = rules.literal(text.named)
    return rules.add(f"{rules.said(name)} {named} {rules.json(tool.schema)}")
