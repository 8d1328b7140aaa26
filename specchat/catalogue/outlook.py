"""What is known of a pair before it is loaded; `pair_outlook` finds it out."""

from dataclasses import dataclass

LOOKUP = "suffix lookup"
OWN_HEAD = "its own prediction head"
HEAD = "a prediction head"
EXPLAINED = {
    LOOKUP: "what followed the same words earlier",
    OWN_HEAD: "a part of the model that was trained to write ahead",
    HEAD: "a small addition to the model that was trained to write ahead",
}
"""What drafters are, in plain words; a draft model has a name."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """A pair and its needs on this machine in words, as far as they are known.

    `drafts` names its drafter; `context` is in tokens, 0 if unknown. `memory` is what it needs of
    what there is, such as "7.1 of 22.4 GB", and `fits` is False if that is too much. `rate` is the
    predicted speed in tokens per second, 0.0 if unknown, and `speed` the same in words. `head` is
    what its prediction head takes, or how to get one. `notice` says what is where and what is given
    up for memory, or why the files cannot be loaded.
    """

    target: str = ""
    drafts: str = ""
    quantisation: str = ""
    context: int = 0
    memory: str = ""
    fits: bool = True
    rate: float = 0.0
    speed: str = ""
    head: str = ""
    notice: str = ""
