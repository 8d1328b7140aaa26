"""Answers decoded with trees on real llama.cpp: the text of plain decoding, and nothing is left."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from conftest import WriteModel
from engine.test_heads import ALMOST_RIGHT, LAYERS, SORTS, WriteHead, heads, opened
from engine.test_lossless import EXACT, PROMPT
from llama.test_trees import num_lines_beyond
from scripts.support.tiny_gguf import ARCHITECTURES
from specchat import Engine
from specchat.decoding.draft_tree import DraftTree
from specchat.engine.api import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.engine.losslessness import Parting, check_prompt

CHAINS = {"gemma3", "mamba", "granitehybrid", "lfm2", "qwen35"}
"""Architectures whose memory holds no branches."""
TREE: dict[str, Any] = {"draft_length": 3, "draft_tree": 14}


SAMPLED: dict[str, Any] = {"temperature": 0.8, "seed": 1}
__all__ = ["heads"]  # a fixture


def tokens_of(engine: Engine, prompt: Sequence[int] = PROMPT, **options: Any) -> list[int]:
    """Decode an answer and return its tokens."""
    options = {"temperature": 0.0, "max_tokens": 60, **options}
    return [token for chunk in engine.generate(prompt, **options) for token in chunk.tokens]


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("architecture", "kind"),
    [*((name, "half right") for name in ARCHITECTURES), ("llama", "right")],
)
def test_texts_are_plain_decodings(shallow: WriteModel, architecture: str, kind: str) -> None:
    """At temperature 0 and with seeds, with every drafter; other memories have chains."""
    files = shallow(architecture), shallow(architecture, kind)
    with Engine.load(*files, **EXACT, exact="off") as engine:
        options: list[dict[str, Any]] = [{}, SAMPLED, {"temperature": 1.0, "seed": 2}]
        for more in options:
            plain = tokens_of(engine, drafter="none", **more)
            for drafter in ("model", "suffix", "auto"):
                for size in (4, 32):
                    drawn = {**TREE, **more, "draft_tree": size, "drafter": drafter}
                    assert tokens_of(engine, **drawn) == plain
                    stats = engine.stats
                    if drafter == "model":
                        assert (stats.nodes > stats.drafted) == (architecture not in CHAINS)
            assert tokens_of(engine, **more) == plain  # paced


def test_branches_save_passes(shallow: WriteModel) -> None:
    """A draft that is half right is followed further."""
    files = shallow("llama"), shallow("llama", "half right")
    with Engine.load(*files, **EXACT, exact="off") as engine:
        tokens_of(engine, drafter="model", draft_length=3)
        chain = engine.stats.tokens_per_step
        tokens_of(engine, drafter="model", **TREE)
        assert engine.stats.tokens_per_step > 1.1 * chain


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("kind", SORTS)
def test_heads_follow_branches(heads: WriteHead, kind: str) -> None:
    """Texts stay, and a head that is almost always right goes on from the target's own states."""
    files = heads(kind, noise=ALMOST_RIGHT, num_layers=LAYERS[kind])
    with opened(files, exact="off") as engine:
        options: list[dict[str, Any]] = [{}, SAMPLED]
        for more in options:
            plain = tokens_of(engine, drafter="none", **more)
            assert tokens_of(engine, drafter="head", draft_length=3, **more) == plain
            chain = engine.stats.tokens_per_step
            assert tokens_of(engine, drafter="head", **TREE, **more) == plain
            assert engine.stats.tokens_per_step >= 0.95 * chain


def test_the_states_of_branches_are_those_of_the_text(heads: WriteHead) -> None:
    """What a head is given of a kept branch is what the target gives of the same text."""
    files = heads("qwen3 with EAGLE-3", noise=ALMOST_RIGHT, num_layers=4)
    with opened(files, exact="off") as engine:
        context, draft = engine.context, engine._draft_context
        assert draft is not None
        feed = draft.feed  # type: ignore[attr-defined]
        context.prefill(PROMPT)
        context.evaluate_tree([5, 6, 7], [(8, 1), (9, 3)], 3)
        context.keep(len(PROMPT) + 4, [0, 1])
        found = feed.take(len(PROMPT) + 1, 4)
        context.prefill(PROMPT)
        context.evaluate([5, 6, 8, 9], 4)
        wanted = feed.take(len(PROMPT) + 1, 4)
        assert np.abs(found - wanted).max() < 1e-3


@pytest.mark.slow
def test_80_endings_in_a_tree_lose_nothing(shallow: WriteModel) -> None:
    """Stopped, closed, out of tokens, at an end of the context: what follows is as it would be."""
    random = np.random.default_rng(6)
    files = shallow("llama"), shallow("llama", "half right")
    with LocalEngine(Loading(*files, **{**EXACT, "ctx": 256}, exact="off")) as engine:
        plain = tokens_of(engine, drafter="none", max_tokens=400)
        counts = {"stopped": 0, "closed": 0, "length": 0, "context": 0}
        for number in range(80):
            ending = list(counts)[number % 4]
            longest = int(random.integers(1, 40)) if ending == "length" else 400
            chunks = engine.generate(
                PROMPT, temperature=0.0, drafter="model", max_tokens=longest, **TREE
            )
            tokens: list[int] = []
            timer = threading.Timer(float(random.random()) * 0.05, engine.stop)
            if ending == "stopped":
                timer.start()
            for chunk in chunks:
                tokens += chunk.tokens
                if ending == "closed" and len(tokens) > random.integers(1, 40):
                    chunks.close()  # type: ignore[attr-defined]
                    break
            timer.cancel()
            counts[ending] += 1
            assert tokens == plain[: len(tokens)]
            assert num_lines_beyond(engine.context) == 0
            held = engine.context.tokens
            assert held == [*PROMPT, *plain][: len(held)]
            if ending == "context":
                assert len(tokens) == len(plain)
    assert set(counts.values()) == {20}


def test_the_check_sees_a_wrong_tree(shallow: WriteModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """It decodes with branches, too; one that is accepted unasked is no rounding."""
    files = shallow("llama"), shallow("llama", "half right")
    with LocalEngine(Loading(*files, **EXACT, exact="off")) as engine:
        right = check_prompt(engine, "p", PROMPT, 60, 3)
        assert right.tree == Parting(None)
        assert right.is_lossless
        followed = DraftTree.followed

        def eager(
            tree: DraftTree, num_accepted: int, token: int, draw: Callable[[int, int], int]
        ) -> tuple[list[int], int]:
            offered = [own for own, parent in tree.links if parent == num_accepted]
            return followed(tree, num_accepted, offered[0] if offered else token, draw)

        monkeypatch.setattr(DraftTree, "followed", eager)
        wrong = check_prompt(engine, "p", PROMPT, 60, 3)
        assert wrong.parted_at is None
        assert not wrong.is_lossless
    with LocalEngine(Loading(shallow("gemma3"), shallow("gemma3"), **EXACT)) as engine:
        assert check_prompt(engine, "p", PROMPT, 20, 3).tree is None
