"""What the chat is started with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specchat.engine.api import EngineFacts, Loading
from specchat.hub.references import Reference

__all__ = ["Offer", "PairChoice", "Setup"]


@dataclass(frozen=True, slots=True)
class PairChoice:
    """A pair that is here and can be loaded; `keep` may save it once it is, and says so."""

    name: str
    description: str
    loading: Loading
    options: Mapping[str, Any] = field(default_factory=dict)
    keep: Callable[[EngineFacts], str] | None = None


@dataclass(frozen=True, slots=True)
class Offer:
    """A pair of the model screen: with `choose` it is here, else its references can be pulled.

    `size` and `fit`, how well this machine can hold it, are in words. `needs` says what specchat
    would have to be able to do for it, empty where it can; `share` is how much of it is here, from
    0 to 1. `choose` may take a moment, looking for a draft model.
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
    references: tuple[Reference, ...] = ()
    choose: Callable[[], PairChoice] | None = None


@dataclass(frozen=True, slots=True)
class Setup:
    """The pair to begin with, how to sample, where to keep conversations, and how it looks.

    `offers` finds the pairs that are here or can be pulled; it may take a moment and asks no
    network. `history` is the store's file, None to keep nothing.
    """

    pair: PairChoice
    offers: Callable[[], Sequence[Offer]]
    history: Path | None
    system_prompt: str = ""
    theme: str | None = None
    shows_panel: bool = True
    shows_conversations: bool = False
    shows_origins: bool = False
    folds_reasoning: bool = True
    has_animations: bool = True
    is_first_run: bool = False
    """Whether there is no pair but the one that comes with specchat, and others are to be named."""
    keys: Mapping[str, str] = field(default_factory=dict)
    notice: str = ""
    """What the user is told first, empty where all is well."""
