"""The options of one answer, by the names of the command line and of `Engine.generate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from specchat.decoding.sampling_options import Sampling
from specchat.drafters import AUTO
from specchat.errors import InvalidOption

__all__ = ["DEFAULT_DRAFT_LENGTH", "LONGEST_DRAFT", "GenerateOptions"]

DEFAULT_DRAFT_LENGTH = 3
"""Verifying 4 tokens costs hardly more than 1 on most machines; 5 or more often do not."""

LONGEST_DRAFT = 32


@dataclass(frozen=True, slots=True)
class GenerateOptions:
    """How one answer is sampled, drafted and ended.

    The sampling options are those of `specchat.decoding.sampling.Sampling`. `seed` None draws a
    new one. `max_tokens` None goes on until the model ends or the context is full. `stop` holds
    strings that end the answer and are not part of it. `ignore_end` goes on after the model's end
    of generation, for benchmarks. `make_room` leaves out the oldest turns of a conversation that is
    too long for the context, instead of refusing it. Raises InvalidOption for values out of range.
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
    seed: int | None = None
    max_tokens: int | None = None
    stop: Sequence[str] = ()
    drafter: str = AUTO
    draft_length: int | Literal["auto"] = "auto"
    ignore_end: bool = False
    make_room: bool = False

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        if isinstance(self.stop, str):
            object.__setattr__(self, "stop", (self.stop,))
        self.sampling()
        for name in ("draft_length", "max_tokens", "seed", "top_k", "repeat_last_n"):
            value = getattr(self, name)
            if value not in {None, "auto"} and not hasattr(value, "__index__"):
                raise InvalidOption(f"{name} must be a whole number, not {value}")
        length = self.num_to_draft
        if not 0 <= length <= LONGEST_DRAFT:
            raise InvalidOption(f"draft_length must be from 0 to {LONGEST_DRAFT}, not {length}")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise InvalidOption(f"max_tokens must be 1 or more, not {self.max_tokens}")
        if self.seed is not None and self.seed < 0:
            raise InvalidOption(f"seed must be 0 or more, not {self.seed}")

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> GenerateOptions:
        """Take keyword options; InvalidOption names one that nobody knows."""
        known = {option.name for option in fields(cls)}
        for name in options:
            if name not in known:
                raise InvalidOption(f"there is no option {name!r}: known are {', '.join(known)}")
        return cls(**options)

    @property
    def pace(self) -> int | Literal["auto"]:
        """The draft length, or "auto" where it is decided step by step, by what passes cost.

        A seed asks for the same text again, and above temperature 0 the text depends on the draft
        lengths; so there it is a fixed one.
        """
        if self.draft_length == "auto" and self.seed is not None and self.temperature > 0:
            return DEFAULT_DRAFT_LENGTH
        return self.draft_length

    @property
    def num_to_draft(self) -> int:
        """The longest draft."""
        return LONGEST_DRAFT if self.pace == "auto" else self.pace

    def sampling(self) -> Sampling:
        """Return the sampling options among these."""
        return Sampling(**{option.name: getattr(self, option.name) for option in fields(Sampling)})
