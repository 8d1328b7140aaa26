"""The process that decodes an image: bytes from standard input, pixels to standard output.

A line of JSON comes first, with the width and the height, or with the error in the words that
follow the image's name. Nothing else of specchat is imported here.
"""

import json
import sys
import warnings
from contextlib import suppress
from io import BytesIO
from typing import Any

FORMATS = ("PNG", "JPEG", "WEBP", "GIF")
MOST_PIXELS = 50_000_000
LONGEST_SIDE = 2048
MOST_MEMORY, MOST_SECONDS = 2 * 2**30, 30
WHITE = (255, 255, 255)


class Refused(Exception):
    """An image that is not decoded; the message follows its name."""


def decoded(data: bytes) -> tuple[tuple[int, int], bytes]:
    """Return the size of an image and its pixels. Raises Refused."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    Image.MAX_IMAGE_PIXELS = None  # the size is checked here
    warnings.simplefilter("ignore")
    try:
        image: Any = Image.open(BytesIO(data), formats=FORMATS)
    except UnidentifiedImageError:
        raise Refused("is not an image specchat reads (PNG, JPEG, WebP, GIF)") from None
    except Exception as error:  # a decoder may raise anything
        raise Refused("is damaged or cut off") from error
    width, height = image.size
    if width * height > MOST_PIXELS:
        most = MOST_PIXELS // 1_000_000
        raise Refused(f"is too large: {width} by {height} pixels, at most {most} megapixels")
    try:
        image.draft("RGB", (LONGEST_SIDE, LONGEST_SIDE))  # a JPEG is decoded smaller
        image.load()
        image = _flat(_turned(image, ImageOps))
        image.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    except MemoryError:
        raise Refused(f"takes too much memory: {width} by {height} pixels") from None
    except Exception as error:  # as above
        raise Refused("is damaged or cut off") from error
    return image.size, image.tobytes()


def _turned(image: Any, operations: Any) -> Any:
    """Return an image turned as its camera was held, if it says so in a form that can be read."""
    with suppress(ValueError, KeyError, TypeError, SyntaxError, OSError):
        return operations.exif_transpose(image)
    return image


def _flat(image: Any) -> Any:
    """Return an image in red, green and blue, with white where it is transparent."""
    from PIL import Image

    if image.mode.startswith("I"):  # 16 bits: a plain conversion would cut off all above 255
        image = image.convert("I").point(lambda value: value / 257).convert("L")
    if not image.has_transparency_data:
        return image.convert("RGB")
    image = image.convert("RGBA")
    flat = Image.new("RGB", image.size, WHITE)
    flat.paste(image, mask=image.getchannel("A"))
    return flat


def _limit() -> None:
    """Take no more memory and time than an image may need, where the system has such limits."""
    if sys.platform == "win32":
        return
    import resource

    wanted = {resource.RLIMIT_AS: MOST_MEMORY, resource.RLIMIT_CPU: MOST_SECONDS}
    for kind, most in wanted.items():
        with suppress(ValueError, OSError):
            _, given = resource.getrlimit(kind)
            least = most if given == resource.RLIM_INFINITY else min(most, given)
            resource.setrlimit(kind, (least, least))


def main() -> None:
    """Decode standard input."""
    data = sys.stdin.buffer.read()
    _limit()
    try:
        (width, height), pixels = decoded(data)
    except Refused as refused:
        answer: dict[str, Any] = {"error": str(refused)}
        pixels = b""
    else:
        answer = {"width": width, "height": height}
    sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n" + pixels)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
