"""What the chat is started with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specchat.engine.api import Loading

__all__ = ["PairChoice", "Setup"]


@dataclass(frozen=True, slots=True)
class PairChoice:
    """A pair that is here and can be loaded."""

    name: str
    description: str
    loading: Loading
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Setup:
    """The pair to begin with, how to sample, where to keep conversations, and how it looks.

    `pairs` finds the pairs that are here. `history` is the store's file, None to keep nothing.
    """

    pair: PairChoice
    pairs: Callable[[], Sequence[PairChoice]]
    history: Path | None
    system_prompt: str = ""
    theme: str | None = None
    shows_panel: bool = True
    shows_conversations: bool = False
    shows_origins: bool = False
    folds_reasoning: bool = True
    has_animations: bool = True
    notice: str = ""
    keys: Mapping[str, str] = field(default_factory=dict)
