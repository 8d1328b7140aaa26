"""Collecting the rules of a grammar in llguidance's dialect of Lark."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from specchat.errors import InvalidOption
from specchat.formats.call_format import ANY_ID, ANY_INDEX, ANY_NAME, KEY_AGAIN, PLACES
from specchat.formats.probes import common_start

Split: TypeAlias = Callable[[str], Sequence[str | int]]
"""Splits a text into plain texts and the ids of special tokens that it names."""

Schema: TypeAlias = Mapping[str, Any]

OPTIONS = "x-guidance"
"""The key of a schema under which llguidance finds its options."""

LONGEST = 1 << 20
"""Characters of a grammar of calls, of which compiling takes less than a second."""
TOO_LONG = (
    "the grammar of their calls would be longer than a million characters: offer fewer tools or"
    " simplify their schemas"
)
TERMINALS = {ANY_ID: "ID", ANY_INDEX: "INDEX", ANY_NAME: "any_name"}
FIXED = r"""
ID: /[a-zA-Z0-9]{9}/
INDEX: /[0-9]{1,3}/
KEY: /[A-Za-z_][A-Za-z0-9_.-]{0,63}/
QUOTED: /"([^"\\\n]|\\.)*"|'([^'\\\n]|\\.)*'/
SPACE: /[ \n]{1,4}/
"""
"""Terminals that all grammars of calls share."""


class Rules:
    """The rules of a grammar; those with the same body are one.

    JSON is written with `separators` between values, and between keys and values. If the first
    has a line break, lines may be indented.
    """

    def __init__(self, split: Split, separators: tuple[str, str]) -> None:
        """Begin without rules."""
        self._split = split
        self._separators = separators
        self._bodies: dict[str, str] = {}
        self._length = 0

    def add(self, body: str, options: str = "") -> str:
        """Return the name of the rule with a body. Raises InvalidOption if all are too long."""
        return self._named("rule", f"{options}: {body}")

    def terminal(self, body: str) -> str:
        """Return the name of the terminal with a body: expressions, `&` and `~`."""
        return self._named("TEXT", f": {body}")

    def _named(self, kind: str, body: str) -> str:
        if body not in self._bodies:
            self._length += len(body)
            if self._length > LONGEST:
                raise InvalidOption(TOO_LONG)
        return self._bodies.setdefault(body, f"{kind}_{len(self._bodies)}")

    def json(self, schema: Schema) -> str:
        """Return the name of the rule for JSON that follows a schema; its options are kept."""
        options = {**schema.get(OPTIONS, {}), **self._layout()}
        return self.add(f"%json {json.dumps({**schema, OPTIONS: options})}")

    def literal(self, text: str, key: str = "") -> str:
        """Return an expression for a text of a call, in which a key may be named again."""
        return expression(self.parts(text, key))

    @staticmethod
    def said(text: str) -> str:
        """Return an expression for a text of a client's, in which no special token is named."""
        return json.dumps(text, ensure_ascii=False)

    def parts(self, text: str, key: str = "") -> list[str | int]:
        """Return the plain texts and special tokens of a text, and the places to fill in.

        A key that is named again is a client's text, in which no special token is named.
        """
        found: list[str | int] = []
        for piece in filter(None, PLACES.split(text)):
            if piece == KEY_AGAIN:
                parts: Sequence[str | int] = [key]
            else:
                parts = [piece] if piece in TERMINALS else self._split(piece)
            for part in parts:
                last = found[-1] if found else 0
                is_text = isinstance(part, str) and part not in TERMINALS
                if is_text and isinstance(last, str) and last not in TERMINALS:
                    found[-1] = f"{last}{part}"
                else:
                    found.append(part)
        return found

    def parted(self, first: str, second: str) -> tuple[str, str, str]:
        """Return expressions for what two texts begin with, and for the rest of each.

        llguidance reads the longest fixed text that it can, so where one of two texts is the
        beginning of the other, both cannot be alternatives.
        """
        one, other = self.parts(first), self.parts(second)
        num_equal = common_start(one, other)
        shared, one, other = one[:num_equal], one[num_equal:], other[num_equal:]
        if one and other and isinstance(one[0], str) and isinstance(other[0], str):
            length = common_start(one[0], other[0])
            shared += [one[0][:length]]
            one[0], other[0] = one[0][length:], other[0][length:]
        return expression(shared), expression(one), expression(other)

    def text(self, start: str, *others: str) -> str:
        """Return the grammar whose first rule has the body `start`; `others` are whole rules."""
        listed = (f"{name}{key}" for key, name in self._bodies.items())
        return "\n".join([f"start: {start}", *listed, *others]) + FIXED

    def _layout(self) -> dict[str, Any]:
        """Return llguidance's options for the white space in JSON."""
        comma, colon = self._separators
        if "\n" in comma:
            indented = {"whitespace_flexible": True, "whitespace_pattern": r"[ \n]{1,40}"}
            return {"item_separator": ",", "key_separator": ":", **indented}
        return {"item_separator": comma, "key_separator": colon, "whitespace_flexible": False}


def expression(parts: Sequence[str | int]) -> str:
    """Return an expression for parts of a text; `""` if there are none."""
    return " ".join(map(_part, filter(lambda part: part != "", parts))) or '""'


def _part(part: str | int) -> str:
    if isinstance(part, int):
        return f"<[{part}]>"
    return TERMINALS.get(part) or json.dumps(part, ensure_ascii=False)
