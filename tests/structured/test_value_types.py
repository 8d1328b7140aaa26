"""Python types as structures, and answers as their values."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec
import pytest

from specchat.errors import InvalidAnswer, InvalidOption
from specchat.structured.grammar_constraint import GrammarConstraint
from specchat.structured.grammar_source import grammar_of
from specchat.structured.value_types import structure_of_type, value_of
from structured.toy_vocabulary import TOY, written
from tables import table


class Colour(Enum):
    """An enumeration."""

    RED = "red"
    BLUE = "blue"


class Person(msgspec.Struct):
    """A struct that refers to itself and others."""

    name: str
    age: Annotated[int, msgspec.Meta(ge=0, le=150)]
    colour: Colour = Colour.RED
    friends: list[Person] = []


@dataclass
class Price:
    """A dataclass with what JSON can only write as text."""

    amount: Decimal
    picture: bytes = b""


class Place(TypedDict):
    """A dictionary of known keys."""

    name: str
    height: NotRequired[float]
    area: int


class Model:
    """What pydantic's models offer, as far as it is used."""

    def __init__(self, number: int) -> None:
        """Keep a number."""
        self.number = number

    def __eq__(self, other: object) -> bool:
        """Compare numbers."""
        return isinstance(other, Model) and other.number == self.number

    def __hash__(self) -> int:
        return self.number

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        """Return the schema."""
        number = {"type": "integer"}
        return {"type": "object", "properties": {"number": number}, "required": ["number"]}

    @classmethod
    def model_validate(cls, value: Any) -> Model:
        """Return a model; pydantic's error is a ValueError too."""
        if set(value) != {"number"}:
            raise ValueError("1 validation error for Model\nnumber\n  Field required")
        return cls(value["number"])

    @classmethod
    def model_validate_json(cls, text: str) -> Model:
        """Return a model of JSON."""
        return cls.model_validate(json.loads(text))


class Adapter:
    """What pydantic's TypeAdapter offers, as far as it is used."""

    def json_schema(self) -> dict[str, Any]:
        """Return the schema."""
        return {"type": "array", "items": Model.model_json_schema()}

    def validate_json(self, text: str) -> list[Model]:
        """Return models of JSON."""
        return [Model.model_validate(each) for each in json.loads(text)]


def accepts(kind: Any, text: str) -> bool:
    """Return True if a model that is asked for a type may write this text."""
    constraint = GrammarConstraint(grammar_of(structure_of_type(kind)), TOY)
    try:
        for token in written(text):
            constraint.push(token)
    except InvalidOption:
        return False
    return constraint.is_complete


@table(
    ("kind", "text", "value"),
    [
        (
            Person,
            '{"name": "A", "age": 1, "friends": [{"name": "B", "age": 2, "colour": "blue"}]}',
            Person("A", 1, Colour.RED, [Person("B", 2, Colour.BLUE)]),
        ),
        (list[Person], '[{"name": "A", "age": 1}]', [Person("A", 1)]),
        (
            Price,
            '{"amount": "12.50", "picture": "YWI="}',
            Price(Decimal("12.50"), b"ab"),
        ),
        (Place, '{"name": "x", "area": 2}', {"name": "x", "area": 2}),
        (Colour, '"blue"', Colour.BLUE),
        (Literal["a", 1], '"a"', "a"),
        (int | None, "null", None),
        (set[int], "[1, 2]", {1, 2}),
        (tuple[int, str], '[1, "a"]', (1, "a")),
        (dict[str, int], '{"a": 1}', {"a": 1}),
        (Model, '{"number": 1}', Model(1)),
        (list[Model], '[{"number": 1}]', [Model(1)]),
        (Adapter(), '[{"number": 1}]', [Model(1)]),
        ({"type": "boolean"}, "true", True),
    ],
)
def test_a_type_and_the_way_back(kind: Any, text: str, value: Any) -> None:
    """The text may be written, and is read as a value of the type."""
    assert accepts(kind, text)
    assert value_of(kind, text) == value
    assert type(value_of(kind, text)) is type(value)


@table(
    ("kind", "text"),
    [
        (Person, '{"name": "A", "age": 151}'),
        (Person, '{"name": "A"}'),
        (Person, '{"name": "A", "age": 1, "more": 1}'),
        (Price, '{"amount": "much"}'),
        (Price, '{"amount": "1", "picture": "YWI"}'),
        (Place, '{"name": 1}'),
        (Colour, '"green"'),
        (Model, "{}"),
        (list[Model], "[{}]"),
    ],
)
def test_other_values_cannot_be_written(kind: Any, text: str) -> None:
    """Nor what is no value of the type."""
    assert not accepts(kind, text)


@table(
    ("kind", "text", "message"),
    [
        (Person, '{"name": "A", "ag', "the answer is not Person: "),
        (Person, '{"name": "A", "age": 151}', "<= 150"),
        (Model, "{}", "the answer is not Model: 1 validation error for Model number Field"),
        (list[Model], "[{}]", "validation error"),
        (Adapter(), "[", "the answer is not "),
        ({}, "{", "the answer is not JSON"),
        (int, "[" * 100_000, "the answer is not int"),
    ],
)
def test_an_answer_that_is_no_such_value(kind: Any, text: str, message: str) -> None:
    """One line names the type and the fault."""
    with pytest.raises(InvalidAnswer, match=message) as caught:
        value_of(kind, text)
    assert "\n" not in str(caught.value)


@table("kind", [object, complex, list[complex], "Person", 5])
def test_a_type_without_a_schema(kind: Any) -> None:
    """It is refused by name, with what to use instead."""
    with pytest.raises(InvalidOption, match=r"has no JSON Schema .*use a dataclass") as caught:
        structure_of_type(kind)
    assert "\n" not in str(caught.value)


def test_keys_are_written_in_the_order_of_the_type() -> None:
    """Also those of a TypedDict within another type."""
    schema = json.loads(structure_of_type(list[Place]).source)["$defs"]["Place"]
    assert list(schema["properties"]) == ["name", "height", "area"]
    assert schema["required"] == ["name", "area"]


def test_what_a_type_checks_itself_is_not_refused() -> None:
    """Such as that the items of a set are different; a dictionary is strict."""
    assert structure_of_type(set[int]).check == "relaxed"
    assert grammar_of(structure_of_type(set[int])).notices == ()
    assert value_of(set[int], "[1, 1]") == {1}
    assert structure_of_type({"type": "array"}).check == "strict"
