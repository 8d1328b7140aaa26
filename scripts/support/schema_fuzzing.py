"""Damaged JSON Schemas, regular expressions and grammars, and what becomes of them.

A process of its own runs a range of cases, for one may end it:

    python -m scripts.support.schema_fuzzing SEED FIRST LAST

prints the number of each case before it begins, and after it, how it ended, the processor's seconds
until the first mask, and the memory that the process has taken so far.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from time import process_time
from typing import Any, NamedTuple

from psutil import Process

from scripts.support.byte_grammar import BYTES, random_text
from specchat.errors import SpecchatError
from specchat.structured.grammar_constraint import GrammarConstraint
from specchat.structured.grammar_source import grammar_of
from specchat.structured.schema_validation import AnswerCheck
from specchat.structured.structure import Kind, Structure

LONGEST_WALK = 20
"""Tokens that are written after the first mask."""
NUMBERS = (0, 1, -1, 2, 3.5, 1e-7, 255, 999, 4096, 65536, 10**6, 10**9, 2**64, -(10**30), 1e308)
SCHEMAS: tuple[Any, ...] = (
    {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}},
     "required": ["a"]},
    {"type": "array", "items": {"$ref": "#/$defs/n"}, "minItems": 1, "maxItems": 5,
     "$defs": {"n": {"anyOf": [{"type": "null"}, {"$ref": "#"}]}}},
    {"oneOf": [{"properties": {"k": {"const": index}}, "required": ["k"], "type": "object"}
               for index in range(3)]},
    {"allOf": [{"properties": {"x": {"type": "number", "minimum": 0, "multipleOf": 0.5}}},
               {"required": ["x"]}]},
    {"type": ["string", "null"], "pattern": "^[a-z]{2,9}(-[0-9]+)*$", "maxLength": 30},
    {"type": "string", "format": "date-time"},
    {"type": "object", "patternProperties": {"^p_": {"type": "boolean"}}, "minProperties": 1,
     "additionalProperties": {"enum": [1, "two", None, [3], {"four": 4}]}},
    {"if": {"properties": {"a": {"const": 1}}}, "then": {"required": ["b"]},
     "not": {"type": "null"}, "contains": {}, "uniqueItems": True, "dependentRequired": {}},
    {"prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False},
)  # fmt: skip
EXPRESSIONS = (
    r"[a-z]+@[a-z]+\.(com|org)", r"(a|b)*c{2,5}", r"\d{3}-\d{4}", r"^(\w+\s?){1,8}$", ".*",
    r"(?i)yes|no", r"[^\"\\]*", r"(((x)y)z)?", r"\p{L}+", "a{0,99}b",
)  # fmt: skip
RULES = (
    'start: item ("," item)*\nitem: /[a-z]{1,5}/ | "(" start ")"',
    'start: %json {"type": "integer"} "!"\n',
    'root ::= "a" [b-z]* rest\nrest ::= ("x" | "y"){2,4} | root',
)
PIECES = ("{1,9999}", "{0,}", "*", "+", "?", "(", ")", "[", "]", "|", "^", "$", "\\", ".", "(?=a)",
          "(?:", "\\p{L}", "\\x00", "\ud7ff", "é", "\n", '"', "/", "::=", "start", "%json", "<[1]>",
          "<end>", "~", "&")  # fmt: skip


ANSWERS = (
    "null", "-1e999", json.dumps("aab" * 3000), "[" * 90 + "1" + "]" * 90,
    json.dumps({"a": "b", "k": 1, "x": 0.5, "p_1": [{"a": {"b": [1, "two"]}}] * 200}),
)  # fmt: skip
"""Whole texts that may break what a grammar does not enforce."""


class Ended(NamedTuple):
    """How a case ended: in a word, after how long, and with how much memory in MiB."""

    word: str
    seconds: float
    memory: int


def case(seed: int, index: int) -> Structure:
    """Return one case: the same for the same numbers."""
    chance = random.Random(f"{seed} {index}")
    kind = chance.choice(("json_schema", "json_schema", "json_schema", "regex", "lark", "choices"))
    if kind == "json_schema":
        text = json.dumps(_mutated(chance.choice(SCHEMAS), chance, chance.randrange(1, 7)))
        text = _damaged(text, chance) if chance.random() < 0.1 else text
        return Structure("json_schema", text, chance.choice(("strict", "relaxed")))
    if kind == "choices":
        choices = ["".join(chance.choices(PIECES, k=chance.randrange(4))) for _ in range(9)]
        return Structure("choices", json.dumps(choices))
    if kind == "regex":
        return Structure("regex", _grown(chance.choice(EXPRESSIONS), chance))
    text = _damaged(chance.choice(RULES), chance) * chance.choice((1, 1, 1, 50))
    language: Kind = "gbnf" if "::=" in text else "lark"
    return Structure(language, text)


def _grown(expression: str, chance: random.Random) -> str:
    """Return an expression that is repeated, nested and damaged."""
    for _ in range(chance.randrange(5)):
        count = chance.choice((2, 10, 50, 1000, 10**6))
        form = chance.choice(("({}){{{}}}", "({}){{0,{}}}", "({}|{})*", "({})+", "(?:{}).{{{}}}b"))
        other = count if "{{" in form else chance.choice(EXPRESSIONS)
        expression = form.format(expression, other)
    expression *= chance.choice((1, 1, 1, 30, 1000))
    return _damaged(expression, chance) if chance.random() < 0.5 else expression


def _damaged(text: str, chance: random.Random) -> str:
    """Return a text with pieces put in and taken out."""
    for _ in range(chance.randrange(1, 4)):
        place = chance.randrange(len(text) + 1)
        end = place + chance.choice((0, 0, 1, 5))
        text = text[:place] + chance.choice(PIECES) + text[end:]
    return text


def _mutated(schema: Any, chance: random.Random, times: int) -> Any:
    """Return a schema changed at random places."""
    schema = json.loads(json.dumps(schema))
    for _ in range(times):
        places = list(_places(schema))
        if not places:
            return schema
        holder, key = chance.choice(places)
        holder[key] = json.loads(json.dumps(chance.choice(CHANGES)(holder[key], chance)))
    return schema


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each place in a value: what holds it, and its key."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        for key in each.keys() if isinstance(each, dict) else range(len(each)):
            yield each, key
            if isinstance(each[key], dict | list):
                waiting.append(each[key])


def _repeated(value: Any, chance: random.Random) -> Any:
    count = chance.choice((3, 30, 300))
    if isinstance(value, list) and value:
        return value * count
    if isinstance(value, str):
        return value * count
    return {"type": "object", "properties": {f"p{index}": value for index in range(count)}}


def _nested(value: Any, chance: random.Random) -> Any:
    for _ in range(chance.choice((1, 5, 60, 200))):
        keyword = chance.choice(("items", "not", "additionalProperties", "contains"))
        value = {keyword: value} if chance.random() < 0.6 else {"anyOf": [value, {"$ref": "#"}]}
    return value


CHANGES: tuple[Callable[[Any, random.Random], Any], ...] = (
    lambda _, chance: chance.choice(NUMBERS),
    lambda _, chance: chance.choice(("", "string", "#", "#/$defs/n", "#/nowhere", "http://x.example")),
    lambda _, chance: chance.choice((None, True, False, [], {}, [[]], {"": {}})),
    lambda _, chance: chance.choice(SCHEMAS),
    lambda _, chance: _grown(chance.choice(EXPRESSIONS), chance),
    lambda value, chance: {**value, **chance.choice(SCHEMAS)} if isinstance(value, dict) else value,
    lambda _, chance: {"type": "string", "pattern": _grown(chance.choice(EXPRESSIONS), chance)},
    lambda _, chance: {"type": chance.choice(("number", "integer")),
                       "multipleOf": chance.choice(NUMBERS), "maximum": chance.choice(NUMBERS)},
    lambda _, chance: {"type": "array", "minItems": chance.choice(NUMBERS),
                       "maxItems": chance.choice(NUMBERS)},
    lambda _, chance: {"type": "string", "minLength": chance.choice(NUMBERS),
                       "maxLength": chance.choice(NUMBERS)},
    _repeated,
    _nested,
)  # fmt: skip


def run_case(structure: Structure) -> tuple[str, float]:
    """Return how a case ended and the seconds until its first mask; then write a little.

    They include checking whole texts where a schema is enforced in part.
    """
    began = process_time()
    seconds = 0.0
    try:
        grammar = grammar_of(structure)
        constraint = GrammarConstraint(grammar, BYTES)
        constraint.mask()
        constraint.forced()
        if grammar.notices:
            check = AnswerCheck(structure.source)
            for text in ANSWERS:
                check.why_invalid(text)
        seconds = process_time() - began
        random_text(constraint, BYTES, random.Random(1), LONGEST_WALK)
        return "enforced", seconds
    except SpecchatError as error:
        is_line = "\n" not in str(error) and len(str(error)) < 1000
        word = type(error).__name__ if is_line else f"unexpected text: {error}"
        return word, seconds or process_time() - began
    except Exception as error:  # noqa: BLE001  # that is what is looked for
        return f"unexpected {type(error).__name__}: {error}", process_time() - began


def run_range(seed: int, first: int, last: int) -> dict[int, Ended]:
    """Return how the cases of a range ended, each run in another process."""
    ended: dict[int, Ended] = {}
    while first < last:
        command = [sys.executable, "-m", "scripts.support.schema_fuzzing"]
        process = subprocess.Popen(
            [*command, str(seed), str(first), str(last)],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        begun = first - 1
        for line in process.stdout or ():
            words = line.rstrip("\n").split("\t")
            begun = int(words[0])
            if len(words) > 1:
                ended[begun] = Ended(words[3], float(words[1]), int(words[2]))
        code = process.wait()
        if begun not in ended:
            ended[max(begun, first)] = Ended(f"unexpected end of the process: {code}", 0.0, 0)
        first = max(begun, first) + 1
    return ended


def main(arguments: list[str]) -> None:
    """Run a range of cases in this process."""
    seed, first, last = map(int, arguments)
    BYTES.tokenizer  # noqa: B018  # arranges the vocabulary
    for index in range(first, last):
        print(index, flush=True)
        word, seconds = run_case(case(seed, index))
        memory = Process().memory_info().rss >> 20
        print(index, f"{seconds:.3f}", memory, " ".join(word.split()), sep="\t", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
