"""Checks whole answers by a JSON Schema that a grammar enforces only in part."""

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import jsonschema_rs

from specchat.errors import InvalidOption
from specchat.structured.check_cost import takes_too_long
from specchat.structured.grammar_source import one_line
from specchat.structured.json_schema_grammar import CANNOT, MOST_DROPPED, read_schema
from specchat.structured.schema_faults import COSTS, excesses
from specchat.structured.schema_walk import MAPS, Schema, steps_of, stray_reference

EXPRESSIONS = {name: COSTS[name] for name in ("pattern", "patternProperties")}
LIMITS = jsonschema_rs.FancyRegexOptions(
    backtrack_limit=10_000, size_limit=1 << 20, dfa_size_limit=1 << 20
)
"""For regular expressions: a millisecond for each text, a megabyte for each expression."""
KEPT_WHOLE = ("not", "if", "oneOf", "patternProperties")
"""Keywords under which a schema may allow less when a part of them allows more or is removed."""
UNKNOWN_DIALECT = "Unknown meta-schema"
LONGEST_NUMBER = 4000
"""Digits of an integer; Python reads no more than 4,300."""
LONGEST_REASON = 150
UNCHECKED = f"{CANNOT} as a whole, nor can answers be checked by it"


class AnswerCheck:
    """Checks answers by a JSON Schema; `notices` say what of it is not checked either.

    Nothing is fetched: a schema that refers to another file or address is refused.
    """

    def __init__(self, source: str) -> None:
        """Compile a schema. Raises InvalidOption if that fails."""
        schema = read_schema(source)
        if reason := stray_reference(schema):
            raise InvalidOption(f"{UNCHECKED}: {reason}")
        notices = list(_without_costly_expressions(schema))
        self._validator, more = _compiled(schema)
        self._schema, self.notices = schema, (*notices, *more)

    def why_invalid(self, text: str) -> str:
        """Return in one line why a text does not fit the schema; empty if it does."""
        try:
            value = json.loads(text, parse_float=_finite, parse_int=_bounded)
        except (ValueError, RecursionError):
            return "the answer cannot be checked by the JSON Schema: it nests too deeply"
        if takes_too_long(self._schema, value):
            return "the answer cannot be checked by the JSON Schema: that would take too long"
        try:
            self._validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            reason = one_line(error.message)[:LONGEST_REASON]
            path = _path(error.instance_path) or "it"
            keyword = error.kind.name
            return f'the answer does not fit the JSON Schema: {path} breaks "{keyword}" ({reason})'
        return ""


def _without_costly_expressions(schema: Schema) -> Iterator[str]:
    """Remove from a schema the expressions beyond the limit; yield a notice for each."""
    for pointer, keyword, _ in list(excesses(schema, EXPRESSIONS)):
        yield from _dropped(schema, [*steps_of(pointer), keyword])


def _compiled(schema: Schema) -> tuple[jsonschema_rs.Validator, list[str]]:
    """Return a schema's validator, and notices of what had to be taken out of it.

    Raises InvalidOption if that does not help.
    """
    notices: list[str] = []
    reason = ""
    for _ in range(MOST_DROPPED):
        try:
            validator = jsonschema_rs.validator_for(
                schema, validate_formats=True, ignore_unknown_formats=False, offline=True,
                pattern_options=LIMITS,
            )  # fmt: skip
        except jsonschema_rs.ValidationError as error:
            reason = error.message
            is_unknown = reason.startswith(UNKNOWN_DIALECT)
            path = ["$schema"] if is_unknown else error.instance_path
            if not path:
                break
            notices += _dropped(schema, path)
        else:
            return validator, notices
    raise InvalidOption(f"{UNCHECKED}: {one_line(reason)[:LONGEST_REASON]}; correct it")


def _dropped(schema: Schema, path: Sequence[str | int]) -> list[str]:
    """Take a keyword out of a schema, so that it allows no less; return a notice if it was there.

    Properties that no expression describes any more may be of any kind.
    """
    *outer, keyword = _outermost(path)
    holder: Any = schema
    for step in outer:
        holder = holder[int(step) if isinstance(holder, list) else str(step)]
        if holder is None:
            return []
    if not isinstance(holder, dict) or holder.pop(str(keyword), None) is None:
        return []
    if keyword == "patternProperties":
        holder.pop("additionalProperties", None)
        holder.pop("unevaluatedProperties", None)
    pointer = "/".join(["#", *map(str, outer)])
    return [f'"{keyword}" at {pointer} of the JSON Schema is not checked either']


def _outermost(path: Sequence[str | int]) -> list[str | int]:
    """Return the part of a path up to the first keyword whose schemas must not allow more."""
    is_name = False
    for index, step in enumerate(path):
        if not is_name and step in KEPT_WHOLE:
            return list(path[: index + 1])
        is_name = not is_name and step in MAPS
    return list(path)


def _path(steps: Sequence[str | int]) -> str:
    """Return a path in an answer, such as `items[2].name`."""
    parts = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps]
    return "".join(parts).removeprefix(".")


def _finite(text: str) -> float:
    """Return a number; one that is too large is the largest there is."""
    return max(-sys.float_info.max, min(sys.float_info.max, float(text)))


def _bounded(text: str) -> float:
    """Return an integer; one of too many digits as a floating-point number."""
    return int(text) if len(text) <= LONGEST_NUMBER else _finite(text)
