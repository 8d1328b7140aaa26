"""The arguments that say what an answer must look like."""

import argparse
import json
from pathlib import Path
from typing import Any

from specchat.decoding.chunk import Chunk
from specchat.decoding.statistics import Statistics
from specchat.errors import InvalidOption
from specchat.structured.structure import Structure

CHECKS = ("strict", "relaxed")
FLAGS = ("schema", "schema_list", "choices", "regex", "grammar")


def add_structure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments; one of them at most may be given."""
    group = parser.add_argument_group("the answer's form, one of")
    schema = "a JSON Schema: a file, JSON text, fields such as 'name, age int', or json for any"
    for flag, about, metavar in (
        ("--schema", schema, "SCHEMA"),
        ("--schema-list", "the same for a list of such answers", "SCHEMA"),
        ("--choices", "one of these texts", "A,B"),
        ("--regex", "a text that matches", "RE"),
        ("--grammar", "a text by the grammar in a file, Lark or GBNF", "FILE"),
    ):
        group.add_argument(flag, help=about, metavar=metavar)
    about = "relaxed checks afterwards what cannot be enforced, and says so (default: strict)"
    group.add_argument("--schema-check", choices=CHECKS, default="strict", help=about)
    about = "do not describe the form to the model"
    group.add_argument("--hide-schema", action="store_true", help=about)


def structure_of(arguments: argparse.Namespace) -> Structure | None:
    """Return what the answer must look like, None if that is open. Raises InvalidOption."""
    given = [name for name in FLAGS if getattr(arguments, name) is not None]
    if not given:
        return None
    if len(given) > 1:
        flags = " and ".join(f"--{name.replace('_', '-')}" for name in given)
        raise InvalidOption(f"{flags} cannot be used together: choose one")
    from specchat.structured import structure_input as typed

    name, value = given[0], getattr(arguments, given[0])
    makers: dict[str, Any] = {
        "schema": typed.structure_of_schema,
        "schema_list": lambda text: typed.structure_of_schema(text, is_list=True),
        "choices": typed.structure_of_choices,
        "regex": typed.structure_of_regex,
        "grammar": lambda path: typed.structure_of_grammar_file(Path(path)),
    }
    structure: Structure = makers[name](value)
    return Structure(
        structure.kind, structure.source, arguments.schema_check, is_shown=not arguments.hide_schema
    )


def data_of(structure: Structure, answer: str) -> Any:
    """Return an answer's value: parsed JSON, else its text; None if it is incomplete."""
    if structure.kind != "json_schema":
        return answer
    try:
        return json.loads(answer)
    except (ValueError, RecursionError):
        return None


def why_not_valid(structure: Structure, answer: list[Chunk], stats: Statistics) -> str:
    """Return why an answer is not what was asked for, and what to do; empty if it is."""
    if stats.is_valid:
        return ""
    if stats.invalid_reason:
        return stats.invalid_reason
    from specchat.structured.unfinished import unfinished_place

    reason = {
        "length": f"--max-tokens ended it after {stats.generated_tokens} tokens",
        "context": "the context is full: use a larger --ctx",
        "stop": "a stop string ended it",
    }.get(str(answer[-1].finish), "it was stopped")
    text = "".join(chunk.text for chunk in answer)
    unfinished = unfinished_place(text) if structure.kind == "json_schema" else ""
    where = (
        f", within {unfinished}: a maxLength, maxItems or maximum there bounds it"
        if unfinished
        else ""
    )
    return f"the answer is not complete: {reason}{where}"
