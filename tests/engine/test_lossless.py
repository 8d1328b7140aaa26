"""Losslessness on real llama.cpp: eight architectures, drafts right, wrong and half right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from scipy import stats

from conftest import WriteModel
from scripts.support.tiny_gguf import ARCHITECTURES
from specchat import Engine, Image
from specchat.decoding import draft_passes, loop, request
from specchat.decoding.request import Request
from specchat.decoding.verification import Verdict
from specchat.engine.api import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.engine.losslessness import check_prompt
from specchat.pacing import pacer
from specchat.pacing.knowledge import Knowledge
from specchat.passes.pass_costs import UNQUANTISED

EXACT: dict[str, Any] = {
    "ctx": 512,
    "threads": 1,
    "flash_attention": "off",
    "cache_type": "f32",
    "learn": False,  # a file written after each of thousands of answers takes most of the time
}
PROMPT = [40, 75, 111, 260, 90, 33, 201, 150]
WHOLE: dict[str, Any] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}


def tokens_of(engine: Engine, prompt: list[int] = PROMPT, **options: Any) -> list[int]:
    """Decode an answer and return its tokens."""
    return [token for chunk in engine.generate(prompt, **options) for token in chunk.tokens]


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("architecture", "kind"),
    [
        *((name, "half right") for name in ARCHITECTURES),
        *((name, kind) for name in ("llama", "mamba") for kind in ("right", "wrong")),
    ],
)
def test_greedy_tokens_are_plain_decodings(
    shallow: WriteModel, architecture: str, kind: str
) -> None:
    """At temperature 0 every token equals plain decoding's, at every draft length."""
    files = shallow(architecture), shallow(architecture, kind)
    with Engine.load(*files, **EXACT) as engine:
        plain = tokens_of(engine, temperature=0.0, max_tokens=60, drafter="none")
        for draft_length in (1, 3, 6, 64):
            options: dict[str, Any] = {"temperature": 0.0, "max_tokens": 60}
            options["draft_length"] = draft_length
            assert tokens_of(engine, drafter="auto", **options) == plain
            assert tokens_of(engine, drafter="model", **options) == plain
            rate = engine.stats.acceptance_rate
            if kind == "right":
                assert rate == 1.0
            elif kind == "wrong":
                assert rate < 0.2
            elif draft_length == 1:
                assert 0.2 < rate < 0.9
        for drafter in ("auto", "model", "suffix"):
            paced: dict[str, Any] = {"temperature": 0.0, "max_tokens": 60, "drafter": drafter}
            assert tokens_of(engine, **paced) == plain
            assert tokens_of(engine, **paced) == plain


@pytest.mark.parametrize("architecture", ["llama", "gemma3", "mamba", "qwen35"])
def test_suffix_drafts_change_nothing_either(shallow: WriteModel, architecture: str) -> None:
    """A repetitive text is drafted from its past and stays the same."""
    prompt = PROMPT * 6
    with Engine.load(shallow(architecture), **EXACT) as engine:
        assert engine.prepare()
        plain = tokens_of(engine, prompt, temperature=0.0, max_tokens=150, drafter="none")
        for length in (6, 64):
            suffix: dict[str, Any] = {"drafter": "suffix", "draft_length": length}
            drafted = tokens_of(engine, prompt, temperature=0.0, max_tokens=150, **suffix)

            assert drafted == plain
            assert engine.stats.drafted > 0


@pytest.mark.parametrize("size", [300, 448])
def test_vocabularies_of_different_size_are_lossless(shallow: WriteModel, size: int) -> None:
    """Token ids that only one model has are never proposed and do no harm."""
    with Engine.load(shallow("llama"), shallow("qwen3", vocabulary=size), **EXACT) as engine:
        plain = tokens_of(engine, max_tokens=60, temperature=0.0, drafter="none")
        assert tokens_of(engine, max_tokens=60, temperature=0.0) == plain
        hot = WHOLE | {"temperature": 3.0}
        assert max(tokens_of(engine, max_tokens=300, seed=1, **hot)) < 320


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["llama", "gemma3", "mamba", "lfm2"])
def test_a_model_as_its_own_draft_is_accepted(shallow: WriteModel, architecture: str) -> None:
    """More than 99.9 % at temperature 1, with top-k and without."""
    with Engine.load(shallow(architecture), shallow(architecture), **EXACT) as engine:
        for options in (WHOLE, WHOLE | {"top_k": 40}):
            accepted = drafted = 0
            for seed in (None, 1, None, 2, None, 3, None, 4):
                drafting: dict[str, Any] = {"drafter": "model", "draft_length": 3, "seed": seed}
                tokens_of(engine, max_tokens=200, **drafting, **options)
                accepted += engine.stats.accepted
                drafted += engine.stats.drafted
            assert accepted / drafted > 0.999


def first_tokens(
    engine: Engine,
    drafter: str,
    num_answers: int,
    seed: int | None = None,
    draft_length: int | str = 3,
    prompt: list[int] | str = PROMPT,
    images: Sequence[Image] = (),
) -> tuple[Counter[object], int]:
    """Count the second and third tokens of many answers (the first step's and a correction's).

    The answers have this seed and those after it, or none. Returns these counts and the number of
    drafted tokens.
    """
    options = WHOLE | {"top_k": 6, "drafter": drafter, "draft_length": draft_length}
    options |= {"max_tokens": 5, "images": images}
    counts: Counter[object] = Counter()
    num_drafted = 0
    for number in range(num_answers):
        answer: list[int] = []
        chunks = engine.generate(prompt, seed=None if seed is None else seed + number, **options)
        while len(answer) < 3:
            answer += next(chunks).tokens
        chunks.close()  # type: ignore[attr-defined]  # a generator: the rest is not needed
        counts[answer[1], answer[2]] += 1
        num_drafted += engine.stats.drafted
    return counts, num_drafted


