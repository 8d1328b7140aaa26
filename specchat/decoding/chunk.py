"""What a step adds to an answer. Light to import: front ends need nothing else from here."""

from typing import Literal, NamedTuple, TypeAlias

Finish: TypeAlias = Literal["stop", "length", "cancelled", "context"]
"""Why an answer ended: an end token or stop string, the token limit, the user, a full context."""

Origin: TypeAlias = str
"""Where an emitted token came from, by the names of `specchat.drafter_registry.origins`."""


class Chunk(NamedTuple):
    """What one step added to the answer, in plain and in speculative decoding.

    `text` has whole characters only, so it may lag behind `tokens`; `texts` splits it by token.
    `proposed` holds all tokens the step drafted, and `rejected` the texts of those that were
    rejected. `finish` is set on the last chunk, which may hold no tokens. `seconds` is the time of
    decoding from the end of the prompt to the end of the step. `chances` holds, for each drafted
    token up to the first rejected one, the target's and the drafter's probability of it, as
    processed for sampling. It is empty at temperature 0, and where there are many candidates.
    """

    text: str
    tokens: tuple[int, ...] = ()
    origins: tuple[Origin, ...] = ()
    texts: tuple[str, ...] = ()
    proposed: tuple[int, ...] = ()
    rejected: tuple[str, ...] = ()
    finish: Finish | None = None
    seconds: float = 0.0
    chances: tuple[tuple[float, float], ...] = ()
