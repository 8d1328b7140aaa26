"""The models screen: pairs to switch to, the last used first, and pairs to download."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Protocol

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from specchat.catalogue.outlook import Outlook
from specchat.chat.answer_statistics import AnswerTotals
from specchat.errors import SpecchatError
from specchat.hub.cache import cache_root
from specchat.hub.offline import is_offline
from specchat.safe_text import harmless
from specchat.tui.controllers.pulls import Pulls
from specchat.tui.screens.dialogs import ConfirmScreen, Dialog
from specchat.tui.screens.file_screen import FileScreen
from specchat.tui.screens.listed_pairs import ListedPairs
from specchat.tui.screens.model_rows import Columns, ModelRow
from specchat.tui.setup import Offer
from specchat.tui.widgets.filter_input import FilterInput
from specchat.tui.widgets.grouped_list import GroupedList
from specchat.wording import progress_percent, rate_text

OFFLINE = "Start specchat without --offline, SPECCHAT_OFFLINE and HF_HUB_OFFLINE."
OPEN = "open a file"
"""The id of the entry that asks for a file; no pair has this name."""
TITLE = "Models"
MIN_HEIGHT_FOR_GAPS = 30


def question_before_pull(offer: Offer) -> ConfirmScreen:
    """Return the question before a download: how large it is, its licence, and where it goes."""
    installed = f", {progress_percent(offer.share)} already downloaded" if offer.share else ""
    details = f"{offer.description}\n\nsize     {offer.size}{installed}"
    if offer.outlook.memory and not offer.outlook.fits:
        details += f"\nmemory   too large for this machine: needs {offer.outlook.memory}"
    if offer.outlook.rate:
        details += f"\nspeed    about {rate_text(offer.outlook.rate)} on this machine"
    details += f"\nlicence  {offer.licence or 'see its page on the hub'}"
    details += f"\nto       {cache_root()}\n"
    details += "".join(f"\n{reference}" for reference in offer.references)
    return ConfirmScreen(f"Download {offer.name}?", harmless(details), "Download", "Not now")


class PairSource(Protocol):
    """Lists the pairs, and carries out the actions on one."""

    def offers(self) -> list[Offer]:
        """Return all pairs; may take a moment."""

    def outlook(self, offer: Offer) -> Outlook:
        """Return what a pair takes on this machine; may take a moment if it is installed."""

    def measured(self) -> Mapping[str, AnswerTotals]:
        """Return how fast pairs were here, by name."""

    def pull(self, offer: Offer) -> None:
        """Ask whether to download a pair, and do so."""

    def use(self, offer: Offer) -> None:
        """Load an installed pair."""

    def keep(self, offer: Offer) -> None:
        """Make a pair the default."""

    async def open_file(self, name: str) -> None:
        """Use a GGUF file."""


class _Filter(FilterInput):
    """A filter whose keys say what they do to the highlighted pair."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "screen.use", "Use"),
        Binding("enter", "screen.download", "Download"),
        Binding("enter", "screen.choose", "Choose", show=False),
        Binding("ctrl+d", "screen.keep", "Make default"),
        Binding("delete", "screen.cancel", "Cancel download"),
        Binding("ctrl+o", "screen.open_file", "Open file"),
    ]


