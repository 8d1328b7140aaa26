"""What the engine learns of a pair is kept, and it reports what it does with it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conftest import WriteModel
from specchat import Engine
from specchat.decoding.replay import Replay
from specchat.engine import pair_pacing
from specchat.engine.api import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.options.declarations import GenerateOptions
from specchat.pacing.knowledge import Knowledge
from specchat.pacing.recent_drafts import PastDraft
from specchat.pacing.recent_seconds import SharedSeconds
from specchat.passes import learned_cache
from specchat.passes import pass_measurement as measurement
from specchat.passes.learned_cache import LearnedCache, LearnedPair
from specchat.passes.pass_costs import PLAIN, PassCosts
from specchat.passes.pass_measurement import measure_passes, measure_plain
from specchat.planning.context_shape import ContextShape
from specchat.planning.plan import Plan
from specchat.wording import speculation_line

pytestmark = pytest.mark.usefixtures("full_measurement")
OPTIONS: dict[str, Any] = {"ctx": 1024, "threads": 1}
PROMPT = [40, 75, 111, 260, 90, 33, 201, 150]


def load(tiny: WriteModel, kind: str = "half right", **options: Any) -> LocalEngine:
    """Load and measure a tiny pair."""
    engine = LocalEngine(Loading(*pair_files(tiny, kind), **OPTIONS | options))
    assert engine.prepare()
    return engine


def record_in(measured: list[object]) -> Callable[..., bool]:
    """Return a function that makes no pass but notes what it was given."""

    def record(model: object, costs: PassCosts, *given: object) -> bool:
        measured.append(given)
        costs.begin_with({1: 0.01})
        return True

    return record


def pair_files(tiny: WriteModel, kind: str = "half right") -> tuple[Path, Path]:
    """Return a tiny target and a draft model of some kind."""
    return tiny("llama"), tiny("llama", kind)


def answer(engine: Engine, prompt: list[int] = PROMPT, **options: Any) -> list[int]:
    """Decode a greedy answer and return its tokens."""
    options = {"temperature": 0.0, "max_tokens": 60} | options
    return [token for chunk in engine.generate(prompt, **options) for token in chunk.tokens]


def test_what_was_learned_is_there_next_time(
    tiny: WriteModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loading again measures nothing; loading in another way does."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with load(tiny) as engine:
        engine.pacing.knowledge.drafts_of("draft greedy").add(PastDraft((0.8,), (1.0,)))
        answer(engine)
        learned = engine.pacing.knowledge.drafts_of("draft greedy").as_record()
    measured: list[object] = []
    monkeypatch.setattr(pair_pacing, "measure_passes", record_in(measured))
    with load(tiny) as engine:
        assert measured == []
        assert engine.pacing.knowledge.drafts_of("draft greedy").as_record() == learned
        assert engine.pacing.knowledge.target.seconds(1, 10) > 0
    with load(tiny, batch=77):
        assert len(measured) == 2


def test_a_race_teaches_nothing_of_what_is_accepted(tiny: WriteModel) -> None:
    """Its text is known, so drafts of it are right more often than others."""
    with load(tiny) as engine:
        text, knowledge = answer(engine), engine.pacing.knowledge

        def learned() -> tuple[object, ...]:
            record = knowledge.as_record()
            return record.calibrations, record.recent

        before = learned()
        assert answer(engine, replay=Replay(text, len(text))) == text
        assert learned() == before
        answer(engine)
        assert learned() != before


class Disturbed:
    """A model some of whose passes take three times as long, because of another program."""

    capacity = 100

    def __init__(self, slow: Sequence[int]) -> None:
        """Store the numbers of the passes that are disturbed."""
        self.slow, self.seconds, self.lengths = set(slow), 0.0, list[int]()

    def prefill(self, tokens: Sequence[int], on_progress: object = None) -> int:
        """Read nothing."""
        return 0

    def evaluate(self, tokens: Sequence[int], num_rows: int) -> None:
        """Let the time pass."""
        self.seconds += 0.001 * len(tokens) * (3 if len(self.lengths) in self.slow else 1)
        self.lengths.append(len(tokens))


@pytest.mark.parametrize("slow", [[], [2], [2, 3], [2, 3, 8, 9], [6, 11]])
def test_a_program_that_disturbs_for_a_moment_spoils_no_length(
    slow: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All are measured four times and the median counts; long passes are made once, in the end."""
    model, costs = Disturbed(slow), PassCosts(65)
    monkeypatch.setattr(measurement, "perf_counter", lambda: model.seconds)
    measure_passes(model, costs, 100, (1, 4, 24, 65), 66, 1.0)  # type: ignore[arg-type]

    assert model.lengths == [*[1, 1, 4, 4, 24, 24] * 4, 65, 65]
    for length in (1, 4, 24, 65):
        assert costs.seconds(length, 0) == pytest.approx(0.001 * length)


