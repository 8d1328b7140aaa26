"""The options of the chat and of its screen, and those of every command."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from specchat.options.declarations import Options
from specchat.options.option import Option


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOptions(Options):
    """What a conversation begins with, and whether it is kept."""

    TABLE: ClassVar = "chat"

    system_prompt: Annotated[
        str | None,
        Option(
            "Instructions for the model, before the conversation.",
            can_be_empty=True,
            flag="--system",
            metavar="TEXT",
            example="Answer briefly.",
        ),
    ] = None
    history: Annotated[bool, Option("Save conversations.")] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkOptions(Options):
    """What may be asked of the network."""

    TABLE: ClassVar = "network"

    offline: Annotated[bool, Option("Never use the network.")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenOptions(Options):
    """What the chat's screen shows, and how."""

    TABLE: ClassVar = "screen"

    theme: Annotated[str, Option("Colour theme.", metavar="NAME")] = "textual-dark"
    statistics: Annotated[bool, Option("Show the statistics panel.")] = True
    conversations: Annotated[bool, Option("Show the list of conversations.")] = False
    colour_tokens: Annotated[bool, Option("Colour tokens by what drafted them.")] = False
    animations: Annotated[bool, Option("Animate the screen.")] = True
    fold_reasoning: Annotated[bool, Option("Fold the model's reasoning.")] = True
    offer_models: Annotated[
        bool, Option("Offer to download a model while only the demo pair is installed.")
    ] = True
