"""Untrusted bytes become pixels or one line, within limits, in a process of their own."""

from __future__ import annotations

import errno
import struct
import subprocess
import sys
import threading
import zlib
from io import BytesIO
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow

from image_files import encoded, image, picture
from specchat.errors import InvalidOption, NotDecodedNow
from specchat.images import decoder, thumbnail
from specchat.images import picture as decoding
from specchat.images.image import Image, parted
from specchat.images.picture import image_in, picture_of
from tables import table

RED, WHITE, BLUE = (255, 0, 0), (255, 255, 255), (0, 0, 255)


def pixels_of(data: bytes) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return decoded pixels, shape (height, width, 3)."""
    found = picture_of(Image(data))
    return np.frombuffer(found.pixels, np.uint8).reshape(found.height, found.width, 3)


def decoded(data: bytes) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return the same, decoded in this process, which is faster."""
    (width, height), pixels = decoder.decoded(data)
    return np.frombuffer(pixels, np.uint8).reshape(height, width, 3)


@table("kind", ["PNG", "WEBP", "GIF"])
def test_lossless_formats_keep_every_pixel(kind: str) -> None:
    """In a child process; GIF has 256 colours at most."""
    shown = picture(1, (20, 12))
    if kind == "GIF":
        shown = shown.quantize(64).convert("RGB")
    options = {"lossless": True} if kind == "WEBP" else {}
    assert np.array_equal(pixels_of(encoded(shown, kind, **options)), np.asarray(shown))


def test_a_jpeg_is_turned_as_its_camera_was_held() -> None:
    """By the orientation in its EXIF data; data that cannot be read turns nothing."""
    shown = Pillow.new("RGB", (64, 32), WHITE)
    shown.paste(RED, (0, 0, 32, 32))
    turned = Pillow.Exif()
    turned[274] = 6  # the camera was held with its right side up
    pixels = decoded(encoded(shown, "JPEG", exif=turned, quality=95))
    assert pixels.shape == (64, 32, 3)
    assert pixels[5, 16, 1] < 60  # red
    assert pixels[60, 16, 1] > 200
    broken = encoded(shown, "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff")
    assert decoded(broken).shape == (32, 64, 3)


@table(
    "mode, filled, expected",
    [
        ("RGBA", (255, 0, 0, 0), WHITE),
        ("RGBA", (255, 0, 0, 255), RED),
        ("LA", (0, 128), (127, 127, 127)),
        ("1", 1, WHITE),
        ("L", 7, (7, 7, 7)),
        ("I;16", 257 * 200, (200, 200, 200)),
    ],
)
def test_every_mode_of_a_png_becomes_red_green_and_blue(
    mode: str, filled: Any, expected: tuple[int, ...]
) -> None:
    """Transparent parts are white, and 16 bits are not cut off."""
    pixels = decoded(encoded(Pillow.new(mode, (3, 2), filled)))
    assert pixels.shape == (2, 3, 3)
    assert tuple(pixels[0, 0].tolist()) == expected


def test_palettes_and_print_colours_are_converted() -> None:
    """A palette with a transparent colour, and CMYK."""
    shown = Pillow.new("P", (2, 2), 0)
    shown.putpalette([255, 0, 0, 0, 0, 255])
    shown.putpixel((1, 1), 1)
    pixels = decoded(encoded(shown, transparency=1))
    assert tuple(pixels[0, 0].tolist()) == RED
    assert tuple(pixels[1, 1].tolist()) == WHITE
    printed = decoded(encoded(Pillow.new("CMYK", (8, 8), (0, 0, 0, 0)), "JPEG"))
    assert printed.min() > 240


@table("kind, options", [("GIF", {}), ("PNG", {}), ("WEBP", {"lossless": True})])
def test_only_the_first_frame_of_an_animation_counts(kind: str, options: dict[str, Any]) -> None:
    """Whatever comes after it."""
    frames = [Pillow.new("RGB", (4, 4), colour) for colour in (RED, WHITE, BLUE)]
    data = encoded(frames[0], kind, save_all=True, append_images=frames[1:], **options)
    with Pillow.open(BytesIO(data)) as file:
        assert getattr(file, "n_frames", 1) == 3
    assert tuple(decoded(data)[0, 0].tolist()) == RED


@table("size, shown", [((1, 1), (1, 1)), ((4000, 1), (2048, 1)), ((1, 4000), (1, 2048))])
def test_odd_shapes_are_fine(size: tuple[int, int], shown: tuple[int, int]) -> None:
    """Long ones shrink to 2048 and stay at least one pixel wide."""
    found = picture_of(image(0, size))
    assert (found.width, found.height) == shown


def claimed(width: int, height: int) -> bytes:
    """Return a small PNG whose header says that it is large."""
    whole = encoded(picture(0, (1, 1)))
    head = b"IHDR" + struct.pack(">II", width, height) + whole[24:29]
    return whole[:12] + head + struct.pack(">I", zlib.crc32(head)) + whole[33:]