def test_what_a_busy_machine_took_is_thrown_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that runs on makes passes slower in the end than in the beginning."""
    model, costs = Disturbed(range(10, 100)), PassCosts(33)
    monkeypatch.setattr(measurement, "UNIMPORTANT", 0.0)
    monkeypatch.setattr(measurement, "perf_counter", lambda: model.seconds)
    monkeypatch.setattr(measurement, "STEADY", 1.25)
    assert not measure_passes(model, costs, 100, (1, 4, 24), 25, 1.0)  # type: ignore[arg-type]
    assert not costs.is_known


def test_measuring_ends_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was measured until then counts."""
    model, costs = Disturbed([]), PassCosts(33)
    monkeypatch.setattr(measurement, "perf_counter", lambda: model.seconds)
    measure_passes(model, costs, 100, (1, 4, 2, 200, 24), 25, 0.009)  # type: ignore[arg-type]

    assert model.lengths == [1, 1, 4, 4, 1, 1]
    assert costs.seconds(4, 0) == pytest.approx(0.004)


class Recording(Disturbed):
    """A GPU whose first pass of a length is launched step by step, and whose second is recorded."""

    def __init__(self, factor: float) -> None:
        """Take `factor` milliseconds for a token."""
        super().__init__([])
        self.factor = factor

    def evaluate(self, tokens: Sequence[int], num_rows: int) -> None:
        """Let the time pass."""
        count, alike = len(tokens), 0
        for length in reversed(self.lengths):
            if length != count:
                break
            alike += 1
        self.lengths.append(count)
        self.seconds += 0.001 * self.factor * count * {0: 1.3, 1: 2.0}.get(alike, 1.0)


def test_passes_on_a_gpu_are_measured_once_they_are_replayed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Short ones: of long ones the launch is a small part, and each takes its time."""
    model, costs = Recording(1.0), PassCosts(33)
    monkeypatch.setattr(measurement, "perf_counter", lambda: model.seconds)
    measure_passes(model, costs, 100, (1, 4), 25, 1.0, num_repeats=4)  # type: ignore[arg-type]
    assert model.lengths == [1, 1, 1, 1, 4, 4, 4, 4] * 4
    assert costs.seconds(4, 0) == pytest.approx(0.004)

    model = Recording(20.0)
    measure_passes(model, costs, 100, (1, 4), 25, 10.0, num_repeats=4)  # type: ignore[arg-type]
    assert model.lengths == [1, 1, 4, 4] * 4


class Settling(Disturbed):
    """A model whose passes take ever less time, the more of them are alike."""

    def evaluate(self, tokens: Sequence[int], num_rows: int) -> None:
        """Let the time pass."""
        alike = self.lengths[-8:].count(len(tokens))
        self.seconds += 0.001 * len(tokens) * (1 + 0.4 * (1 - alike / 8))
        self.lengths.append(len(tokens))


@pytest.mark.parametrize(("factor", "capacity"), [(1.0, 100), (100.0, 100), (1.0, 8)])
def test_plain_decoding_is_measured_among_its_like(
    factor: float, capacity: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what it settles to, unless passes are long or the context is short."""
    model, costs = Settling([]), PassCosts(33)
    model.capacity = capacity
    monkeypatch.setattr(measurement, "perf_counter", lambda: factor * model.seconds)
    measure_passes(model, costs, 100, (1, 4), 25, 100.0)  # type: ignore[arg-type]
    single = costs.seconds(1, 0)
    measure_plain(model, costs, 100)  # type: ignore[arg-type]

    assert single > 1.1 * factor * 0.001
    assert costs.seconds(1, 0) == single
    is_measured = factor == 1.0 and capacity == 100
    expected = factor * 0.001 if is_measured else single
    assert costs.seconds(PLAIN, 0) == pytest.approx(expected)


