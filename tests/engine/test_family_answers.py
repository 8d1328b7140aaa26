"""What models utter in the forms of their families arrives in parts, with drafts and without.

Parrots utter it with the templates that come with llama.cpp; marks are control tokens or
user-defined ones, as in real vocabularies.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from family_parrots import parrot_of
from real_templates import needs_templates
from scripts.support.template_cases import (
    QUESTION,
    RECORD,
    Message,
    Text,
    families,
    ideal,
    tools,
)
from scripts.support.template_record import load
from specchat import Engine
from specchat.decoding.chunk import Chunk
from specchat.structured.structure import Structure

NAMES = {id(family): name for name, family in families().items()}
"""One template of each family, by the family's identity."""
RICHEST = ("reasoned", "calls", "reasoned call")
CASES = [
    pytest.param(name, text, id=f"{name}-{text.kind}")
    for name in NAMES.values()
    for texts in [[each for each in families()[name].texts if each.kind in RICHEST]]
    for text in sorted(texts, key=lambda each: RICHEST.index(each.kind))[-1:]
]
"""The text with the most parts of each family; tests/formats reads all texts of all templates."""


def message_of(chunks: Iterable[Chunk]) -> Message:
    """Return an answer in its parts."""
    message = Message()
    for chunk in chunks:
        message.reasoning += chunk.reasoning
        message.answer += chunk.text
        message.calls += [[each.name, json.loads(each.arguments)] for each in chunk.tool_calls]
    return message


def recorded(name: str, text: Text) -> Message:
    """Return what llama-server reads, or what the text means if it refuses it."""
    texts: list[Mapping[str, Any]] = load(RECORD)[name]["texts"]
    theirs = texts[families()[name].texts.index(text)]
    return (
        ideal(text.kind)
        if "refused" in theirs
        else Message(theirs["reasoning"], theirs["answer"], theirs.get("calls", []))
    )


@pytest.mark.slow(keep=1)
@needs_templates
@pytest.mark.parametrize(("name", "text"), CASES)
def test_an_answer_in_the_form_of_its_family_arrives_in_parts(
    tmp_path: Path, name: str, text: Text
) -> None:
    """Reasoning, answer and calls are apart, and the same with drafts as without."""
    path = parrot_of(name, text, tmp_path / "parrot.gguf")
    offered = tools() if text.has_tools else []
    options: dict[str, Any] = {"think": text.think, "tools": offered, "temperature": 0.0}

    with Engine.load(path, path, ctx=8192, threads=1, learn=False) as engine:
        options["enforces_tools"] = False  # a parrot cuts texts otherwise than its tokenizer
        plain = message_of(engine.chat(QUESTION, drafter="none", **options))
        drafted = message_of(engine.chat(QUESTION, drafter="model", **options))

    assert plain.trimmed() in [recorded(name, text).trimmed(), ideal(text.kind).trimmed()]
    assert plain == drafted


CHOICE = Structure("choices", '["yes, it is", "no"]', is_shown=False)
REASONED = [
    pytest.param(name, text, id=name)
    for name in NAMES.values()
    for text in families()[name].texts
    if text.kind == "reasoned"
]


@pytest.mark.slow(keep=6)
@needs_templates
@pytest.mark.parametrize(("name", "text"), REASONED)
def test_a_structure_begins_after_the_reasoning(tmp_path: Path, name: str, text: Text) -> None:
    """Whatever the model wants to answer, it reasons as it would, and then makes the choice."""
    path = parrot_of(name, text, tmp_path / "parrot.gguf")
    options: dict[str, Any] = {"think": text.think, "temperature": 0.0, "max_tokens": 400}
    texts = []
    with Engine.load(path, path, ctx=8192, threads=1, learn=False) as engine:
        free = message_of(engine.chat(QUESTION, drafter="none", **options))
        for drafter in ("none", "suffix", "model"):
            chunks = list(engine.chat(QUESTION, drafter=drafter, structure=CHOICE, **options))
            found = message_of(chunks)
            assert (engine.stats.is_valid, chunks[-1].finish) == (True, "stop")
            assert found.reasoning.strip() == free.reasoning.strip()
            assert found.answer.strip() in {"yes, it is", "no"}
            texts.append([token for chunk in chunks for token in chunk.tokens])
    assert texts == [texts[0]] * 3


@needs_templates
@pytest.mark.parametrize("name", ["Qwen-Qwen3-0.6B", "meta-llama-Llama-3.1-8B-Instruct"])
@pytest.mark.parametrize("kind", ["call", "reasoned call", "plain"])
def test_what_a_model_says_anyway_is_allowed_where_calls_are_enforced(
    tmp_path: Path, name: str, kind: str
) -> None:
    """Text, reasoning and calls are the same, and most of a call is forced."""
    texts = [each for each in families()[name].texts if each.kind == kind]
    if not texts:
        pytest.skip(f"{name} does not reason")
    (text, *_) = texts
    path = parrot_of(name, text, tmp_path / "parrot.gguf", is_whole=True)
    options: dict[str, Any] = {"think": text.think, "tools": tools(), "temperature": 0.0}

    with Engine.load(path, path, ctx=8192, threads=1, learn=False) as engine:
        plain = message_of(engine.chat(QUESTION, drafter="none", **options))
        forced = engine.stats.forced
        drafted = message_of(engine.chat(QUESTION, drafter="model", **options))

    assert plain.trimmed() == ideal(kind).trimmed()
    assert plain == drafted
    assert bool(forced) == ("call" in kind)


LOST = {
    "moonshotai-Kimi-K2", "LFM2.5-Instruct", "meetkai-functionary-medium-v3.2",
    "unsloth-Apriel-1.5",
}  # fmt: skip
"""Parrots that begin something without an end when what they say may not come."""


@pytest.mark.slow(keep=1)
@needs_templates
@pytest.mark.parametrize("name", [each for each in NAMES.values() if each not in LOST])
def test_json_that_looks_like_a_call_is_the_answer(tmp_path: Path, name: str) -> None:
    """Where no tools are offered, also for models that write calls as bare JSON."""
    texts = [each for each in families()[name].texts if not each.has_tools]
    text = next((each for each in texts if each.kind == "reasoned"), texts[0])
    path = parrot_of(name, text, tmp_path / "parrot.gguf")
    wanted = {"name": "f", "arguments": {}, "parameters": {}}
    fields = {key: {"const": value} for key, value in wanted.items()}
    schema = {"type": "object", "properties": fields, "required": list(fields)}
    structure = Structure("json_schema", json.dumps(schema), is_shown=False)
    options: dict[str, Any] = {"temperature": 0.0, "max_tokens": 400, "think": text.think}
    with Engine.load(path, ctx=8192, threads=1, learn=False) as engine:
        found = message_of(engine.chat(QUESTION, structure=structure, **options))
        assert engine.stats.is_valid
    assert json.loads(found.answer) == wanted
    assert found.calls == []
