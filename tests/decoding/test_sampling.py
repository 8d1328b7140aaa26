"""Processed distributions: the same tokens and probabilities as llama.cpp's own sampler chain."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import replace

import llama_cpp.llama_cpp as api
import numpy as np
import pytest

from specchat.decoding.distribution import Logits
from specchat.decoding.sampling import Sampler
from specchat.errors import EngineFailed, InvalidOption
from specchat.options.declarations import Sampling
from tables import table

OFF = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
HISTORY = [3, 9, 9, 27, 3, 3, 81, 4]


def logits(seed: int, size: int = 1000, scale: float = 3.0) -> Logits:
    """Return a peaked row of logits, all different."""
    return np.random.default_rng(seed).normal(0, scale, size).astype(np.float32)


def by_llama_cpp(row: Logits, sampling: Sampling, history: Sequence[int]) -> dict[int, float]:
    """Return llama.cpp's processed distribution, its default chain built by hand."""
    chain = api.llama_sampler_chain_init(api.llama_sampler_chain_default_params())
    bias = (api.llama_logit_bias * max(1, len(sampling.logit_bias)))()
    for place, (token, value) in enumerate(sampling.logit_bias.items()):
        bias[place] = api.llama_logit_bias(token, value)
    last_n = len(history) if sampling.repeat_last_n < 0 else sampling.repeat_last_n
    penalties = (
        row.size, last_n,
        sampling.repeat_penalty, sampling.frequency_penalty, sampling.presence_penalty,
    )  # fmt: skip
    parts = [
        api.llama_sampler_init_logit_bias(row.size, len(sampling.logit_bias), bias),
        api.llama_sampler_init_penalties(*penalties),
        api.llama_sampler_init_top_k(sampling.top_k),
        api.llama_sampler_init_top_p(sampling.top_p, 0),
        api.llama_sampler_init_min_p(sampling.min_p, 0),
        api.llama_sampler_init_temp(sampling.temperature),
        api.llama_sampler_init_dist(0),
    ]
    for part in parts:
        api.llama_sampler_chain_add(chain, part)
    for token in history:
        api.llama_sampler_accept(chain, token)
    candidates = (api.llama_token_data * row.size)(
        *[api.llama_token_data(token, float(value), 0.0) for token, value in enumerate(row)]
    )
    array = api.llama_token_data_array(candidates, row.size, -1, False)
    api.llama_sampler_apply(chain, ctypes.byref(array))
    rows = [array.data[place] for place in range(array.size)]
    found = {int(row.id): float(row.p) for row in rows if row.p > 0}
    api.llama_sampler_free(chain)
    return found


CHAINS = {
    "top-k": replace(OFF, top_k=40),
    "top-p": replace(OFF, top_p=0.9),
    "min-p": replace(OFF, min_p=0.05),
    "all three": Sampling(),
    "top-p after top-k": replace(OFF, top_k=5, top_p=0.7),
    "min-p after top-p": replace(OFF, top_p=0.95, min_p=0.2),
    "cold": replace(OFF, temperature=0.3, top_k=20),
    "hot": replace(OFF, temperature=2.0, top_k=20, min_p=0.1),
    "repeat": replace(OFF, top_k=40, repeat_penalty=1.3),
    "presence": replace(OFF, top_k=40, presence_penalty=0.7),
    "frequency": replace(OFF, top_k=40, frequency_penalty=0.4),
    "short window": replace(OFF, top_k=40, repeat_penalty=1.5, repeat_last_n=3),
    "whole window": replace(OFF, top_k=40, frequency_penalty=0.5, repeat_last_n=-1),
    "bias": replace(OFF, top_k=40, logit_bias={5: 9.0, 7: -100.0}),
    "all of it": Sampling(
        temperature=0.7, repeat_penalty=1.2, presence_penalty=0.1, frequency_penalty=0.1,
        logit_bias={11: 4.0},
    ),
}  # fmt: skip


@table("seed", range(4))
@table("sampling", CHAINS.values(), ids=CHAINS.keys())
def test_the_distribution_is_llama_cpps(sampling: Sampling, seed: int) -> None:
    """Same support and same probabilities as llama.cpp's samplers in their default order."""
    row = logits(seed)
    expected = by_llama_cpp(row, sampling, HISTORY)

    found = Sampler(sampling).distribution(row, HISTORY)

    assert set(found.ids.tolist()) == set(expected)
    for token, weight in zip(found.ids.tolist(), found.weights.tolist(), strict=True):
        assert weight == pytest.approx(expected[token], rel=2e-4, abs=1e-9)


