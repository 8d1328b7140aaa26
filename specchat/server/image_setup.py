"""The set-up of what reads images, beside the answers to texts, and again after it failed."""

from collections.abc import Callable
from threading import Thread
from time import monotonic

from specchat.images.text_only import TEXT_ONLY
from specchat.sharing.shared_engine import SharedEngine
from specchat.system.clone import set_up_images

RETRY_SECONDS = 300.0
"""How long after a failed set-up of images one that comes has it tried again, which takes minutes.
"""


class ImageSetup:
    """Has a clone make what reads images, if the model takes some.

    `off_reason` is why the engine cannot read images, if that was found out after it was loaded.
    """

    def __init__(self, engine: SharedEngine) -> None:
        self.off_reason = ""
        self._engine = engine
        self._on_line: Callable[[str], object] = lambda _: None
        self._tried_at = 0.0

    def run(self, on_line: Callable[[str], object]) -> None:
        """Block until all is made or has failed.

        `on_line` is called with what is done, and with why a model that could read images cannot.
        """
        self._on_line, self._tried_at = on_line, monotonic()
        facts = self._engine.facts
        reason = facts.images_off_reason
        if facts.takes_images:
            reason = self.off_reason = set_up_images(on_line, again=True)
        if reason and reason != TEXT_ONLY:
            on_line(reason)

    def refused(self) -> None:
        """Try again what failed, beside, now that an image came; but not with each one."""
        if self.off_reason and monotonic() - self._tried_at > RETRY_SECONDS:
            self._tried_at = monotonic()
            Thread(target=self.run, args=[self._on_line], daemon=True).start()
