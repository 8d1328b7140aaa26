"""The models screen: installed pairs to switch to, and pairs of the catalogue to download."""

import asyncio
from typing import ClassVar, Protocol

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from specchat.chat.safe_text import harmless
from specchat.errors import SpecchatError
from specchat.hub.cache import cache_root
from specchat.hub.client import is_offline
from specchat.tui.controllers.pulls import Pulls
from specchat.tui.screens.dialogs import ConfirmScreen, Dialog, LineScreen
from specchat.tui.setup import Offer
from specchat.tui.widgets.grouped_list import GroupedList, has_words
from specchat.wording import percent

MAX_NAME_WIDTH = 26
BAR_WIDTH = 12
OFFLINE = "Start specchat without --offline, SPECCHAT_OFFLINE and HF_HUB_OFFLINE."
OPEN = "open a file"
"""The id of the entry that asks for a file; no pair has this name."""
TITLE = "Pairs of a target and its draft model"


def question_before_pull(offer: Offer) -> ConfirmScreen:
    """Return the question before a download: how large it is, its licence, and where it goes."""
    installed = f", {percent(offer.share)} already downloaded" if offer.share else ""
    details = f"{offer.description}\n\nsize     {offer.size}{installed}"
    details += f"\nlicence  {offer.licence or 'see its page on the hub'}"
    details += f"\nto       {cache_root()}\n"
    details += "".join(f"\n{each}" for each in offer.references)
    return ConfirmScreen(f"Download {offer.name}?", harmless(details), "Download", "Not now")


class PairSource(Protocol):
    """Lists the pairs, and carries out the actions on one."""

    def offers(self) -> list[Offer]:
        """Return all pairs; may take a moment."""

    def pull(self, offer: Offer) -> None:
        """Ask whether to download a pair, and do so."""

    def use(self, offer: Offer) -> None:
        """Load an installed pair."""

    def keep(self, offer: Offer) -> None:
        """Make a pair the default."""

    async def open_file(self, name: str) -> None:
        """Use a GGUF file."""


