"""Calls of tools are valid whatever a model would write: here, one with random weights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from real_templates import needs_templates, template_of
from scripts.support.template_cases import BOS, QUESTION, families
from scripts.support.tiny_gguf import Words, write_parrot
from specchat import Engine
from specchat.constraints.answer_constraint import CALLS_INSTEAD, AnswerConstraints
from specchat.constraints.answer_start import AnswerStart
from specchat.constraints.tool_grammars import UNBOUNDED
from specchat.decoding.chunk import ToolCall
from specchat.engine.local_engine import LocalEngine
from specchat.errors import InvalidOption
from specchat.formats.chat_format import CALLS_GENERIC
from specchat.prompts.chat_text import chat_format
from specchat.requests.answer_request import ChatRequest
from specchat.structured.structure import Structure
from tables import table

PLAN = {
    "type": "object",
    "properties": {
        "goal": {"enum": ["see it", "eat"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
        "back": {"type": "boolean"},
        "note": {"type": "string", "pattern": "^[a-z ]+$", "minLength": 3, "maxLength": 12},
    },
    "required": ["goal", "days", "note"],
}
LOOK = {"type": "object", "properties": {"place": {"enum": ["Bern"]}}, "required": ["place"]}
FORMATS = {
    "Qwen-Qwen3-0.6B": "<|im_end|>",
    "Qwen3-Coder": "<|im_end|>",
    "meta-llama-Llama-3.1-8B-Instruct": "<|eot_id|>",
    "google-gemma-4-31B-it": "<turn|>",
    "openai-gpt-oss-120b": "<|return|>",
    "LFM2.5-8B-A1B": "<|im_end|>",
}


def tool(name: str, schema: Any, **more: Any) -> dict[str, Any]:
    """Return a tool as OpenAI has it."""
    return {"type": "function", "function": {"name": name, "parameters": schema, **more}}


TOOLS = [tool("plan", PLAN), tool("look", LOOK)]


@pytest.fixture(scope="module", params=FORMATS)
def babbler(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    """Return a model with a real template that says nothing sensible by itself."""
    name = request.param
    eos = families()[name].eos
    words = Words(control=(BOS, eos), template=template_of(name), eos=eos, bos=BOS)
    path = write_parrot(tmp_path_factory.mktemp("babbler") / "model.gguf", ["!", eos], words)
    with Engine.load(path, ctx=4096, threads=1, learn=False) as engine:
        yield engine


def calls_of(engine: Engine, **options: Any) -> list[ToolCall]:
    """Return the calls of an answer."""
    given: dict[str, Any] = {"tools": TOOLS, "tool_choice": "required", "seed": 3} | options
    chunks = list(engine.chat(QUESTION, max_tokens=2000, think="auto", **given))
    assert chunks[-1].finish == "stop"
    assert "".join(chunk.text for chunk in chunks).strip() == ""
    return [call for chunk in chunks for call in chunk.tool_calls]


@pytest.mark.slow(keep=1)
@needs_templates
def test_a_required_call_is_one_of_a_tool(babbler: Engine) -> None:
    """Its arguments follow the tool's schema, in every form of calls, for any seed."""
    schemas = {"plan": PLAN, "look": LOOK}
    for seed in range(4):
        calls = calls_of(babbler, seed=seed, parallel_tool_calls=False)
        assert len(calls) == 1
        jsonschema_rs.validate(schemas[calls[0].name], json.loads(calls[0].arguments))


@pytest.mark.slow
@needs_templates
def test_bounds_that_are_too_complex_are_left_out(tmp_path: Path) -> None:
    """Where texts are not in JSON: all else is enforced, and a notice says so."""
    texts = {f"t{n}": {"type": "string", "minLength": 60, "maxLength": 200 + n} for n in range(50)}
    schema = {"type": "object", "properties": texts}
    eos = "<|im_end|>"
    words = Words(control=(BOS, eos), template=template_of("Qwen3-Coder"), eos=eos, bos=BOS)
    path = write_parrot(tmp_path / "model.gguf", ["!", eos], words)
    with Engine.load(path, ctx=16384, threads=1, learn=False) as engine:
        asked: dict[str, Any] = {"tool_choice": "required", "max_tokens": 9}
        chunks = list(engine.chat(QUESTION, tools=[tool("fill", schema)], **asked))
        assert engine.stats.notices == (f"tools: {UNBOUNDED}",)
        assert engine.stats.forced + len(chunks) > 1
        with pytest.raises(InvalidOption, match="cannot be enforced"):
            list(engine.chat(QUESTION, tools=[tool("fill", schema, strict=True)], **asked))


