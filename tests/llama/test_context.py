"""Contexts of real llama.cpp: rolled back tokens are gone, the logits of the others are right."""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from conftest import WriteModel
from llama_log import listening
from scripts.support.tiny_gguf import ARCHITECTURES
from specchat.errors import Cancelled, ContextFull, InvalidOption, ModelWontLoad
from specchat.llama.context import Context
from specchat.llama.library import AbortFlag, api
from specchat.llama.model import Model
from specchat.planning.context_shape import ModelOptions
from tables import table

EXACT = ModelOptions(ctx=1024, flash_attention="off", cache_type="f32", threads=1)
"""With these a batch differs from single tokens by rounding of about 1e-5 only."""

TOLERANCE = 0.02
"""Logits of the tiny models have a standard deviation of about 5; wrong ones are off by 5 to 24."""

KINDS = {
    "llama": "tail",
    "qwen3": "tail",
    "qwen3moe": "tail",
    "gemma3": "window",
    "mamba": "checkpoint",
    "granitehybrid": "checkpoint",
    "lfm2": "snapshots",
    "qwen35": "snapshots",
}
TEXT = [int(token) for token in np.random.default_rng(0).integers(3, 250, 900)]


@contextmanager
def context(tiny: WriteModel, architecture: str, **options: Any) -> Iterator[Context]:
    """Load a tiny model and make a context of it."""
    chosen = replace(EXACT, **options)
    with Model(tiny(architecture), chosen) as model, Context(model, chosen) as made:
        yield made


def next_logits(memory: Context) -> np.ndarray:
    """Return the logits after the memory and one more token; leave the memory unchanged."""
    return np.array(memory.evaluate([42], 1)[0])


def fresh_logits(tiny: WriteModel, architecture: str, tokens: list[int]) -> np.ndarray:
    """Return the logits after these tokens and one more, in a new context."""
    with context(tiny, architecture) as memory:
        memory.prefill(tokens)
        return next_logits(memory)


def test_every_architecture_has_its_kind_of_rollback(tiny: WriteModel) -> None:
    """The kind is found by trying, and matches what llama.cpp supports."""
    assert set(KINDS) == set(ARCHITECTURES)
    for architecture, kind in KINDS.items():
        with context(tiny, architecture) as memory:
            assert memory.rollback_kind.name == kind
            assert memory.rollback_kind.can_speculate
            assert memory.length == 0


@pytest.mark.slow(keep=18)
@pytest.mark.parametrize("architecture", KINDS)
@pytest.mark.parametrize("num_kept", [0, 1, 3, 5])
def test_a_rolled_back_draft_leaves_no_trace(
    tiny: WriteModel, architecture: str, num_kept: int
) -> None:
    """After drafts of five tokens, some of them accepted, the logits are those of a new context."""
    text = TEXT[:40]
    with context(tiny, architecture) as memory:
        memory.prefill(text)
        for step in range(12):
            memory.mark()
            draft = [(7 * step + place) % 200 + 5 for place in range(5)]
            memory.evaluate([text[-1], *draft], 6)
            text = [*text, text[-1], *draft[:num_kept]]
            memory.rollback(len(text))
            assert memory.tokens == text
        found = next_logits(memory)

    assert found == pytest.approx(fresh_logits(tiny, architecture, text), abs=TOLERANCE)


@table("architecture", KINDS)
def test_tokens_drafted_one_by_one_can_be_rolled_back(tiny: WriteModel, architecture: str) -> None:
    """A draft model's memory returns over several passes to any mark."""
    with context(tiny, architecture, rollback_length=0) as memory:
        memory.prefill(TEXT[:30])
        for num_kept in (4, 0, 2, 3):
            start = memory.length
            for token in (50, 60, 70, 80, 90):
                memory.mark()
                memory.evaluate([token], 1)
            memory.rollback(start + num_kept)
        text = list(memory.tokens)
        found = next_logits(memory)

    assert text[30:] == [50, 60, 70, 80, 50, 60, 50, 60, 70]
    assert found == pytest.approx(fresh_logits(tiny, architecture, text), abs=TOLERANCE)


