"""Exact passes in the engine: what --exact allows, what check proves, and what is kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import WriteModel
from scripts.support.tiny_gguf import ARCHITECTURES
from specchat.decoding.ports import Rows
from specchat.engine import exact_drafts
from specchat.engine.api import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.engine.losslessness import check_prompt
from specchat.llama import text_memory, tinyblas
from specchat.llama.batch import Batch
from specchat.llama.library import api
from specchat.llama.rollback import Rollback
from specchat.options.declarations import LONGEST_DRAFT
from specchat.passes import exactness_measurement, learned_cache
from specchat.passes.exactness import Exactness
from specchat.passes.learned_cache import LearnedCache
from specchat.structured.structure import Structure

PROMPT = [40, 75, 111, 260, 90, 33, 201, 150]
USUAL: dict[str, Any] = {"ctx": 512, "threads": 1, "learn": False, "gpu_layers": 0}


def loaded(target: Path, draft: Path | None = None, **options: Any) -> LocalEngine:
    """Load and measure a pair on one thread; nothing is kept of it unless `learn` is given."""
    engine = LocalEngine(Loading(target, draft, **{**USUAL, **options}))
    assert engine.prepare()
    return engine


def tokens_of(engine: LocalEngine, drafter: str, **options: Any) -> list[int]:
    """Decode 60 tokens at temperature 0 and return them."""
    usual: dict[str, Any] = {"temperature": 0.0, "max_tokens": 60, "drafter": drafter}
    return [
        token for chunk in engine.generate(PROMPT, **{**usual, **options}) for token in chunk.tokens
    ]


def claim(monkeypatch: pytest.MonkeyPatch, longest: int) -> None:
    """Let every comparison find that passes of up to `longest` tokens are exact, and cheap."""
    monkeypatch.setattr(exactness_measurement, "longest_here", lambda *_: (longest, longest))
    find_costs(monkeypatch, {2: 1.0, 4: 1.0, 8: 1.0, 16: 1.0})


def find_costs(monkeypatch: pytest.MonkeyPatch, costs: dict[int, float]) -> None:
    """Let exact kernels cost this."""

    def known(_: object, __: object, lengths: dict[int, float], *___: object) -> dict[int, float]:
        return {length: cost for length, cost in costs.items() if length in lengths}

    monkeypatch.setattr(exactness_measurement, "costs_here", known)


@pytest.mark.slow(keep=3)
@pytest.mark.parametrize("quantisation", ["f32", "f16", "q8_0", "q4_0"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_exact_on_gives_the_bits_of_plain_decoding(
    shallow: WriteModel, architecture: str, quantisation: str
) -> None:
    """Text and logits are equal; where no draft is exact, none is made and the reason is given."""
    path = shallow(architecture, quantisation=quantisation)
    with loaded(path, path, exact="on") as engine:
        if engine.facts.exact_draft:
            finding = check_prompt(engine, "p", PROMPT, 48, engine.facts.longest_draft)
            assert finding.is_exact
            assert finding.num_inexact == 0
            assert finding.parted_at is None
            assert finding.drafted > 0
        else:
            assert engine.facts.exact_draft == 0
            assert "--exact" in str(engine.facts.speculation_off_reason)
            tokens_of(engine, "auto")
            assert engine.stats.drafted == 0
            assert engine.stats.speculation_off_reason == exact_drafts.NOT_EXACT


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("name", ["Q4_0", "Q8_0", "Q4_K_M", "Q6_K", "F16", "IQ4_XS"])
def test_exact_on_holds_for_quantizations(shallow: WriteModel, tmp_path: Path, name: str) -> None:
    """Weights as files have them: with model and suffix drafts, or no draft is made."""
    source = shallow("llama", quantisation="f16", width=256, feed_forward=256)
    path = tmp_path / f"{name}.gguf"
    parameters = api.llama_model_quantize_default_params()
    parameters.ftype = getattr(api, f"LLAMA_FTYPE_MOSTLY_{name}")
    assert api.llama_model_quantize(str(source).encode(), str(path).encode(), parameters) == 0

    with loaded(path, path, exact="on") as engine:
        allowed = engine.facts.exact_draft or 0
        if allowed:
            finding = check_prompt(engine, "p", PROMPT * 4, 120, allowed)
            assert (finding.is_exact, finding.is_lossless) == (True, True)
            assert finding.drafted > 0
        plain = tokens_of(engine, "none")
        assert tokens_of(engine, "suffix" if allowed else "auto") == plain


def test_check_fails_if_one_logit_of_batched_passes_differs(
    shallow: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1e-3 in one logit, which changes no token, contradicts what was measured."""
    claim(monkeypatch, 33)
    with loaded(shallow("llama"), shallow("llama"), exact="on") as engine:
        evaluate = engine.context.evaluate

        def one_by_one(tokens: Sequence[int], num_rows: int) -> Any:
            if num_rows < 2:
                return evaluate(tokens, num_rows)
            return [evaluate([token], 1)[0].copy() for token in tokens]

        monkeypatch.setattr(engine.context, "evaluate", one_by_one)
        right = check_prompt(engine, "p", PROMPT, 40, 3)

        def changed(tokens: Sequence[int], num_rows: int) -> Any:
            rows = one_by_one(tokens, num_rows)
            if num_rows > 1:
                rows[-1][0] += np.float32(1e-3)
            return rows

        monkeypatch.setattr(engine.context, "evaluate", changed)
        wrong = check_prompt(engine, "p", PROMPT, 40, 3)

    assert right.is_exact
    assert right.is_lossless
    assert wrong.parted_at is None
    assert wrong.num_inexact == 10
    assert not wrong.is_lossless


