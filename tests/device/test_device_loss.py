"""A device's sampled answers fit plain sampling, and an engine that hangs there is ended."""

import os
import signal
import sys
import time
from collections import Counter
from typing import Any

import pytest
from scipy import stats

from conftest import WriteModel
from device_options import ALL, EXACT, PROMPT, WritePair
from specchat.engine.api import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.errors import EngineFailed, SpecchatError
from specchat.sharing import process_link
from specchat.sharing.process_engine import ProcessEngine

SAMPLED: dict[str, Any] = {"temperature": 1.0, "top_k": 4, "top_p": 1.0, "min_p": 0.0}
NUM_ANSWERS = 300
unix_only = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signals")
pytestmark = pytest.mark.usefixtures("device")


def last_tokens(engine: LocalEngine, drafter: str, first_seed: int) -> Counter[object]:
    """Count the second and third tokens of many answers."""
    counts: Counter[object] = Counter()
    for seed in range(first_seed, first_seed + NUM_ANSWERS):
        options = {**SAMPLED, "drafter": drafter, "draft_length": 2, "seed": seed}
        chunks = engine.generate(PROMPT, max_tokens=3, **options)
        answer = [token for chunk in chunks for token in chunk.tokens]
        counts[tuple(answer[1:])] += 1
    return counts


def test_sampled_answers_fit_plain_sampling(pair: WritePair) -> None:
    """Two-sample chi-square, rare outcomes pooled; seeds are fixed, so nothing fails by chance."""
    files = pair("llama", num_layers=1)
    with LocalEngine(Loading(*files, gpu_layers=ALL, **EXACT)) as engine:
        plain = last_tokens(engine, "none", 10_000)
        speculative = last_tokens(engine, "model", 50_000)
        assert engine.stats.drafted > 0
    common = [key for key in plain | speculative if plain[key] + speculative[key] >= 20]
    rows = [[counts[key] for key in common] for counts in (plain, speculative)]
    for row in rows:
        row.append(NUM_ANSWERS - sum(row))
    table = [[row[index] for row in rows] for index in range(len(rows[0]))]
    filled = [column for column in table if any(column)]
    assert len(filled) > 5
    assert stats.chi2_contingency(filled).pvalue > 1e-4


def test_a_seed_gives_the_plain_text_with_drafts(pair: WritePair) -> None:
    """On the device, too, the text follows from the seed and the target."""
    with LocalEngine(Loading(*pair("llama"), gpu_layers=ALL, **EXACT)) as engine:
        for seed in range(4):
            options = {**SAMPLED, "seed": seed, "max_tokens": 16, "draft_length": 3}
            plain, speculative = (
                [
                    token
                    for chunk in engine.generate(PROMPT, drafter=drafter, **options)
                    for token in chunk.tokens
                ]
                for drafter in ("none", "model")
            )
            assert speculative == plain


def working(tiny: WriteModel) -> tuple[ProcessEngine, Any]:
    """Return an engine of its own process in the middle of a long answer on the device."""
    loading = Loading(tiny("llama"), gpu_layers=ALL, **EXACT | {"ctx": 2048})
    engine = ProcessEngine(loading)
    stream = engine.generate(PROMPT, ignore_end=True, max_tokens=2000)
    next(stream)
    return engine, stream


def test_an_engine_killed_while_the_device_works_is_reported_and_replaced(
    tiny: WriteModel,
) -> None:
    """The answer ends with an error, and the device serves the next engine."""
    engine, stream = working(tiny)
    engine.kill()
    with pytest.raises(EngineFailed, match="the engine process was ended by SIGKILL"):
        list(stream)
    engine.close()
    engine, stream = working(tiny)
    stream.close()
    engine.close()


@unix_only
def test_a_driver_that_crashes_ends_the_engine_alone(tiny: WriteModel) -> None:
    """As Mesa's before 23 do with flash attention: one line says what helps, and that does."""
    loading = Loading(tiny("llama"), gpu_layers=ALL, **EXACT | {"flash_attention": "auto"})

    def crash() -> None:
        engine = ProcessEngine(loading)  # it may crash by itself
        os.kill(engine._process.pid or 0, signal.SIGSEGV)
        list(engine.generate(PROMPT, ignore_end=True, max_tokens=2000))

    with pytest.raises(SpecchatError) as raised:
        crash()
    message = str(raised.value)
    assert "was ended by SIGSEGV" in message
    assert message.endswith("; try again, or use --flash-attention off or --gpu-layers 0")

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

    assert time.monotonic() - begun < process_link.JOIN_TIMEOUT_SECONDS + 3
    assert not engine._process.is_alive()
    with pytest.raises(EngineFailed, match="load it again"):
        next(engine.generate(PROMPT))
