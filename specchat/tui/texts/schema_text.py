"""A schema as the user types it in the chat; no widgets here."""

import re

from specchat.chat.conversation import ChatSchema
from specchat.errors import InvalidOption
from specchat.safe_text import in_one_line
from specchat.structured.structure import Structure

MENTION = re.compile(r'^@(?:"([^"\n]+)"|(\S+))$')
RELAXING, RELAXING_ELSEWHERE = " or relax the check", ", or use specchat ask --schema-check relaxed"
"""A way out that a refusal names, and where it is, as the chat does not have it."""
TEXT_AGAIN = "Answer in plain text again."
"""What a question says where a schema has ended."""
LONGEST_SHOWN = 60
"""Characters of a schema in a list."""


def read_schema(typed: str) -> ChatSchema:
    """Return the schema that a text stands for: a file, JSON, fields, or the word `json`.

    The name of a file may follow an @, with which the composer completes it. Raises InvalidOption
    for any other text, and for a schema that cannot be enforced.
    """
    # these load llguidance, which the chat needs for nothing else
    from specchat.structured.grammar_source import grammar_of
    from specchat.structured.structure_input import schema_file, structure_of_schema

    typed = MENTION.sub(r"\1\2", typed.strip())
    structure = structure_of_schema(typed)
    try:
        grammar_of(structure)
    except InvalidOption as error:
        raise InvalidOption(str(error).replace(RELAXING, RELAXING_ELSEWHERE)) from None
    file = schema_file(typed)
    return ChatSchema(str(file) if file else typed, structure.source)


def structure_of(source: str) -> Structure | None:
    """Return what an answer must look like by a stored JSON Schema; None if that is empty.

    The question describes it to the model, where it is news (`told`).
    """
    return Structure("json_schema", source, is_shown=False) if source else None


def told(source: str) -> str:
    """Return what a question says of its answer's JSON Schema, after an answer with another one.

    In the system prompt, it would have all of a conversation read again.
    """
    from specchat.structured.structure_prompt import description_of  # loads msgspec

    structure = structure_of(source)
    return description_of(structure) if structure else TEXT_AGAIN


def in_list(typed: str) -> str:
    """Return a schema for a list of presets, cut off if it is long; empty for none."""
    line = in_one_line(typed)
    shown = f"{line[:LONGEST_SHOWN].rstrip()}…" if len(line) > LONGEST_SHOWN else line
    return f"schema {shown}" if shown else ""
