"""The question before a download: how large it is, its licence, where it goes, and what with it."""

import asyncio
from contextlib import suppress

from textual import work
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from specchat.catalogue.projectors import missing_projector
from specchat.errors import SpecchatError
from specchat.hub.cache import cache_root
from specchat.hub.references import Reference
from specchat.safe_text import harmless, in_one_line
from specchat.tui.screens.dialogs import ConfirmScreen
from specchat.tui.setup import Offer
from specchat.wording import progress_percent, rate_text, size_text

WITH_PROJECTOR = "with projector"
"""The id of the answer that downloads what reads images, too."""


class PullScreen(ConfirmScreen):
    """Asks whether to download a pair; once the hub has named a projector, with it or without."""

    def __init__(self, offer: Offer) -> None:
        super().__init__(f"Download {offer.name}?", _details(offer), "Download", "Not now")
        self._offer = offer
        self._projector: Reference | None = None
        self.references = offer.references
        """The files to download, if the answer is yes."""

    def on_mount(self) -> None:
        """Ask the hub for what makes the target read images."""
        self._offer_projector()

    @work
    async def _offer_projector(self) -> None:
        """Put an answer that takes the projector, too, after the one that does not."""
        target = self._offer.outlook.target
        for reference in self._offer.references:
            if reference.name != target:  # a draft, or a head
                continue
            with suppress(OSError, SpecchatError):  # it is only not offered
                found = await asyncio.to_thread(missing_projector, reference)
                if found and self.is_mounted:
                    self._add(*found)
            return

    def _add(self, projector: Reference, num_bytes: int | None) -> None:
        self._projector = projector
        size = f" ({size_text(num_bytes)})" if num_bytes else ""
        words = in_one_line(f"Download with {projector.name}{size}, to read images")
        answers = self.query_one(OptionList)
        highlighted, (yes, no) = answers.highlighted, answers.options
        answers.set_options([yes, Option(words, id=WITH_PROJECTOR), no])
        answers.highlighted = 2 if highlighted == 1 else highlighted

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Return yes if the answer is to take the projector, too."""
        if event.option_id == WITH_PROJECTOR and self._projector:
            event.prevent_default()  # Textual calls the base class by itself
            self.references = (*self._offer.references, self._projector)
            self.dismiss(True)


def _details(offer: Offer) -> str:
    installed = f", {progress_percent(offer.share)} already downloaded" if offer.share else ""
    details = f"{offer.description}\n\nsize     {offer.size}{installed}"
    if offer.outlook.memory and not offer.outlook.fits:
        details += f"\nmemory   too large for this machine: needs {offer.outlook.memory}"
    if offer.outlook.rate:
        details += f"\nspeed    about {rate_text(offer.outlook.rate)} on this machine"
    details += f"\nlicence  {offer.licence or 'see its page on the hub'}"
    details += f"\nto       {cache_root()}\n"
    details += "".join(f"\n{reference}" for reference in offer.references)
    return harmless(details)
