"""The options of the next answer, and where they come from; no Textual here."""

from typing import Any

from specchat.options.declarations import AUTO_THINK, GenerateOptions
from specchat.tui.controllers.conversations import Conversations
from specchat.tui.controllers.gains import Drafting
from specchat.tui.controllers.pair_controller import PairController

DECIDING = {each.key for each in GenerateOptions.fields()} - {
    "seed", "max_tokens", "make_room", "alternatives",
}  # fmt: skip
"""The options that the speed of an answer of some length depends on, beside its text."""


class AnswerOptions:
    """The pair's options, below those changed in this session, below those of the preset."""

    def __init__(self, conversations: Conversations, pair_controller: PairController) -> None:
        self.changed: dict[str, Any] = {}
        """Options changed in this session of the chat."""
        self._conversations = conversations
        self._pair_controller = pair_controller

    @property
    def current(self) -> dict[str, Any]:
        """The options that are set, by name."""
        own = self._pair_controller.pair.options
        return {**own, **self.changed, **self._conversations.sampling}

    @property
    def temperature(self) -> float:
        """The temperature, which has a default."""
        return float(self.current.get("temperature", GenerateOptions().temperature))

    @property
    def wanted_thinking(self) -> str:
        """The `think` value that is set, which the loaded model may not support."""
        return str(self.current.get("think", AUTO_THINK))

    @property
    def thinking(self) -> str:
        """The `think` value; "auto" if the loaded model does not support the one that is set."""
        word, facts = self.wanted_thinking, self._pair_controller.facts
        return word if facts is None or facts.takes_think(word) else AUTO_THINK

    @property
    def drafting(self) -> Drafting:
        """What an answer's gain depends on besides its text."""
        options, pair = self.current, self._pair_controller.pair
        sizes = options.get("draft_length"), options.get("draft_tree")
        return pair.name, options.get("drafter"), *sizes
