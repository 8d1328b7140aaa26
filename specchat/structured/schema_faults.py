"""Why llguidance refuses a JSON Schema: where in it, for which keyword, and what to do."""

import json
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from time import perf_counter
from typing import Any, Literal, NamedTuple

from llguidance import LLMatcher, LLParserLimits

from specchat.structured.schema_walk import Schema, children, moved, subschemas

LIMITS = LLParserLimits(
    verbose_errors=False,
    initial_lexer_fuel=500_000,
    step_max_items=10_000,
    max_lexer_states=100_000,  # of 2 kB at most
    max_grammar_size=200_000,
)
LONGEST_SEARCH_SECONDS = 0.3
LONGEST_EXPRESSION = 8192
COSTS = {
    "properties": 2_000_000,
    "patternProperties": 5_000,
    "multipleOf": 100_000,
    "pattern": LONGEST_EXPRESSION,
}
"""How much a keyword may cost in all: the square of the number of entries, whose pairs are compared
or listed; the size of a multiple, whose remainders are told apart; characters."""
UNSUPPORTED = re.compile(r"Unimplemented keys: \[(.*)\]")
QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
UNKNOWN_FORMAT = re.compile(r"Unknown format: (.*)")
ELSEWHERE = re.compile(r"Resource '(.*)' is not present")
DROPPED_FOR = (
    (re.compile(r"patternProperty"), ("patternProperties",)),
    (re.compile(r"(float|integer) range"),
     ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")),
    (re.compile(r"multipleOf"), ("multipleOf",)),
    (re.compile(r"(min|max)Properties"), ("minProperties", "maxProperties")),
    (re.compile(r"regex"), ("pattern",)),
)  # fmt: skip
"""By llguidance's reason, the keywords without which a schema may be accepted."""


class Complaint(NamedTuple):
    """A complaint of llguidance (1.9) about a schema, parsed from the text that it comes as.

    `names` are the keywords that it cannot enforce, a format that it does not know, the address
    of another schema, or the keywords without which it may accept the schema.
    """

    kind: Literal["keywords", "format", "address", "alternatives", "other"]
    names: tuple[str, ...] = ()

    @classmethod
    def read(cls, reason: str) -> "Complaint":
        """Return the complaint in a warning, or in a reason for refusing a schema."""
        if unsupported := UNSUPPORTED.search(reason):
            return cls("keywords", tuple(QUOTED.findall(unsupported[1])))
        if unknown := UNKNOWN_FORMAT.search(reason):
            return cls("format", (unknown[1],))
        if elsewhere := ELSEWHERE.search(reason):
            return cls("address", (elsewhere[1],))
        if reason.startswith("oneOf"):
            return cls("alternatives")
        return cls(
            "other", next((names for cause, names in DROPPED_FOR if cause.search(reason)), ())
        )


def refusal(schema: Schema, reason: str) -> str:
    """Return in one line where and why llguidance refuses a schema, and what to do."""
    pointer = pointer_of(schema, reason)
    where = "at its top level" if pointer == "#" else f"at {pointer}"
    kind, names = Complaint.read(reason)
    match kind:
        case "keywords":
            keywords = " and ".join(f'"{name}"' for name in names)
            return f"{where}, {keywords} cannot be enforced: leave it out or relax the check"
        case "format":
            name = names[0][:99]
            return f'{where}, the format "{name}" is unknown: leave it out or relax the check'
        case "address":
            return f'{where}, a reference leads to {names[0]}: copy that schema into "$defs"'
        case "alternatives":
            return (
                f'{where}, the alternatives of "oneOf" may overlap: write "anyOf" or relax the'
                " check"
            )
        case "other":
            faulty = [name for name in names if name in schema_at(schema, pointer)]
            keyword = f'"{faulty[0]}": ' if faulty else ""
            return f"{where}, {keyword}{_short(reason)}: correct it"


def _short(reason: str) -> str:
    """Return llguidance's reason in a few words: of a regular expression, only what is wrong."""
    _, _, error = _bare(reason).partition("error: ")
    line = " ".join((error or _bare(reason)).split())
    return line.replace("Unsatisfiable schema: ", "nothing fits: ", 1)[:200]


def _bare(reason: str) -> str:
    """Return a reason without the reference it was found by."""
    return reason.partition("\n  while processing")[0]


def pointer_of(schema: Schema, reason: str) -> str:
    """Return the JSON pointer to the innermost part that llguidance refuses for this reason.

    Each part is tried by itself, within a time limit; if none is found, that is "#", the whole
    schema.
    """
    began, pointer, inner = perf_counter(), "#", [("#", schema)]
    root = moved(schema, "#/$defs/root")
    while inner:
        here, part = inner.pop()
        if perf_counter() - began > LONGEST_SEARCH_SECONDS:
            break
        if here != "#" and _bare(_reason_at(root, here)) != _bare(reason):
            continue
        pointer, parts = here, list(children(part, here))
        inner = [(there, inside) for there, inside in reversed(parts) if isinstance(inside, dict)]
    return pointer


def _reason_at(root: Schema, pointer: str) -> str:
    """Return why llguidance refuses the schema at a JSON pointer; empty if it does not."""
    part = {"$defs": {"root": root}, "$ref": "#/$defs/root" + pointer[1:]}
    if "$schema" in root:
        part["$schema"] = root["$schema"]
    grammar = json.dumps({"grammars": [{"json_schema": part}]})
    return LLMatcher.validate_grammar(grammar, None, limits=LIMITS)


def schema_at(schema: Schema, pointer: str) -> Schema:
    """Return the schema at a JSON pointer, empty if there is none."""
    return next((part for here, part in subschemas(schema) if here == pointer), {})


def excesses(schema: Schema, costs: Mapping[str, int] = COSTS) -> Iterator[tuple[str, str, Schema]]:
    """Yield what would take too long to compile: pointer, keyword, and the schema with it."""
    left = dict(costs)
    for pointer, part in subschemas(schema):
        for keyword in costs:
            cost = _cost(keyword, part.get(keyword))
            if cost > left[keyword]:
                yield pointer, keyword, part
            else:
                left[keyword] -= cost


def _cost(keyword: str, value: Any) -> int:
    """Return how much work a keyword makes."""
    if keyword == "pattern":
        return len(value) if isinstance(value, str) else 0
    if keyword == "multipleOf":
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return _units(value) if is_number else 0
    return len(value) ** 2 if isinstance(value, dict) else 0


def _units(multiple: float) -> int:
    """Return how many of its smallest decimal units a number has: 125 for 1.25."""
    sign_digits_exponent = Decimal(str(multiple)).normalize().as_tuple()
    digits = int("".join(map(str, sign_digits_exponent.digits)))
    exponent = sign_digits_exponent.exponent
    return digits * 10 ** max(0, exponent) if isinstance(exponent, int) else 0
