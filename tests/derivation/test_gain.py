"""What a draft is predicted to bring: from agreement and costs, with the best draft length."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import WriteModel
from scripts.support.tiny_gguf import write_with_head
from specchat import Engine
from specchat.decoding.distribution import Distribution
from specchat.derivation import sampled_texts
from specchat.derivation.derived_files import expectations, measure_draft
from specchat.derivation.gain import (
    Costs,
    Guess,
    acceptance,
    chances_by_position,
    drafting_rate,
    guesses_of,
    predict,
)
from specchat.derivation.head_guesses import NUM_POSITIONS, head_guesses
from specchat.derivation.sampled_texts import sample_texts
from specchat.engine.api import Loading
from specchat.engine.loader import load_pair
from specchat.engine.local_engine import LocalEngine
from specchat.errors import SpecchatError
from specchat.llama.library import AbortFlag
from specchat.llama.model import Model
from specchat.options.declarations import Sampling
from specchat.planning.context_shape import ModelOptions
from specchat.requests.progress import stopping_report

DEAR = Costs([0.0, *(0.01 * length for length in range(1, 66))], [0.001] * 66)
SHAPE = [(14 + length) / 15 for length in range(66)]
CHEAP = Costs([0.01 * cost for cost in SHAPE], [0.001 * cost for cost in SHAPE])
"""As on a machine with arithmetic to spare, where a pass over four tokens costs 1.2 single ones."""


def guesses(seed: int, noise: float = 0.0) -> list[Guess]:
    """Return what a model expects at 300 places; noise makes it another model."""
    random = np.random.default_rng(seed)
    logits = 3 * random.normal(size=(300, 50))
    logits += noise * np.random.default_rng(seed + 1).normal(size=logits.shape)
    return guesses_of(logits.astype(np.float32), Sampling())


def test_a_draft_like_its_target_brings_much_where_passes_are_cheap() -> None:
    """Nothing is gained where each token of a pass costs as much as a pass, and little lost."""
    wanted = guesses(1)
    here, elsewhere = (predict(costs, wanted, [wanted]) for costs in (DEAR, CHEAP))

    assert here.greedy == 1.0
    assert here.sampled == pytest.approx(1.0)
    assert here.pass_share == pytest.approx(0.1)
    assert here.speedup == pytest.approx(1.0)
    assert elsewhere.speedup > 2.5
    assert (here.is_worth_keeping, elsewhere.is_worth_keeping) == (False, True)


def test_a_better_draft_is_predicted_to_bring_more() -> None:
    """A foreign one brings nothing: nothing is drafted with it."""
    wanted = guesses(1)
    found = [predict(CHEAP, wanted, [guesses(1, noise)]) for noise in (0.5, 2.0)]
    foreign = predict(CHEAP, wanted, [guesses(7)])

    assert found[0].greedy > found[1].greedy > foreign.greedy
    assert found[0].sampled > found[1].sampled > foreign.sampled
    assert found[0].speedup > found[1].speedup > 1.02
    assert foreign.speedup == pytest.approx(1.0, abs=0.02)


def test_acceptance_is_what_distributions_share() -> None:
    """The sum of min(p, q); the second token of a draft counts where the first is accepted."""
    (one,), (other,) = ([Guess(0, _distribution(each))] for each in ((0.7, 0.3), (0.2, 0.8)))

    assert acceptance([one], [other]) == [pytest.approx(0.5)]
    chances = chances_by_position(np.array([[1.0, 1.0, 0.0, 1.0]]))
    assert chances[:3] == pytest.approx([3 / 4, 4 / 9, 0.0])


def _distribution(weights: tuple[float, float]) -> Distribution:
    return Distribution(np.arange(2), np.array(weights))


@pytest.mark.slow
def test_later_tokens_of_a_draft_may_be_worse_than_the_first() -> None:
    """What a head offers from its own rows counts behind the first token, in all predictions."""
    wanted = guesses(1)
    foreign, half = guesses(7), guesses(1, 0.5)
    alike, falling = (predict(CHEAP, wanted, offered) for offered in ([half], [half, foreign]))
    single = predict(CHEAP, wanted, [half, foreign, half])

    assert (alike.greedy, alike.sampled) == (falling.greedy, falling.sampled)
    assert falling.greedy_rate < 0.97 * alike.greedy_rate
    assert falling.sampled_rate < 0.97 * alike.sampled_rate
    assert single.greedy_rate == pytest.approx(falling.greedy_rate, rel=0.06)
    shares = np.array([[0.5, 0.5, 0.5], [0.2, 0.2, 0.2]])
    assert chances_by_position(shares) == pytest.approx([0.5, 0.2, 0.2])


def test_the_rate_is_that_of_the_best_draft_length() -> None:
    """Here 1, as longer passes cost too much; none where drafting does not pay."""
    for cost, rate in ((1.2, 1.5 / 1.2), (2.0, 1.0)):
        free = Costs([0.0, 1.0, cost, 3.0, *[100.0] * 62], [0.0] * 66)
        assert drafting_rate(free, np.full((1, 40), 0.5)) == pytest.approx(rate)


def test_predicted_acceptance_is_that_of_real_decoding(tiny: WriteModel) -> None:
    """On the target's own answer, at temperature 0, drafts of one token."""
    target, draft = tiny("llama"), tiny("llama", "half right")
    prompt, loading = [5, 6, 7, 8], Loading(target, threads=1, ctx=512)
    options: dict[str, Any] = {"temperature": 0.0, "max_tokens": 200, "ignore_end": True}
    with Engine.load(target=target, draft=draft, threads=1, ctx=512, learn=False) as engine:
        chunks = engine.generate(prompt, drafter="model", draft_length=1, **options)
        answer = [token for chunk in chunks for token in chunk.tokens]
        measured = engine.stats.acceptance_rate
    texts = [([*prompt, *answer], len(answer))]
    found = []
    for path in (target, draft):
        with Model(path, ModelOptions(gpu_layers=0)) as model:
            found.append(expectations(model, texts, loading, Sampling()))
    wanted, offered = found

    assert [guess.best for guess in wanted] == answer
    assert measured is not None
    assert 0.2 < measured < 0.8
    assert predict(CHEAP, wanted, [offered]).greedy == pytest.approx(measured, abs=0.1)


