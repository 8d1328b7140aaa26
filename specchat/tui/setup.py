"""What the chat is started with: the first pair, and the others that it offers; no Textual here."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specchat.engine.api import EngineFacts, Loading
from specchat.errors import ModelNotFound
from specchat.hub.references import Reference
from specchat.options.declarations import ScreenOptions
from specchat.tui.commands import key_of


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


def no_files(name: str) -> Offer:
    """Refuse every file: the default where only given pairs are offered."""
    raise ModelNotFound(f"{name} cannot be opened here.")


@dataclass(frozen=True, slots=True)
class Setup:
    """The first pair, how to sample, where to keep conversations, and how the chat looks.

    `offers` lists the pairs that are installed or can be pulled; it may take a moment, and uses no
    network. `open_file` returns the pair that a GGUF file offers, by its path. `history` is the
    file of the store, None to keep nothing.
    """

    pair: PairChoice
    offers: Callable[[], Sequence[Offer]]
    history: Path | None
    open_file: Callable[[str], Offer] = no_files
    system_prompt: str = ""
    screen: ScreenOptions = field(default_factory=ScreenOptions)
    is_first_run: bool = False
    """Whether only the demo pair is installed, so that others should be suggested."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """The keys changed in the settings, by command id."""
    other_drafts: Callable[[PairChoice], Sequence[Offer]] = lambda _: ()
    """Finds other draft models for a pair's target, installed or to download, the best first."""
    notice: str = ""
    """A notice to show first."""

    def key_of(self, command: str) -> str:
        """Return the keys in effect of a command by its id, as they are read."""
        return key_of(command, self.keys)
