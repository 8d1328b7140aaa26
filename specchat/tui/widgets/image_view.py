"""An image of a question: its name and size, and below them the picture itself."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from textual.containers import Vertical
from textual.widget import Widget
from textual.widgets import Static

from specchat.errors import SpecchatError
from specchat.images.image import Image
from specchat.safe_text import in_one_line
from specchat.system.logs import log_internal_error
from specchat.tui.texts.image_text import GLYPH, shown_text
from specchat.tui.widgets.fold import Fold
from specchat.tui.widgets.shown_picture import NONE, Way, picture_widget, prepared

if TYPE_CHECKING:
    from specchat.images.thumbnail import Thumbnail


def image_view(image: Image, way: Way) -> Widget:
    """Return what shows an image in this way: a line alone if no picture can be shown."""
    if way == NONE:
        return Static(f"{GLYPH} {shown_text(image)}", classes="image", markup=False)
    return ImageView(image, way)


class ImageView(Fold):
    """A fold of a picture, open at first; the picture comes once it is decoded."""

    def __init__(self, image: Image, way: Way) -> None:
        self._image, self._way = image, way
        self._place = Vertical(classes="picture")
        super().__init__(self._place, is_open=True)
        self.say(shown_text(image))

    def on_mount(self) -> None:
        """Decode the image, once it is known how wide it may be."""
        from specchat.images.thumbnail import act_beside

        self.call_after_refresh(act_beside, self._decode)

    def _decode(self) -> None:
        """Make the picture, in a thread; one that is not shown any more need not be made."""
        from specchat.images.thumbnail import thumbnail_of

        if not self.is_attached:
            return
        show: Callable[[], object]
        try:
            self._way = prepared(self._way)
            show = partial(self._draw, thumbnail_of(self._image))
        except SpecchatError as error:
            show = partial(self.say, in_one_line(str(error)))
        except Exception as error:  # noqa: BLE001  # the thread goes on with the next one
            show = partial(self.say, in_one_line(log_internal_error(error)))
        with suppress(RuntimeError):  # the chat has ended
            self.call_later(show)

    async def _draw(self, found: "Thumbnail") -> None:
        self.say(shown_text(self._image, found.width, found.height))
        await self._place.mount(picture_widget(found.picture, self._way, self._place.size.width))
