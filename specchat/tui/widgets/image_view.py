"""An image of a question: its name and size, and below them the picture itself."""

import asyncio

from textual.containers import Vertical
from textual.widget import Widget
from textual.widgets import Static

from specchat.errors import SpecchatError
from specchat.images.image import Image
from specchat.safe_text import in_one_line
from specchat.tui.texts.image_text import GLYPH, shown_text
from specchat.tui.widgets.fold import Fold
from specchat.tui.widgets.shown_picture import NONE, Way, picture_widget, prepare


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
        self.call_after_refresh(lambda: self.run_worker(self._draw()))

    async def _draw(self) -> None:
        from specchat.images.thumbnail import THREAD, thumbnail_of

        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(THREAD, prepare, self._way)
            found = await loop.run_in_executor(THREAD, thumbnail_of, self._image)
        except SpecchatError as error:
            self.say(in_one_line(str(error)))
            return
        self.say(shown_text(self._image, found.width, found.height))
        await self._place.mount(picture_widget(found.picture, self._way, self._place.size.width))
