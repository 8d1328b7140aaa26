"""The structure that a user asks of an answer."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from specchat.errors import InvalidOption

StructureKind: TypeAlias = Literal["json_schema", "regex", "choices", "lark", "gbnf"]
"""The language that a structure is written in."""

Check: TypeAlias = Literal["strict", "relaxed"]
"""Whether parts of a schema that cannot be enforced are refused, or checked afterwards."""

NAMES: dict[StructureKind, str] = {
    "json_schema": "the JSON Schema",
    "regex": "the regular expression",
    "choices": "the choices",
    "lark": "the Lark grammar",
    "gbnf": "the GBNF grammar",
}


@dataclass(frozen=True, slots=True)
class Structure:
    """What an answer must look like.

    `source` is a JSON Schema as JSON text, a regular expression, the choices as a JSON array of
    strings, or a grammar. With a relaxed `check`, the parts of a schema that a grammar cannot
    enforce are checked on the whole answer. With `is_shown` the prompt describes it to the model.
    """

    kind: StructureKind
    source: str
    check: Check = "strict"
    is_shown: bool = True

    def __post_init__(self) -> None:
        """Raise InvalidOption for a source that is not a text."""
        require_text(self.source, NAMES[self.kind])


def require_text(text: str, name: str) -> None:
    """Raise InvalidOption, which names the text, if it cannot be written in UTF-8.

    Bytes of a command line that are not UTF-8 are lone surrogates in Python's texts.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidOption(f"{name} cannot be read as UTF-8: correct it") from None
