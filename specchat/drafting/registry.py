"""The registry: the drafters a user may name, and what each is made from."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeAlias

from specchat.decoding.ports import Drafter, LanguageModel
from specchat.drafting.combined import CombinedDrafter
from specchat.drafting.draft_model import DraftModelDrafter
from specchat.drafting.silent import SilentDrafter
from specchat.drafting.suffix import SuffixDrafter
from specchat.errors import InvalidOption

__all__ = ["DRAFTERS", "Materials", "choose_drafter", "make_drafter"]


@dataclass(frozen=True, slots=True)
class Materials:
    """What the engine has to make a drafter from.

    `vocabulary` is the number of token ids that target and draft model share; `why_no_model` says
    why there is no draft model to use, where there is none, and `why_no_rollback` why the target
    cannot speculate at all, where it cannot.
    """

    draft_model: LanguageModel | None
    vocabulary: int
    end_tokens: Collection[int]
    why_no_model: str = "no draft model is loaded"
    why_no_rollback: str = ""


MakeDrafter: TypeAlias = Callable[[Materials], Drafter]


def _draft_model(materials: Materials) -> DraftModelDrafter:
    if materials.draft_model is None:
        raise InvalidOption(
            f"drafter 'model' cannot work here, {materials.why_no_model}: name another draft with"
            " --draft FILE, or choose --drafter none"
        )
    return DraftModelDrafter(materials.draft_model, materials.vocabulary, materials.end_tokens)


def _suffix(materials: Materials) -> SuffixDrafter:
    if materials.why_no_rollback:
        raise InvalidOption(
            f"drafter 'suffix' cannot work here, {materials.why_no_rollback}: use --drafter none"
        )
    return SuffixDrafter()


def _combined(materials: Materials) -> Drafter:
    return CombinedDrafter(_suffix(materials), _draft_model(materials))


DRAFTERS: dict[str, MakeDrafter] = {
    "suffix+model": _combined,
    "model": _draft_model,
    "suffix": _suffix,
    "none": lambda _: SilentDrafter(),
}


def choose_drafter(name: str, materials: Materials) -> str:
    """Return what a user's choice comes to: "auto" takes all that can work here.

    Raises InvalidOption for a name that is not in the registry.
    """
    if name == "auto":
        if materials.why_no_rollback:
            return "none"
        return "suffix" if materials.draft_model is None else "suffix+model"
    if name not in DRAFTERS:
        raise InvalidOption(f"there is no drafter {name!r}: choose auto, {', '.join(DRAFTERS)}")
    return name


def make_drafter(name: str, materials: Materials) -> Drafter:
    """Make the drafter of that name."""
    return DRAFTERS[choose_drafter(name, materials)](materials)