def test_a_draft_is_measured_with_its_target(tiny: WriteModel) -> None:
    """On the target's answers: a copy of it predicts them all, another model does not."""
    target, sampling = tiny("llama"), Sampling(temperature=0.8)
    loading = Loading(target, threads=1, ctx=512, exact="off", learn=False)
    with LocalEngine(loading) as engine:
        texts = sample_texts(engine, sampling.values(Sampling))
    assert len(texts) == len(sampled_texts.QUESTIONS)
    assert all(len(tokens) > count > 0 for tokens, count in texts)
    same, half = (measure_draft(loading, draft, texts, sampling) for draft in (
        target, tiny("llama", "half right")
    ))  # fmt: skip

    assert same.greedy == pytest.approx(1.0)
    assert same.sampled == pytest.approx(1.0)
    assert 0.05 < half.greedy < 0.95
    assert 0.05 < half.sampled < 0.99
    for gain in (same, half):
        assert gain.pass_share > 0
        assert gain.plain_rate > 0
    with pytest.raises(SpecchatError, match="does not fit the target"):
        measure_draft(loading, tiny("llama", tokenizer=False), texts, sampling)


def test_a_target_that_answers_nothing_is_refused(
    tiny: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few tokens say nothing of a draft."""
    monkeypatch.setattr(sampled_texts, "NUM_TOKENS", 1)
    with (
        LocalEngine(Loading(tiny("llama"), threads=1, ctx=512, learn=False)) as engine,
        pytest.raises(SpecchatError, match="answers are too short to compare a draft with"),
    ):
        sample_texts(engine, Sampling().values(Sampling))


def test_predicted_acceptance_of_a_head_is_that_of_real_decoding(tmp_path: Path) -> None:
    """Of the first token of a draft and of the second, which the head makes from its own row."""
    target, head = (tmp_path / f"{part}.gguf" for part in ("trunk", "head"))
    for path in (target, head):
        write_with_head(path, "llama", part=path.stem, draft="EAGLE-3", noise=0.3)
    prompt, loading = [5, 6, 7, 8], Loading(target, head, threads=1, ctx=512, learn=False)
    options: dict[str, Any] = {"temperature": 0.0, "max_tokens": 200, "ignore_end": True}
    with LocalEngine(loading) as engine:
        chunks = engine.generate(prompt, drafter="head", draft_length=2, **options)
        answer = [token for chunk in chunks for token in chunk.tokens]
        drafted, accepted = engine.stats.drafted_by_position, engine.stats.acceptance_histogram
    real = [sum(accepted[place + 1 :]) / drafted[place] for place in range(2)]
    texts = [([*prompt, *answer], len(answer))]
    with ExitStack() as stack:
        pair = load_pair(loading, AbortFlag(), stack, stopping_report(None))
        assert pair.draft_context is not None
        wanted, offered = head_guesses(pair.context, pair.draft_context, texts, Sampling())

    is_right = np.array(
        [[p.best == q.best for p, q in zip(wanted, guesses, strict=True)] for guesses in offered]
    )
    assert [guess.best for guess in wanted] == answer
    assert len(offered) == NUM_POSITIONS
    assert 0.2 < is_right[0].mean() < 0.9
    assert is_right[0].mean() == pytest.approx(real[0], abs=0.1)
    both = (is_right[0, :-1] & is_right[1, 1:]).mean()
    assert both == pytest.approx(real[1], abs=0.1)
