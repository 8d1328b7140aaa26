"""The draft model of a pair that names none: a tuned, an installed or a derived one."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from specchat.catalogue.pairs import Pair
from specchat.catalogue.tuned_settings import find_tuned

if TYPE_CHECKING:  # the first frame of the chat needs no search, if its pair has a draft model
    from specchat.catalogue.draft_choice import Draft


def with_tuned_draft(pair: Pair) -> Pair:
    """Return a pair with the draft model that `specchat tune` chose for its target."""
    tuned = find_tuned(pair.target)
    return replace(pair, draft=Path(tuned.draft)) if tuned and tuned.draft else pair


def with_best_draft(pair: Pair) -> Pair:
    """Return a pair with the best installed draft model, and a description that names it.

    A tuned pair is returned as it is.
    """
    from specchat.catalogue.draft_choice import find_drafts

    return pair if find_tuned(pair.target) else _with_found(pair, find_drafts(pair.target).best)


def with_derived_draft(pair: Pair) -> Pair:
    """Return a pair with a draft derived from its target, unless it is tuned or has a draft."""
    if pair.draft or find_tuned(pair.target):
        return pair
    from specchat.catalogue.draft_choice import find_derived_draft

    return _with_found(pair, find_derived_draft(pair.target))


def _with_found(pair: Pair, draft: "Draft | None") -> Pair:
    if draft is None:
        return pair
    notice = f"draft: {draft.model.name} {draft.why}"
    return replace(pair, draft=draft.model.path, description=notice)
