"""What the chat is started with; no Textual here."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from specchat.engine.offers import Offer, PairChoice
from specchat.options import ScreenOptions


@dataclass(frozen=True, slots=True)
class Setup:
    """The first pair, how to sample, where to keep conversations, and how the chat looks.

    `offers` lists the pairs that are installed or can be pulled; it may take a moment, and uses no
    network. `history` is the file of the store, None to keep nothing.
    """

    pair: PairChoice
    offers: Callable[[], Sequence[Offer]]
    history: Path | None
    system_prompt: str = ""
    screen: ScreenOptions = field(default_factory=ScreenOptions)
    is_first_run: bool = False
    """Whether only the demo pair is installed, so that others should be suggested."""
    keys: Mapping[str, str] = field(default_factory=dict)
    notice: str = ""
    """A notice to show first."""
