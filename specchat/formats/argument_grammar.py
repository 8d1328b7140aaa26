"""Rules for arguments that a chat format writes one by one, not as JSON.

They come in the order of the schema, as in JSON. A string is plain text or in quotes; its pattern
and its lengths are enforced, its format is not.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from specchat.errors import InvalidOption
from specchat.formats.bare_text import TextBounds, bounds_of
from specchat.formats.call_format import JSON_TYPES, PYTHON_WORDS, ArgumentText
from specchat.formats.grammar_rules import OPTIONS, Rules, Schema, expression

Value: TypeAlias = tuple[str, str]
"""The JSON type of a value, and the expression for it."""

DEEPEST = 12
"""How deep a schema is looked into: through references, alternatives and nested values."""
DEEPEST_OF_ANY_TYPE = 8
"""How deep an object or array may be whose type no schema names, in formats that nest them."""
MOST_ITEMS = 1000
"""The largest number of an array's items that is counted, in these formats."""
MOST_LOOKS = 50_000
"""How many schemas and values of a tool are looked at: alternatives and objects multiply."""
LOCAL = "#/"
DEFINITIONS = "$defs"
SHARED = (DEFINITIONS, "definitions", OPTIONS)
"""What parts of a schema take over from the whole."""
UNIONS = ("anyOf", "oneOf")
SCALARS = ("string", "number", "boolean", "null")
ANY: Schema = {}
"""The schema of any value."""
JSON_WORDS = {word: name for name, word in PYTHON_WORDS.items()}


def arguments_rule(rules: Rules, form: ArgumentText, schema: Schema) -> str:
    """Return an expression for a tool's arguments, which follow the schema of an object.

    Raises InvalidOption if the format cannot write a required one.
    """
    return _Arguments(rules, form, schema).members(schema, form.first, form.none, 0)