@needs_templates
def test_only_a_named_tool_is_called(babbler: Engine) -> None:
    """The others are offered all the same."""
    (call,) = calls_of(babbler, tool_names=["look"], parallel_tool_calls=False)

    assert (call.name, json.loads(call.arguments)) == ("look", {"place": "Bern"})
    assert babbler.stats.forced > 5


@needs_templates
def test_a_bad_schema_of_one_tool_does_not_fail_the_others(babbler: Engine) -> None:
    """Its arguments may be any, which the answer says; to be strict is an error."""
    bad = {"type": "object", "properties": {"x": {"type": "colour"}}, "required": ["x"]}
    tools = [tool("paint", bad), *TOOLS]

    (call,) = calls_of(babbler, tools=tools, tool_names=["look"], parallel_tool_calls=False)
    assert json.loads(call.arguments) == {"place": "Bern"}
    calls_of(babbler, tools=[*TOOLS, tool("paint", LOOK)], tool_names=["paint"])
    list(babbler.chat(QUESTION, tools=tools, max_tokens=1))
    assert all(each.startswith("tool paint: ") for each in babbler.stats.notices)
    assert babbler.stats.notices
    list(babbler.chat(QUESTION, tools=tools, tool_choice="required", max_tokens=1))

    with pytest.raises(InvalidOption, match=r"paint.*colour"):
        calls_of(babbler, tools=[tool("paint", bad, strict=True)])


STOP = {"type": "object", "properties": {"days": {"enum": [1, 2]}}, "required": ["days"]}
REFERRING = {
    "type": "object",
    "properties": {
        "stop": STOP,
        "stops": {
            "type": "array",
            "items": {"$ref": "#/properties/stop"},
            "minItems": 1,
            "maxItems": 2,
        },
    },
    "required": ["stops"],
}
TREE = {
    "type": "object",
    "properties": {"size": {"enum": [7]}, "parts": {"type": "array", "items": {"$ref": "#"},
                   "maxItems": 1}},
    "required": ["size"],
}  # fmt: skip


@pytest.mark.slow(keep=1)
@needs_templates
@pytest.mark.parametrize("schema", [REFERRING, TREE], ids=["a property", "the whole"])
def test_references_within_a_tools_schema_hold(babbler: Engine, schema: dict[str, Any]) -> None:
    """Also where a format writes arguments one by one, and parts of the schema apply to each."""
    tools = [tool("go", schema), *TOOLS]
    asked: dict[str, Any] = {"tools": tools, "tool_names": ["go"], "parallel_tool_calls": False}
    list(babbler.chat(QUESTION, tool_choice="required", max_tokens=1, **asked))
    if schema is TREE and babbler.stats.notices:  # objects nested in the format's own form
        assert [each[:9] for each in babbler.stats.notices] == ["tool go: "]
        return
    assert babbler.stats.notices == ()
    for seed in range(3):
        (call,) = calls_of(babbler, seed=seed, **asked)
        jsonschema_rs.validate(schema, json.loads(call.arguments))


@needs_templates
def test_a_schema_that_only_some_formats_enforce_does_not_fail_the_others(babbler: Engine) -> None:
    """A reference to the schema's own address holds in no part of it."""
    address = "https://example.org/steps"
    steps = {"type": "array", "items": {"$ref": f"{address}#/properties/step"}, "maxItems": 1}
    schema = {"$id": address, "type": "object", "properties": {"step": STOP, "steps": steps},
              "required": ["steps"]}  # fmt: skip
    tools = [tool("walk", schema), *TOOLS]

    (call,) = calls_of(babbler, tools=tools, parallel_tool_calls=False, tool_names=["look"])
    assert json.loads(call.arguments) == {"place": "Bern"}
    (call,) = calls_of(babbler, tools=tools, parallel_tool_calls=False, tool_names=["look", "walk"])
    told = [each for each in babbler.stats.notices if "cannot be enforced" in each]
    assert all(each.startswith("tool walk: its schema cannot") for each in told)
    assert not any("|" in each or "Lark" in each for each in told)
    with pytest.raises(InvalidOption, match="tool walk") if told else nullcontext():
        tools = [tool("walk", schema, strict=True)]
        list(babbler.chat(QUESTION, tools=tools, tool_choice="required", max_tokens=1))


