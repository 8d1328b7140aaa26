"""What an empty conversation shows: the loaded pair, and questions to begin with."""

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import OptionList, Static

from specchat.chat.safe_text import in_one_line
from specchat.engine.api import EngineFacts
from specchat.hub.cache import size_in_words
from specchat.tui.widgets.composer import Composer

WORDMARK = """\
▄▀▀▀ █▀▀▄ █▀▀▀ ▄▀▀▀ ▄▀▀▀ █  █ ▄▀▀▄ ▀█▀
 ▀▀▄ █▄▄▀ █▀▀  █    █    █▀▀█ █▀▀█  █
▀▀▀  █    ▀▀▀▀  ▀▀▀  ▀▀▀ ▀  ▀ ▀  ▀  ▀"""
QUESTIONS = (
    "What is speculative decoding?",
    "Write a Python function that checks whether a number is prime.",
    "Tell me a short story about a dragon.",
)
"""The demo pair knows their answers too."""


class _Questions(OptionList):
    """Questions to send with Enter or a click."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,shift+down", "app.leave", "Back", show=False),
    ]


class Welcome(VerticalScroll, can_focus=False):
    """A wordmark, a card of the loaded pair, and questions to click."""

    def compose(self) -> ComposeResult:
        """Put the questions below the card."""
        yield Static(WORDMARK, id="wordmark", markup=False)
        yield Static(id="pair", markup=False)
        yield Static("Try a question, or write your own below", classes="label", markup=False)
        yield _Questions(*(f"→ {each}" for each in QUESTIONS), markup=False, compact=True)

    def show(self, pair: str, facts: EngineFacts | None) -> None:
        """Show what is loaded; no facts while it loads."""
        card = self.query_one("#pair", Static)
        card.border_title = in_one_line(pair)
        text = Text("loading…", "dim")
        if facts is not None:
            size = f" · {size_in_words(facts.draft_bytes)}" if facts.draft_bytes else ""
            draft = f"{facts.draft}{size}" if facts.draft else "suffix lookup, without a model"
            rows = {
                "target": f"{facts.target} · {size_in_words(facts.target_bytes)}",
                "draft": draft,
                "context": f"{facts.context} tokens",
            }
            lines = (
                Text.assemble((f"{name:<9}", "dim"), in_one_line(value))
                for name, value in rows.items()
            )
            text = Text("\n").join(lines)
        if card.content != text:
            card.update(text)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Ask the chosen question."""
        event.stop()
        question = QUESTIONS[event.option_index]
        self.post_message(Composer.Sent(question, question))