class _Arguments:
    """Makes the rules for the arguments of one tool."""

    def __init__(self, rules: Rules, form: ArgumentText, root: Schema) -> None:
        self._rules, self._form, self._root = rules, form, root
        self._known: dict[tuple[int, str, int], Sequence[Value]] = {}
        self._written: dict[tuple[int, str], str] = {}
        self._num_looks = 0

    def members(self, schema: Schema, first: str, none: str, depth: int) -> str:
        """Return an expression for the members of an object; one without any is `none`."""
        rules, form = self._rules, self._form
        properties = _mapping(schema.get("properties"))
        following = rules.literal(form.following)
        shared, first, none = rules.parted(first, none)
        if not properties:
            if schema.get("additionalProperties", True) is False or "properties" in schema:
                return f"{shared} {none}"
            member = self._member("", ANY, depth)
            return rules.add(f"{shared} ({none} | {first} {member} ({following} {member})*)")
        required = set(schema.get("required") or ())
        begun, unbegun = rules.add('""'), none  # from the last member to the first
        listed = sorted(properties, key=str.lower) if form.is_sorted else properties
        for key in reversed(list(listed)):
            each = properties[key]
            member, is_optional = self._member(key, each, depth), key not in required
            if not member and not is_optional:
                raise InvalidOption(f"this chat format cannot write {key}")
            if not member:
                continue
            skipped = f" | {unbegun}" if is_optional else ""
            unbegun = rules.add(f"{first} {member} {begun}{skipped}")
            skipped = f" | {begun}" if is_optional else ""
            begun = rules.add(f"{following} {member} {begun}{skipped}")
        return f"{shared} {unbegun}"

    def _member(self, key: str, schema: Any, depth: int) -> str:
        """Return a rule for a key with its value, any key for ""; "" if it cannot be written."""
        rules, form = self._rules, self._form
        name = rules.said(key) if key else "KEY"
        found = []
        for kind, value in self._values(schema, key, depth):
            before = rules.literal(form.before[kind], key)
            after = rules.literal(form.after[kind], key)
            found.append(f"{name} {before} {value} {'' if kind == 'string' else after}")
        return rules.add(" | ".join(found)) if found else ""

    def _values(self, schema: Any, key: str, depth: int) -> Sequence[Value]:
        """Return the values that a schema allows, of the types that the format can write.

        Strings include what ends them. What many references lead to is looked at once.
        """
        if depth > DEEPEST:
            raise InvalidOption(f"the schema of {key} is nested too deeply")
        self._look(key)
        schema = _mapping(schema)
        place = (id(schema), key, depth)
        if place not in self._known:
            found = dict[Value, None]()
            for value in self._alternatives(schema, key, depth):
                self._look(key)
                found[value] = None
            self._known[place] = tuple(found)
        return self._known[place]

    def _look(self, key: str) -> None:
        """Count a look at a schema or value. Raises InvalidOption for too many."""
        self._num_looks += 1
        if self._num_looks > MOST_LOOKS:
            raise InvalidOption(f"the schema of {key} has too many alternatives")

    def _alternatives(self, schema: Schema, key: str, depth: int) -> Iterator[Value]:
        """Yield the values of each alternative of a schema."""
        if (target := self._target(schema)) is not schema:
            yield from self._values(target, key, depth + 1)
        elif "const" in schema or "enum" in schema:
            for value in [schema["const"]] if "const" in schema else schema["enum"]:
                yield from self._constant(value, key)
        elif branches := [each for name in UNIONS for each in schema.get(name) or ()]:
            for branch in branches:
                yield from self._values(branch, key, depth + 1)
        else:
            has_end = not self._form.is_nested or depth < DEEPEST_OF_ANY_TYPE
            for kind in _types(schema) if has_end else _types(schema, SCALARS):
                yield from self._typed(kind, schema, key, depth)

    def _target(self, schema: Schema) -> Any:
        """Return the schema that a local reference names, or the schema itself."""
        reference, found = schema.get("$ref"), self._root
        if not isinstance(reference, str) or not reference.startswith(LOCAL):
            return schema
        for step in reference.removeprefix(LOCAL).split("/"):
            found = _mapping(found.get(step.replace("~1", "/").replace("~0", "~")))
        return found

    def _constant(self, value: Any, key: str) -> Iterator[Value]:
        kind = _type_of(value)
        if kind not in self._form.before:
            return
        if kind == "string":
            yield kind, self._said(value, key)
        elif kind in {"object", "array"}:
            options = {OPTIONS: self._root[OPTIONS]} if OPTIONS in self._root else {}
            yield kind, self._rules.json({**options, "const": value})
        else:
            yield kind, self._word(json.dumps(value))

    def _typed(self, kind: str, schema: Schema, key: str, depth: int) -> Iterator[Value]:
        place = "number" if kind == "integer" else kind
        if place not in self._form.before:
            return
        if kind == "string":
            yield kind, self._text(key, bounds_of(schema))
        elif kind == "boolean":
            yield kind, self._rules.add(f"{self._word('true')} | {self._word('false')}")
        elif kind == "null":
            yield kind, self._word("null")
        elif self._form.is_nested and kind == "object":
            yield kind, self._rules.add(f'{self.members(schema, "{", "{", depth + 1)} "}}"')
        elif self._form.is_nested and kind == "array":
            yield kind, self._list(schema, key, depth)
        else:
            yield place, self._json(kind, schema)

    def _json(self, kind: str, schema: Schema) -> str:
        """Return a rule for a value of a type as JSON; many arguments may have one schema."""
        place = (id(schema), kind)
        if place not in self._written:
            whole = {**self._shared(schema), **schema, "type": kind}
            self._written[place] = self._rules.json(whole)
        return self._written[place]

    def _shared(self, schema: Schema) -> dict[str, Any]:
        """Return what a part of the whole schema takes over: options, and what it refers to."""
        whole = {name: self._root[name] for name in SHARED if name in self._root}
        defined = _mapping(whole.get(DEFINITIONS))
        needed: dict[str, Any] = {}
        waiting: list[Any] = [schema]
        while waiting:
            each = waiting.pop()
            if isinstance(each, list):
                waiting += each
            elif isinstance(each, Mapping):
                waiting += each.values()
                if isinstance(reference := each.get("$ref"), str):
                    name = reference.removeprefix(f"#/{DEFINITIONS}/")
                    if name == reference or name not in defined:
                        return whole
                    waiting += [] if name in needed else [defined[name]]
                    needed[name] = defined[name]
        options = {OPTIONS: whole[OPTIONS]} if OPTIONS in whole else {}
        return {**options, DEFINITIONS: needed} if needed else options

    def _list(self, schema: Schema, key: str, depth: int) -> str:
        """Return a rule for an array whose items are written as nested values."""
        form, rules = self._form, self._rules
        found = []
        for kind, value in self._values(schema.get("items"), key, depth + 1):
            before = form.before[kind].removeprefix(":")
            found.append(f"{rules.literal(before)} {value}")
        fewest, most = _count(schema.get("minItems")) or 0, _count(schema.get("maxItems"))
        if not found or most == 0 or (most is not None and most < fewest):
            return rules.add('"[" "]"')
        item = rules.add(" | ".join(found))
        times = f"{{{max(0, fewest - 1)},{'' if most is None else most - 1}}}"
        more = f"({rules.literal(form.following)} {item}){times}" if most != 1 else ""
        items = f"({item} {more})"
        return rules.add(f'"[" {items}{"" if fewest else "?"} "]"')

    def _text(self, key: str, bounds: TextBounds) -> str:
        """Return an expression for a text within bounds, with what ends it.

        A special token cannot be part of a text; anything else that ends it ends it as soon as it
        occurs.
        """
        wanted = filter(None, (bounds.pattern, bounds.length))
        matched = " & ".join(f"/{_in_slashes(each)}/" for each in wanted)
        if self._form.quotes:
            quoted = self._rules.terminal(_quoted(matched)) if matched else "QUOTED"
            return f"{quoted} {self._rules.literal(self._form.after['string'], key)}"
        parts = self._rules.parts(self._form.after["string"], key)
        plain = parts[0] if parts and isinstance(parts[0], str) else ""
        rest = parts[bool(plain) :]  # from a special token on
        end = _escaped(plain)
        if rest:
            text = f"({matched}) /{end}/" if matched and end else matched or f"/(?s:.*){end}/"
            return f"{self._rules.terminal(text)} {expression(rest)}"
        if bounds.pattern and end:
            return self._rules.terminal(f"(({matched}) /{end}/) & ~/(?s:.*){end}(?s:.+)/")
        text = f"/{bounds.length or '(?s:.*)'}{end}/"
        if bounds.fewest and end:
            text += f" & ~/(?s:.{{0,{bounds.fewest - 1}}}){end}(?s:.*)/"
        return self._rules.add(text, "[lazy]")

    def _said(self, value: str, key: str) -> str:
        """Return an expression for one string with what ends it."""
        after = self._rules.literal(self._form.after["string"], key)
        quotes = self._form.quotes
        if not quotes:
            return f"{self._rules.said(value)} {after}"
        written = json.dumps(value, ensure_ascii=False) if quotes == '"' else repr(value)
        return f"{self._rules.said(written)} {after}"

    def _word(self, word: str) -> str:
        """Return an expression for a number, a boolean or null; Python's words may fit too."""
        others = [JSON_WORDS[word]] if self._form.has_words and word in JSON_WORDS else []
        return self._rules.add(" | ".join(map(self._rules.said, [word, *others])))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else ANY


