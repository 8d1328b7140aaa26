"""The start screen of an empty conversation: the loaded pair, and sample questions."""

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import OptionList, Static

from specchat.catalogue.outlook import EXPLAINED, LOOKUP
from specchat.engine.api import EngineFacts
from specchat.safe_text import in_one_line
from specchat.tui.setup import PairChoice
from specchat.tui.texts.cards import UNREPORTED
from specchat.tui.widgets.composer import Composer
from specchat.wording import size_text

WORDMARK = """\
▄▀▀▀ █▀▀▄ █▀▀▀ ▄▀▀▀ ▄▀▀▀ █  █ ▄▀▀▄ ▀█▀
 ▀▀▄ █▄▄▀ █▀▀  █    █    █▀▀█ █▀▀█  █
▀▀▀  █    ▀▀▀▀  ▀▀▀  ▀▀▀ ▀  ▀ ▀  ▀  ▀"""
QUESTIONS = (
    "What is speculative decoding?",
    "Write a Python function that reverses a string.",
    "Why is the sky blue?",
)
"""Sample questions, which the demo pair can answer, and the smallest model of the catalogue.

Each of them ended or went on without a loop in 300 tokens with eight or ten seeds. Stories, lists
and functions that take thought ended in loops: smollm2-135m said the same over and over.
"""
WAYS = "Write below · Tab: questions to try"
NO_DRAFT = f"{LOOKUP}: {EXPLAINED[LOOKUP]}"
NAMES_WIDTH, BETWEEN = 9, " · "


class _Questions(OptionList):
    """Questions to send with Enter or a click."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "select", "Send"),
        Binding("escape,shift+down", "app.leave", "Back", show=False),
    ]


class Welcome(VerticalScroll, can_focus=False):
    """A wordmark, a card of the loaded pair, and questions to click."""

    _shown: tuple[PairChoice, EngineFacts | None, str, str] | None = None

    def compose(self) -> ComposeResult:
        """Yield the wordmark, the card and the questions."""
        yield Static(WORDMARK, id="wordmark", markup=False)
        yield Static(id="pair", markup=False)
        yield Static(id="ways", classes="label", markup=False)
        yield _Questions(*(f"→ {question}" for question in QUESTIONS), markup=False, compact=True)

    def show(self, pair: PairChoice, facts: EngineFacts | None, state: str, chats: str) -> None:
        """Show the pair; unless it is loaded, `facts` is None and the `state` is shown.

        `chats` is the key that lists earlier conversations, empty if there are none.
        """
        self._shown = pair, facts, state, chats
        ways = self.query_one("#ways", Static)
        words = f"{WAYS}{BETWEEN}{chats}: earlier chats" if chats else WAYS
        if ways.content != words:
            ways.update(words)
        card = self.query_one("#pair", Static)
        card.border_title = in_one_line(pair.name)
        text = Text(state, "dim")
        if facts is not None:
            width = card.content_size.width  # 0 until it is laid out
            unknown = UNREPORTED if facts.served_by else NO_DRAFT
            context = f"{facts.context} tokens" if facts.context else UNREPORTED
            draft = (facts.draft or unknown).removeprefix(f"{facts.target}, ")  # of a head
            rows = [
                _row("target", pair.title or facts.target, facts.target_file_bytes, width),
                _row("draft", draft, facts.draft_file_bytes, width),
                _row("context", context, 0, width),
            ]
            rows += [_row("runs on", facts.plan, 0, width)] if facts.served_by else []
            text = Text("\n").join(rows)
        if card.content != text:
            card.update(text)

    def on_resize(self) -> None:
        """Fit the new size."""
        if self._shown:
            self.show(*self._shown)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Ask the chosen question."""
        event.stop()
        question = QUESTIONS[event.option_index]
        self.post_message(Composer.Sent(question, question))


def _row(name: str, value: str, num_bytes: int, width: int) -> Text:
    """Return a row of the card; a size that does not fit into the row goes on a line below."""
    row = Text.assemble((f"{name:<{NAMES_WIDTH}}", "dim"), in_one_line(value))
    if num_bytes:
        size = size_text(num_bytes)
        fits = not width or row.cell_len + len(BETWEEN + size) <= width
        row.append(f"{BETWEEN}{size}" if fits else f"\n{'':<{NAMES_WIDTH}}{size}")
    return row
