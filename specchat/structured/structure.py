"""What a user asks an answer to look like."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["json_schema", "regex", "choices", "lark", "gbnf"]
"""The language that a structure is written in."""

Check: TypeAlias = Literal["strict", "relaxed"]
"""Whether parts of a schema that cannot be enforced are refused, or checked afterwards."""


@dataclass(frozen=True, slots=True)
class Structure:
    """What an answer must look like.

    `source` is a JSON Schema as JSON text, a regular expression, the choices as a JSON array of
    strings, or a grammar. With a relaxed `check`, the whole answer is checked by what a grammar
    cannot enforce of a schema. With `is_shown` the prompt describes it to the model.
    """

    kind: Kind
    source: str
    check: Check = "strict"
    is_shown: bool = True
