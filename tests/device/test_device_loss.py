"""A device's sampled answers fit plain sampling, and an engine that hangs there is ended."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from typing import Any

import pytest
from scipy import stats

from conftest import WriteModel
from specchat import Engine
from specchat.engine import remote_engine as remote
from specchat.engine.api import Loading
from specchat.engine.remote_engine import RemoteEngine
from specchat.errors import EngineFailed

ALL = 99
PROMPT = [40, 75, 111, 260, 90, 33, 201, 150]
SAMPLED: dict[str, Any] = {"temperature": 1.0, "top_k": 6, "top_p": 1.0, "min_p": 0.0}
NUM_ANSWERS = 600
EXACT: dict[str, Any] = {
    "flash_attention": "off",
    "cache_type_k": "f32",
    "cache_type_v": "f32",
    "gpu_layers": ALL,
    "learn": False,
}
"""With flash attention, Mesa 22.3's software renderer crashes on these models' narrow heads."""
unix_only = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signals")
pytestmark = pytest.mark.usefixtures("device")


def first_tokens(engine: Engine, drafter: str, first_seed: int) -> Counter[object]:
    """Count the second and third tokens of many answers."""
    counts: Counter[object] = Counter()
    for seed in range(first_seed, first_seed + NUM_ANSWERS):
        options = {**SAMPLED, "drafter": drafter, "draft_length": 3, "seed": seed}
        chunks = engine.generate(PROMPT, max_tokens=3, **options)
        answer = [token for chunk in chunks for token in chunk.tokens]
        counts[tuple(answer[1:])] += 1
    return counts


def test_sampled_answers_fit_plain_sampling(tiny: WriteModel) -> None:
    """Two-sample chi-square, rare outcomes pooled; seeds are fixed, so nothing fails by chance."""
    files = tiny("llama"), tiny("llama", "half right")
    with Engine.load(*files, ctx=256, **EXACT) as engine:
        plain = first_tokens(engine, "none", 10_000)
        speculative = first_tokens(engine, "model", 50_000)
    common = [key for key in plain | speculative if plain[key] + speculative[key] >= 20]
    rows = [[counts[key] for key in common] for counts in (plain, speculative)]
    for row in rows:
        row.append(NUM_ANSWERS - sum(row))
    table = [[row[index] for row in rows] for index in range(len(rows[0]))]
    filled = [column for column in table if any(column)]
    assert len(filled) > 5
    assert stats.chi2_contingency(filled).pvalue > 1e-4


def working(tiny: WriteModel) -> tuple[RemoteEngine, Any]:
    """Return an engine of its own process in the middle of a long answer on the device."""
    loading = Loading(tiny("llama"), tiny("llama"), ctx=2048, **EXACT)
    engine = RemoteEngine(loading)
    stream = engine.generate(PROMPT, ignore_end=True, max_tokens=2000)
    next(stream)
    return engine, stream


def test_an_engine_killed_while_the_device_works_is_reported_and_replaced(
    tiny: WriteModel,
) -> None:
    """The answer ends with an error, and the device serves the next engine."""
    for _ in range(2):
        engine, stream = working(tiny)
        engine.kill()
        with pytest.raises(EngineFailed, match="the engine process was ended by SIGKILL"):
            list(stream)
        engine.close()
    engine, stream = working(tiny)
    stream.close()
    engine.close()


@unix_only
def test_a_device_that_hangs_is_ended_when_the_answer_is_stopped(tiny: WriteModel) -> None:
    """As Esc does: the wait is bounded, and the next request says that the engine is closed."""
    engine, stream = working(tiny)
    os.kill(engine._process.pid or 0, signal.SIGSTOP)
    begun = time.monotonic()
    stream.close()

    assert time.monotonic() - begun < remote.JOIN_TIMEOUT_SECONDS + 3
    assert not engine._process.is_alive()
    with pytest.raises(EngineFailed, match="load it again"):
        next(engine.generate(PROMPT))
