"""A drafter in a file outside the package, registered with one line, works everywhere."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Static

from conftest import WriteModel
from scripted_chat import Script, chat
from specchat import Engine, drafter_registry
from specchat.chat.store import Store
from specchat.cli import main
from specchat.cli.arguments import parse
from specchat.decoding.chunk import Piece
from specchat.drafter_registry import DrafterDescriptor, TokenOrigin
from specchat.settings.schema import find_setting
from tables import table

PROMPT = [40, 75, 111, 260, 90, 33, 201, 150] * 4
OPTIONS: dict[str, Any] = {"temperature": 0.0, "max_tokens": 64, "draft_length": 3}
FAST = ["--threads", "1", "--ctx", "512"]
SOURCE = '''
from specchat.decoding.distribution import Distribution
from specchat.decoding.proposal import DraftToken, Hint
from specchat.drafter_registry import DrafterDescriptor, TokenOrigin, register


class BigramDrafter:
    """Proposes what followed the last token the last time."""

    def begin(self, task, on_progress=None):
        self.after = {}
        self.last = task.tokens[0]
        self.observe(task.tokens[1:], 0)

    def propose(self, pacer):
        tokens = [self.last]
        while tokens[-1] in self.after and len(tokens) <= pacer.room:
            tokens.append(self.after[tokens[-1]])
        certain = [Distribution.certain(token) for token in tokens[1:]]
        num_taken = pacer.take("bigram", [Hint(0.5, each) for each in certain])
        drafted = zip(tokens[1 : num_taken + 1], certain)
        return [DraftToken(token, q, "bigram") for token, q in drafted]

    def observe(self, emitted, num_accepted):
        for token in emitted:
            self.after[self.last] = token
            self.last = token

    def close(self):
        pass


def make(materials):
    return BigramDrafter()


ORIGIN = TokenOrigin("bigram", "b", "bigram table", "text-error", "bold")
register(DrafterDescriptor("bigram", "what followed before", "bigram_drafter:make", (ORIGIN,)))
'''


@pytest.fixture(autouse=True)
def _bigram(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Import the module that registers the drafter, for one test."""
    monkeypatch.setattr(drafter_registry, "DRAFTERS", dict(drafter_registry.DRAFTERS))
    (tmp_path / "bigram_drafter.py").write_text(SOURCE, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("bigram_drafter")
    yield
    del sys.modules["bigram_drafter"]


@pytest.mark.parametrize("process", [False, True])
def test_its_tokens_reach_chunks_and_statistics(tiny: WriteModel, process: bool) -> None:
    """An engine process knows the drafters of its client; the text is the target's own."""
    with Engine.load(tiny("llama"), process=process, threads=1, ctx=512) as engine:
        chunks = list(engine.generate(PROMPT, drafter="bigram", **OPTIONS))
        accepted = [name for chunk in chunks for name in chunk.origins if name != "target"]
        stats = engine.stats
        plain = list(engine.generate(PROMPT, drafter="none", **OPTIONS))

    assert set(accepted) == {"bigram"}
    assert (stats.drafter, stats.accepted) == ("bigram", len(accepted))
    assert stats.speculation["drafter"] == "bigram"
    assert [t for c in chunks for t in c.tokens] == [t for c in plain for t in c.tokens]


def test_auto_takes_it_if_it_ranks_highest() -> None:
    """The rank of its descriptor decides, unless it needs a model that is not loaded."""
    assert drafter_registry.automatic("") == "suffix"
    make = "bigram_drafter:make"
    origins = (TokenOrigin("keen", "k", "keen"),)
    drafter_registry.register(DrafterDescriptor("keen", "", make, origins, rank=90))
    assert drafter_registry.automatic("") == "keen"
    origins = (TokenOrigin("eager", "e", "eager", costs_pass=True),)
    drafter_registry.register(DrafterDescriptor("eager", "", make, origins, needs="model", rank=99))
    assert drafter_registry.automatic("") == "keen"
    assert drafter_registry.automatic("model") == "eager"
    assert drafter_registry.pass_origin("model") == "draft"


def test_it_is_a_choice_of_the_command_line_and_of_the_settings() -> None:
    """`--drafter` takes it, and F9 offers what the setting takes."""
    assert parse(["ask", "hi", "--drafter", "bigram"]).drafter == "bigram"
    assert "bigram" in find_setting("decoding.drafter").words


@pytest.mark.slow
def test_ask_and_bench_name_it_in_json(
    tiny: WriteModel, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both commands decode with it, in an engine process."""
    monkeypatch.setattr(sys, "stdin", None)
    pair = ["--target", str(tiny("llama")), *FAST, "--json", "--max-tokens", "8"]
    assert main(["ask", "hello", "--raw", *pair, "--drafter", "bigram"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["drafter"] == answer["speculation"]["drafter"] == "bigram"

    assert main(["bench", *pair, "--drafter", "bigram", "--rounds", "1", "--task", "chat"]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert {run["drafter"] for run in runs} == {"none", "bigram"}


def test_stored_tokens_keep_their_origin(tmp_path: Path) -> None:
    """The letter of its origin stands for it in the store."""
    with Store(tmp_path / "history.db") as store:
        conversation = store.begin().id
        message = store.add(conversation, "assistant", "ab")
        store.write(message.id, "ab", pieces=[Piece("a", "bigram"), Piece("b", "target")])
        pieces = store.tree(conversation)[message.id].pieces

    assert pieces == (Piece("a", "bigram"), Piece("b", "target"))


@pytest.mark.anyio
async def test_the_legend_shows_it() -> None:
    """The legend has the drafter's label and style beside the others."""
    app = chat(Script())
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("f4")
        await pilot.pause()
        assert "bigram table" in str(app.query_one("#legend", Static).render())


@table(
    ("name", "make", "origin"),
    [
        ("auto", "a:b", TokenOrigin("new", "n", "new")),
        ("suffix", "a:b", TokenOrigin("new", "n", "new")),
        ("Bad name", "a:b", TokenOrigin("new", "n", "new")),
        ("new", "a.b", TokenOrigin("new", "n", "new")),
        ("new", "a:b", TokenOrigin("new", "nn", "new")),
        ("new", "a:b", TokenOrigin("new", "s", "new")),
        ("new", "a:b", TokenOrigin("suffix", "n", "new")),
    ],
)
def test_conflicts_and_malformed_names_are_refused(
    name: str, make: str, origin: TokenOrigin
) -> None:
    """Each drafter, origin and letter exists once."""
    with pytest.raises(ValueError, match=r"drafter|name|letter|conflicts|make"):
        drafter_registry.register(DrafterDescriptor(name, "", make, (origin,)))