@table(
    "data, reason",
    [
        (b"", "is not an image specchat reads (PNG, JPEG, WebP, GIF)"),
        (b"%PDF-1.7", "is not an image specchat reads (PNG, JPEG, WebP, GIF)"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "is not an image specchat reads"),
        (claimed(9000, 9000), "is too large: 9000 by 9000 pixels, at most 50 megapixels"),
        (claimed(2**31 - 1, 2**31 - 1), "is too large"),
        (encoded(picture(0))[:600], "is damaged or cut off"),
        (encoded(picture(0), "JPEG")[:300], "is damaged or cut off"),
        (bytes(20 * 2**20 + 1), "is too large: more than 20 MiB"),
    ],
    ids=range(8),
)
def test_what_is_no_image_is_refused_in_a_line(data: bytes, reason: str) -> None:
    """The error names it."""
    with pytest.raises(InvalidOption) as caught:
        picture_of(Image(data, "cat.png"))
    assert str(caught.value).startswith(f"cat.png {reason}")
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(sys.platform == "win32", reason="it has no file without an end")
def test_no_more_of_a_file_is_read_than_an_image_may_have() -> None:
    """However large it is; what cannot be read is named, too."""
    with pytest.raises(InvalidOption, match=r"^zeros is too large: more than 20 MiB$"):
        image_in(Path("/dev/zero"), "zeros")
    with pytest.raises(InvalidOption, match=r"^none cannot be read: No such file"):
        image_in(Path("/dev/none"), "none")


def test_other_formats_of_pillow_are_not_read() -> None:
    """Pillow has decoders for dozens."""
    with pytest.raises(InvalidOption, match="is not an image"):
        picture_of(Image(encoded(picture(), "BMP")))
    with pytest.raises(InvalidOption, match="is not an image"):
        picture_of(Image(encoded(picture(), "TIFF")))


def test_a_decoder_that_hangs_or_dies_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine goes on."""
    monkeypatch.setattr(decoding, "SECONDS", 0.001)
    with pytest.raises(InvalidOption, match=r"takes more than 0\.001 s to decode"):
        picture_of(image())


def test_missing_pillow_is_named_with_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is optional."""
    monkeypatch.setattr(decoding, "find_spec", lambda _: None)
    with pytest.raises(InvalidOption, match="-m pip install pillow"):
        picture_of(image())


def test_a_mark_stands_for_its_image_alone() -> None:
    """A text with marks of other images, or none, is one part."""
    first, second = image(1), image(2)
    text = f"a {first}{second} b {first}"
    assert list(parted(text, [first, second])) == ["a ", first, "", second, " b ", first, ""]
    assert list(parted(text, [second])) == [f"a {first}", second, f" b {first}"]
    assert list(parted(text, [])) == [text]


def test_a_process_ends_while_a_picture_is_made() -> None:
    """The chat's end waits neither for it nor for those after it."""
    script = """
import threading
from specchat.images.thumbnail import act_beside
begun = threading.Event()
act_beside(begun.set)
for _ in range(3):
    act_beside(threading.Event().wait)
assert begun.wait(60)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


def test_what_cannot_be_decoded_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each redraw asks for it again; only what failed for another reason is tried once more."""
    broken, tries = Image(b"\x89PNG broken", "once.png"), list[str]()

    def refuse(image: Image) -> None:
        tries.append(image.name)
        raise InvalidOption(f"{image.name} is damaged")

    monkeypatch.setattr(thumbnail, "picture_of", refuse)
    for _ in range(2):
        with pytest.raises(InvalidOption, match="is damaged"):
            thumbnail.thumbnail_of(broken)
    assert len(tries) == 1


def test_those_who_wait_for_a_decoding_share_its_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would take as long, one after another."""
    given, tries = Image(encoded(picture()), "slow.png"), list[str]()
    asked, refused = threading.Semaphore(0), list[str]()

    def moment() -> float:
        asked.release()
        return monotonic()

    def fail(image: Image) -> None:
        for _ in range(3):
            asked.acquire()
        tries.append(image.name)
        raise NotDecodedNow(f"{image.name} takes too long")

    def ask() -> None:
        try:
            thumbnail.thumbnail_of(given)
        except NotDecodedNow as error:
            refused.append(str(error))

    monkeypatch.setattr(thumbnail, "monotonic", moment, raising=False)
    monkeypatch.setattr(thumbnail, "picture_of", fail)
    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tries == ["slow.png"]
    assert refused == ["slow.png takes too long"] * 3


def no_process(*_: object, **__: object) -> None:
    """Start no process, as on a machine that has too many."""
    raise OSError(errno.EAGAIN, "too many")


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("find_spec", lambda _: None, "images need Pillow"),
        ("SECONDS", 0.001, "takes more than"),
        ("run_python", no_process, "cannot be decoded"),
    ],
)
def test_a_busy_moment_refuses_no_image_for_good(
    name: str, value: object, match: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what the decoder says of it is known for the next time."""
    given = Image(encoded(picture()), f"{name}.png")
    with monkeypatch.context() as patch:
        patch.setattr(decoding, name, value)
        with pytest.raises(InvalidOption, match=match):
            thumbnail.thumbnail_of(given)
    assert thumbnail.thumbnail_of(given).width > 0
