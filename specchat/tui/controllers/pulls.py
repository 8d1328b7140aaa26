"""Downloads: pairs that are fetched in the background while the user chats; no Textual here."""

import threading
from collections.abc import Callable, Sequence

from specchat.engine.offers import Offer
from specchat.errors import Cancelled
from specchat.hub.download import download
from specchat.hub.references import Reference
from specchat.hub.tally import Tally
from specchat.hub.transfer import DownloadProgress
from specchat.percentage import percent
from specchat.tui.controllers.chat_view import ChatView
from specchat.tui.controllers.session import unexpected
from specchat.tui.events import PullEnded, PullProgressed

INTERVAL = 0.25
"""Seconds between two progress reports."""
SECONDS_TO_END = 3.0

PullEvent = PullProgressed | PullEnded


class Pull:
    """The thread that downloads the files of one pair; what happens is posted.

    A cancelled download keeps what has arrived; the next one resumes there.
    """

    def __init__(
        self, name: str, references: Sequence[Reference], post: Callable[[PullEvent], object]
    ) -> None:
        """Start downloading the files that are missing."""
        self._name = name
        self._references = references
        self._post = post
        self._tally = Tally(INTERVAL)
        self._cancelled = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"pull {name}", daemon=True)
        self._thread.start()

    def cancel(self) -> None:
        """Stop downloading; the thread ends soon after."""
        self._cancelled.set()

    def wait(self, seconds: float) -> None:
        """Wait until the thread has ended, for at most that long."""
        self._thread.join(seconds)

    def _run(self) -> None:
        reason = ""
        try:
            download(self._references, self._progressed, self._cancelled.is_set)
        except Cancelled:
            self._post(PullEnded(self._name, is_cancelled=True))
            return
        except Exception as error:  # noqa: BLE001  # a thread that ends silently is worse
            reason = unexpected(error)
        self._post(PullEnded(self._name, reason))

    def _progressed(self, progress: DownloadProgress) -> None:
        """Record the progress of one file; report the total now and then."""
        tally = self._tally
        if tally.update(progress):
            words = ", ".join(filter(None, (*tally.in_words(), tally.note)))
            self._post(PullProgressed(self._name, tally.share, words))


class Pulls:
    """All downloads of this session of the chat."""

    def __init__(self, view: ChatView, post: Callable[[PullEvent], object]) -> None:
        """Start without any."""
        self.running: dict[str, Pull] = {}
        self.latest: dict[str, PullEvent] = {}
        """The last report on each pair."""
        self.recent = ""
        """The pair pulled last: likely the one the user looks for."""
        self.has_succeeded = False
        self._view = view
        self._post = post

    def start(self, offer: Offer) -> None:
        """Start to download a pair, unless it is running."""
        if offer.name not in self.running:
            self.recent = offer.name
            self.running[offer.name] = Pull(offer.name, offer.references, self._post)
            self.follow(PullProgressed(offer.name, offer.share, "asking the hub"))

    def cancel(self, name: str) -> None:
        """Cancel a download."""
        if name in self.running:
            self.running[name].cancel()

    def follow(self, event: PullEvent) -> None:
        """Show how far a download is, or how it ended."""
        if event.name not in self.running:  # a cancelled thread may still report
            return
        self.latest[event.name] = event
        if isinstance(event, PullEnded):
            del self.running[event.name]
            self._ended(event)
        self._view.show_pull(event.name)

    def _ended(self, event: PullEnded) -> None:
        if not event.reason and not event.is_cancelled:
            self.has_succeeded = True
            self._view.offer(f"{event.name} is installed · F8 to use it · Ctrl+O to hide this")

    def summary(self) -> str:
        """Return what is being downloaded and how far it is, empty if nothing is."""
        reports = [self.latest[name] for name in self.running]
        shares = [each.share for each in reports if isinstance(each, PullProgressed)]
        if not shares:
            return ""
        what = reports[0].name if len(reports) == 1 else f"{len(reports)} pairs"
        return f"↓ {what} {percent(sum(shares) / len(shares))}"

    def end(self) -> None:
        """Cancel all downloads; what has arrived is kept."""
        for pull in self.running.values():
            pull.cancel()
        for pull in self.running.values():
            pull.wait(SECONDS_TO_END)