def caches_in(folder: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> list[LearnedCache]:
    """Return the caches of some targets, in a folder for the user's state."""
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    targets = [folder / f"{number}.gguf" for number in range(count)]
    for target in targets:
        target.write_bytes(b"GGUF")
    return [LearnedCache(target, "a build") for target in targets]


def test_a_cache_is_the_users_alone_and_may_be_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that cannot be read, or is about another build of llama.cpp, counts as missing."""
    cache, other = caches_in(tmp_path, monkeypatch, 2)
    knowledge = Knowledge()
    knowledge.target.begin_with({1: 0.5})
    knowledge.drafts_of("draft greedy").add(PastDraft((0.9,), (1.0,)))
    cache.keep_pair({"a": 1}, knowledge.as_record())

    assert cache.path.stat().st_mode & 0o077 == 0
    found = Knowledge(cache.pair({"a": 1}))
    assert found.target.seconds(1, 0) == pytest.approx(0.5)
    assert found.drafts_of("draft greedy").as_record() == [[[0.9], [1.0]]]
    assert cache.pair({"a": 2}) == LearnedPair()
    assert LearnedCache(tmp_path / "0.gguf", "another build").pair({"a": 1}) == LearnedPair()
    whole = cache.path.read_text("utf-8")
    old = whole.replace(f'"format": {learned_cache.FORMAT}', '"format": 9')
    assert old != whole
    damaged = f'{{"format": {learned_cache.FORMAT}, "pairs": 3}}'
    for content in ("", "[]", old, damaged, "\0"):
        cache.path.write_text(content, "utf-8")
        assert cache.pair({"a": 1}) == LearnedPair()
    assert other.path != cache.path


def test_old_caches_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing a cache deletes the oldest beyond the limit, and those past the maximum age."""
    monkeypatch.setattr(learned_cache, "MAX_FILES", 3)
    caches = caches_in(tmp_path, monkeypatch, 6)
    for age, cache in enumerate(reversed(caches[:5])):
        cache.keep_pair({}, LearnedPair())
        written = time.time() - 1000 * (age + 1)
        os.utime(cache.path, (written, written))
    caches[5].keep_pair({}, LearnedPair())
    assert [cache.path.exists() for cache in caches] == [False] * 3 + [True] * 3

    written = time.time() - learned_cache.MAX_AGE_SECONDS - 1
    os.utime(caches[4].path, (written, written))
    caches[0].keep_pair({}, LearnedPair())
    assert [cache.path.exists() for cache in caches] == [True, False, False, True, False, True]


def test_a_cache_names_no_file(
    tiny: WriteModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither its content nor its own name says which models were used."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with load(tiny) as engine:
        answer(engine)
    paths = list(tmp_path.rglob("pacing/*.json"))

    assert len(paths) == 1
    for part in (str(tiny("llama").parent), tiny("llama").stem, "gguf"):
        assert part not in paths[0].read_text("utf-8")
        assert part not in paths[0].name


@pytest.mark.slow
def test_nothing_is_kept_of_a_pair_loaded_without_learning(
    tiny: WriteModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is what was kept before used; the session itself still learns."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with load(tiny, learn=False) as engine:
        answer(engine)
        assert engine.pacing.knowledge.target.is_known
    assert not list(tmp_path.rglob("pacing"))

    with load(tiny) as engine:
        answer(engine)
    measured: list[object] = []
    monkeypatch.setattr(pair_pacing, "measure_passes", record_in(measured))
    load(tiny, learn=False).close()
    assert len(measured) == 2


@pytest.mark.slow
def test_measuring_a_new_pair_reports_progress(
    tiny: WriteModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The progress goes from 0 to 1, and only the first time the pair is used."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    shares: list[list[float]] = []
    for _ in range(2):
        found: list[float] = []
        shares.append(found)

        def report(stage: str, share: float, found: list[float] = found) -> None:
            if stage == "measuring":
                found.append(share)

        with LocalEngine(Loading(*pair_files(tiny), **OPTIONS), report) as engine:
            assert found == []  # loading measures nothing
            assert engine.prepare(report)
            answer(engine)

    assert shares[0][0] == 0.0
    assert shares[0][-1] == 1.0
    falls = sum(after < before for before, after in pairwise(shares[0]))
    assert falls <= 1  # anew where being exact takes other kernels
    assert len(shares[0]) > 8
    assert shares[1] == []


@pytest.mark.slow
def test_measuring_can_be_stopped(
    tiny: WriteModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The callback returns False, as it can during loading; nothing is then taken for measured."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def refuse(stage: str, share: float) -> bool:
        return stage != "measuring" or share < 0.3

    with LocalEngine(Loading(*pair_files(tiny), **OPTIONS)) as engine:
        assert not engine.prepare(refuse)
        assert not engine.pacing.is_settled
        assert engine.context.length == 0
        assert engine.prepare()
        assert engine.pacing.is_settled


def test_a_cache_that_cannot_be_written_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write fails as on a full disk."""
    (cache,) = caches_in(tmp_path, monkeypatch, 1)

    def full(*given: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    cache.keep_pair({"a": 3}, LearnedPair())
    assert sorted(cache.path.parent.glob("*")) == []


def test_ways_of_loading_have_caches_of_their_own(
    tiny: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pass costs depend on flash attention and on the GPU, unless it is not used.

    Without exact kernels, as "auto" takes them by a measured cost, and costs depend on them too.
    """
    ways = []
    for ctx in (1024, 2048, 4096):
        with load(tiny, ctx=ctx, exact="off") as engine:
            ways.append(engine.pacing.subject)
    assert ways[0] == ways[1] != ways[2]
    context = SimpleNamespace(shape=ContextShape(64))
    pair = SimpleNamespace(
        context=context, draft_context=None, is_repacked=True, loading=Loading(tiny("llama"))
    )
    subjects = []
    for gpu_layers, gpu in ((2, "H200"), (2, "GTX 1650"), (0, "H200"), (0, "GTX 1650")):
        pair.plan, pair.gpus, pair.uses_gpus = engine_plan(gpu_layers), (gpu,), gpu_layers > 0
        subjects.append(pair_pacing._subject(pair))  # type: ignore[arg-type]
    assert subjects[0] != subjects[1]
    assert subjects[2] == subjects[3]


def engine_plan(gpu_layers: int) -> Plan:
    """Return a plan with this many layers on GPUs."""
    return Plan(gpu_layers, None, 64, "f16", is_repacked=False)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("vocabulary", [20, 33])
def test_models_of_few_tokens_are_measured_too(tiny: WriteModel, vocabulary: int) -> None:
    """No pass has a token that is not there."""
    path = tiny("llama", vocabulary=vocabulary, tokenizer=False)
    with LocalEngine(Loading(path, **OPTIONS)) as engine:
        assert engine.prepare()
        assert engine.pacing.knowledge.target.is_known


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_does_no_harm(
    tiny: WriteModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each session then learns anew."""
    (tmp_path / "file").write_text("", "utf-8")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with load(tiny) as engine:
        assert len(answer(engine)) == 60


def test_an_answer_ends_although_the_drafts_file_is_gone(tiny: WriteModel, tmp_path: Path) -> None:
    """It is loaded, and may be deleted or pulled anew meanwhile."""
    draft = tmp_path / "draft.gguf"
    draft.write_bytes(tiny("llama", "half right").read_bytes())
    with LocalEngine(Loading(tiny("llama"), draft, threads=1)) as engine:
        draft.unlink()
        assert answer(engine)


def test_what_passes_would_take_apart_is_what_they_take_now(tiny: WriteModel) -> None:
    """On a machine three times as slow as when they were measured, joining gains no less."""
    with load(tiny) as engine:
        pacing = engine.pacing
        usual = pacing.seconds_apart(1, 10)
        assert usual == pytest.approx(pacing.knowledge.target.seconds(1, 10))
        for _ in range(40):
            pacing.knowledge.verifying.observe(1, 10, 3 * usual)
        assert pacing.seconds_apart(1, 10) == pytest.approx(3 * usual, rel=0.05)
        pacing.knowledge.target.begin_with({})
        assert pacing.seconds_apart(1, 10) == 0.0


@pytest.mark.parametrize(
    ("costs", "at_once"),
    [
        ({}, 4),
        ({1: 1.0, 2: 2.0, 3: 3.0, 4: 4.0}, 1),
        ({1: 1.0, 2: 1.96, 3: 2.93, 4: 3.91}, 1),
        ({1: 1.0, 2: 1.3, 3: 2.7, 4: 3.6}, 2),
        ({1: 1.0, 2: 1.9, 3: 2.5, 4: 2.0}, 4),
    ],
)
def test_answers_are_decoded_together_where_that_pays(
    tiny: WriteModel, costs: dict[int, float], at_once: int
) -> None:
    """By what was measured, at once and however many are asked for; all while it is unknown."""
    with LocalEngine(Loading(*pair_files(tiny), **OPTIONS, at_once=4)) as engine:
        target = engine.pacing.knowledge.target
        target.begin_with({length: 0.01 * cost for length, cost in costs.items()})
        engine._note_costs()
        assert engine.facts.at_once == at_once


FLAT = {length: 0.01 + 0.001 * length for length in (1, 4, 16, 64)}
"""What passes take where a draft costs little: less than a pass by itself, also if one pays all."""


def test_each_answer_learns_by_itself_how_many_draft(tiny: WriteModel) -> None:
    """A pass counts once, and others that begin or go on change nothing of it."""
    with load(tiny) as engine:
        engine.pacing.knowledge.target.begin_with(FLAT)
        greedy, company = GenerateOptions(temperature=0.0), [4, 5, 6, 7]
        own, other = [engine.pacing.pacer("model", greedy, place, company) for place in (0, 1)]
        assert own
        assert other
        assert own is not other

        def charged() -> float:
            return own._knowledge.verifying.seconds(4, 10)

        hopeful = charged()
        for _ in range(4):
            for pacer in (own, other):
                pacer.begin_step(10, 0, 0, 4)
                pacer.end_step([5], 0.0, 1, 1)
        few = charged()
        assert few > hopeful
        apart = engine.pacing.knowledge.verifying
        seconds = own._knowledge.target.seconds
        expected = SharedSeconds(seconds, lambda: True, apart, always_pads=False)
        expected.share_among(4)
        for _ in range(4):
            expected.note_drafting(1)
        assert few == pytest.approx(expected.seconds(4, 10))

        engine.pacing.pacer("model", greedy, 1, [8, 9])
        engine.pacing.pacer("model", greedy, 0, company)  # they go on
        own.expects_drafting(10)
        assert charged() == few


def test_how_many_draft_is_known_while_others_come_and_go(tiny: WriteModel) -> None:
    """The answers of a turn begin one after the other, and their number changes with each."""
    with load(tiny) as engine:
        engine.pacing.knowledge.target.begin_with(FLAT)
        own = engine.pacing.pacer("model", GenerateOptions(temperature=0.0), 0, [4, 5, 6, 7])
        assert own
        for _ in range(100):
            own.begin_step(10, 0, 0, 4)
            own.end_step([5], 0.0, 1, 1)
        charged = own._knowledge.verifying.seconds(4, 10)
        for count in (1, 2, 3, 4):
            own.begin_step(10, 0, 0, count)
        assert own._knowledge.verifying.seconds(4, 10) == pytest.approx(charged)


STEEP = {length: 0.01 * length for length in (1, 4, 16, 64)}


def test_passes_of_four_texts_say_nothing_of_those_of_two() -> None:
    """Each has a cache of its own, which no measured pass shows; only the machine is the same."""
    knowledge = Knowledge()
    knowledge.target.begin_with(STEEP)
    fresh, other = (knowledge.shared(always_pads=False).verifying for _ in range(2))
    other.share_among(4)
    for size in (1, 2, 4) * 10:
        other.observe(size, 10, 0.04 + 0.01 * (size - 1))
    for verifying in (fresh, other):
        verifying.share_among(2)
        for _ in range(10):
            verifying.observe(1, 10, 0.02)
    for size in (1, 2, 4):
        assert other.seconds(size, 10) == pytest.approx(fresh.seconds(size, 10), rel=0.1)
    assert knowledge.verifying.seconds(1, 10) == pytest.approx(0.01, rel=0.05)


def test_a_machine_is_as_slow_for_fewer_texts() -> None:
    """Other programs take as much of it when one of four answers has ended."""
    knowledge = Knowledge()
    knowledge.target.begin_with(STEEP)
    verifying = knowledge.shared(always_pads=False).verifying
    verifying.share_among(4)
    for _ in range(10):
        verifying.observe(1, 10, 0.03)
    for count in (3, 2):
        verifying.share_among(count)
        assert verifying.seconds(1, 10) == pytest.approx(0.03, rel=0.1)


@pytest.mark.parametrize(("always_pads", "added"), [(False, 0.03), (True, 0.12)])
def test_a_draft_is_charged_as_a_pass_by_itself_only_where_it_gets_one(
    always_pads: bool, added: float
) -> None:
    """Some memories take only passes with parts of equal length: all answers are padded."""
    knowledge = Knowledge()
    knowledge.target.begin_with(STEEP)
    verifying = knowledge.shared(always_pads=always_pads).verifying
    verifying.share_among(4)
    for _ in range(200):
        verifying.note_drafting(1)
    charged = verifying.seconds(4, 0) - verifying.seconds(1, 0)
    assert charged == pytest.approx(added, rel=0.05)


@pytest.mark.parametrize(
    ("earlier", "later"),
    [([1, 2, 3, 4], [1, 2, 3, 5]), ([1, 2, 3, 4], [5, 6]), ([0, 0, 0, 0], [0, 0, 0, 0])],
)
def test_others_are_expected_to_draft_until_they_are_known(
    tiny: WriteModel, earlier: list[int], later: list[int]
) -> None:
    """What was learned of a company is nothing to another one, though it may be in its place."""
    with load(tiny) as engine:
        engine.pacing.knowledge.target.begin_with(FLAT)
        options = "model", GenerateOptions(temperature=0.0), 0
        unknown = engine.pacing.pacer(*options, later)
        assert unknown
        expected = unknown._knowledge.verifying.seconds(4, 10)
        met = engine.pacing.pacer(*options, earlier)
        assert met is unknown
        for _ in range(100):
            met.begin_step(10, 0, 0, len(earlier))
            met.end_step([5], 0.0, 1, 1)
        assert met._knowledge.verifying.seconds(4, 10) > 1.5 * expected
        engine.pacing.pacer(*options, later)
        assert met._knowledge.verifying.seconds(4, 10) == pytest.approx(expected)


def test_forgetting_leaves_no_text_behind(tiny: WriteModel) -> None:
    """Neither in the models' memories nor in the suffix drafter; what was learned stays."""
    with load(tiny) as engine:
        expected = answer(engine, drafter="suffix")
        answer(engine, drafter="suffix")
        assert engine.stats.cached_tokens > 0
        observed = engine.pacing.knowledge.target.seconds(1, 10)
        engine.forget()

        assert engine.pacing.knowledge.target.seconds(1, 10) == observed
        assert engine.context.length == 0
        assert answer(engine, drafter="suffix") == expected
        assert engine.stats.cached_tokens == 0


@pytest.mark.slow
def test_the_other_process_forgets_too(tiny: WriteModel) -> None:
    """Asked for between answers, before the next one begins."""
    with Engine.load(tiny("llama"), tiny("llama"), process=True, **OPTIONS) as engine:
        expected = answer(engine)
        answer(engine)
        assert engine.stats.cached_tokens > 0
        engine.forget()
        assert answer(engine) == expected
        assert engine.stats.cached_tokens == 0


def test_a_draft_that_does_not_pay_is_reported(tiny: WriteModel) -> None:
    """As large as its target and mostly wrong, it is left alone, with the figures that say why."""
    with load(tiny, "wrong") as engine:
        for _ in range(12):  # what passes cost may have been measured on a busy machine at first
            answer(engine, drafter="model", max_tokens=300)
            if engine.stats.drafted < 150 and engine.stats.draft_off_reason:
                break

        assert engine.stats.drafted < 150
        assert "the draft model is paused: about" in (engine.stats.draft_off_reason or "")
        assert "of the time of a plain one" in speculation_line(engine.stats.speculation)


def test_switching_off_is_reported_for_each_answer(tiny: WriteModel) -> None:
    """Speculation is a matter of every answer, and so are the words about it."""
    with load(tiny) as engine:
        answer(engine, drafter="none")
        assert speculation_line(engine.stats.speculation) == "speculation is off: switched off"
        answer(engine, draft_length=0)
        assert "the draft length is 0" in str(engine.stats.speculation_off_reason)
        answer(engine, drafter="suffix")
        assert engine.stats.speculation["on"]
        assert engine.stats.draft_off_reason == "the draft model is switched off"
        answer(engine)
        assert engine.stats.speculation["drafter"] == "suffix+model"
