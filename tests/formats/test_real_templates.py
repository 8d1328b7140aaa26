"""The chat templates that come with llama.cpp, read as llama-server of the same llama.cpp does.

`scripts/check/check_templates.py` recorded what llama-server makes of them. The templates are those
that the set-up keeps; none is in the repository.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

from real_templates import FOLDER, needs_templates, template_of
from scripts.setup_env.templates import PATTERN
from scripts.support import template_check
from scripts.support.template_cases import (
    AUTO,
    BOS,
    QUESTION,
    RECORD,
    Family,
    Message,
    Text,
    digest,
    families,
    ideal,
    packed,
    tools,
    unpacked,
)
from scripts.support.template_check import check
from scripts.support.template_record import check_one, load, unexplained
from scripts.support.tiny_gguf import CHAT_TEMPLATE
from specchat.formats.answer_reader import AnswerReader
from specchat.formats.chat_message import ChatMessage
from specchat.formats.families import format_of
from tables import table


@pytest.fixture(scope="module")
def record() -> Mapping[str, Any]:
    """Return what llama-server made of each template."""
    return load(RECORD)


@pytest.mark.slow(keep=11)
@needs_templates
@pytest.mark.parametrize("name", families())
def test_a_template_is_read_as_llama_server_reads_it(name: str, record: Mapping[str, Any]) -> None:
    """Prompts at each level of thinking, answers, whole and cut, and calls are equal or better."""
    assert unexplained(check_one(name, template_of(name), record.get(name))) == []


@needs_templates
def test_every_template_is_checked(record: Mapping[str, Any]) -> None:
    """There are texts and a record for each one that comes with llama.cpp."""
    assert FOLDER is not None
    names = {path.stem for path in FOLDER.glob(PATTERN)}

    assert names == set(families()) == set(record)


AGENTS: tuple[tuple[ChatMessage, ...], ...] = (
    (
        {"role": "developer", "content": "Work carefully."},
        {"role": "developer", "content": "Only read files."},
        {"role": "user", "content": "This is the folder."},
        {"role": "user", "content": "Find the bug."},
    ),
    (
        {"role": "system", "content": "Work carefully."},
        {"role": "user", "content": "Find the bug."},
        {"role": "system", "content": "Only read files."},
        {"role": "assistant", "content": "It is in line 7."},
        {"role": "user", "content": "Mend it."},
    ),
)
"""Conversations as Codex and Claude Code send them."""


@pytest.mark.slow(keep=14)
@needs_templates
@pytest.mark.parametrize("name", families())
def test_no_message_of_a_coding_agent_is_lost(name: str) -> None:
    """Every template writes several system prompts, also those after a question."""
    form = format_of(template_of(name), BOS, families()[name].eos)
    for messages in AGENTS:
        text = form.prompt(messages, think=AUTO).text
        assert [each["content"] for each in messages if each["content"] not in text] == []


ANSWER = "Yes, \u00e9 too."
FAMILY = Family("<|im_end|>", (Text("plain", AUTO, ANSWER),))


def recorded_prompts(family: Family = FAMILY) -> dict[str, dict[str, Any]]:
    """Return a record of what specchat makes of the prompts with CHAT_TEMPLATE."""
    form = format_of(CHAT_TEMPLATE, BOS, family.eos)
    texts = {
        case: form.prompt(asked.messages, think=AUTO, tools=tools() if asked.has_tools else []).text
        for case, asked in family.prompts.items()
    }
    return {case: {"sha256": digest(text)} for case, text in texts.items()}


GROWN = {"reasoning": "", "answer": ANSWER, "steps": f"{len(ANSWER)}a"}


@table(
    ("what", "prompts", "text"),
    [
        ("nothing", {}, {}),
        ("prompt", {AUTO: {"sha256": ""}}, {}),
        ("prompt", {AUTO: {"sha256": "", "text": "Hm."}}, {}),
        ("history", {"earlier reasoning": {"sha256": ""}}, {}),
        ("plain", {}, {"reasoning": "Hm."}),
        ("cut", {}, {"steps": f"2. {len(ANSWER) - 2}a"}),
    ],
)
def test_the_check_names_what_differs_from_the_record(
    what: str, prompts: Mapping[str, Any], text: Mapping[str, Any]
) -> None:
    """A record of something else than specchat does is found out."""
    recorded = {"prompts": {**recorded_prompts(), **prompts}, "texts": [{**GROWN, **text}]}
    checked = check("tiny", CHAT_TEMPLATE, FAMILY, recorded)

    assert {each.what for each in unexplained(checked)} == {what} - {"nothing"}


def test_the_check_names_words_that_a_template_does_not_have() -> None:
    """The level 512 is a number, which CHAT_TEMPLATE does not take."""
    family = dataclasses.replace(FAMILY, switches={"512": {}})
    recorded = {"prompts": recorded_prompts(family), "texts": [GROWN]}
    differing = unexplained(check("tiny", CHAT_TEMPLATE, family, recorded))

    assert [each.what for each in differing] == ["words"]


def test_what_llama_server_refuses_is_better_if_it_is_read_as_meant() -> None:
    """Here it is not: the text is another one than the kind's."""
    meant = Text("plain", AUTO, ideal("plain").answer)
    for text, verdict in ((meant, "better"), (FAMILY.texts[0], "differs")):
        family = dataclasses.replace(FAMILY, texts=(text,))
        recorded = {"prompts": recorded_prompts(), "texts": [{"refused": True}]}
        findings = check("tiny", CHAT_TEMPLATE, family, recorded).findings

        assert verdict in {each.verdict for each in findings if each.what == "plain"}


