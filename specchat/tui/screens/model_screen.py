"""The model screen: pairs that are here, to be chosen, and those of the catalogue, to be pulled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from specchat.chat.safe_text import harmless
from specchat.engine.offers import Offer
from specchat.errors import SpecchatError
from specchat.tui.events import PullEnded, PullProgressed
from specchat.tui.screens.dialogs import ConfirmScreen, Dialog, keys_line

__all__ = ["ModelScreen", "Told"]

WIDEST_NAME = 26
BAR_WIDTH = 12

Told = Mapping[str, PullProgressed | PullEnded]
"""What was told last of each pair that is or was being pulled."""


class _Pairs(OptionList):
    """A list whose footer says what Enter does."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "select", "Use or pull")]


class ModelScreen(Dialog[None]):
    """A list of pairs; what is chosen, pulled or given up is posted."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c,delete", "cancel", "Cancel"),
        Binding("d", "keep", "Open with it"),
        Binding("escape,q,f8", "dismiss", "Close"),
    ]

    @dataclass
    class Chosen(Message):
        """The user wants to go on with a pair that is here."""

        offer: Offer

    @dataclass
    class Kept(Message):
        """The user wants the chat to open with a pair from now on."""

        name: str

    @dataclass
    class Pulling(Message):
        """The user wants a pair fetched."""

        offer: Offer

    @dataclass
    class Cancelling(Message):
        """The user wants a pair fetched no more."""

        name: str

    def __init__(
        self, find: Callable[[], Sequence[Offer]], in_use: str, told: Told, marked: str = ""
    ) -> None:
        """Take how to find the pairs, the one in use, what is on its way, and which to mark."""
        super().__init__()
        self._find = find
        self._in_use = in_use
        self._told = told
        self._marked = marked
        self._offers: dict[str, Offer] = {}
        self._width = 0

    def compose(self) -> ComposeResult:
        """Put the list above its keys."""
        with Vertical(classes="dialog"):
            yield Static("Pairs, from files that are here…", classes="title", markup=False)
            yield _Pairs(markup=False)
            yield keys_line()

    def on_mount(self) -> None:
        """Look for pairs."""
        self.query_one(OptionList).focus()
        self.find_again()

    @work(exclusive=True)
    async def find_again(self) -> None:
        """Look for pairs in a thread: reading what is here may take a moment."""
        wrong = ""
        found: Sequence[Offer] = ()
        try:
            found = await asyncio.to_thread(self._find)
        except SpecchatError as error:
            wrong = harmless(str(error))
        if self not in self.app.screen_stack:  # closed meanwhile: its widgets are going or gone
            return
        if wrong:
            self.query_one(".title", Static).update(wrong)
            return
        self._offers = {offer.name: offer for offer in found}
        self._width = min(max(map(len, self._offers), default=0), WIDEST_NAME)
        self._fill()

    def show_pull(self, name: str) -> None:
        """Follow what was told of a pair last, once the pairs are shown."""
        if name in self._offers:
            options = self.query_one(OptionList)
            options.replace_option_prompt(name, self._words(self._offers[name]))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Use a pair that is here, and offer to pull one that is not."""
        offer = self._offers[str(event.option.id)]
        if offer.choose is not None:
            self.post_message(self.Chosen(offer))
        elif offer.needs:
            self.notify(f"{offer.name} needs {offer.needs}, which specchat cannot use yet.")
        elif isinstance(self._told.get(offer.name), PullProgressed):
            self.notify(f"{offer.name} is on its way; c gives it up.")
        else:
            self._ask(offer)

    def action_cancel(self) -> None:
        """Give up fetching the pair that is marked."""
        offer = self._marked_offer
        if offer and isinstance(self._told.get(offer.name), PullProgressed):
            self.post_message(self.Cancelling(offer.name))

    def action_keep(self) -> None:
        """Have the chat open with the pair that is marked from now on."""
        offer = self._marked_offer
        if offer and offer.choose is None:
            self.notify(f"{offer.name} is not here yet: Enter pulls it.")
        elif offer:
            self.post_message(self.Kept(offer.name))

    @property
    def _marked_offer(self) -> Offer | None:
        option = self.query_one(OptionList).highlighted_option
        return self._offers.get(str(option.id)) if option else None

    @work
    async def _ask(self, offer: Offer) -> None:
        """Ask once whether to pull."""
        begun = f", of which {offer.share:.0%} is here" if offer.share else ""
        details = f"{offer.description}\n\nsize     {offer.size}{begun}"
        details += f"\nlicence  {offer.licence or 'see its page'}\n"
        details += "".join(f"\n{each}" for each in offer.references)
        question = ConfirmScreen(
            f"Pull {offer.name} from the hub?", harmless(details), "Pull it", "Not now"
        )
        if await self.app.push_screen_wait(question):
            self.post_message(self.Pulling(offer))

    def _fill(self) -> None:
        """Show the pairs, and mark one of them."""
        options = self.query_one(OptionList)
        marked = options.highlighted_option.id if options.highlighted_option else self._marked
        options.clear_options()
        for heading, offers in self._groups():
            options.add_option(Option(Text(heading, "bold"), disabled=True))
            options.add_options(Option(self._words(each), id=each.name) for each in offers)
        wanted = self._marked if self._marked in self._offers else marked
        fallback = next((n for n, each in self._offers.items() if self._is_used(each)), None)
        name = wanted if wanted in self._offers else fallback
        if name is not None:
            options.highlighted = options.get_option_index(name)
        self.query_one(".title", Static).update("Pairs of a target and its draft model")

    def _groups(self) -> Iterator[tuple[str, list[Offer]]]:
        """Yield the pairs under their headings."""
        offers = self._offers.values()
        groups = {
            "Here": [each for each in offers if each.choose],
            "To pull": [each for each in offers if not each.choose and not each.needs],
            "Experimental": [each for each in offers if not each.choose and each.needs],
        }
        yield from ((heading, found) for heading, found in groups.items() if found)

    def _words(self, offer: Offer) -> Text:
        """Return the two lines of a pair."""
        name = harmless(offer.name)
        name = name if len(name) <= self._width else f"{name[: self._width - 1]}…"
        text = Text(f"{self._mark(offer)} {name:<{self._width}}")
        text.append(f"  {offer.size:>8}  {offer.tier:<7}", "dim")
        label = "recommended" if offer.is_recommended else ""
        text.append(f"{'in use' if self._is_used(offer) else label}\n", "bold")
        told = self._told.get(offer.name)
        if isinstance(told, PullProgressed):
            done = "█" * round(told.share * BAR_WIDTH)
            text.append(f"  {done:░<{BAR_WIDTH}} ", "green")
            text.append(told.words)
        elif told is not None and told.reason:
            text.append(f"  {told.reason}", "red")
        else:
            parts = [offer.fit, offer.description, offer.licence]
            if offer.share and not offer.choose:
                parts.insert(0, f"{offer.share:.0%} is here")
            if offer.needs:
                parts.append(f"needs {offer.needs}")
            text.append(f"  {harmless(' · '.join(filter(None, parts)))}", "dim")
        return text

    def _mark(self, offer: Offer) -> str:
        if offer.choose is not None:
            return "●" if self._is_used(offer) else "✔"
        return "↓" if isinstance(self._told.get(offer.name), PullProgressed) else " "

    def _is_used(self, offer: Offer) -> bool:
        return offer.choose is not None and offer.name == self._in_use
