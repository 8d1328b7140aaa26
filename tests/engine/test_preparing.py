"""Measuring a pair apart from its answers: none waits for it, and it disturbs no conversation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import WriteModel
from scripts.support.tiny_gguf import ARCHITECTURES
from specchat import Engine
from specchat.engine import exact_drafts, local_engine, pair_pacing
from specchat.engine.api import Loading
from specchat.engine.loaded_pair import LoadedPair
from specchat.engine.local_engine import LocalEngine
from specchat.errors import Cancelled, EngineFailed, OutOfMemory
from specchat.llama import tinyblas
from specchat.llama.batch import Batch
from specchat.options.declarations import LONGEST_DRAFT
from specchat.passes import exact_costs, exact_passes, exactness_measurement
from specchat.passes.learned_cache import LearnedCache
from specchat.passes.pass_costs import PLAIN
from specchat.passes.pass_measurement import measure_plain
from specchat.requests.progress import Stage

OPTIONS: dict[str, Any] = {"ctx": 2048, "threads": 1, "gpu_layers": 0}
PROMPT = [40, 75, 111, 260, 90, 33, 201, 150]


@pytest.fixture(autouse=True)
def _empty_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of any model."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def tokens_of(engine: Engine, prompt: list[int] = PROMPT, **options: Any) -> list[int]:
    """Decode a greedy answer of 40 tokens and return them."""
    usual: dict[str, Any] = {"temperature": 0.0, "max_tokens": 40, "ignore_end": True}
    return [token for chunk in engine.generate(prompt, **usual | options) for token in chunk.tokens]


def stopping_after(count: int) -> Callable[[Stage, float], bool]:
    """Return a callback that stops measuring after some reports."""
    num_left = count

    def report(stage: Stage, share: float) -> bool:
        nonlocal num_left
        assert stage in ("comparing", "measuring")
        assert 0 <= share <= 1
        num_left -= 1
        return num_left >= 0

    return report


def test_the_first_answer_waits_for_no_measuring(
    shallow: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target makes a pass for the prompt and one for each step; the first step is plain."""
    path = shallow("llama")
    with LocalEngine(Loading(path, path, **OPTIONS)) as engine:
        passes: list[int] = []
        run = engine.context.run

        def noted(batch: Batch) -> None:
            passes.append(batch.count)
            run(batch)

        monkeypatch.setattr(engine.context, "run", noted)
        assert engine.facts.exact_draft is None
        assert not engine.pacing.knowledge.target.is_known
        tokens_of(engine)
        assert passes[:2] == [len(PROMPT) - 1, 1]
        assert len(passes) == 1 + engine.stats.steps
        assert engine.stats.drafted > 0  # what passes cost was learned from the answer's own
        assert not engine.pacing.is_settled


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_measuring_keeps_the_conversation(shallow: WriteModel, architecture: str) -> None:
    """It is measured beside the text in memory: the next answer reads only what is new."""
    path = shallow(architecture)
    with LocalEngine(Loading(path, path, **OPTIONS, exact="on")) as engine:
        answer = tokens_of(engine)
        held = list(engine.context.tokens)
        assert not engine.prepare(stopping_after(9))
        assert engine.prepare()
        assert engine.context.tokens == held
        text = [*PROMPT, *answer, 7, 8]
        after = tokens_of(engine, text, drafter="none")
        cached = engine.stats.cached_tokens
        engine.forget()
        assert tokens_of(engine, text, drafter="none") == after
    assert cached >= len(held) - 1 or not engine.context.rollback_kind.can_speculate