def homogeneity(first: Counter[object], second: Counter[object]) -> float:
    """Two-sample chi-square of counts, rare outcomes pooled."""
    common = [key for key in first | second if first[key] + second[key] >= 20]
    rows = [[counts[key] for key in common] for counts in (first, second)]
    for row, counts in zip(rows, (first, second), strict=True):
        row.append(counts.total() - sum(row))
    columns = [index for index in range(len(rows[0])) if rows[0][index] + rows[1][index]]
    table = [[row[index] for index in columns] for row in rows]
    return float(stats.chi2_contingency(table).pvalue)


@pytest.fixture(autouse=True)
def _same_numbers_in_every_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers without a seed draw from one known generator, so that no test fails by chance."""
    generator = np.random.default_rng(12)
    monkeypatch.setattr(request, "default_rng", lambda: generator)


@pytest.fixture(scope="module")
def plain(shallow: WriteModel) -> Any:
    """Return the first tokens of plain decoding with many seeds, counted."""
    with Engine.load(shallow("llama"), shallow("llama", "half right"), **EXACT) as engine:
        return first_tokens(engine, "none", 1500, seed=10_000)[0]


@pytest.mark.slow
def test_sampled_text_is_distributed_as_plain_sampling(
    shallow: WriteModel, plain: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Samples without and with seeds fit (false alarm 1e-4), and a broken verifier's does not."""
    with Engine.load(shallow("llama"), shallow("llama", "half right"), **EXACT) as engine:
        for seed, num_answers in ((None, 1500), (50_000, 800)):
            speculative, _ = first_tokens(engine, "model", num_answers, seed)
            assert homogeneity(plain, speculative) > 1e-4

        def accept_always(draft: Any, target: Any, random: Any) -> Verdict:
            return Verdict(len(draft), target(len(draft)).sample(random))

        monkeypatch.setattr(Request, "verifier_at", lambda *_: accept_always)
        broken, _ = first_tokens(engine, "model", 500)
        assert homogeneity(plain, broken) < 1e-9


def slow_down(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let target passes take 10 ms, and nothing else any time, by the clocks that pacing reads.

    Then drafting pays, however busy this machine is. What was measured is forgotten.
    """
    engine.pacing.knowledge = Knowledge(stair=UNQUANTISED)
    engine.pacing.pacers.clear()
    num_passes = 0

    def slow(evaluate: Callable[..., Any]) -> Callable[..., Any]:
        def evaluate_slowly(*given: Any) -> Any:
            nonlocal num_passes
            num_passes += 1
            return evaluate(*given)

        return evaluate_slowly

    for name in ("evaluate", "evaluate_tree"):
        monkeypatch.setattr(engine.context, name, slow(getattr(engine.context, name)))
    for module in (loop, draft_passes, pacer):
        monkeypatch.setattr(module, "perf_counter", lambda: 0.01 * num_passes)


@pytest.mark.slow
@pytest.mark.usefixtures("full_measurement")
@pytest.mark.parametrize("drafter", ["model", "suffix", "auto"])
def test_sampled_text_is_distributed_as_plain_sampling_with_pacing_on(
    shallow: WriteModel, plain: Any, monkeypatch: pytest.MonkeyPatch, drafter: str
) -> None:
    """Where the draft length follows the clock, the text still fits (false alarm 1e-6)."""
    with LocalEngine(Loading(shallow("llama"), shallow("llama", "half right"), **EXACT)) as engine:
        assert engine.prepare()
        slow_down(engine, monkeypatch)
        paced, num_drafted = first_tokens(engine, drafter, 1000, draft_length="auto")

    assert homogeneity(plain, paced) > 1e-6
    assert num_drafted > 1000 or drafter == "suffix"  # whose text hardly ever repeats itself


@pytest.mark.parametrize(("architecture", "draft_length"), [("llama", 3), ("lfm2", 17)])
def test_check_finds_nothing_on_a_right_build(
    shallow: WriteModel, architecture: str, draft_length: int
) -> None:
    """Rescored by the target alone, every token is the argmax; drafts have any allowed length."""
    pair = shallow(architecture), shallow(architecture, "half right")
    with LocalEngine(Loading(*pair, **EXACT)) as engine:
        finding = check_prompt(engine, "p", PROMPT, 60, draft_length)

    assert finding.parted_at is None
    assert finding.num_rescored_off == 0
    assert finding.is_lossless


def test_check_catches_a_broken_verifier(
    shallow: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounding does not explain an accepted wrong token."""

    def accept_always(draft: Any, target: Any, random: Any) -> Verdict:
        return Verdict(len(draft), target(len(draft)).best())

    monkeypatch.setattr(Request, "verifier_at", lambda *_: accept_always)
    with LocalEngine(Loading(shallow("llama"), shallow("llama", "half right"), **EXACT)) as engine:
        finding = check_prompt(engine, "p", PROMPT, 60, 3)

    assert not finding.is_lossless
    assert finding.num_rescored_off > 0


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("batch", [18, 512])
@pytest.mark.parametrize("architecture", ["mamba", "granitehybrid"])
def test_a_hopeless_draft_does_not_pile_up_replays(
    shallow: WriteModel, architecture: str, batch: int
) -> None:
    """With drafts rejected at nearly every step, checkpoints still give plain decoding's tokens."""
    options = EXACT | {"ctx": 1024, "batch": batch}
    with Engine.load(shallow(architecture), shallow(architecture, "wrong"), **options) as engine:
        plain = tokens_of(engine, temperature=0.0, max_tokens=600, drafter="none")
        assert tokens_of(engine, temperature=0.0, max_tokens=600) == plain
