"""Structured answers of a real llama.cpp: valid, and the same with every drafter."""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import jsonschema_rs
import msgspec
import pytest

from conftest import WriteModel
from engine.test_heads import LAYERS, WriteHead, heads, opened  # noqa: F401  # a fixture
from engine.test_lossless import EXACT
from real_templates import needs_templates, template_of
from scripts.support.tiny_gguf import Words, write_parrot
from specchat import Engine
from specchat.engine.api import Engine as AnyEngine
from specchat.engine.api import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.errors import InvalidAnswer, InvalidOption
from specchat.structured.schema_validation import AnswerCheck
from specchat.structured.structure import Structure
from tables import table

PET = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 99},
        "colour": {"enum": ["red", "green", "blue"]},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 6}, "maxItems": 3},
    },
    "required": ["name", "age", "colour", "tags"],
}
STRUCTURE = Structure("json_schema", json.dumps(PET))
PROMPT = "A pet:"
OVER = "<|over|>"
WAYS = {
    "greedy": {"temperature": 0.0},
    "seeded": {"temperature": 1.0, "seed": 7},
    "penalised": {"temperature": 0.8, "seed": 3, "repeat_penalty": 1.3},
}


def text_of(engine: AnyEngine, **options: Any) -> str:
    """Return the text of an answer, whose tokens are counted once each."""
    options.setdefault("structure", STRUCTURE)
    options.setdefault("max_tokens", 300)
    chunks = list(engine.generate(PROMPT, **options))
    stats = engine.stats
    assert stats.generated_tokens == sum(len(chunk.tokens) for chunk in chunks)
    # the last step has no token of the target's own if the answer ends within its accepted ones
    assert stats.accepted + stats.steps + stats.forced - stats.generated_tokens in {0, 1}
    return "".join(chunk.text for chunk in chunks)


@pytest.mark.slow(keep=3)
@pytest.mark.parametrize("architecture", ["llama", "mamba", "qwen35", "gemma3"])
@pytest.mark.parametrize("options", WAYS.values(), ids=WAYS)
def test_texts_are_valid_and_the_same_with_every_drafter(
    shallow: WriteModel, architecture: str, options: dict[str, Any]
) -> None:
    """With forced runs, for every way to roll back."""
    loaded = shallow(architecture), shallow(architecture, "half right")
    with Engine.load(*loaded, **EXACT) as engine:
        plain = text_of(engine, drafter="none", **options)
        assert (engine.stats.is_valid, engine.stats.drafted) == (True, 0)
        assert engine.stats.forced > 8
        jsonschema_rs.validate(PET, json.loads(plain))
        for drafter in ("suffix", "model", "auto"):
            for length in (1, 5):
                assert text_of(engine, drafter=drafter, draft_length=length, **options) == plain


@table("kind", ["qwen35", "glm4moe", "qwen3 with EAGLE-3"])
def test_heads_draft_within_a_structure(heads: WriteHead, kind: str) -> None:  # noqa: F811
    """Where forced tokens follow, they wait until the target has read these."""
    with opened(heads(kind, noise=0.01, num_layers=LAYERS[kind]), ctx=512) as engine:
        plain = text_of(engine, drafter="none", temperature=0.0)
        found = text_of(engine, drafter="head", draft_length=3, temperature=0.0)
        assert engine.stats.accepted > 0
        assert found == plain


