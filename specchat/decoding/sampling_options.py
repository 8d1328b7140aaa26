"""The sampling options of a request; light to import, as they are checked before anything runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from specchat.errors import InvalidOption

__all__ = ["Sampling"]

SMALLEST_TEMPERATURE = 1e-6
"""Below it only exact ties are left to chance, and single precision overflows."""


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
        for token, bias in self.logit_bias.items():
            if token < 0 or math.isnan(bias) or bias == math.inf:
                raise InvalidOption(f"logit_bias cannot be {bias} on token {token}")
        _require(self.temperature >= 0, "temperature must be 0 or more", self.temperature)
        _require(self.top_k >= 0, "top_k must be 0 (off) or more", self.top_k)
        _require(0 < self.top_p <= 1, "top_p must be above 0 and at most 1", self.top_p)
        _require(0 <= self.min_p <= 1, "min_p must be from 0 to 1", self.min_p)
        _require(self.repeat_penalty > 0, "repeat_penalty must be above 0", self.repeat_penalty)
        _require(self.repeat_last_n >= -1, "repeat_last_n must be -1 or more", self.repeat_last_n)

    @property
    def is_greedy(self) -> bool:
        """Say whether every token is the most probable one, as it is at temperatures next to 0."""
        return self.temperature < SMALLEST_TEMPERATURE

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