@table("sampling", CHAINS.values(), ids=CHAINS.keys())
def test_the_result_does_not_depend_on_earlier_rows(sampling: Sampling) -> None:
    """How far the last row's surviving tokens reached only makes the next row faster."""
    used, peaked = Sampler(sampling), logits(1) * 40
    for row in (logits(0, scale=0.1), peaked, logits(2)):
        fresh = Sampler(sampling).distribution(row, HISTORY)
        found = used.distribution(row, HISTORY)

        assert found.ids.tolist() == fresh.ids.tolist()
        assert found.weights.tolist() == fresh.weights.tolist()


def test_nothing_cut_off_is_the_softmax() -> None:
    """With every step off, all that a 53-bit random number can reach is there."""
    row = logits(3)
    exact = np.exp(row.astype(np.float64) - row.max())
    exact /= exact.sum()

    found = Sampler(OFF).distribution(row, [])

    assert found.weights_of(np.arange(row.size)) == pytest.approx(exact, rel=1e-5, abs=1e-12)
    assert found.weights.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("top_p", [1.0, 0.7])
def test_of_equal_logits_the_same_survive_whatever_the_row_before(top_p: float) -> None:
    """Of the last that are equal the higher ids stay, however many were near the maximum."""
    row = np.round(logits(7) / 2).astype(np.float32)  # most values occur several times
    best = sorted(range(row.size), key=lambda token: (row[token], token), reverse=True)[:40]
    assert row[best[-1]] == row[best[-2]]
    assert np.count_nonzero(row >= row[best[-1]]) > len(best)
    found = list[list[int]]()
    for scale in (0.01, 1.0, 100.0):
        sampler = Sampler(replace(OFF, top_k=40, top_p=top_p))
        sampler.distribution(scale * row, ())
        found.append(sampler.distribution(row, ()).ids.tolist())
    assert found == [best[: len(found[0])]] * 3
    assert top_p < 1.0 or len(found[0]) == len(best)


def test_temperature_zero_is_the_best_token_after_penalties() -> None:
    """Greedy decoding applies bias and penalties too."""
    row = np.array([1.0, 5.0, 4.9], dtype=np.float32)
    sampling = Sampling(temperature=0.0, presence_penalty=1.0)

    assert Sampler(sampling).distribution(row, []).best() == 1
    assert Sampler(sampling).distribution(row, [1]).best() == 2
    assert row[1] == 5.0  # the model's own row is left alone


def test_a_window_of_the_history_is_enough() -> None:
    """The end of the text gives the same penalties as all of it."""
    sampler = Sampler(Sampling(repeat_penalty=1.3, repeat_last_n=4))
    text = [7, 7, 1, 2, 3, 4]

    whole = sampler.distribution(logits(1), text)
    window = sampler.distribution(logits(1), sampler.window(text))

    assert sampler.window(text) == [1, 2, 3, 4]
    assert whole.weights.tolist() == window.weights.tolist()


@table("value", [math.nan, -math.inf])
@table("temperature", [0.0, 1.0])
def test_rows_of_nan_or_infinity_are_an_error(value: float, temperature: float) -> None:
    """NaN in the logits ends the answer with a reason instead of nonsense."""
    row = np.full(50, value, dtype=np.float32)
    with pytest.raises(EngineFailed, match="not numbers"):
        Sampler(replace(OFF, temperature=temperature)).distribution(row, [])


WRONG = [
    ("temperature", -0.1), ("temperature", math.nan), ("temperature", math.inf), ("top_k", -1),
    ("top_p", 0.0), ("top_p", 1.1), ("min_p", -0.1), ("min_p", 1.5), ("repeat_penalty", 0.0),
    ("repeat_last_n", -2), ("presence_penalty", math.nan), ("presence_penalty", -1e39),
    ("presence_penalty", 101.0), ("frequency_penalty", 1e39), ("frequency_penalty", -100.5),
    ("logit_bias", {3: 1e39}), ("logit_bias", {3: -1e39}), ("logit_bias", {3: math.inf}),
]  # fmt: skip


@table(("name", "value"), WRONG)
def test_options_out_of_range_are_refused_by_name(name: str, value: object) -> None:
    """The message names the option and the value."""
    with pytest.raises(InvalidOption, match=name):
        Sampling(**{name: value})  # type: ignore[arg-type]


@table("temperature", [1e-46, 1e-40, 1e-9])
def test_temperatures_next_to_0_are_greedy(temperature: float) -> None:
    """Dividing by them would overflow single precision."""
    sampling = Sampling(temperature=temperature)

    assert sampling.is_greedy
    assert Sampler(sampling).distribution(np.array([1.0, 3.0, 2.0], np.float32), []).best() == 1
