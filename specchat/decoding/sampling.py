"""From a row of logits to the processed distribution a token is drawn from.

The steps and their order are llama.cpp's defaults (common/sampling.cpp): logit bias, penalties,
top-k, top-p, min-p, temperature. Only tokens near the maximum can survive them, so the row is
narrowed by one comparison first; everything after works on a few dozen candidates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields

import numpy as np

from specchat.decoding.distribution import Distribution, Ids, Logits
from specchat.errors import EngineFailed, InvalidOption

__all__ = ["Sampler", "Sampling"]

UNREACHABLE = 53 * math.log(2.0)
"""A token this far below the maximum weighs under 2^-53 of it: no 53-bit uniform can draw it."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """The sampling options of a request, by llama.cpp's names and with its defaults.

    `temperature` 0 is greedy decoding. `top_k` 0, `top_p` 1, `min_p` 0 and penalties of 1, 0 and 0
    switch a step off. `repeat_last_n` is the number of recent tokens the penalties look at (0 none,
    -1 the whole context). Raises InvalidOption, naming the option, for a value out of its range.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repeat_last_n: int = 64
    logit_bias: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        for option in fields(self):
            value = getattr(self, option.name)
            if isinstance(value, float) and not math.isfinite(value):
                raise InvalidOption(f"{option.name} must be a finite number, not {value}")
        _require(self.temperature >= 0, "temperature must be 0 or more", self.temperature)
        _require(self.top_k >= 0, "top_k must be 0 (off) or more", self.top_k)
        _require(0 < self.top_p <= 1, "top_p must be above 0 and at most 1", self.top_p)
        _require(0 <= self.min_p <= 1, "min_p must be from 0 to 1", self.min_p)
        _require(self.repeat_penalty > 0, "repeat_penalty must be above 0", self.repeat_penalty)
        _require(self.repeat_last_n >= -1, "repeat_last_n must be -1 or more", self.repeat_last_n)

    @property
    def is_greedy(self) -> bool:
        """Say whether every token is the most probable one."""
        return self.temperature == 0

    @property
    def needs_history(self) -> bool:
        """Say whether the distribution depends on which tokens came before, beyond the logits."""
        return self.repeat_last_n != 0 and (
            self.repeat_penalty != 1.0
            or self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
        )


def _require(holds: bool, rule: str, value: float) -> None:
    if not holds:
        raise InvalidOption(f"{rule}, not {value}")


