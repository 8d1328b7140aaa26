"""How the chat is started: the first pair, the other pairs to offer, settings; no Textual here."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeAlias

from specchat.catalogue.outlook import Outlook
from specchat.connection.address import ServerAddress
from specchat.connection.opening import EngineSource
from specchat.engine.api import EngineFacts, Loading
from specchat.errors import ModelNotFound
from specchat.hub.references import Reference
from specchat.options.declarations import ChatOptions, ScreenOptions, ServerOptions
from specchat.tui.commands import key_of

SERVER = "the server"
"""What drafts for the model of a server."""


@dataclass(frozen=True, slots=True)
class PairChoice:
    """An installed pair, or the model of a server.

    `keep`, called once it is loaded, may save it and returns a notice; it may take a moment.
    `title` is what the catalogue calls its target, empty if it has none like it.
    """

    name: str
    description: str
    source: EngineSource
    options: Mapping[str, Any] = field(default_factory=dict)
    keep: Callable[[EngineFacts], str] | None = None
    title: str = ""

    @property
    def server(self) -> ServerAddress | None:
        """The server that runs the model; None for a pair on this machine."""
        return self.source if isinstance(self.source, ServerAddress) else None

    @property
    def loading(self) -> Loading:
        """How to load the pair. Raises TypeError for the model of a server."""
        if isinstance(self.source, ServerAddress):
            raise TypeError(f"{self.name} is not on this machine")
        return self.source


@dataclass(frozen=True, slots=True)
class Offer:
    """A pair in the models screen: `choose` loads it if installed, else `references` are pulled.

    `size` is text; `title` is the name to show, if it is not `name`. `share` is the part already
    downloaded, from 0 to 1. `loaded` is when it was last loaded (Unix time), 0 for never.
    `outlook` is what is known without this machine's memory and the pair's files. `choose` looks
    for a draft model, which may take a moment. The model of a server is an offer too (`is_server`).
    """

    name: str
    description: str
    size: str = ""
    licence: str = ""
    share: float = 0.0
    title: str = ""
    loaded: float = 0.0
    outlook: Outlook = field(default_factory=Outlook)
    is_recommended: bool = False
    is_trial: bool = False
    """Whether it is the small pair for trying things out."""
    references: tuple[Reference, ...] = ()
    server_settings: Mapping[str, str | None] = field(default_factory=dict)
    """The settings that make a server the default; None removes one. Empty for a pair."""
    choose: Callable[[], PairChoice] | None = None

    @property
    def is_server(self) -> bool:
        """Whether a server runs the model."""
        return bool(self.server_settings)

    @classmethod
    def of_server(
        cls, choose: Callable[[], PairChoice], name: str, address: str, model: str
    ) -> Self:
        """Return the offer of a server's model, "" for its first one.

        The `name` is that of the settings; "" for a server that they do not have.
        """
        shown = address.removeprefix("http://")
        return cls(
            name or shown,
            f"runs on {shown}",
            outlook=Outlook(target=model or name or shown, drafts=SERVER),
            server_settings={
                "model.connect": name or address,
                "model.served_model": None if name else model or None,
            },
            choose=choose,
        )


Remember: TypeAlias = Callable[[str, Loading], None]
"""Called with the name of each pair that was loaded, and how."""


def forget(name: str, loading: Loading) -> None:
    """Do nothing with a pair that was loaded: the default `remember`."""


def no_outlook(offer: Offer, held_bytes: int) -> Outlook:
    """Know no more of a pair than its offer does: the default `foresee`."""
    del held_bytes
    return offer.outlook


def no_files(name: str) -> Offer:
    """Refuse every file: the default `open_file`."""
    raise ModelNotFound(f"{name} cannot be opened here.")


@dataclass(frozen=True, slots=True)
class Setup:
    """The first pair, how to sample, where to keep conversations, and how the chat looks.

    `offers` lists the pairs that are installed or can be pulled; it may take a moment, but uses no
    network. `foresee` returns what a pair takes on this machine, for which it reads the files of an
    installed one; the second argument is the memory that the loaded pair holds, in bytes.
    `open_file` returns a pair for the path of a GGUF file. `history` is the file of the store; None
    to store nothing.
    """

    pair: PairChoice
    offers: Callable[[], Sequence[Offer]]
    history: Path | None
    foresee: Callable[[Offer, int], Outlook] = no_outlook
    remember: Remember = forget
    """Writes a file: not to be called by the screen's own thread."""
    open_file: Callable[[str], Offer] = no_files
    system_prompt: str = ""
    chat: ChatOptions = field(default_factory=ChatOptions)
    """How long the pair may idle, and an answer repeat itself."""
    screen: ScreenOptions = field(default_factory=ScreenOptions)
    server: ServerOptions = field(default_factory=ServerOptions)
    """Where the pair is served to other programs, once the user wants that."""
    is_first_run: bool = False
    """Whether only the demo pair is installed, in which case others are suggested."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """The keys changed in the settings, by command id."""
    other_drafts: Callable[[PairChoice], Sequence[Offer]] = lambda _: ()
    """Finds other draft models for a pair's target, installed or downloadable, best first."""
    notice: str = ""
    """A notice to show first."""

    def key_of(self, command: str) -> str:
        """Return the display names of a command's keys, as set in the settings."""
        return key_of(command, self.keys)
