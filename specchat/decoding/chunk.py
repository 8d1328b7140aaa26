"""What a step adds to an answer; light to import, as front ends need no more of this package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["Chunk", "Finish", "Origin"]

Finish: TypeAlias = Literal["stop", "length", "cancelled", "context"]
"""Why an answer ended: end of generation or a stop string, the token limit, the user, no room."""

Origin: TypeAlias = str
"""Where an emitted token came from, by the names of `specchat.drafters.origins`."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one step added to the answer, by plain and by speculative decoding alike.

    `text` is whole characters only, so it may lag behind `tokens`; `texts` splits it by token, each
    with what became certain with it. `proposed` holds all tokens the step drafted, kept or not, and
    `rejected` the texts of those that were not. `finish` is set on the last chunk, which may hold
    no tokens.
    """

    text: str
    tokens: tuple[int, ...] = ()
    origins: tuple[Origin, ...] = ()
    texts: tuple[str, ...] = ()
    proposed: tuple[int, ...] = ()
    rejected: tuple[str, ...] = ()
    finish: Finish | None = None
