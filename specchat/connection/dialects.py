"""How OpenAI-compatible servers differ: the fields they take and the figures they report.

Each is one record. An unknown server gets only fields of OpenAI's own API, since some servers
refuse others.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from specchat.errors import InvalidOption
from specchat.options.declarations import AUTO_THINK
from specchat.structured.structure import NAMES, Structure, StructureKind

Fields: TypeAlias = Mapping[str, Any]
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
NONE: Fields = MappingProxyType({})
Counting: TypeAlias = Literal["", "llama.cpp", "vllm"]
"""Which server's form of `/tokenize` a server has, "" for none."""

LEVELS = ("low", "medium", "high")
CONTINUES: Fields = MappingProxyType(
    {"continue_final_message": True, "add_generation_prompt": False}
)


@dataclass(frozen=True, slots=True)
class Counters:
    """The names of a server's counters for Prometheus; "" for those it does not have."""

    generated: str
    drafts: str
    drafted: str
    accepted: str
    accepted_by_position: str = ""


def _by_template(word: str) -> Fields:
    """Return the switch of chat templates, and the level for those that have levels."""
    if word in {"on", "off"}:
        return {"chat_template_kwargs": {"enable_thinking": word == "on"}}
    return {"reasoning_effort": word, "chat_template_kwargs": {"reasoning_effort": word}}


def _by_effort(word: str) -> Fields:
    """Return OpenAI's field."""
    return {"reasoning_effort": {"off": "none", "on": "medium"}.get(word, word)}


def _schema_format(schema: str) -> Fields:
    named = {"name": "answer", "schema": json.loads(schema), "strict": True}
    return {"response_format": {"type": "json_schema", "json_schema": named}}


def _in_gbnf(text: str) -> str:
    """Return a text as a literal of GBNF, which has fewer escapes than JSON."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return '"' + CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", escaped) + '"'


def _llama_structure(kind: StructureKind, source: str) -> Fields:
    if kind == "json_schema":
        return _schema_format(source)
    if kind == "choices":
        choices = " | ".join(_in_gbnf(choice) for choice in json.loads(source))
        return {"grammar": f"root ::= {choices}"}
    return {"grammar": source} if kind == "gbnf" else NONE


def _vllm_structure(kind: StructureKind, source: str) -> Fields:
    if kind == "json_schema":
        return _schema_format(source)
    name, value = _named(kind, source)
    return {"structured_outputs": {name: value}, f"guided_{name}": value}  # the latter until 0.11


def _specchat_structure(kind: StructureKind, source: str) -> Fields:
    if kind == "json_schema":
        return _schema_format(source)
    name, value = _named(kind, source)
    return {"structured_outputs": {name: value}}


def _named(kind: StructureKind, source: str) -> tuple[str, Any]:
    """Return vLLM's name for a kind of structure, and its value."""
    names = {"regex": "regex", "choices": "choice", "lark": "grammar", "gbnf": "grammar"}
    return names[kind], json.loads(source) if kind == "choices" else source


def _sglang_structure(kind: StructureKind, source: str) -> Fields:
    if kind == "json_schema":
        return _schema_format(source)
    if kind == "choices":
        return {"regex": "|".join(f"({re.escape(choice)})" for choice in json.loads(source))}
    return {"regex": source} if kind == "regex" else NONE


def _openai_structure(kind: StructureKind, source: str) -> Fields:
    return _schema_format(source) if kind == "json_schema" else NONE


