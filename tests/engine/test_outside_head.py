"""A kind of prediction head in a file outside the package, registered with one row, works."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conftest import WriteModel
from specchat.cli import main
from specchat.engine.api import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.errors import IncompatibleDraft
from specchat.gguf import draft_kinds
from specchat.sharing.process_engine import ProcessEngine

PROMPT = [40, 75, 111, 260, 90, 33, 201, 150]
OPTIONS: dict[str, Any] = {"temperature": 0.0, "max_tokens": 60, "draft_length": 3}
SOURCE = '''
from specchat.gguf.draft_kinds import DraftKind, register
from specchat.llama.context import Context
from specchat.llama.head_context import HeadContext
from specchat.llama.hidden_state_feed import HiddenStateFeed


def is_alone(header):
    """Its files are known by their names."""
    return header.path.name.startswith("outside-")


def why_unfit(target, header):
    """It fits one architecture."""
    same = target.architecture == header.architecture
    return None if same else f"it is for {header.architecture}"


class OutsideHead(HeadContext):
    """Drafts with the model in its file, and counts the states that its target hands over."""

    def __init__(self, model, options, target, abort):
        super().__init__(
            Context(model, options, abort),
            HiddenStateFeed(target, target.model.hidden_width, target.hidden_states),
        )
        self.num_states = 0
        target.keep_hidden_states()
        self.target, target.listener = target, self
        for name in ("count_known", "prefill", "mark", "evaluate", "rollback"):
            setattr(self, name, getattr(self.context, name))

    length = property(lambda self: self.context.length)

    def after_pass(self, position, tokens, *, is_prompt):
        assert self.target.hidden_states().shape == (len(tokens), self.target.model.hidden_width)
        self.num_states += len(tokens)

    def after_rollback(self, length):
        pass


KIND = DraftKind(
    name="outside",
    description="a head from outside",
    runs="outside_head:OutsideHead",
    is_alone=is_alone,
    why_unfit=why_unfit,
    reads=frozenset({"hidden states"}),
)
'''


@pytest.fixture(autouse=True)
def _kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Register the kind for one test."""
    (tmp_path / "outside_head.py").write_text(SOURCE, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    draft_kinds.register(importlib.import_module("outside_head").KIND)
    yield
    del draft_kinds.KINDS["outside"], sys.modules["outside_head"]


@pytest.fixture
def pair(shallow: WriteModel, tmp_path: Path) -> Loading:
    """Return a target, and a file of the kind whose drafts are right about half of the time."""
    head = tmp_path / "outside-head.gguf"
    shutil.copy(shallow("llama", "half right"), head)
    return Loading(shallow("llama"), head, ctx=512, threads=1, gpu_layers=0, learn=False)


def test_the_engines_process_knows_it(pair: Loading) -> None:
    """A kind registered here is registered there."""
    with ProcessEngine(pair) as engine:
        tokens = [each for chunk in engine.generate(PROMPT, **OPTIONS) for each in chunk.tokens]
        assert engine.facts.draft_kind == "head"
        assert len(tokens) == 60
        assert engine.stats.drafted > 0


def test_a_kind_may_be_registered_again() -> None:
    """As the engine's process does with all of them, whatever others read the same files."""
    before = dict(draft_kinds.KINDS)
    for kind in before.values():
        draft_kinds.register(kind)
    assert before == draft_kinds.KINDS


def test_it_loads_and_drafts_and_changes_no_text(pair: Loading) -> None:
    """It gets the hidden states of every token that the target evaluates."""
    with LocalEngine(pair) as engine:
        answers = [
            [token for chunk in engine.generate(PROMPT, drafter=drafter, **OPTIONS)
             for token in chunk.tokens]
            for drafter in ("none", "head")
        ]  # fmt: skip
        head: Any = engine._draft_context

        assert answers[0] == answers[1]
        assert engine.facts.draft_kind == "head"
        assert 0 < engine.stats.accepted < engine.stats.drafted
        assert head.num_states >= 2 * 60


def test_it_is_refused_beside_a_target_that_it_does_not_fit(
    pair: Loading, shallow: WriteModel
) -> None:
    """In the words of its own file."""
    with pytest.raises(IncompatibleDraft, match="it is for llama"):
        LocalEngine(replace(pair, target=shallow("qwen3")))


def test_it_is_shown(pair: Loading, capsys: pytest.CaptureFixture[str]) -> None:
    """By the description of its row, and by its name in JSON."""
    assert main(["show", str(pair.draft)]) == 0
    assert "a head from outside" in capsys.readouterr().out
    assert main(["show", str(pair.draft), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["draft_kind"] == "outside"