@pytest.mark.slow(keep=19)
@pytest.mark.parametrize("architecture", KINDS)
@pytest.mark.parametrize("shared", [0, 1, 25, 60, 100])
def test_a_prompt_that_diverges_anywhere_is_right(
    tiny: WriteModel, architecture: str, shared: int
) -> None:
    """Whatever the new prompt shares with the old, the memory holds the new one exactly."""
    prompt = [*TEXT[:shared], *TEXT[300:340]]
    with context(tiny, architecture) as memory:
        memory.prefill(TEXT[:60])
        memory.prefill(TEXT[:100])
        num_cached = memory.prefill(prompt)
        found = next_logits(memory)

    assert num_cached <= shared
    if KINDS[architecture] == "tail" or shared in {60, 100}:
        assert num_cached == shared
    assert found == pytest.approx(fresh_logits(tiny, architecture, prompt), abs=TOLERANCE)


@table("architecture", KINDS)
def test_a_longer_prompt_costs_only_its_new_tokens(tiny: WriteModel, architecture: str) -> None:
    """The first question of a conversation is cached for the second."""
    with context(tiny, architecture) as memory:
        assert memory.prefill(TEXT[:50]) == 0
        assert memory.prefill(TEXT[:90]) == 50
        assert memory.prefill(TEXT[:90]) == 90


@pytest.mark.parametrize("num_kept", [890, 800, 500, 100, 20, 1])
def test_a_rollback_beyond_a_sliding_window_evaluates_again(
    tiny: WriteModel, num_kept: int
) -> None:
    """Tokens overwritten in the window's ring buffer are evaluated again, and right."""
    with context(tiny, "gemma3", batch=32) as memory:
        memory.prefill(TEXT)
        text = [*TEXT[:num_kept], 9, 8, 7]
        num_cached = memory.prefill(text)
        found = next_logits(memory)

    assert num_cached == (num_kept if num_kept >= 800 else 0)
    assert memory.tokens == [*text, 42]
    assert found == pytest.approx(fresh_logits(tiny, "gemma3", text), abs=0.1)


def test_a_question_asked_again_is_cached_beyond_the_window(tiny: WriteModel) -> None:
    """After an answer longer than the window the prompt is not evaluated again."""
    with context(tiny, "gemma3", batch=32) as memory:
        memory.prefill(TEXT[:300])
        for token in TEXT[300:600]:
            memory.evaluate([token], 0)
        text = [*TEXT[:300], 9, 8, 7]

        assert memory.prefill(text) == 300
        assert next_logits(memory) == pytest.approx(fresh_logits(tiny, "gemma3", text), abs=0.1)


@table("architecture", KINDS)
def test_the_saved_end_of_an_edited_prompt_is_not_restored(
    tiny: WriteModel, architecture: str
) -> None:
    """Both prompts have the same length, and the state was saved for the other one."""
    text = [*TEXT[:56], 7, 8, 9, 10]
    with context(tiny, architecture) as memory:
        memory.prefill(TEXT[:60])
        memory.prefill(text)
        for token in [5, *TEXT[100:140]]:
            memory.evaluate([token], 0)
        memory.prefill(text)
        found = next_logits(memory)

    assert found == pytest.approx(fresh_logits(tiny, architecture, text), abs=TOLERANCE)


@table("architecture", ["gemma3", "llama", "lfm2"])
def test_a_pass_holds_one_of_llama_cpps_micro_batches(tiny: WriteModel, architecture: str) -> None:
    """A later micro-batch would overwrite tokens in a window's cache that an earlier one needs."""
    with context(tiny, architecture, ctx=4096, flash_attention="auto") as memory:
        most, fill = memory.shape.ubatch, memory.batch.fill
        counts: list[int] = []

        def noted(tokens: Any, num_rows: int) -> None:
            counts.append(len(tokens))
            fill(tokens, num_rows)

        memory.batch.fill = noted  # type: ignore[method-assign]
        memory.prefill(TEXT[:300])

    assert most == 128 < memory.shape.batch
    assert counts == [128, 128, 44]