def test_plain_passes_are_measured_where_that_was_interrupted(
    shallow: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come last of a target's: what is kept of it before has them, too."""
    path, num_calls = shallow("llama"), 0

    def stopped_first(*arguments: Any) -> None:
        nonlocal num_calls
        num_calls += 1
        if num_calls == 1:
            raise Cancelled("stopped")
        measure_plain(*arguments)

    monkeypatch.setattr(pair_pacing, "measure_plain", stopped_first)
    with LocalEngine(Loading(path, path, **OPTIONS)) as engine:
        assert not engine.prepare()
        assert engine.prepare()
    with LocalEngine(Loading(path, path, **OPTIONS)) as engine:
        kept = {row[:2] for row in engine.pacing.knowledge.as_record().target}
    assert (0, PLAIN) in kept


@pytest.mark.slow
def test_interrupted_measuring_goes_on(
    shallow: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With questions in between, the same lengths are measured, at the same depths, as at once."""
    monkeypatch.setattr(exact_passes, "MAX_STARTS", 1)
    monkeypatch.setattr(exact_passes, "NUM_TEXTS", 1)
    monkeypatch.setattr(exact_costs, "CHEAP", 1e9)
    for name in ("MOST_SECONDS_OF_COSTS", "MOST_SECONDS"):  # whatever else runs meanwhile
        limits = {"auto": 600.0} if name == "MOST_SECONDS" else 600.0
        monkeypatch.setattr(exactness_measurement, name, limits)
    monkeypatch.setattr(pair_pacing, "MOST_SECONDS", 600.0)
    path = shallow("llama")
    with LocalEngine(Loading(path, path, **OPTIONS)) as engine:
        assert engine.prepare()
        at_once, exact = engine.pacing.knowledge.as_record(), engine.facts.exact_draft
    LearnedCache(path).path.unlink()

    with LocalEngine(Loading(path, path, **OPTIONS)) as engine:
        num_calls = 0
        while not engine.prepare(stopping_after(60)):
            num_calls += 1
            assert num_calls < 50
            if num_calls in (1, 2, 5):
                assert len(tokens_of(engine, drafter="none", max_tokens=4)) == 4
        found = engine.pacing.knowledge.as_record()
        assert engine.facts.exact_draft == exact
    assert num_calls > 1
    rows = {row[:2] for row in at_once.target}
    assert (0, 1) in rows
    assert rows <= {row[:2] for row in found.target}
    assert {row[:2] for row in found.drafts["draft"]} == {
        row[:2] for row in at_once.drafts["draft"]
    }


def test_what_was_measured_is_kept_for_the_next_session(
    shallow: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is measured again; what an answer's own passes took is not kept in its place."""
    # less is too short on a busy machine
    monkeypatch.setitem(exactness_measurement.MOST_SECONDS, "auto", 60.0)
    monkeypatch.setattr(exactness_measurement, "MOST_SECONDS_OF_COSTS", 60.0)
    monkeypatch.setattr(pair_pacing, "MOST_SECONDS", 60.0)
    path = shallow("llama")
    with LocalEngine(Loading(path, path, **OPTIONS)) as engine:
        tokens_of(engine, drafter="none")  # how many passes drafting makes depends on the clock
    with LocalEngine(Loading(path, path, **OPTIONS)) as engine:
        assert not engine.pacing.knowledge.target.is_known
        assert not engine.pacing.is_settled
        assert engine.prepare()
        exact = engine.facts.exact_draft
    with LocalEngine(Loading(path, path, **OPTIONS)) as engine:
        assert engine.facts.exact_draft == exact is not None
        assert engine.prepare(stopping_after(0))


@pytest.mark.slow
def test_exact_on_drafts_nothing_until_it_is_measured(
    shallow: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The statistics say why, whatever drafter was chosen; the text is that of plain decoding."""
    monkeypatch.setattr(tinyblas, "longest_without", lambda: LONGEST_DRAFT + 1)
    path = shallow("llama")
    with LocalEngine(Loading(path, path, **OPTIONS, exact="on")) as engine:
        plain = tokens_of(engine, drafter="none")
        for drafter in ("auto", "suffix", "model"):
            assert not engine.prepare(stopping_after(5))
            assert tokens_of(engine, drafter=drafter, draft_length=4) == plain
            assert engine.stats.drafted == 0
            assert engine.stats.speculation_off_reason == exact_drafts.NOT_MEASURED
        assert engine.prepare()
        assert engine.facts.exact_draft
        assert tokens_of(engine, drafter="model", draft_length=4) == plain
        assert engine.stats.drafted > 0
        assert engine.stats.speculation_off_reason is None


def test_measuring_needs_an_idle_engine(shallow: WriteModel) -> None:
    """During an answer it is refused, as another answer would be."""
    with LocalEngine(Loading(shallow("llama"), **OPTIONS)) as engine:
        answer = engine.generate(PROMPT, max_tokens=8, ignore_end=True)
        next(answer)
        with pytest.raises(EngineFailed, match="busy"):
            engine.prepare()
        assert len(list(answer)) > 0


def test_without_memory_for_it_measuring_waits(
    shallow: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes once the pair's own memory is empty; answers go on."""
    with LocalEngine(Loading(shallow("llama"), **OPTIONS)) as engine:
        first = tokens_of(engine)

        def none(*_: object) -> LoadedPair:
            raise OutOfMemory("none")

        monkeypatch.setattr(LoadedPair, "_spare", none)
        assert not engine.prepare()
        assert tokens_of(engine) == first
        engine.forget()
        assert engine.prepare()


def test_ctrl_c_leaves_an_empty_memory_behind(
    shallow: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that was measured with is left in it, and the next answer is right."""

    def interrupt(stage: Stage, share: float) -> bool:
        if share > 0.2:
            raise KeyboardInterrupt
        return True

    path = shallow("llama")
    with LocalEngine(Loading(path, path, **OPTIONS)) as engine:
        with pytest.raises(KeyboardInterrupt):
            engine.prepare(interrupt)
        assert engine.context.length == 0
        found = tokens_of(engine, draft_length=3)
        assert found == tokens_of(engine, drafter="none")


@pytest.mark.slow
def test_a_process_stops_measuring_for_an_answer(
    shallow: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The callback's False ends it; facts arrive once it is complete, and closing ends it too."""
    path = shallow("llama")
    with Engine.load(path, path, process=True, **OPTIONS) as engine:
        assert engine.facts.exact_draft is None
        assert not engine.prepare(lambda *_: False)
        expected = tokens_of(engine, drafter="none")
        assert not engine.prepare(stopping_after(20))
        assert tokens_of(engine, draft_length=3) == expected
        assert engine.prepare()
        assert engine.facts.exact_draft is not None
        assert engine.prepare(stopping_after(0))
    assert local_engine.MEASURED_CONTEXT > 1500


def test_a_process_can_be_closed_while_it_measures(shallow: WriteModel) -> None:
    """As it can during an answer: an exception in the callback, such as Ctrl+C, ends it."""

    def interrupt(stage: Stage, share: float) -> bool:
        raise KeyboardInterrupt

    with Engine.load(shallow("llama"), process=True, **OPTIONS) as engine:
        with pytest.raises(KeyboardInterrupt):
            engine.prepare(interrupt)
        assert len(tokens_of(engine)) == 40