@pytest.mark.parametrize(("longest", "allowed"), [(1, 0), (2, 1), (4, 3), (33, 32)])
def test_exact_on_drafts_exact_lengths_only(
    shallow: WriteModel, monkeypatch: pytest.MonkeyPatch, longest: int, allowed: int
) -> None:
    """No step drafts more than the longest exact draft, whatever the draft length asked for."""
    claim(monkeypatch, longest)
    with loaded(shallow("llama"), shallow("llama"), exact="on") as engine:
        tokens_of(engine, "auto", draft_length=16)

        assert engine.facts.exact_draft == allowed
        assert engine.facts.longest_draft == allowed
        assert len(engine.stats.accepted_by_position) == min(16, allowed)


def test_other_modes_do_not_limit_drafts(
    shallow: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With auto the exact length is measured, whether or not it is kept; with off it is not."""
    claim(monkeypatch, 2)
    for exact, learn, known in (("auto", True, 1), ("auto", False, 1), ("off", True, None)):
        with loaded(shallow("llama", seed=31), exact=exact, learn=learn) as engine:
            assert engine.facts.exact_draft == known
            assert engine.facts.longest_draft == LONGEST_DRAFT


def test_the_exact_length_is_measured_once(
    shallow: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is kept by model and by how it is loaded, and measured again with another build."""
    claim(monkeypatch, 4)
    options: dict[str, Any] = {"learn": True, "exact": "on"}
    path = shallow("qwen3", seed=32)
    with loaded(path, **options):
        pass
    claim(monkeypatch, 9)
    with loaded(path, **options) as engine:
        assert engine.facts.exact_draft == 3
    with loaded(path, **options, cache_type="f32") as engine:
        assert engine.facts.exact_draft == 8
    assert sorted(each.longest for each in LearnedCache(path).exactness().values()) == [4, 9]
    monkeypatch.setattr(exact_drafts, "build", lambda: "another build")
    with loaded(path, **options) as engine:
        assert engine.facts.exact_draft == 8
    assert [each.longest for each in LearnedCache(path).exactness().values()] == [9]


@pytest.mark.parametrize(
    ("exact", "allowed", "cost"), [("auto", 3, 1.03), ("on", 32, 1.4)], ids=["auto", "on"]
)
def test_auto_takes_exact_kernels_where_they_are_cheap(
    shallow: WriteModel, monkeypatch: pytest.MonkeyPatch, exact: str, allowed: int, cost: float
) -> None:
    """With auto up to the passes that take 5 % longer, without a limit on drafts; with on, all."""
    claim(monkeypatch, 33)
    left_out: list[int] = []
    monkeypatch.setattr(tinyblas, "is_optional", lambda: True)
    monkeypatch.setattr(tinyblas, "leave_out", left_out.append)
    find_costs(monkeypatch, {2: 1.0, 4: 1.03, 8: 1.4})
    path = shallow("llama", seed=41)
    with loaded(path, exact=exact, learn=True) as engine:
        facts = engine.facts
        longest = allowed if exact == "on" else LONGEST_DRAFT
        assert (facts.exact_draft, facts.exact_cost, facts.longest_draft) == (
            allowed,
            cost,
            longest,
        )
        assert facts.repeatable_draft == 32
    assert set(left_out) == {allowed + 1}
    kept_by_way = LearnedCache(path).exactness().items()
    way, kept = next((way, kept) for way, kept in kept_by_way if exact in way.split(",")[0])
    assert way.startswith(f"--exact {exact}, flash attention o")
    assert (kept.usual, kept.longest, kept.costs[1]) == (allowed + 1, 33, (4, 1.03))


def test_what_lacked_time_is_measured_again(
    shallow: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine nothing may be proved at first; after three loads it is left at that."""
    path = shallow("llama", seed=42)
    drafts = []
    for found in [(1, 33), (5, 33), (3, 33), (33, 33)]:
        monkeypatch.setattr(exactness_measurement, "longest_here", lambda *_, found=found: found)
        with loaded(path, exact="on", learn=True) as engine:
            drafts.append(engine.facts.exact_draft)

    assert drafts == [0, 4, 4, 4]


def test_the_exactness_cache_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest models are dropped, and of one model the ways that were measured first."""
    monkeypatch.setattr(learned_cache, "MAX_FILES", 5)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    models = [tmp_path / f"{number}.gguf" for number in range(8)]
    for model in models:
        model.write_bytes(b"GGUF")
        for way in range(20):
            LearnedCache(model, "build").keep_exactness(f"way {way}", Exactness(2))

    assert len(list((tmp_path / "state").rglob("*.json"))) == 5
    assert list(LearnedCache(models[-1]).exactness()) == [f"way {way}" for way in range(4, 20)]


def test_replayed_tokens_take_exact_passes(
    shallow: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens evaluated again after a rollback to a saved state join no longer pass."""
    claim(monkeypatch, 4)
    with loaded(shallow("mamba"), shallow("mamba", "wrong"), exact="on") as engine:
        passes: list[int] = []
        run = engine.context.run

        def noted(batch: Batch) -> None:
            passes.append(batch.count)
            run(batch)

        tokens_of(engine, "model", draft_length=3, max_tokens=1)
        monkeypatch.setattr(engine.context, "run", noted)
        tokens_of(engine, "model", draft_length=3)

    assert max(passes) == 4


def test_exact_on_does_without_flash_attention_and_inexact_repacking(shallow: WriteModel) -> None:
    """On a CPU both change what a pass computes; other modes keep them."""
    with loaded(shallow("llama"), exact="on") as engine:
        assert not engine.context.shape.flash
    with loaded(shallow("llama"), exact="auto") as engine:
        assert engine.context.shape.flash


def test_a_target_without_rollback_reads_forced_tokens_in_exact_passes(
    shallow: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One by one: no longer pass of such a target is known to be exact."""
    sizes: list[int] = []
    monkeypatch.setattr(text_memory, "choose_rollback", lambda handle, *_, **__: Rollback(handle))
    with loaded(shallow("llama"), exact="on") as engine:
        assert engine.facts.speculation_off_reason
        evaluate = engine.context.evaluate

        def watched(tokens: Sequence[int], num_rows: int) -> Rows:
            sizes.append(len(tokens))
            return evaluate(tokens, num_rows)

        monkeypatch.setattr(engine.context, "evaluate", watched)
        structure = Structure("regex", "(x|y) and so on and so forth (1|2)")
        text = "".join(
            chunk.text for chunk in engine.generate(PROMPT, structure=structure, temperature=0.0)
        )
        assert text[1:-1] == " and so on and so forth "
        assert engine.stats.forced > 3
        assert sizes[0] == len(PROMPT) - 1
        assert set(sizes[1:]) == {1}
