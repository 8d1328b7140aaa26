"""Pairs as the chat offers them: installed ones that can be loaded, and others to download."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from specchat.engine.api import EngineFacts, Loading
from specchat.hub.references import Reference


@dataclass(frozen=True, slots=True)
class PairChoice:
    """An installed pair; `keep` may save it once it is loaded, and returns a notice."""

    name: str
    description: str
    loading: Loading
    options: Mapping[str, Any] = field(default_factory=dict)
    keep: Callable[[EngineFacts], str] | None = None


@dataclass(frozen=True, slots=True)
class Offer:
    """A pair in the model screen: `choose` loads an installed one, `references` can be pulled.

    `size` and `fit` (how well this machine can run it) are text. `needs` names what specchat would
    have to support, empty if it can run the pair; `share` is the part already downloaded, from 0 to
    1. `choose` may take a moment to look for a draft model.
    """

    name: str
    description: str
    size: str = ""
    tier: str = ""
    licence: str = ""
    needs: str = ""
    fit: str = ""
    share: float = 0.0
    is_recommended: bool = False
    is_trial: bool = False
    """Whether it is a small download to try things out with."""
    references: tuple[Reference, ...] = ()
    choose: Callable[[], PairChoice] | None = None
