"""Checks whether a server's answer has the structure asked for, which some servers ignore."""

import json

from specchat.errors import InvalidOption
from specchat.structured.structure import NAMES, Structure


def why_not(structure: Structure, answer: str, server: str) -> str | None:
    """Return in one line why a complete answer does not have its structure, "" if it does.

    None for an expression or a grammar, which only a model's constraint can read.
    """
    is_ignored = f"{server} did not follow {NAMES[structure.kind]}"
    if structure.kind == "choices":
        return "" if answer in json.loads(structure.source) else is_ignored
    if structure.kind != "json_schema":
        return None
    from specchat.structured.schema_validation import AnswerCheck

    try:
        json.loads(answer)
    except (ValueError, RecursionError):
        return f"{is_ignored}: the answer is not JSON"
    try:
        return AnswerCheck(structure.source).why_invalid(answer)
    except InvalidOption:  # the server has accepted it
        return None