def test_states_of_fully_accepted_steps_do_not_pile_up(tiny: WriteModel) -> None:
    """Each step leaves the one state that the next may return to."""
    with context(tiny, "granitehybrid") as memory:
        memory.prefill(TEXT[:20])
        for place in range(20, 100, 4):
            memory.mark()
            memory.evaluate(TEXT[place : place + 4], 4)
            memory.rollback(memory.length)
        kind = memory.rollback_kind
        assert kind.name == "checkpoint"
        assert len(kind._step) + len(kind._spare) <= 2
        memory.rollback(97)
        found = next_logits(memory)

    assert found == pytest.approx(fresh_logits(tiny, "granitehybrid", TEXT[:97]), abs=TOLERANCE)


@table("room, lengths", [(0, [100, 300, 600, 700]), (2**30, list(range(100, 800, 100)))])
def test_saved_places_are_limited_by_size(tiny: WriteModel, room: int, lengths: list[int]) -> None:
    """The first and the last two always stay, and those between are spread over the text."""
    with context(tiny, "gemma3", batch=32) as memory:
        assert memory.rollback_kind.name == "window"
        memory.rollback_kind.room = room
        for end in range(100, 800, 100):
            memory.prefill(TEXT[:end])

        assert [kept.length for kept in memory.rollback_kind.checkpoints] == lengths


@table("architecture", ["mamba", "granitehybrid", "lfm2", "gemma3"])
def test_a_copy_keeps_its_states_while_others_are_saved(
    tiny: WriteModel, architecture: str
) -> None:
    """They are not written over, although the text that goes on drops them, and are still right."""
    with context(tiny, architecture, batch=32) as memory:
        for end in range(50, 300, 50):
            memory.prefill(TEXT[:end])
        snapshot = memory.snapshot()
        before = [state.data.copy() for state in snapshot.checkpoints]
        for end in range(300, 800, 50):
            memory.prefill(TEXT[:end])
        after = [state.data for state in snapshot.checkpoints]
        lengths = [state.length for state in snapshot.checkpoints]

        assert all(map(np.array_equal, before, after))
        assert not set(lengths) <= {kept.length for kept in memory.rollback_kind.checkpoints}
        for length in lengths[:-1]:
            memory.restore(snapshot)
            assert memory.prefill([*TEXT[:length], 7]) == length
            expected = fresh_logits(tiny, architecture, [*TEXT[:length], 7])
            assert next_logits(memory) == pytest.approx(expected, abs=TOLERANCE)


def test_a_sliding_window_allocates_the_window_only(tiny: WriteModel) -> None:
    """llama.cpp's log says how many cells the layers with a window have."""
    with listening() as lines, context(tiny, "gemma3", ctx=16_384, batch=32):
        log = "".join(lines)

    assert "using full-size SWA cache" not in log
    assert re.search(r"creating\s+SWA KV cache, size = \d{2,3} cells", log)