def _types(schema: Schema, others: Sequence[str] = JSON_TYPES) -> Sequence[str]:
    """Return the JSON types that a schema names; the others if it names none."""
    named = schema.get("type")
    if isinstance(named, str):
        return [named]
    if isinstance(named, list):
        return [each for each in named if isinstance(each, str)]
    if "properties" in schema:
        return ["object"]
    return others


def _count(value: Any) -> int | None:
    """Return a number of items; None if there is none, or none that is counted."""
    is_count = isinstance(value, int) and not isinstance(value, bool)
    return value if is_count and 0 <= value <= MOST_ITEMS else None


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    kinds = {bool: "boolean", str: "string", int: "number", float: "number", list: "array"}
    return kinds.get(type(value), "object")


def _quoted(matched: str) -> str:
    """Return an expression for texts in quotes, which match one without quotes and escapes."""
    return " | ".join(
        rf"/{quote}/ ({matched} & /[^{quote}\\\n]*/) /{quote}/" for quote in ('"', "'")
    )


def _in_slashes(expression: str) -> str:
    """Return an expression as it is written between slashes."""
    return re.sub(r"\\.|/|\n", _slash_escaped, expression, flags=re.DOTALL)


def _slash_escaped(found: re.Match[str]) -> str:
    return {"/": r"\/", "\n": r"\n", "\\\n": r"\n"}.get(found[0], found[0])


def _escaped(text: str) -> str:
    """Return a text as it is written in an expression between slashes."""
    return "".join(r"\n" if each == "\n" else re.escape(each) for each in text).replace("/", r"\/")