@dataclass(frozen=True, slots=True)
class Dialect:
    """How to talk to one kind of server, which is called `label`.

    `sampling` maps specchat's options to the fields that the server takes beside OpenAI's own.
    `off` has the values that switch one of them off, where that is not 0. `live` are fields with
    which the stream has figures while the answer is written. `continuation` are the fields with
    which the last message, the assistant's, is continued; None if there is no way. `thinking` and
    `structure` return fields for a value of `think` and for a structure; none if it cannot be asked
    for; `showing` is the field that says whether the prompt describes the structure to the model.
    `counting` names the form of its `/tokenize`. If it `takes_drafter`, a request may choose
    the drafter, and if it `ignores_end`, whether an answer continues past its end token. If it
    `repeats_begun`, a continued answer may begin with what it had. If it `reports_gain`, the end of
    an answer has the gain of its drafts.
    """

    label: str
    sampling: Mapping[str, str] = field(default_factory=dict)
    off: Fields = field(default_factory=dict)
    live: Fields = field(default_factory=dict)
    continuation: Fields | None = None
    thinking: Callable[[str], Fields] = _by_effort
    structure: Callable[[StructureKind, str], Fields] = _openai_structure
    showing: str = ""
    counting: Counting = ""
    counters: Counters | None = None
    takes_drafter: bool = False
    ignores_end: bool = False
    repeats_begun: bool = False
    reports_gain: bool = False

    def thinking_fields(self, word: str) -> Fields:
        """Return the fields for a value of `think`."""
        return NONE if word == AUTO_THINK else self.thinking(word.lower())

    def structure_fields(self, structure: Structure | None) -> Fields:
        """Return the fields for what an answer must look like. Raises InvalidOption."""
        if structure is None:
            return NONE
        fields = self.structure(structure.kind, structure.source)
        if not fields:
            name = NAMES[structure.kind].removeprefix("the ")
            raise InvalidOption(f"{self.label} cannot follow a {name}: use a JSON Schema")
        return {**fields, self.showing: structure.is_shown} if self.showing else fields


_SAME = ("top_k", "min_p", "repeat_penalty", "repeat_last_n")
_DRAFTING = ("drafter", "draft_length", "draft_tree")
_BY_TRANSFORMERS = {"top_k": "top_k", "min_p": "min_p", "repeat_penalty": "repetition_penalty"}
_USAGE = {"stream_options": {"include_usage": True}}
_LIVE_USAGE = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
_LIVE_TIMINGS = {**_USAGE, "timings_per_token": True}

OTHER = Dialect("OpenAI-compatible server", live=_USAGE)
SPECCHAT = Dialect(
    "specchat",
    sampling={name: name for name in (*_SAME, *_DRAFTING, "make_room")},
    live=_LIVE_TIMINGS,
    continuation=NONE,
    structure=_specchat_structure,
    showing="show_schema",
    counting="llama.cpp",
    takes_drafter=True,
    ignores_end=True,
    reports_gain=True,
)
LLAMA_SERVER = Dialect(
    "llama-server",
    sampling={name: name for name in _SAME},
    live=_LIVE_TIMINGS,
    continuation=CONTINUES,
    thinking=_by_template,
    structure=_llama_structure,
    counting="llama.cpp",
    ignores_end=True,
    repeats_begun=True,
)
VLLM = Dialect(
    "vLLM",
    sampling=_BY_TRANSFORMERS,
    live=_LIVE_USAGE,
    continuation=CONTINUES,
    thinking=_by_template,
    structure=_vllm_structure,
    counting="vllm",
    counters=Counters(
        generated="vllm:generation_tokens_total",
        drafts="vllm:spec_decode_num_drafts_total",
        drafted="vllm:spec_decode_num_draft_tokens_total",
        accepted="vllm:spec_decode_num_accepted_tokens_total",
        accepted_by_position="vllm:spec_decode_num_accepted_tokens_per_pos_total",
    ),
    ignores_end=True,
)
SGLANG = Dialect(
    "SGLang",
    sampling=_BY_TRANSFORMERS,
    off=MappingProxyType({"top_k": -1}),
    live={**_USAGE, "return_spec_tokens_details": True},
    continuation=CONTINUES,
    thinking=_by_template,
    structure=_sglang_structure,
    ignores_end=True,
)
LM_STUDIO = Dialect(
    "LM Studio",
    sampling={"top_k": "top_k", "min_p": "min_p", "repeat_penalty": "repeat_penalty"},
    live=_USAGE,
    continuation=NONE,
    repeats_begun=True,
)
OLLAMA = Dialect("Ollama", live=_USAGE, continuation=NONE)
