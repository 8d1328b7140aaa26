"""Conversations as tokens, by templates that will not take every conversation."""

from __future__ import annotations

import pytest

from conftest import WriteModel
from specchat.chat.conversation import Tree
from specchat.chat.store import Store
from specchat.chat.turn import Turn
from specchat.engine.api import Engine
from specchat.engine.local_engine import LocalEngine
from specchat.engine.prompts import tokenize_chat
from specchat.errors import TemplateError
from tiny_gguf import Vocabulary

STRICT = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    "{% for message in messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "[{{ message['role'] }}]{{ message['content'] }}{% endfor %}"
)
"""Refuses what Gemma's and Mistral's templates refuse."""


def rendered(tiny: WriteModel, messages: list[Turn]) -> str:
    """Return what a model with the strict template is told."""
    path = tiny("llama", vocabulary=Vocabulary(chat_template=STRICT))
    with LocalEngine(Engine.loading(path, ctx=512, gpu_layers=0, threads=1)) as engine:
        tokens = tokenize_chat(engine.model, messages)
        text = b"".join(map(engine.model.vocabulary.text, tokens)).decode()
        return text.replace("Ġ", " ").replace("Ċ", "\n")  # as byte-level vocabularies write them


def test_a_system_prompt_that_is_refused_is_told_by_the_user(tiny: WriteModel) -> None:
    """It stands in front of the first question."""
    text = rendered(
        tiny,
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Why?"},
            {"role": "assistant", "content": "So."},
            {"role": "user", "content": "And?"},
        ],
    )

    assert text == "[user]Be brief.\n\nWhy?[assistant]So.[user]And?"


def test_other_refusals_are_told(tiny: WriteModel) -> None:
    """In the template's own words."""
    with pytest.raises(TemplateError, match="must alternate"):
        rendered(tiny, [{"role": "assistant", "content": "a"}, {"role": "user", "content": ""}])


def test_a_branch_with_holes_takes_turns(tiny: WriteModel) -> None:
    """Questions that had no answer, or an empty one, are not asked again."""
    with Store(None) as store:
        number = store.begin().id
        parent = None
        for role, text in (
            ("user", "stopped"), ("assistant", ""), ("user", "deleted answer"), ("user", "asked"),
            ("assistant", "told"), ("user", "now"), ("assistant", ""),
        ):  # fmt: skip
            parent = store.add(number, role, text, parent).id  # type: ignore[arg-type]
        tree: Tree = store.tree(number)
        turns = tree.turns(parent, "Be brief.")

    assert rendered(tiny, turns) == "[user]Be brief.\n\nasked[assistant]told[user]now"
