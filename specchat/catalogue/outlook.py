"""What is known of a pair before it is loaded; `pair_outlook` finds it out."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Outlook:
    """A pair and its needs on this machine in words, as far as they are known.

    `drafts` names its drafter; `context` is in tokens, 0 if unknown. `memory` is what it needs of
    what there is, such as "7.1 of 22.4 GB", and `fits` is False if that is too much. `speed` is the
    speed of an installed pair, as far as it is known, `head` what its prediction head takes, or how
    to get one. `notice` says what is where and what is given
    up for memory, or why the files cannot be loaded.
    """

    target: str = ""
    drafts: str = ""
    quantisation: str = ""
    context: int = 0
    memory: str = ""
    fits: bool = True
    speed: str = ""
    head: str = ""
    notice: str = ""
