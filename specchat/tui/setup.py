"""How the chat is started: the first pair, the other pairs to offer, settings; no Textual here."""

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
    """An installed pair; `keep`, called once it is loaded, may save it and returns a notice."""

    name: str
    description: str
    loading: Loading
    options: Mapping[str, Any] = field(default_factory=dict)
    keep: Callable[[EngineFacts], str] | None = None


@dataclass(frozen=True, slots=True)
class Offer:
    """A pair in the models screen: `choose` loads it if installed, else `references` are pulled.

    `size` and `fit` (how well this machine can run it) are text. `needs` names a feature the pair
    requires and specchat lacks, empty if there is none. `share` is the part already downloaded,
    from 0 to 1. `choose` looks for a draft model, which may take a moment.
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
    """Whether it is the small pair for trying things out."""
    references: tuple[Reference, ...] = ()
    choose: Callable[[], PairChoice] | None = None


def no_files(name: str) -> Offer:
    """Refuse every file: the default `open_file`."""
    raise ModelNotFound(f"{name} cannot be opened here.")


@dataclass(frozen=True, slots=True)
class Setup:
    """The first pair, how to sample, where to keep conversations, and how the chat looks.

    `offers` lists the pairs that are installed or can be pulled; it may take a moment, but uses no
    network. `open_file` returns a pair for the path of a GGUF file. `history` is the file of the
    store; None to store nothing.
    """

    pair: PairChoice
    offers: Callable[[], Sequence[Offer]]
    history: Path | None
    open_file: Callable[[str], Offer] = no_files
    system_prompt: str = ""
    screen: ScreenOptions = field(default_factory=ScreenOptions)
    is_first_run: bool = False
    """Whether only the demo pair is installed, in which case others are suggested."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """The keys changed in the settings, by command id."""
    other_drafts: Callable[[PairChoice], Sequence[Offer]] = lambda _: ()
    """Finds other draft models for a pair's target, installed or downloadable, best first."""
    notice: str = ""
    """A notice to show first."""
    idle_minutes: int = 0
    """Minutes without a question after which the pair is unloaded; 0 for never."""

    def key_of(self, command: str) -> str:
        """Return the display names of a command's keys, as set in the settings."""
        return key_of(command, self.keys)
