"""A race on real llama.cpp decodes an answer's own tokens, and drafts as the answer did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conftest import WriteModel
from engine.test_lossless import EXACT
from scripts.support.tiny_gguf import write_with_head
from specchat import Engine
from specchat.bench.race_record import Race, run_race
from specchat.formats.chat_message import ChatMessage

QUESTION: list[ChatMessage] = [{"role": "user", "content": "aa aa aa aa aa aa aa"}]
COUNTED = ("generated_tokens", "steps", "drafted", "accepted", "acceptance_histogram")


def raced(engine: Engine, **options: Any) -> tuple[Race, dict[str, Any]]:
    """Return the race of an answer, and the answer's own statistics."""
    whole: dict[str, Any] = {}

    def note(_: object) -> None:
        whole.update(engine.stats.as_dict())

    race = run_race(engine, QUESTION, options, note, lambda _: None)
    return race, whole


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("kind", ["llama", "mamba", "head"])
def test_a_race_drafts_as_its_answer_did(kind: str, shallow: WriteModel, tmp_path: Path) -> None:
    """At temperature 0, at one draft length: the same steps, and one for each token without."""
    files: dict[str, Any]
    if kind == "head":
        files = {"target": write_with_head(tmp_path / "head.gguf", "qwen35", part="whole")}
    else:
        files = {"target": shallow(kind), "draft": shallow(kind, "half right")}
    drafter = "head" if kind == "head" else "model"
    with Engine.load(**files, **EXACT) as engine:
        race, whole = raced(
            engine, temperature=0.0, max_tokens=40, drafter=drafter, draft_length=3
        )  # a race ends where an answer begins to repeat itself

    assert whole["accepted"] > 0
    assert {name: race.speculative.stats[name] for name in COUNTED} == {
        name: whole[name] for name in COUNTED
    }
    assert race.plain.stats["steps"] == whole["generated_tokens"] == race.plain.num_tokens
    assert race.plain.text == race.speculative.text


@pytest.mark.slow
@pytest.mark.parametrize("drafter", ["auto", "suffix"])
def test_a_sampled_answer_is_raced_in_a_process(tiny: WriteModel, drafter: str) -> None:
    """Its tokens, however long the drafts; it is paced as any answer."""
    files = tiny("llama"), tiny("llama", "half right")
    with Engine.load(*files, process=True, **EXACT) as engine:
        race, whole = raced(engine, temperature=0.8, max_tokens=100, drafter=drafter)

    assert race.plain.num_tokens == race.speculative.num_tokens == whole["generated_tokens"]
    assert race.plain.text == race.speculative.text
    assert race.plain.stats["drafted"] == 0
