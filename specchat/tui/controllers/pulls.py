"""Downloads of pairs in the background while the user chats; no Textual here."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Literal

from specchat.errors import Cancelled, SpecchatError
from specchat.system.logs import log_internal_error
from specchat.tui.controllers.chat_view import ChatView
from specchat.tui.controllers.session import LOG, Post
from specchat.tui.setup import Offer
from specchat.wording import progress_percent

if TYPE_CHECKING:
    from specchat.hub.transfer import DownloadProgress

INTERVAL = 0.25
"""Seconds between two progress reports."""
SECONDS_TO_END = 3.0


@dataclass(frozen=True, slots=True)
class PullState:
    """The progress of a pair's download, or how it ended."""

    stage: Literal["running", "installed", "cancelled", "failed"] = "running"
    share: float = 0.0
    words: str = ""
    """What is being downloaded and how fast, or why it failed."""


class Pull(threading.Thread):
    """The thread that downloads the files of one pair; it ends soon after `cancelled` is set.

    A cancelled download keeps the partial files; the next one resumes from them.
    """

    def __init__(self, offer: Offer, report: Callable[[PullState], object]) -> None:
        from specchat.hub.tally import Tally

        super().__init__(name=f"pull {offer.name}", daemon=True)
        self.cancelled = threading.Event()
        self._offer = offer
        self._report = report
        self._tally = Tally(INTERVAL)
        self._notice = ""

    def run(self) -> None:
        """Download the files that are missing."""
        from specchat.hub.download import download

        end = PullState("installed")
        try:
            is_cancelled = self.cancelled.is_set
            references = self._offer.references
            download(references, self._progressed, is_cancelled, on_notice=self._noticed)
        except Cancelled:
            end = PullState("cancelled")
        except Exception as error:  # noqa: BLE001  # a thread that ends silently is worse
            is_own = isinstance(error, SpecchatError)
            reason = str(error) if is_own else log_internal_error(error, LOG)
            end = PullState("failed", words=reason)
        self._report(end)

    def _progressed(self, progress: "DownloadProgress") -> None:
        """Record the progress of one file; report the total now and then."""
        tally = self._tally
        if tally.update(progress):
            words = ", ".join(filter(None, (*tally.in_words(), tally.note, self._notice)))
            self._report(PullState(share=tally.share, words=words))

    def _noticed(self, text: str) -> None:
        """Show a notice behind the progress, until the next one."""
        self._notice = text


@dataclass(slots=True)
class Pulls:
    """All downloads started in this chat."""

    view: ChatView
    post: Post
    running: dict[str, Pull] = field(default_factory=dict)
    latest: dict[str, PullState] = field(default_factory=dict)
    """The last report on each pair."""
    recent: str = ""
    """The pair pulled last, which the user is probably looking for."""
    arrived: str = ""
    """The name of the newly installed pair to offer; empty if there is none."""

    def start(self, offer: Offer) -> None:
        """Start downloading a pair, unless that is already running."""
        if offer.name not in self.running:
            self.recent = offer.name
            pull = Pull(offer, partial(self.post, self.follow, offer.name))
            self.running[offer.name] = pull
            pull.start()
            self.follow(offer.name, PullState(share=offer.share, words="asking the hub"))

    def cancel(self, name: str) -> None:
        """Cancel a download."""
        if name in self.running:
            self.running[name].cancelled.set()

    def follow(self, name: str, state: PullState) -> None:
        """Show the progress of a download, or how it ended."""
        if name not in self.running:  # a cancelled thread may still report
            return
        self.latest[name] = state
        if state.stage != "running":
            del self.running[name]
        if state.stage == "installed":
            self.arrived = name
        self.view.show_pull(name)

    def summary(self) -> str:
        """Return what is being downloaded and its progress; empty if nothing is."""
        names = list(self.running)
        if not names:
            return ""
        shares = [self.latest[name].share for name in names]
        what = names[0] if len(names) == 1 else f"{len(names)} pairs"
        return f"↓ {what} {progress_percent(sum(shares) / len(shares))}"

    def end(self) -> None:
        """Cancel all downloads; partial files are kept."""
        for pull in self.running.values():
            pull.cancelled.set()
        for pull in self.running.values():
            pull.join(SECONDS_TO_END)
