"""The search for layers to leave out, on a real model, against all sets of layers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, combinations
from pathlib import Path

import numpy as np
import pytest

from derivation.calm_layers import scale_layer, write_calm_target
from scripts.support.tiny_gguf import write_model
from specchat.derivation.gain import Costs, guesses_of
from specchat.derivation.skip_method import _Judge, layer_shares
from specchat.llama.layer_skipping import ForcedTexts
from specchat.llama.model import Model
from specchat.options.declarations import Sampling
from specchat.planning.context_shape import ModelOptions

OPTIONS = ModelOptions(gpu_layers=0, threads=1)
SAMPLING = Sampling()
CHEAP = Costs([1.0] * 66, [1.0] * 66).where_passes_are_cheap()


@pytest.fixture(params=["last", "scattered"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a target of nine layers, of which the last, or some, matter little."""
    if request.param == "last":
        return write_calm_target(tmp_path / "target.gguf")
    path = write_model(tmp_path / "target.gguf", "llama", num_layers=9)
    for layer, factor in enumerate((0.02, 0.9, 0.05, 0.4, 0.3, 0.08, 0.6, 0.01), 1):
        scale_layer(path, layer, factor)
    return path


@pytest.fixture
def judge(target: Path) -> Iterator[_Judge]:
    """Return what measures sets of layers, on a machine where passes are cheap."""
    tokens = np.random.default_rng(5).integers(5, 300, 150).tolist()
    with (
        Model(target, OPTIONS) as model,
        ForcedTexts(model, [(tokens, 120)], OPTIONS) as forced,
    ):
        wanted = guesses_of(forced.rows(), SAMPLING)
        yield _Judge(layer_shares(model.header), CHEAP, wanted, SAMPLING, forced)


@pytest.mark.slow
def test_a_search_finds_nearly_the_best_set_in_a_tenth_of_the_evaluations(judge: _Judge) -> None:
    """Of 255 sets of 8 layers, at most 25 are measured, and the best is within 5 % of all."""
    search = judge.search(seconds=100.0, seconds_each=1.0)
    for number, _ in enumerate(search, 1):
        if number == 25:
            break
    layers = range(1, 9)
    sets = chain.from_iterable(combinations(layers, count) for count in range(1, 9))
    rates = {frozenset(each): judge.measure(frozenset(each)).rate for each in sets}
    ranked = sorted(rates.values())
    print(
        search.best,
        len(search.results),
        max(rates, key=rates.__getitem__),
        ranked[-3:],
        ranked[127],
    )

    assert len(rates) == 255
    assert len(search.results) <= 25
    assert search.best is not None
    assert search.best.rate >= 0.95 * ranked[-1]
    assert ranked[127] < 0.9 * ranked[-1]  # which sets are left out matters


def test_little_time_suffices_where_most_layers_do_little(tmp_path: Path) -> None:
    """Of 23 layers a few are measured alone; with twenty sets in all, the best is within 5 %."""
    path = write_model(tmp_path / "target.gguf", "llama", num_layers=24)
    for layer in range(1, 24):
        scale_layer(path, layer, 0.02)
    tokens = np.random.default_rng(5).integers(5, 300, 90).tolist()
    with Model(path, OPTIONS) as model, ForcedTexts(model, [(tokens, 70)], OPTIONS) as forced:
        shares, wanted = layer_shares(model.header), guesses_of(forced.rows(), SAMPLING)
        judge = _Judge(shares, CHEAP, wanted, SAMPLING, forced)
        search = judge.search(seconds=24.0, seconds_each=1.0)
        for number, _ in enumerate(search, 1):
            if number == 20:
                break
        best = max(judge.measure(frozenset(range(first, 24))).rate for first in range(1, 24))

    assert search.best is not None
    assert search.best.rate >= 0.95 * best
