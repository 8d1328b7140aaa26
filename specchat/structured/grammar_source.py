"""Turns the structure a user asks for into a grammar in llguidance's own form."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec
from llguidance import LLMatcher
from llguidance.gbnf_to_lark import gbnf_to_lark

from specchat.errors import InvalidOption
from specchat.structured.json_schema_grammar import json_schema_entry
from specchat.structured.schema_faults import LIMITS, LONGEST_EXPRESSION
from specchat.structured.structure import NAMES, Structure, StructureKind

Split: TypeAlias = Callable[[str], Sequence[str | int]]
"""Returns the parts of a text: special tokens that it names, and the texts between."""

LONGEST: dict[StructureKind, int] = {
    "json_schema": 1 << 18,
    "regex": LONGEST_EXPRESSION,
    "choices": 1 << 18,
    "lark": 1 << 17,
    "gbnf": 1 << 16,
}
"""Characters of a schema or grammar, so that refusing one takes little time and memory."""

QUOTED_LINE = re.compile(r"\s*(\d+ \||\^)")
PLACE = re.compile(r"^at \d+\(\d+\): ")
"""What llguidance says of the text of a Lark grammar."""


@dataclass(frozen=True, slots=True)
class Grammar:
    """A grammar in llguidance's own form; `notices` say what a relaxed schema leaves out."""

    name: str
    text: str
    notices: tuple[str, ...] = ()

    def refused(self, reason: str) -> InvalidOption:
        """Return the error for a grammar that llguidance refuses for this reason."""
        return InvalidOption(f"{self.name} cannot be enforced: {one_line(reason)}; correct it")


def grammar_of(structure: Structure) -> Grammar:
    """Return the grammar of a structure. Raises InvalidOption if it cannot be enforced."""
    entry, notices = _entry(structure)
    grammar = Grammar(NAMES[structure.kind], _text(entry), tuple(notices))
    if structure.kind != "json_schema":  # a schema is checked, and closing objects keeps it so
        _require_accepted(grammar)
    return grammar


def lark_grammar(text: str, name: str) -> Grammar:
    """Return a grammar of specchat's own making; `name` stands for it in messages.

    Raises InvalidOption, which does not quote it, if it cannot be enforced.
    """
    grammar = Grammar(name, _text({"lark_grammar": text}))
    if reason := LLMatcher.validate_grammar(grammar.text, None, limits=LIMITS):
        said = [line for line in reason.splitlines() if not QUOTED_LINE.match(line)]
        raise grammar.refused(PLACE.sub("", "\n".join(said)))
    return grammar


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _require_accepted(grammar: Grammar) -> None:
    """Raise InvalidOption for a grammar that llguidance does not accept."""
    if reason := LLMatcher.validate_grammar(grammar.text, None, limits=LIMITS):
        raise grammar.refused(reason)


def _text(entry: dict[str, Any]) -> str:
    return json.dumps({"grammars": [entry]})


def _entry(structure: Structure) -> tuple[dict[str, Any], list[str]]:
    """Return a structure as one of llguidance's grammars, and notices of what is left out."""
    source = structure.source
    if len(source) > (longest := LONGEST[structure.kind]):
        raise InvalidOption(
            f"{NAMES[structure.kind]} is longer than {longest} characters: simplify it"
        )
    match structure.kind:
        case "json_schema":
            return json_schema_entry(source, is_relaxed=structure.check == "relaxed")
        case "regex":
            return json.loads(LLMatcher.grammar_from_regex(source))["grammars"][0], []
        case "choices":
            return {"lark_grammar": _choices(source)}, []
        case "lark":
            return {"lark_grammar": source}, []
        case "gbnf":
            return {"lark_grammar": _converted(source)}, []


def _choices(source: str) -> str:
    """Return a Lark grammar of choices in a JSON array."""
    try:
        choices = msgspec.json.decode(source, type=list[str])
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidOption(f"the choices must be a JSON array of strings: {error}") from None
    if not choices:
        raise InvalidOption("there is nothing to choose from: give at least one choice")
    return f"start: CHOICE\nCHOICE: {' | '.join(map(_quoted, dict.fromkeys(choices)))}"


def _converted(source: str) -> str:
    """Return a GBNF grammar in Lark."""
    try:
        return gbnf_to_lark(source)
    except Exception as error:  # noqa: BLE001  # the converter raises anything
        raise InvalidOption(f"the GBNF grammar is invalid: {one_line(str(error))}") from None


def one_line(reason: str) -> str:
    """Return a reason of llguidance's in one line, cut off where it is too long to be read."""
    text = reason.replace("<non-verbose/>", "").replace("NoExtensionBias", "no text fits it")
    return " ".join(text.split())[:300]
