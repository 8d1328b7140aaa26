"""What an answer must be like."""

from collections.abc import Callable
from typing import NamedTuple

from specchat.decoding.constraint import Constraint


class AnswerRules(NamedTuple):
    """The constraint of an answer, None for any text; `notices` say what it does not enforce.

    `why_invalid` returns why a whole answer breaks that, "" if it does not; None if nothing is left
    to check.
    """

    constraint: Constraint | None = None
    notices: tuple[str, ...] = ()
    why_invalid: Callable[[str], str] | None = None


ANY_TEXT = AnswerRules()
