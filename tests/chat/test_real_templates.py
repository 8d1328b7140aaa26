"""The chat templates that come with llama.cpp, read as llama-server of the same llama.cpp does.

`scripts/check_templates.py` recorded what llama-server makes of them. The templates are those that
the set-up keeps; none is in the repository.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

from check_templates import check_one, load, unexplained
from real_templates import FOLDER, needs_templates, template_of
from setup_env.templates import PATTERN
from template_cases import (
    AUTO,
    CONVERSATION,
    RECORD,
    Family,
    Message,
    Text,
    digest,
    families,
    packed,
    unpacked,
)
from template_check import check
from tiny_gguf import CHAT_TEMPLATE


@pytest.fixture(scope="module")
def record() -> Mapping[str, Any]:
    """Return what llama-server made of each template."""
    return load(RECORD)


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


ANSWER = "Yes, \u00e9 too."
FAMILY = Family("<|im_end|>", (Text("plain", AUTO, ANSWER),))
PROMPT = (
    "".join(f"<|im_start|>{each['role']}\n{each['content']}<|im_end|>\n" for each in CONVERSATION)
    + "<|im_start|>assistant\n"
)
RECORDED: Mapping[str, Any] = {
    "template": digest(CHAT_TEMPLATE),
    "prompts": {AUTO: {"sha256": digest(PROMPT)}},
    "texts": [{"reasoning": "", "answer": ANSWER, "steps": f"{len(ANSWER)}a"}],
}


@pytest.mark.parametrize(
    ("what", "changed"),
    [
        ("nothing", {}),
        ("words", {"family": dataclasses.replace(FAMILY, switches={"512": {}})}),
        ("prompt", {"prompts": {AUTO: {"sha256": digest("")}, "512": {"sha256": ""}}}),
        ("plain", {"texts": [{**RECORDED["texts"][0], "reasoning": "Hm."}]}),
        ("plain", {"texts": [{"refused": True}]}),
        ("cut", {"texts": [{**RECORDED["texts"][0], "steps": f"2. {len(ANSWER) - 2}a"}]}),
    ],
)
def test_the_check_names_what_differs_from_the_record(
    what: str, changed: Mapping[str, Any]
) -> None:
    """A record of something else than specchat does is found out."""
    family = changed.get("family", FAMILY)
    prompts = {"prompts": {**RECORDED["prompts"], "512": {"sha256": ""}}}
    checked = check("tiny", CHAT_TEMPLATE, family, {**RECORDED, **prompts, **changed})

    assert {each.what for each in unexplained(checked)} <= {what, "prompt"}
    assert bool(unexplained(checked)) == (what != "nothing")


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
    """It cannot be told from what there is in the end."""
    with pytest.raises(ValueError, match="shrank"):
        packed([Message("ab"), Message("a")])
