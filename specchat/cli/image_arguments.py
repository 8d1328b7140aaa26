"""The arguments that show images to the model."""

import argparse
from collections.abc import Sequence

from specchat.engine.api import Loading
from specchat.errors import InvalidOption
from specchat.images.image import Image
from specchat.images.text_only import text_only


def add_images(parser: argparse.ArgumentParser) -> None:
    """Add the argument."""
    about = "an image that the question is about, repeatable: PNG, JPEG, WebP or GIF"
    parser.add_argument("--image", help=about, metavar="FILE", action="append", default=[])


def images_of(arguments: argparse.Namespace, piped: bytes = b"") -> list[Image]:
    """Return the images that the arguments name, then the one from a pipe; raises InvalidOption."""
    images = [_image_in(name) for name in arguments.image]
    return [*images, Image(piped, "standard input")] if piped else images


def require_projector(loading: Loading) -> None:
    """Raise InvalidOption, before anything is loaded, if a model cannot read images."""
    if loading.projector is None:
        raise InvalidOption(text_only(loading.target.name, advises=True))


def require_whole(images: Sequence[Image]) -> None:
    """Raise InvalidOption, before anything is loaded, for what is no image or damaged."""
    from specchat.images.picture import picture_of

    for image in images:
        picture_of(image)


def _image_in(name: str) -> Image:
    from specchat.catalogue.model_lookup import typed_path
    from specchat.images.picture import image_in

    path = typed_path(name)
    if path is None:
        raise InvalidOption(f"{name}: no such file: check the path")
    return image_in(path, path.name)
