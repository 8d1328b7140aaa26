"""How an answer is sampled, drafted and ended: the options of `Engine.generate`."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from specchat import drafter_registry
from specchat.options.declarations import Options
from specchat.options.option import Option

DEFAULT_DRAFT_LENGTH = 3
"""Verifying 4 tokens costs hardly more than 1 on most machines; 5 or more often do not."""

LONGEST_DRAFT = 32
SMALLEST_TEMPERATURE = 1e-6
"""Below it only exact ties are left to chance, and single precision overflows."""


def _biases(given: object) -> Mapping[int, float]:
    """Return the biases of tokens by their ids; minus infinity bans a token."""
    if not isinstance(given, Mapping):
        raise ValueError(given)  # noqa: TRY004  # as for every other wrong value
    for token, bias in given.items():
        if token < 0 or math.isnan(bias) or bias == math.inf:
            raise ValueError(given)
    return given


def _stop_strings(given: object) -> tuple[str, ...]:
    """Return the strings, which may be given as a single one."""
    strings: Any = (given,) if isinstance(given, str) else given
    if not isinstance(strings, Sequence) or not all(isinstance(each, str) for each in strings):
        raise ValueError(given)
    return tuple(strings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling(Options):
    """How tokens are sampled, by llama.cpp's names and with its defaults."""

    TABLE: ClassVar = "sampling"

    temperature: Annotated[
        float, Option("Randomness; 0 always picks the most likely token.", minimum=0)
    ] = 0.8
    top_k: Annotated[
        int, Option("Sample from the K most likely tokens; 0 disables it.", minimum=0)
    ] = 40
    top_p: Annotated[
        float,
        Option(
            "Sample from the most likely tokens that together have probability P; 1 disables it.",
            above=0,
            maximum=1,
        ),
    ] = 0.95
    min_p: Annotated[
        float,
        Option(
            "Drop tokens less likely than this share of the most likely one; 0 disables it.",
            minimum=0,
            maximum=1,
        ),
    ] = 0.05
    repeat_penalty: Annotated[
        float, Option("Above 1, recent tokens become less likely; 1 disables it.", above=0)
    ] = 1.0
    presence_penalty: Annotated[
        float, Option("Penalty for tokens that occurred recently; 0 disables it.")
    ] = 0.0
    frequency_penalty: Annotated[
        float, Option("Penalty for each recent occurrence of a token; 0 disables it.")
    ] = 0.0
    repeat_last_n: Annotated[
        int,
        Option("Recent tokens that the penalties look at; 0 is none, -1 is all.", minimum=-1),
    ] = 64
    logit_bias: Annotated[
        Mapping[int, float],
        Option(
            "Added to the logits of tokens, by id; minus infinity bans one.",
            convert=_biases,
            expected="numbers below infinity by token id",
            is_setting=False,
        ),
    ] = field(default_factory=dict)

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is always picked, as it is at temperatures next to 0."""
        return self.temperature < SMALLEST_TEMPERATURE

    @property
    def needs_history(self) -> bool:
        """Whether the distribution depends on recent tokens, beyond the logits."""
        return self.repeat_last_n != 0 and (
            self.repeat_penalty != 1.0
            or self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateOptions(Sampling):
    """How one answer is sampled, drafted and ended."""

    drafter: Annotated[
        str,
        Option(
            "What drafts tokens; auto picks what helps most at each step.",
            choices=drafter_registry.choices,
            table="decoding",
        ),
    ] = drafter_registry.AUTO
    draft_length: Annotated[
        int | Literal["auto"],
        Option(
            "Tokens drafted per step; auto adapts step by step.",
            minimum=0,
            maximum=LONGEST_DRAFT,
            table="decoding",
        ),
    ] = "auto"
    seed: Annotated[
        int | None, Option("The same seed gives the same answer.", minimum=0, none="random")
    ] = None
    max_tokens: Annotated[
        int | None, Option("Longest answer in tokens.", minimum=1, none="unlimited")
    ] = None
    stop: Annotated[
        Sequence[str],
        Option(
            "End the answer before this text.",
            convert=_stop_strings,
            expected="a string or a list of strings",
            metavar="TEXT",
            example=("###",),
        ),
    ] = ()
    ignore_end: Annotated[
        bool,
        Option("Continue past the model's end of generation, for benchmarks.", is_setting=False),
    ] = False
    make_room: Annotated[
        bool,
        Option("Drop the oldest turns if a conversation exceeds the context.", is_setting=False),
    ] = False

    @property
    def pace(self) -> int | Literal["auto"]:
        """The draft length, or "auto" if it is chosen at each step by what passes cost.

        With a seed the same text is expected again, and above temperature 0 the text depends on the
        draft lengths; so "auto" is a fixed length there.
        """
        if self.draft_length == "auto" and self.seed is not None and self.temperature > 0:
            return DEFAULT_DRAFT_LENGTH
        return self.draft_length

    @property
    def num_to_draft(self) -> int:
        """The longest draft."""
        return LONGEST_DRAFT if self.pace == "auto" else self.pace
