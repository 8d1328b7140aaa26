"""The images that a message names, checked before they are sent; no Textual here."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from specchat.errors import InvalidOption, NotDecodedNow, SpecchatError
from specchat.images.image import Image
from specchat.images.text_only import TEXT_ONLY
from specchat.tui.commands import KeyOf
from specchat.tui.controllers.chat_view import ChatView
from specchat.tui.controllers.pair_controller import PairController
from specchat.tui.controllers.session import Post


@dataclass(frozen=True, slots=True)
class CheckedImage:
    """What is known of an image: its size as the model reads it, or why it cannot be sent.

    It takes `num_tokens` of the context, 0 if that is not known.
    """

    image: Image
    width: int = 0
    height: int = 0
    num_tokens: int = 0
    wrong: str = ""


@dataclass(slots=True)
class ImageChecks:
    """Checks images, which takes a moment for each."""

    view: ChatView
    pair_controller: PairController
    post: Post
    key_of: KeyOf
    keep: Callable[[Image], object]
    """Writes a file into the history, in any thread."""
    held: Mapping[str, Image] = field(default_factory=dict)
    """The images that the message in the composer names: their files may be gone once it is sent.
    """
    copied: dict[str, Image] = field(default_factory=dict)
    """The pictures copied into messages, without a file: a text that names one may come back."""
    _wrong: dict[bytes, str] = field(default_factory=dict)
    """For each image that was checked, why it cannot be sent, empty for one that can."""
    _kept: set[bytes] = field(default_factory=set)
    _begun: set[bytes] = field(default_factory=set)
    """The images that `begin` is checking and keeping."""
    _not_now: set[bytes] = field(default_factory=set)
    """Those that failed in a way that may be over once they are sent."""

    @property
    def known(self) -> list[Image]:
        """The images that the message can name without a file."""
        return [*self.copied.values(), *self.held.values()]

    def check(self, image: Image, *, again: bool = False) -> CheckedImage:
        """Return what is known of an image; in any thread but the screen's.

        If what reads images could not be set up, that is tried `again`, or is what is wrong.
        """
        if image.digest in self._not_now and (known := self._wrong.get(image.digest)):
            return CheckedImage(image, wrong=known)
        from specchat.images.thumbnail import thumbnail_of
        from specchat.system.clone import set_up_images

        found, num_tokens = None, 0
        try:
            wrong = set_up_images(self._say, again=again)
            if wrong:
                self._not_now.add(image.digest)
            else:
                found, num_tokens = thumbnail_of(image), self._count(image)
        except Exception as error:  # noqa: BLE001  # a question waits for every outcome
            wrong = str(error) or type(error).__name__
            if isinstance(error, NotDecodedNow):
                self._not_now.add(image.digest)
            if not isinstance(error, SpecchatError):
                wrong = f"{image.name} cannot be checked: {wrong}"
        self._say("")
        self._wrong[image.digest] = wrong
        if found is None:
            return CheckedImage(image, wrong=wrong)
        return CheckedImage(image, found.width, found.height, num_tokens, wrong)

    def try_again(self) -> None:
        """Have what failed so tried again with the next images that `begin` checks."""
        while self._not_now:
            self._wrong.pop(self._not_now.pop(), None)

    def begin(self, images: Sequence[Image], then: Callable[[], object]) -> bool:
        """Check and keep images in a thread, then call a function; return False if that is done.

        Called again meanwhile, it leaves that to the thread that does it.
        """
        waiting = [
            each
            for each in images
            if each.digest not in self._kept and not self._wrong.get(each.digest)
        ]
        new = [each for each in waiting if each.digest not in self._begun]
        self._begun.update(each.digest for each in new)

        def run() -> None:
            for image in new:
                if (wrong := self._wrong.get(image.digest)) is None:
                    wrong = self.check(image, again=image is new[0]).wrong
                if not wrong:
                    self.keep(image)
                    self._kept.add(image.digest)
                self._begun.discard(image.digest)
            self.post(then)

        if new:
            threading.Thread(target=run, daemon=True).start()
        return bool(waiting)

    def require_whole(self, images: Iterable[Image]) -> None:
        """Raise InvalidOption for an image that was checked and cannot be sent."""
        for image in images:
            if wrong := self._wrong.get(image.digest):
                raise InvalidOption(wrong)

    def require_reader(self, images: Iterable[Image], before: Iterable[Image] = ()) -> None:
        """Raise InvalidOption if a model that reads text only would get images, or has `before`."""
        if reason := self.why_no_reader(images, before):
            raise InvalidOption(reason)

    def why_no_reader(self, images: Iterable[Image], before: Iterable[Image] = ()) -> str:
        """Return why the model cannot get images, or go on after those `before`; "" if it can."""
        facts = self.pair_controller.facts
        is_new, is_old = any(images), any(before)
        if facts is None or facts.takes_images or not (is_new or is_old):
            return ""
        if facts.images_off_reason != TEXT_ONLY:
            return facts.images_off_reason
        words = f"{self.key_of('models')} switches to a model with a projector (mmproj)"
        if is_new:
            return f"{TEXT_ONLY.capitalize()}. {words}."
        new = f"{self.key_of('new')} starts a new chat"
        return f"{TEXT_ONLY.capitalize()}, and this chat has images. {words}, {new}."

    def _say(self, words: str) -> None:
        """Show how what reads images is set up, for as long as that takes: a minute or two."""
        self.post(self.view.say, words, "images")

    def _count(self, image: Image) -> int:
        session, facts = self.pair_controller.session, self.pair_controller.facts
        if session is None or facts is None or not facts.takes_images:
            return 0
        with suppress(SpecchatError, NotImplementedError):  # the answer says what is wrong
            return len(session.engine.image_tokens(image))
        return 0