@pytest.mark.parametrize("architecture", KINDS)
@pytest.mark.parametrize("call", [1, 2, 4])
def test_an_interrupt_as_a_pass_ends_leaves_a_usable_memory(
    tiny: WriteModel, architecture: str, call: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl+C is raised by llama_decode after the pass is in llama.cpp's memory."""
    with context(tiny, architecture, batch=32) as memory:
        memory.prefill(TEXT[:40])
        llama_decode, calls = api.llama_decode, itertools.count(1)

        def interrupted(handle: object, batch: object) -> int:
            result = int(llama_decode(handle, batch))
            if next(calls) == call:
                raise KeyboardInterrupt
            return result

        def read_on() -> None:
            memory.mark()
            memory.evaluate([1, 2, 3], 3)
            memory.prefill(TEXT[:200])

        with monkeypatch.context() as patch:
            patch.setattr(api, "llama_decode", interrupted)
            with pytest.raises(KeyboardInterrupt):
                read_on()

        assert memory.tokens[:40] == TEXT[: min(40, memory.length)]
        memory.prefill(TEXT[:45])
        expected = fresh_logits(tiny, architecture, TEXT[:45])
        assert next_logits(memory) == pytest.approx(expected, abs=TOLERANCE)


@pytest.mark.parametrize("architecture", ["mamba", "granitehybrid", "gemma3"])
def test_if_a_state_cannot_be_restored_all_are_droppeds(
    tiny: WriteModel, architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory is empty, and no state of the old text is restored into the new one."""
    with context(tiny, architecture, batch=32) as memory:
        memory.prefill(TEXT[:300])
        memory.prefill(TEXT[:600])
        with monkeypatch.context() as patch:
            patch.setattr(api, "llama_state_seq_set_data_ext", lambda *_: 0)
            with pytest.raises(ZeroDivisionError):  # in the callback, before anything is read
                memory.prefill([*TEXT[:310], 7, 7], lambda done, _: 1 // done)  # type: ignore[arg-type]
        other = TEXT[::-1]
        memory.prefill(other[:330])

        assert memory.prefill([*other[:305], 9]) in {0, 305}
        expected = fresh_logits(tiny, architecture, [*other[:305], 9])
        assert next_logits(memory) == pytest.approx(expected, abs=TOLERANCE)


def test_a_model_without_a_memory_is_refused(
    tiny: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """llama.cpp gives embedding models no memory; they cannot chat."""
    monkeypatch.setattr(api, "llama_get_memory", lambda _: None)
    with pytest.raises(ModelWontLoad, match="not a text-generation model"), context(tiny, "llama"):
        pass


@pytest.mark.slow
@table("architecture", KINDS)
def test_an_aborted_pass_leaves_a_usable_memory(tiny: WriteModel, architecture: str) -> None:
    """After an abort, in a single pass or a long prompt, the memory matches its tokens."""
    abort = AbortFlag()
    with Model(tiny(architecture), EXACT) as model, Context(model, EXACT, abort) as memory:
        memory.prefill(TEXT[:40])
        for attempt in (lambda: memory.evaluate([1, 2, 3], 3), lambda: memory.prefill(TEXT[:800])):
            abort.set()
            with pytest.raises(Cancelled):
                attempt()
            abort.clear()
            assert memory.tokens == TEXT[: memory.length]
            memory.prefill(TEXT[:45])
            expected = fresh_logits(tiny, architecture, TEXT[:45])
            assert next_logits(memory) == pytest.approx(expected, abs=TOLERANCE)


@pytest.mark.slow
def test_a_long_prompt_stops_soon_after_the_flag(tiny: WriteModel) -> None:
    """A flag raised by another thread ends prefill long before it is done."""
    options = replace(EXACT, ctx=16_000)
    abort = AbortFlag()
    with (
        Model(tiny("llama", width=512, feed_forward=1024), options) as model,
        Context(model, options, abort) as memory,
    ):
        threading.Timer(0.2, abort.set).start()
        started = time.process_time()
        with pytest.raises(Cancelled):
            memory.prefill(TEXT * 17)
        assert time.process_time() - started < 5
        assert memory.length < 15_000


def test_progress_goes_from_what_is_cached_to_the_end(tiny: WriteModel) -> None:
    """Progress is reported after each chunk."""
    reported: list[tuple[int, int]] = []
    with context(tiny, "llama", batch=64) as memory:
        memory.prefill(TEXT[:100])
        memory.prefill(TEXT[:300], lambda done, total: reported.append((done, total)))

    assert reported[0] == (100, 300)
    assert reported[-1] == (300, 300)
    assert reported == sorted(reported)
    assert len(reported) == 5


def test_more_tokens_than_fit_are_refused(tiny: WriteModel) -> None:
    """The context holds exactly the requested number of tokens."""
    with context(tiny, "llama", ctx=100) as memory:
        assert memory.capacity == 100
        memory.prefill(TEXT[:100])
        with pytest.raises(ContextFull):
            memory.prefill(TEXT[:101])


@table("batch", [1, 2, 17])
@table("architecture", ["llama", "lfm2"])
def test_small_batches_still_verify_whole_drafts(
    tiny: WriteModel, architecture: str, batch: int
) -> None:
    """With small prompt chunks too a pass gives a row for each token of the longest draft."""
    with context(tiny, architecture, batch=batch) as memory:
        count = memory.longest_draft + 1
        rows = np.array(memory.evaluate(TEXT[:count], count))
        assert rows.shape == (count, 320)
        assert np.isfinite(rows).all()
        with pytest.raises(ValueError, match="rows"):
            memory.evaluate(TEXT[: count + 1], count + 1)


WRONG = [
    {"ctx": -1}, {"gpu_layers": -1}, {"threads": 0}, {"batch": 0}, {"cache_type": "q3"},
    {"flash_attention": "maybe"}, {"rollback_length": -1},
]  # fmt: skip


@table("options", WRONG, ids=str)
def test_load_options_out_of_range_are_refused(options: dict[str, Any]) -> None:
    """Before llama.cpp sees them, which some of them would crash."""
    with pytest.raises(InvalidOption):
        replace(EXACT, **options)


@pytest.mark.parametrize("cache_type", ["f16", "bf16"])
def test_cache_types_work_with_flash_attention(tiny: WriteModel, cache_type: str) -> None:
    """A smaller KV cache changes the logits a little and nothing else."""
    types: dict[str, Any] = {"cache_type": cache_type}
    with context(tiny, "llama", flash_attention="on", **types) as memory:
        memory.prefill(TEXT[:40])
        assert next_logits(memory) == pytest.approx(fresh_logits(tiny, "llama", TEXT[:40]), abs=0.5)


@table("count", [20, 63, 64, 65, 70, 131])
def test_all_rows_of_a_long_evaluation_are_those_of_short_ones(
    tiny: WriteModel, count: int
) -> None:
    """However the tokens are cut into passes: a long forced run comes with a draft behind it."""
    num_rows = 9
    with context(tiny, "llama", batch=64) as memory:
        memory.prefill(TEXT[:5])
        rows = np.array(memory.evaluate(TEXT[5 : 5 + count], num_rows))
        memory.prefill(TEXT[: 5 + count - num_rows])
        expected = np.array(memory.evaluate(TEXT[5 + count - num_rows : 5 + count], num_rows))
    assert rows == pytest.approx(expected, abs=TOLERANCE)


def test_an_unsuitable_cache_type_is_named(
    tiny: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If llama.cpp finds one that we did not, by its reason and the option to change."""
    monkeypatch.setattr("specchat.llama.native_context.require_cache_type", lambda *_: None)
    types: dict[str, Any] = {"cache_type": "q8_0"}
    with (
        pytest.raises(ModelWontLoad, match=r"q8_0.*--cache-type"),
        context(tiny, "llama", flash_attention="on", **types),
    ):
        pass


def test_a_gpu_is_waited_for_after_the_prompt_and_in_no_step(
    tiny: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading logits waits for a pass; a prompt's passes have none, and would be billed to a step.

    What is in the memory already is not waited for.
    """
    waits: list[object] = []
    wait = api.llama_synchronize

    def noted(handle: object) -> None:
        waits.append(handle)
        wait(handle)

    monkeypatch.setattr(api, "llama_synchronize", noted)
    with Model(tiny("llama"), EXACT) as model, Context(model, EXACT) as context:
        context.prefill([5] * 700)
        assert len(waits) == 1
        for length in (700, 702, 704):
            context.mark()
            context.evaluate([7, 8, 9, 10], 4)
            context.rollback(length + 2)
        context.prefill(context.tokens[:])
        assert len(waits) == 1