class Sampler:
    """Turns rows of logits into processed distributions for one request.

    It remembers how far below the maximum the candidates of the last row reached, which makes the
    next row cheap to narrow; the result does not depend on that memory.
    """

    def __init__(self, sampling: Sampling) -> None:
        """Prepare for the given options."""
        self.sampling = sampling
        self._bias_ids = np.fromiter(sampling.logit_bias.keys(), dtype=np.int64)
        self._bias = np.fromiter(sampling.logit_bias.values(), dtype=np.float32)
        self._reach = 8.0

    def window(self, tokens: Sequence[int]) -> Sequence[int]:
        """Return the end of the tokens that the penalties look at: nothing when there are none."""
        if not self.sampling.needs_history:
            return ()
        last_n = self.sampling.repeat_last_n
        return tokens if last_n < 0 else tokens[-last_n:]

    def distribution(self, logits: Logits, history: Sequence[int]) -> Distribution:
        """Return the processed distribution of a row of logits, shape (vocabulary,).

        `history` holds the tokens before this position, the drafted ones included: all of them or
        a `window` of them, extended. Raises EngineFailed for a row of NaN or infinities.
        """
        logits = self._adjusted(logits, history)
        if self.sampling.is_greedy:
            best = int(logits.argmax())
            _require_finite(float(logits[best]))
            return Distribution.certain(best)
        top = float(logits.max())
        _require_finite(top)
        return self._tempered(*self._candidates(logits, top), top)

    def _adjusted(self, logits: Logits, history: Sequence[int]) -> Logits:
        """Apply logit bias and penalties to a copy, or return the row itself without any."""
        if not self._bias_ids.size and not self.sampling.needs_history:
            return logits
        logits = logits.copy()
        known = self._bias_ids < logits.size
        logits[self._bias_ids[known]] += self._bias[known]
        if self.sampling.needs_history:
            self._penalise(logits, history)
        return logits

    def _penalise(self, logits: Logits, history: Sequence[int]) -> None:
        """Lower the logits of recent tokens, as llama.cpp's penalty sampler does."""
        options, recent = self.sampling, self.window(history)
        if not recent:
            return
        ids, counts = np.unique(np.asarray(recent, dtype=np.int64), return_counts=True)
        row = logits[ids]
        row = np.where(row <= 0, row * options.repeat_penalty, row / options.repeat_penalty)
        logits[ids] = row - counts * options.frequency_penalty - options.presence_penalty

    def _candidates(self, logits: Logits, top: float) -> tuple[Ids, Logits]:
        """Return the tokens that survive top-k, top-p and min-p, with their logits."""
        options = self.sampling
        if options.min_p > 0:
            floor = -math.log(options.min_p)
        else:
            floor = UNREACHABLE * max(1.0, options.temperature)
        if options.top_k:
            return self._best_k(logits, top, floor)
        if options.top_p < 1:
            total = _mass(logits, top)
            wanted = options.top_p * total
            near = self._narrowed(logits, top, floor, lambda row: _mass(row, top) >= wanted)
            return self._nucleus(*near, total)
        ids = (logits >= top - floor).nonzero()[0]
        return ids, logits[ids]

    def _best_k(self, logits: Logits, top: float, floor: float) -> tuple[Ids, Logits]:
        """Keep the best top_k tokens, and of those the nucleus."""
        top_k, top_p = self.sampling.top_k, self.sampling.top_p
        reach_floor = floor if top_p == 1 else UNREACHABLE * max(1.0, self.sampling.temperature)
        ids, values = self._narrowed(logits, top, reach_floor, lambda row: row.size >= top_k)
        ids, values = ids[:top_k], values[:top_k]
        self._aim(top, values)
        if top_p < 1:
            ids, values = self._nucleus(ids, values, _mass(values, top))
        num_kept = int(np.count_nonzero(values >= top - floor))
        return ids[:num_kept], values[:num_kept]

    def _nucleus(self, ids: Ids, values: Logits, total: float) -> tuple[Ids, Logits]:
        """Keep the fewest best tokens whose probabilities (at temperature 1) reach top_p."""
        cumulative = np.exp(values.astype(np.float64) - float(values[0])).cumsum()
        num_kept = int(cumulative.searchsorted(self.sampling.top_p * total)) + 1
        if not self.sampling.top_k:
            self._aim(float(values[0]), values[:num_kept])
        return ids[:num_kept], values[:num_kept]

    def _narrowed(
        self, logits: Logits, top: float, floor: float, is_enough: Callable[[Logits], bool]
    ) -> tuple[Ids, Logits]:
        """Return the tokens near the top, best first: enough of them, or all above the floor."""
        reach = min(self._reach, floor)
        ids = (logits >= top - reach).nonzero()[0]
        while reach < floor and not is_enough(logits[ids]):
            reach = min(2 * reach, floor)
            ids = (logits >= top - reach).nonzero()[0]
        values = logits[ids]
        order = (-values).argsort(kind="stable")
        return ids[order], values[order]

    def _aim(self, top: float, values: Logits) -> None:
        """Expect the next row's candidates to reach about as far below its top as these."""
        self._reach = max(1.0, 1.25 * (top - float(values[-1])))

    def _tempered(self, ids: Ids, values: Logits, top: float) -> Distribution:
        """Apply the temperature and normalise."""
        weights = np.exp((values.astype(np.float64) - top) / self.sampling.temperature)
        weights /= weights.sum()
        return Distribution(ids, weights)


def _mass(values: Logits, top: float) -> float:
    """Return the sum of exp(value - top)."""
    return float(np.exp(values - np.float32(top)).sum())


def _require_finite(top: float) -> None:
    if not math.isfinite(top):
        raise EngineFailed(
            "the model's logits are not numbers (NaN or infinite): the file is damaged or this"
            " build cannot run it; fetch the file again, or try --gpu-layers 0"
        )