@table(
    ("theirs", "verdict"),
    [
        ({"refused": True}, "better"),
        ({"sha256": "", "lacks": ["It is twelve."]}, "better"),
        ({"sha256": "", "lacks": []}, "differs"),
    ],
)
def test_a_prompt_that_keeps_more_than_llama_servers_is_better(
    theirs: Mapping[str, Any], verdict: str
) -> None:
    """One that differs otherwise is not."""
    recorded = {"prompts": {**recorded_prompts(), "earlier reasoning": theirs}, "texts": [GROWN]}
    findings = check("tiny", CHAT_TEMPLATE, FAMILY, recorded).findings

    assert [each.verdict for each in findings if each.case == "earlier reasoning"] == [verdict]


def test_a_difference_that_is_meant_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is listed as meant differs from the record, or the list is wrong."""
    monkeypatch.setattr(template_check, "MEANT", {("tiny", "tools"): "the reason"})
    for changed, verdict in (({"tools": {"sha256": ""}}, "better"), ({}, "differs")):
        recorded = {"prompts": {**recorded_prompts(), **changed}, "texts": [GROWN]}
        findings = check("tiny", CHAT_TEMPLATE, FAMILY, recorded).findings

        assert [each.verdict for each in findings if each.case == "tools"] == [verdict]


def test_a_question_that_is_left_out_is_found() -> None:
    """Even where llama-server leaves it out too."""
    template = CHAT_TEMPLATE.replace("for message in messages", "for message in messages[1:]")
    prompts = {case: {"sha256": ""} for case in FAMILY.prompts}
    differing = unexplained(check("tiny", template, FAMILY, {"prompts": prompts, "texts": [GROWN]}))

    assert any(each.detail.startswith("leaves out") for each in differing)


@pytest.mark.parametrize(
    ("template", "texts", "detail"),
    [("", ["x"], "another template than recorded"), (CHAT_TEMPLATE, [], "other texts than rec")],
)
def test_a_record_of_another_template_or_of_other_texts_is_not_compared(
    template: str, texts: list[str], detail: str
) -> None:
    """Both are named, with what to do."""
    recorded = {"template": digest(template), "texts": texts}
    (found,) = unexplained(check_one("MiMo-VL", CHAT_TEMPLATE, recorded))

    assert detail in found.detail


def test_the_record_keeps_how_an_answer_grew() -> None:
    """What it holds in few letters gives every step back."""
    lengths = [(0, 0), (1, 0), (2, 0), (2, 0), (3, 1), (3, 3), (3, 4)]
    messages = [Message("abc"[:reasoning], "1234"[:answer]) for reasoning, answer in lengths]

    steps = packed(messages)

    assert steps == "1. 2r 1. r&a 2A 1a"
    assert list(unpacked(steps, messages[-1])) == messages


def test_an_answer_that_shrinks_is_not_recorded() -> None:
    """Its steps cannot be taken from the whole answer."""
    with pytest.raises(ValueError, match="shrank"):
        packed([Message("ab"), Message("a")])


@pytest.mark.slow(keep=14)
@needs_templates
@pytest.mark.parametrize("name", families())
def test_a_call_that_was_cut_is_never_text(name: str) -> None:
    """In every form of calls, wherever an answer ends; what was before a call stays."""
    family = families()[name]
    form = format_of(template_of(name), BOS, family.eos)
    state = form.prompt(QUESTION, think=AUTO, tools=tools()).state
    for text in family.texts:
        if not text.has_tools or text.think != AUTO or form.calls.is_generic:
            continue
        for beginning in text.beginnings[:-1]:
            reader = AnswerReader(form, state, tools())
            read = template_check.read([beginning], reader, is_cut=True)
            assert ideal(text.kind).answer.startswith(read.answer.strip()), beginning
