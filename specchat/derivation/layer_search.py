"""The search for the layers to leave out, by predicted gain, within a time limit.

There are 2^n sets of n layers. How much each layer alone matters is measured first, or guessed from
its neighbours' if time is short; then some sets of the least important ones. From then on the
candidate that promises most is measured: a set that differs from one of the best by one layer, or
the least important layers together. A set promises what the nearest measured set reached, adjusted
by the importance of the layers that differ, and each measurement corrects their importance.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import log
from typing import TypeAlias

import numpy as np

Layers: TypeAlias = frozenset[int]
"""The layers to leave out."""

BEAM = 4
"""The number of best sets whose neighbours are candidates."""
SHARES = (1.0, 0.5, 0.25, 0.75)
"""The shares of the least important layers to try in any case: together, layers may matter less."""
LEARNING_RATE = 0.5
"""The share of a wrong prediction by which the importance of the layers is corrected."""
SCALE_RATE, MAX_SCALE = 0.3, 2.0
"""The same for the factor common to all layers' importance, and its limit."""
LEAST = 1e-3
"""Acceptance below this counts as this: its logarithm must stay finite."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A set of layers with the acceptance it leaves, and the rate that promises."""

    layers: Layers
    accepted: float
    rate: float


Measure: TypeAlias = Callable[[Layers], Measured]
Promise: TypeAlias = Callable[[Layers, float], float]
"""The rate of a set at an acceptance that is expected but was not measured."""


class LayerSearch:
    """A search in progress: iterate over it for as long as there is time; `best` is the result."""

    def __init__(
        self, layers: Sequence[int], measure: Measure, promise: Promise, num_singles: int
    ) -> None:
        """Search among the sets of these layers; at most `num_singles` are measured alone first."""
        self._layers, self._measure, self._promise = layers, measure, promise
        self._singles = _spread(layers, num_singles)
        self.results: dict[Layers, Measured] = {}
        self._logs: dict[Layers, float] = {frozenset(): 0.0}
        self._weights: dict[int, float] = {}
        self._scale = 1.0
        self._since_best = 0

    @property
    def best(self) -> Measured | None:
        """The best set measured so far, None before the first."""
        return max(self.results.values(), key=lambda measured: measured.rate, default=None)

    def __iter__(self) -> Iterator[Measured]:
        """Measure one set after another; end when as many in a row as there are layers fail."""
        for layer in self._singles:
            yield self._try(frozenset({layer}))
        self._guess_importance()
        for share in SHARES:
            layers = frozenset(self._unimportant[: round(share * len(self._layers))])
            if layers not in self.results:
                yield self._try(layers)
        self._since_best = 0
        while self._since_best < len(self._layers) and (promising := self._most_promising()):
            yield self._try(promising)

    def _try(self, layers: Layers) -> Measured:
        before = self.best
        measured = self._measure(layers)
        expected, reached = self._expected(layers), log(max(measured.accepted, LEAST))
        self._correct(layers, reached - expected)
        self.results[layers], self._logs[layers] = measured, reached
        is_better = before is None or measured.rate > before.rate
        self._since_best = 0 if is_better else self._since_best + 1
        return measured

    def _guess_importance(self) -> None:
        """Give layers that were not measured the importance of those around them."""
        measured = sorted(self._singles)
        values = [self._weights[layer] for layer in measured]
        guessed = np.interp(list(self._layers), measured, values)
        self._weights = dict(zip(self._layers, guessed.tolist(), strict=True))

    def _most_promising(self) -> Layers | None:
        """Return the most promising candidate, None if all were measured."""
        candidates = {
            candidate
            for candidate in self._candidates()
            if candidate and candidate not in self.results
        }
        return max(
            candidates,
            key=lambda skipped: (
                self._promise(skipped, np.exp(self._expected(skipped))),
                sorted(skipped),
            ),
            default=None,
        )

    def _candidates(self) -> Iterator[Layers]:
        ranked = sorted(self.results.values(), key=lambda result: -result.rate)
        for result in ranked[:BEAM]:
            yield from (result.layers ^ {layer} for layer in self._layers)
        unimportant = self._unimportant
        for count in range(1, len(unimportant) + 1):
            yield frozenset(unimportant[:count])

    @property
    def _unimportant(self) -> list[int]:
        """The layers, least important first."""
        return sorted(self._layers, key=lambda layer: -self._weights[layer])

    def _expected(self, layers: Layers) -> float:
        """Return the expected logarithm of a set's acceptance."""
        nearest = self._nearest(layers)
        return self._logs[nearest] + self._scale * self._change(_steps(nearest, layers))

    def _change(self, steps: Sequence[tuple[int, int]]) -> float:
        return sum(sign * self._weights.get(layer, 0.0) for layer, sign in steps)

    def _nearest(self, layers: Layers) -> Layers:
        """Return the measured set that differs least, the largest of several."""
        return min(self._logs, key=lambda other: (len(other ^ layers), -len(other), sorted(other)))

    def _correct(self, layers: Layers, error: float) -> None:
        """Correct the importance of the layers by which a set differs from the nearest one.

        How much a layer matters depends on the number of layers left out already, for all layers
        alike, so a common factor is corrected, too.
        """
        steps = _steps(self._nearest(layers), layers)
        if change := self._change(steps):
            self._scale = min(max(self._scale + SCALE_RATE * error / change, 0.0), MAX_SCALE)
        is_known = all(layer in self._weights for layer, _ in steps)
        share = error / len(steps) * (LEARNING_RATE if is_known else 1.0)
        for layer, sign in steps:
            self._weights[layer] = self._weights.get(layer, 0.0) + sign * share


def _steps(before: Layers, after: Layers) -> list[tuple[int, int]]:
    """Return the layers by which two sets differ: 1 for those left out after, -1 for before."""
    return [(layer, 1 if layer in after else -1) for layer in before ^ after]


def _spread(layers: Sequence[int], count: int) -> list[int]:
    """Return `count` layers, evenly spread, or all of them if there are fewer."""
    indices = np.linspace(0, len(layers) - 1, min(count, len(layers)))
    return [layers[round(index)] for index in indices.tolist()]
