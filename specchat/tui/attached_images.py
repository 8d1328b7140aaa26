"""The images that a message names, in words above the composer; no widgets here."""

from collections.abc import Sequence

from textual.content import Content
from textual.style import Style

from specchat.engine.api import EngineFacts
from specchat.safe_text import in_one_line
from specchat.tui.controllers.image_checks import CheckedImage
from specchat.tui.texts.image_text import GLYPH, name_of, pixels_text


def attached_text(images: Sequence[CheckedImage], facts: EngineFacts | None) -> Content:
    """Return a line for each image that a message names, with what a click removes."""
    return Content("\n").join(_attached(place, each, facts) for place, each in enumerate(images))


def _attached(place: int, checked: CheckedImage, facts: EngineFacts | None) -> Content:
    remove = Content.styled("remove", Style.from_meta({"@click": f"app.detach({place})"}))
    separator = Content(" · ")
    if checked.wrong:
        wrong = Content.styled(f"{GLYPH} {in_one_line(checked.wrong)}", "$text-warning")
        return separator.join([wrong, remove])
    parts = [f"{GLYPH} {name_of(checked.image)}", pixels_text(checked.width, checked.height)]
    parts += [f"{checked.num_tokens} tokens"] if checked.num_tokens else []
    shown = [Content(" · ".join(parts))]
    if facts is not None and not facts.takes_images:
        shown.append(Content.styled(facts.images_off_reason, "$text-warning"))
    return separator.join([*shown, remove])
