"""The line below an answer: how it ended, if it can be continued, and its figures; no widgets."""

from collections.abc import Mapping
from time import time
from typing import Any, NamedTuple

from specchat.safe_text import harmless, in_one_line
from specchat.tui.commands import KeyOf, slash_of
from specchat.tui.texts.figures import (
    ASKED_WITH,
    REPEATING,
    SERVED_BY,
    UNFINISHED,
    own_options,
)
from specchat.wording import answer_line, counts_line, short_line

ENDINGS = {
    "cancelled": "stopped",
    "length": "token limit reached",
    "context": "context full",
    "failed": "interrupted",
    None: "interrupted",
}
"""Labels for how an incomplete answer ended; None if the chat was closed first."""
RUN_OUT = {"length", "context"}
"""How answers end that find no end of their own."""
WRITTEN_SECONDS = 5.0
"""A chat writes its answer twice a second; after this long without a write it has ended."""
REPEATS, REPEATED = "repeats itself", "repeating"
"""Of an answer in a loop, and of one that ended in one: short, as what to do about it follows."""
HIGHER, LOW = 0.8, 0.7
"""The temperature that is advised after an answer in a loop, where it was lower than the latter."""
PENALTY, STRONGEST = 1.1, 1.5
"""The repeat penalty that is advised otherwise, a tenth above the answer's own, and at most."""
LONGEST_PLACE = 40
"""Characters shown of such a value's place."""


def is_written_elsewhere(finish: str | None, figures: Mapping[str, Any]) -> bool:
    """Return True for an answer that another chat on the same store is writing."""
    return finish is None and time() - figures.get("written", 0.0) < WRITTEN_SECONDS


class LineBelow(NamedTuple):
    """The line below an answer.

    Of the newest answer it leaves out what stands above the composer or in the panel.
    """

    newest: str
    details: str
    """Shown while the answer has the focus."""
    older: str
    """Shown once another message follows."""


def repeating_line(key_of: KeyOf) -> str:
    """Return the line below an answer that says a passage over and over just now."""
    return f"{REPEATS} · {key_of('stop')} stops"


def line_below(
    finish: str | None, figures: Mapping[str, Any], key_of: KeyOf, *, has_older: bool = True
) -> LineBelow:
    """Return the line below an answer: how it ended, if it can be continued, and its figures.

    It names the pair, and the sampling options that this answer alone was written with; in full,
    also the temperature. After a full context an answer can be continued only if there are older
    messages to leave out (`has_older`).
    """
    continues = f"{key_of('go_on')} continues"
    more = continues
    if finish == "context":
        larger = f"{key_of('settings')} sets a larger ctx"
        if figures.get(SERVED_BY):
            larger = "start the server with a larger one"
        more = f"{continues} without older messages" if has_older else larger
    ending = f"{ENDINGS[finish]} · {more}" if finish in ENDINGS else ""
    if ending and figures.get(REPEATING):
        # it would go on repeating itself
        ending = f"{ENDINGS[finish]}: {REPEATED} · {_otherwise(figures) or more}"
    if finish in RUN_OUT and (place := _place(figures)):
        # a larger context would be filled, too
        ending = f"{ENDINGS[finish]} in {place}: limit it in the schema · {continues}"
    if is_written_elsewhere(finish, figures):
        ending = "another chat is writing this answer"
    own = own_options(figures)
    chosen = ", ".join(f"{name} {value}" for name, value in own.items())
    usual = None if "temperature" in own else figures.get(ASKED_WITH, {}).get("temperature")
    temperature = "" if usual is None else f"temperature {usual:g}"
    lines = (counts_line(figures),), (temperature, answer_line(figures)), (short_line(figures),)
    start = ending, harmless(figures.get("pair", "")), harmless(chosen)
    return LineBelow(*(" · ".join(filter(None, (*start, *line))) for line in lines))


def _otherwise(figures: Mapping[str, Any]) -> str:
    """Return the command that answers again, with what keeps a model from repeating itself.

    Empty if the answer was written with all of that.
    """
    asked = figures.get(ASKED_WITH, {})
    if asked.get("temperature", HIGHER) < LOW:
        return f"{slash_of('regenerate')} temperature={HIGHER}"
    penalty = max(PENALTY, round(asked.get("repeat_penalty", 1.0) + PENALTY - 1, 2))
    return f"{slash_of('regenerate')} repeat_penalty={penalty}" if penalty <= STRONGEST else ""


def _place(figures: Mapping[str, Any]) -> str:
    """Return the value that an answer broke off in, cut off if its place is long; or empty."""
    place = in_one_line(str(figures.get(UNFINISHED, "")))
    return place if len(place) <= LONGEST_PLACE else f"{place[:LONGEST_PLACE]}…"