def test_exact_answers_read_forced_runs_in_exact_passes(
    shallow: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not one of llama.cpp's passes has more tokens than are known to be exact."""
    loaded = shallow("llama"), shallow("llama", "half right")
    with LocalEngine(Loading(*loaded, ctx=512, exact="on")) as engine:
        engine.prepare()
        longest = engine.facts.longest_draft + 1
        seen: list[int] = []
        run = engine.context._pass

        def passes(tokens: Any, num_rows: int) -> None:
            seen.append(len(tokens))
            run(tokens, num_rows)

        monkeypatch.setattr(engine.context, "_pass", passes)
        plain = text_of(engine, drafter="none", temperature=0.0)
        seen.clear()
        assert text_of(engine, drafter="model", draft_length=8, temperature=0.0) == plain
        assert max(seen) <= longest


def test_an_interrupted_answer_goes_on(shallow: WriteModel) -> None:
    """Stopped between steps, with forced tokens that the memory does not hold yet."""
    with Engine.load(shallow("llama"), shallow("llama", "half right"), **EXACT) as engine:
        options: dict[str, Any] = {
            "structure": STRUCTURE, "temperature": 0.9, "seed": 5, "draft_length": 4
        }  # fmt: skip
        whole = text_of(engine, **options)
        begun: list[Any] = []
        while not begun or begun[-1].finish != "stop":
            chunks: list[Any] = []
            for chunk in engine.generate(PROMPT, begun=begun, **options):
                chunks.append(chunk)
                if len(chunks) == len(begun) + 3:
                    engine.stop()
            begun = [chunk for chunk in chunks if chunk.tokens]
            engine.forget()
        assert "".join(chunk.text for chunk in begun) == whole


@table(
    ("structure", "options", "reason"),
    [
        (Structure("json_schema", '{"type": "nonsense"}'), {}, "nonsense"),
        (Structure("json_schema", "not JSON"), {}, "valid JSON"),
        (Structure("regex", "("), {}, "regular expression"),
        (STRUCTURE, {"ignore_end": True}, "ignore_end"),
    ],
    ids=str,
)
def test_what_cannot_be_enforced_is_refused(
    shallow: WriteModel, structure: Structure, options: dict[str, Any], reason: str
) -> None:
    """Before anything is decoded; the next answer works."""
    with Engine.load(shallow("llama"), ctx=256) as engine:
        with pytest.raises(InvalidOption, match=reason):
            list(engine.generate(PROMPT, structure=structure, **options))
        choice = Structure("choices", '["yes", "no"]')
        assert text_of(engine, structure=choice, temperature=0.0) in {"yes", "no"}


def test_a_cut_answer_is_not_valid(shallow: WriteModel) -> None:
    """It ends as any other that is cut, with the text so far."""
    with Engine.load(shallow("llama"), ctx=256) as engine:
        text = text_of(engine, max_tokens=5, temperature=0.0)
        assert engine.stats.is_valid is False
        assert text == '{"nam'


@pytest.mark.slow
def test_an_engine_of_its_own_process_answers_within_a_structure(shallow: WriteModel) -> None:
    """The structure goes there, and what was forced comes back."""
    with Engine.load(shallow("llama"), shallow("llama", "half right"), process=True) as engine:
        jsonschema_rs.validate(PET, json.loads(text_of(engine, temperature=0.0)))
        assert engine.stats.is_valid is True
        with pytest.raises(InvalidOption, match="nonsense"):
            text_of(engine, structure=Structure("json_schema", '{"type": "nonsense"}'))


DIFFERENT = {
    "type": "array", "items": {"const": "a"}, "minItems": 2, "maxItems": 2, "uniqueItems": True
}  # fmt: skip
"""What no two items of an answer can be."""


@pytest.mark.parametrize("process", [False, True])
def test_a_relaxed_answer_is_checked_as_a_whole(shallow: WriteModel, *, process: bool) -> None:
    """Also one that is continued, but not one that was cut off."""
    structure = Structure("json_schema", json.dumps(DIFFERENT), "relaxed")
    reason = 'the answer does not fit the JSON Schema: it breaks "uniqueItems" (["a","a"] has'
    with Engine.load(shallow("llama"), process=process, ctx=256) as engine:
        options: dict[str, Any] = {"structure": structure, "temperature": 0.0}
        chunks = list(engine.generate(PROMPT, **options))
        assert "".join(chunk.text for chunk in chunks) == '["a", "a"]'
        for begun in ([], [chunk._replace(finish=None) for chunk in chunks[:-1]]):
            again = list(engine.generate(PROMPT, begun=begun, **options))
            assert again[-1].finish == "stop"
            assert engine.stats.is_valid is False
            assert engine.stats.invalid_reason.startswith(reason)
            assert engine.stats.notices[-1] == engine.stats.invalid_reason
        list(engine.generate(PROMPT, max_tokens=2, **options))
        assert (engine.stats.is_valid, engine.stats.invalid_reason) == (False, "")


def test_a_strict_answer_is_not_checked_again(
    shallow: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor one whose schema is enforced as a whole."""
    monkeypatch.setattr(AnswerCheck, "__init__", None)
    with LocalEngine(Loading(shallow("llama"), ctx=256)) as engine:
        for check in ("strict", "relaxed"):
            text_of(engine, structure=replace(STRUCTURE, check=check), temperature=0.0)
            assert engine.stats.is_valid is True
        with pytest.raises(TypeError):
            text_of(engine, structure=Structure("json_schema", json.dumps(DIFFERENT), "relaxed"))


class Unfit(list[str]):
    """What pydantic's models offer, with a schema that no value fits."""

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        """Return the schema."""
        return {"type": "boolean", "not": {"type": "boolean"}}

    @classmethod
    def model_validate_json(cls, text: str) -> Unfit:
        """Return any text."""
        return cls([text])


def test_an_answer_that_breaks_the_schema_is_no_value(shallow: WriteModel) -> None:
    """Even if the type itself would take it."""
    ask: list[Any] = [{"role": "user", "content": "A pet, please."}]
    with (
        Engine.load(shallow("llama"), ctx=256) as engine,
        pytest.raises(InvalidAnswer, match='it breaks "not"'),
    ):
        engine.answer_as(Unfit, ask, seed=1)


class Colour(enum.Enum):
    """A choice."""

    RED = "red"
    BLUE = "blue"


@dataclass
class Pet:
    """What a program wants."""

    name: Annotated[str, msgspec.Meta(max_length=8)]
    colour: Colour
    age: Annotated[int, msgspec.Meta(ge=0, le=20)]


def test_an_answer_is_a_value_of_a_type(shallow: WriteModel) -> None:
    """Whatever the model, which has no chat template; cut off, it is an error of its own."""
    ask: list[Any] = [{"role": "user", "content": "A pet, please."}]
    with Engine.load(shallow("llama"), ctx=2048) as engine:
        pet = engine.answer_as(Pet, ask, seed=1)
        assert isinstance(pet, Pet)
        assert isinstance(pet.colour, Colour)
        assert 0 <= pet.age <= 20
        assert engine.answer_as(list[Colour], ask, seed=1, max_tokens=200) is not None
        with pytest.raises(InvalidAnswer):
            engine.answer_as(Pet, ask, max_tokens=3)


@needs_templates
@pytest.mark.parametrize(
    ("pieces", "expression", "text", "finish"),
    [
        (["12", OVER], "[0-9]+", "12", "stop"),
        (["<think>", "\n", "7", "</think>", "\n\n", "12", OVER], "[0-9]+", "712", "stop"),
        (["<think>", "\n", "7", OVER], "[0-9]+", None, "length"),
        (["1", OVER], "[0-9]{2}", None, "stop"),
    ],
    ids=["where it may end", "after reasoning", "in reasoning", "where it may not end"],
)
def test_a_token_that_only_the_template_ends_answers_with_ends_them_where_it_may(
    tmp_path: Path, pieces: list[str], expression: str, text: str | None, finish: str
) -> None:
    """As do those that the vocabulary names: it is not written elsewhere, nor held back."""
    template = template_of("Qwen-Qwen3-0.6B").replace("<|im_end|>", OVER)
    control = ("<s>", "<eos>", OVER, "<think>", "</think>")
    words = Words(control=control, template=template, eos="<eos>", bos="<s>")
    path = write_parrot(tmp_path / "model.gguf", pieces, words)
    structure = Structure("regex", expression, is_shown=False)
    with LocalEngine(Loading(path, ctx=512, threads=1, learn=False)) as engine:
        over = engine.prompts.tokenize(OVER, special=True, begins=False)
        assert len(over) == 1
        assert over[0] not in engine.model.vocabulary.end_tokens
        for drafter in ("none", "suffix"):
            chunks = list(
                engine.chat(
                    [{"role": "user", "content": "Hi"}],
                    structure=structure, think="auto", temperature=0.0, max_tokens=20,
                    drafter=drafter,
                )
            )  # fmt: skip
            said = "".join(chunk.reasoning + chunk.text for chunk in chunks)
            assert (chunks[-1].finish, engine.stats.is_valid) == (finish, finish == "stop")
            assert text is None or "".join(said.split()) == text
            ended = [over[0] in chunk.tokens for chunk in chunks]
            assert not any(ended[:-1] if finish == "stop" else ended)