class _Pairs(GroupedList):
    """A list whose footer shows what Enter does."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "select", "Use or download")]


class ModelScreen(Dialog[None]):
    """A list of pairs, with actions on the highlighted one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c,delete", "cancel", "Cancel download"),
        Binding("d", "keep", "Make default"),
        Binding("/", "app.focus_previous", "Search"),
        Binding("down", "app.focus_next", show=False),
        Binding("escape,q,f8", "dismiss", "Close"),
    ]

    def __init__(self, pairs: PairSource, pulls: Pulls, in_use: str, words: str = "") -> None:
        """Store the source of pairs, and the name of the pair in use.

        `words` is the initial search: only pairs that contain them are listed.
        """
        super().__init__("Looking for pairs…")
        self._pairs = pairs
        self._pulls = pulls
        self._in_use = in_use
        self._words = words
        self._offers: dict[str, Offer] = {}
        self._name_width = 0

    def content(self) -> ComposeResult:
        """Put the search above the list."""
        yield Input(self._words, placeholder="/ search", compact=True)
        yield _Pairs(markup=False)

    def on_mount(self) -> None:
        """Look for pairs."""
        self.query_one(OptionList).focus()
        self.find_again()

    @work(exclusive=True)
    async def find_again(self) -> None:
        """Look for pairs in a thread, because reading the local files may take a moment."""
        title = TITLE
        try:
            found = await asyncio.to_thread(self._pairs.offers)
            self._offers = {offer.name: offer for offer in found}
        except SpecchatError as error:
            title = harmless(str(error))
        if self not in self.app.screen_stack:  # closed in the meantime
            return
        self._name_width = min(max(map(len, self._offers), default=0), MAX_NAME_WIDTH)
        self._fill()
        self.query_one(".title", Static).update(title)

    def show_pull(self, name: str) -> None:
        """Update the display of a pair's download."""
        options = self.query_one_optional(OptionList)  # the list may not be mounted yet
        if options is not None and name in {each.id for each in options.options}:
            options.replace_option_prompt(name, self._lines(self._offers[name]))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Switch to the selected pair, or offer to download it if it is not installed."""
        if event.option.id == OPEN:
            self._ask_file()
            return
        offer = self._offers[str(event.option.id)]
        if offer.choose is not None:
            self._pairs.use(offer)
        elif offer.needs:
            self.notify(f"{offer.name} needs {offer.needs}, which specchat does not support yet.")
        elif self._is_downloading(offer):
            self.notify(f"{offer.name} is downloading; c cancels it.")
        elif is_offline():
            self.notify(f"{offer.name} cannot be downloaded offline. {OFFLINE}")
        else:
            self._pairs.pull(offer)

    def action_cancel(self) -> None:
        """Cancel the highlighted download."""
        if offer := self._highlighted:
            self._pulls.cancel(offer.name)

    def action_keep(self) -> None:
        """Make the highlighted pair the default."""
        offer = self._highlighted
        if offer and offer.choose is None:
            self.notify(f"{offer.name} is not installed yet. Enter downloads it.")
        elif offer:
            self._pairs.keep(offer)

    def on_input_changed(self) -> None:
        """Narrow the list."""
        self._fill()

    def on_input_submitted(self) -> None:
        """Return to the list."""
        self.query_one(OptionList).focus()

    @work
    async def _ask_file(self) -> None:
        name = await self.app.push_screen_wait(LineScreen("Path of a GGUF file"))
        if name and name.strip():
            await self._pairs.open_file(name.strip())

    @property
    def _highlighted(self) -> Offer | None:
        option = self.query_one(OptionList).highlighted_option
        return self._offers.get(str(option.id)) if option else None

    def _fill(self) -> None:
        """List the pairs; highlight the last pulled, else the same as before or the one in use."""
        options = self.query_one(GroupedList)
        before = options.highlighted_option.id if options.highlighted_option else None
        lines = [
            (heading, Option(self._lines(each), id=each.name))
            for heading, offers in self._groups().items()
            for each in offers
        ]
        lines.append(("", Option("Open a GGUF file…", id=OPEN)))
        used = [each.name for each in self._offers.values() if self._is_used(each)]
        options.fill(lines, self._pulls.recent, before, *used)

    def _groups(self) -> dict[str, list[Offer]]:
        words, known = self.query_one(Input).value, self._offers.values()
        offers = [each for each in known if has_words(f"{each.name} {_description(each)}", words)]
        return {
            "Installed": [each for each in offers if each.choose],
            "Available online (specchat is offline)" if is_offline() else "Available": [
                each for each in offers if not each.choose and not each.needs
            ],
            "Experimental": [each for each in offers if not each.choose and each.needs],
        }

    def _lines(self, offer: Offer) -> Content:
        name, width = harmless(offer.name), self._name_width
        name = name if len(name) <= width else f"{name[: width - 1]}…"
        label = "recommended" if offer.is_recommended else ""
        heading = (
            f"{self._mark(offer)} {name:<{width}}",
            (f"  {offer.size:>8}  {offer.tier:<7}", "dim"),
            (f"{'in use' if self._is_used(offer) else label}\n  ", "bold"),
        )
        latest = self._pulls.latest.get(offer.name)
        if latest is not None and latest.stage == "running":
            bar = f"{'█' * round(latest.share * BAR_WIDTH):░<{BAR_WIDTH}} "
            return Content.assemble(*heading, (bar, "$text-success"), latest.words)
        if latest is not None and latest.stage == "failed":
            return Content.assemble(*heading, (latest.words, "$text-error"))
        return Content.assemble(*heading, (harmless(_description(offer)), "dim"))

    def _mark(self, offer: Offer) -> str:
        if offer.choose is not None:
            return "●" if self._is_used(offer) else "✔"
        return "↓" if self._is_downloading(offer) else " "

    def _is_used(self, offer: Offer) -> bool:
        return offer.choose is not None and offer.name == self._in_use

    def _is_downloading(self, offer: Offer) -> bool:
        latest = self._pulls.latest.get(offer.name)
        return latest is not None and latest.stage == "running"


def _description(offer: Offer) -> str:
    """Return a pair's fit, purpose and licence, and what specchat lacks to run it."""
    fit = "" if offer.fit == "unknown" else offer.fit
    parts = [fit, offer.description, offer.licence]
    if offer.share and not offer.choose:
        parts.insert(0, f"{percent(offer.share)} downloaded")
    if offer.needs:
        parts.append(f"needs {offer.needs}")
    return " · ".join(filter(None, parts))