@needs_templates
def test_many_described_tools_are_enforced(babbler: Engine) -> None:
    """What describes them to the model is no part of the grammar."""
    texts = {
        name: {"enum": ["x", "y"], "description": "What it is for. " * 30}
        for name in ("title", "description", "default")
    }
    schema = {"type": "object", "properties": texts, "required": ["title", "default"]}
    offered = [tool(f"tool{index}", schema) for index in range(120)]
    request = ChatRequest(QUESTION, tools=offered, tool_choice="required")
    assert isinstance(babbler, LocalEngine)
    start = AnswerStart(chat_format(babbler.model))

    rules = AnswerConstraints(babbler.model.vocabulary).rules(request, start, ())

    assert (rules.constraint is not None, rules.notices) == (True, ())


@needs_templates
@table("structure", [None, Structure("choices", '["yes", "no"]')])
def test_a_brace_begins_a_call_only_where_an_answer_begins(
    babbler: Engine, structure: Structure | None
) -> None:
    """An answer that goes on may continue with one; other marks begin calls there too."""
    assert isinstance(babbler, LocalEngine)
    constraints = AnswerConstraints(babbler.model.vocabulary)
    request = ChatRequest(QUESTION, tools=TOOLS, structure=structure)
    form = chat_format(babbler.model)
    assert form.calls is not None
    is_brace = form.calls.begin == "{"
    assert constraints.rules(request, AnswerStart(form), ()).constraint is not None

    constraint = constraints.rules(request, AnswerStart(form, "answer"), ()).constraint

    if structure is None:
        assert (constraint is None) == is_brace
    else:
        assert constraint is not None
        (brace,) = babbler.prompts.tokenize("{", special=True, begins=False) if is_brace else [0]
        mask = constraint.mask()
        assert mask is not None
        assert not is_brace or not mask.allows(brace)


@needs_templates
def test_a_required_call_says_that_it_takes_the_place_of_a_structure(babbler: Engine) -> None:
    """Both cannot be had in one answer."""
    structure = Structure("choices", '["yes", "no"]')
    asked: dict[str, Any] = {"tools": TOOLS, "tool_choice": "required", "max_tokens": 1}
    list(babbler.chat(QUESTION, structure=structure, **asked))
    assert babbler.stats.notices == (CALLS_INSTEAD,)
    list(babbler.chat(QUESTION, **asked))
    assert not babbler.stats.notices


@needs_templates
def test_a_tool_that_is_not_there_cannot_be_required(babbler: Engine) -> None:
    """Nor can one be if there are none."""
    with pytest.raises(InvalidOption, match=r"tool_choice.*absent"):
        calls_of(babbler, tool_names=["absent"])
    with pytest.raises(InvalidOption, match="no tools"):
        calls_of(babbler, tools=[])


def test_a_model_whose_template_has_no_tools_calls_in_the_generic_form(tmp_path: Path) -> None:
    """Once in an answer; most of the call is forced, and a notice says so."""
    path = write_parrot(tmp_path / "model.gguf", ["Hi", "<|im_end|>"], context_length=4096)
    with Engine.load(path, ctx=4096, threads=1, learn=False) as engine:
        for seed in range(3):
            (call,) = calls_of(engine, seed=seed)
            schema = {"plan": PLAN, "look": LOOK}[call.name]
            jsonschema_rs.validate(schema, json.loads(call.arguments))
            assert engine.stats.notices == (CALLS_GENERIC,)
        (call,) = calls_of(engine, tool_names=["look"])
        assert (call.name, json.loads(call.arguments)) == ("look", {"place": "Bern"})
        assert engine.stats.forced > 5
        assert next(engine.chat(QUESTION, tools=TOOLS, max_tokens=5)).text == "Hi"