class ModelScreen(Dialog[None]):
    """A list of pairs, with actions on the highlighted one and all that is known of it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,f8", "dismiss", "Close")]

    def __init__(self, pairs: PairSource, pulls: Pulls, in_use: str, words: str = "") -> None:
        """Store the source of pairs, and the name of the pair in use.

        `words` is the initial search: only pairs that contain them are listed.
        """
        super().__init__("Looking for models…")
        self._pairs = pairs
        self._pulls = pulls
        self._words = words
        self._listed = ListedPairs(pulls, in_use, pairs.measured())
        self._columns = Columns(0)
        self._filled = ""
        """The words by which the list was narrowed."""

    def content(self) -> ComposeResult:
        """Put the search above the list, and the details below it."""
        yield _Filter(self._words)
        yield Static(classes="columns", markup=False)
        models = GroupedList(markup=False)
        models.can_focus = False
        yield models
        yield Static(classes="facts", markup=False)

    def on_mount(self) -> None:
        """Look for pairs."""
        self.query_one(Input).focus()
        self.find_again()

    def on_resize(self) -> None:
        """Fit the columns to the new width."""
        self.call_after_refresh(self._fill)

    @work(exclusive=True)
    async def find_again(self) -> None:
        """Look for pairs in a thread, then read the files of the installed ones, one by one.

        Reading a file takes up to a second, so each row is completed as soon as its own was read.
        """
        title = TITLE
        try:
            self._listed.replace(await asyncio.to_thread(self._pairs.offers))
        except (OSError, SpecchatError) as error:
            title = harmless(str(error))
        if not self._is_open:
            return
        self._fill()
        if shown := self.query_one_optional(".title", Static):
            shown.update(title)
        for row in self._listed.unread():
            await self._complete(row.offer)

    async def _complete(self, offer: Offer) -> None:
        """Show what a pair takes on this machine."""
        try:
            outlook = await asyncio.to_thread(self._pairs.outlook, offer)
        except (OSError, SpecchatError) as error:
            outlook = replace(offer.outlook, notice=harmless(str(error)))
        if self._is_open:
            self._listed.complete(offer.name, outlook)
            self._show(offer.name)

    @property
    def _is_open(self) -> bool:
        return self in self.app.screen_stack

    def show_pull(self, name: str) -> None:
        """Update the display of a pair's download."""
        self._listed.follow_pull(name)
        self._show(name)

    def on_option_list_option_highlighted(self) -> None:
        """Show what is known of the pair, and the keys that act on it."""
        self._show_details()
        self.refresh_bindings()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Act on a clicked pair."""
        event.option_list.highlighted = event.option_index
        self.action_choose()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer only what can be done with the highlighted pair."""
        row = self._highlighted
        if action in {"use", "keep"}:
            return row is not None and row.is_here
        if action == "download":
            return row is not None and row.is_wanted
        if action == "cancel":
            return row is not None and row.is_arriving
        return super().check_action(action, parameters)

    async def action_list(self, action: str) -> None:
        """Run an action of the list, which has no focus."""
        await self.query_one(GroupedList).run_action(action)

    def action_choose(self) -> None:
        """Use the highlighted pair, offer to download it, or ask for a file."""
        self._narrow()
        row = self._highlighted
        if row is None:
            self.action_open_file()
        elif row.is_here:
            self._pairs.use(row.offer)
        elif not row.is_arriving:
            self._download(row)

    action_use = action_download = action_choose
    """What Enter is called: the list may change before it is handled."""

    def _download(self, row: ModelRow) -> None:
        if is_offline():
            self.notify(f"{row.offer.name} cannot be downloaded offline. {OFFLINE}")
        else:
            self._pairs.pull(row.offer)

    def action_cancel(self) -> None:
        """Cancel the highlighted download."""
        if row := self._highlighted:
            self._pulls.cancel(row.offer.name)

    def action_keep(self) -> None:
        """Make the highlighted pair the default."""
        self._narrow()
        if (row := self._highlighted) and row.is_here:
            self._pairs.keep(row.offer)

    @work
    async def action_open_file(self) -> None:
        """Ask for a GGUF file, and use it."""
        name = await self.app.push_screen_wait(FileScreen())
        if name:
            await self._pairs.open_file(name)

    def on_input_changed(self) -> None:
        """Narrow the list."""
        self._narrow()

    def _narrow(self) -> None:
        """List what contains the words; a key may come before the message that they changed."""
        if self.query_one(Input).value != self._filled:
            self._fill()

    @property
    def _highlighted(self) -> ModelRow | None:
        models = self.query_one_optional(GroupedList)
        option = models.highlighted_option if models else None
        return self._listed.get(str(option.id)) if option else None

    def _show(self, name: str) -> None:
        """Update the row of a pair, and its details if it is highlighted."""
        models = self.query_one_optional(GroupedList)  # the list may not be mounted yet
        row = self._listed.get(name)
        if models is not None and row and name in {option.id for option in models.options}:
            models.replace_option_prompt(name, self._columns.row(row))
            self._show_details()
            self.refresh_bindings()

    def _show_details(self) -> None:
        row = self._highlighted
        details = self._listed.with_siblings(row).details() if row else ""
        if facts := self.query_one_optional(".facts", Static):  # gone while the chat closes
            facts.update(details)

    def _fill(self) -> None:
        """List the pairs; highlight the first one that new words find.

        Without new words highlight the last pulled, else the same as before or the one in use.
        """
        models, typed = self.query_one_optional(GroupedList), self.query_one_optional(Input)
        heading = self.query_one_optional(".columns", Static)
        if models is None or typed is None or heading is None or not self._listed:
            return
        words = typed.value
        before = models.highlighted_option.id if models.highlighted_option else None
        is_new, self._filled = bool(words) and words != self._filled, words
        self._columns = Columns.fitting(self._listed, models.scrollable_content_region.width)
        heading.update(self._columns.heading())
        lines = [
            (title, Option(self._columns.row(each), id=each.offer.name))
            for title, rows in self._listed.groups(words).items()
            for each in rows
        ]
        lines.append(("Your own", Option("  Open a GGUF file…", id=OPEN)))
        used = [each.offer.name for each in self._listed if each.is_used]
        models.has_gaps = self.size.height >= MIN_HEIGHT_FOR_GAPS
        models.fill(lines, *[] if is_new else [self._pulls.recent, before, *used])
        self._show_details()
        self.refresh_bindings()
