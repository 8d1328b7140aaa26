"""The engine's process asks its client for the bytes of images, while they are lent to it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from multiprocessing import Pipe

import pytest

from specchat.errors import EngineFailed, StoreFailed
from specchat.images.image import DistantImage, Image, distant
from specchat.sharing.lent_images import BorrowedImages, LentImages

CAT, SAME_CAT, DOG = Image(b"cat"), Image(b"cat", "again.png"), Image(b"dog")


@pytest.fixture
def ends() -> Iterator[tuple[LentImages, BorrowedImages]]:
    """Return both ends of a connection, whose thread ends with the process's end."""
    ours, theirs = Pipe()
    lent = LentImages(ours)
    with closing(theirs):
        yield lent, BorrowedImages(theirs)
    lent.wait(60)
    assert ours.closed


def test_bytes_are_read_when_they_are_wanted(ends: tuple[LentImages, BorrowedImages]) -> None:
    """Those of an image that is lent, whatever another client with the same one does meanwhile."""
    lent, borrowed = ends
    sent = borrowed.of(distant(CAT))
    assert (sent, sent.mark, sent.num_bytes) == (CAT, CAT.mark, 3)
    with lent.during([CAT, DOG]):
        with lent.during([SAME_CAT]):
            assert sent.data == b"cat"
        assert sent.data == b"cat"
        assert borrowed.of(distant(DOG)).data == b"dog"
    with pytest.raises(EngineFailed, match="given up"):
        assert sent.data


def test_threads_lend_at_the_same_time(ends: tuple[LentImages, BorrowedImages]) -> None:
    """The server counts tokens of images while an answer sees others."""
    lent, borrowed = ends

    def lend(_: int) -> None:
        for _ in range(2000):
            with lent.during([CAT, DOG, SAME_CAT]):
                pass

    with ThreadPoolExecutor() as threads:
        list(threads.map(lend, range(4)))
    with pytest.raises(EngineFailed, match="given up"):
        assert borrowed.of(distant(CAT)).data


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (StoreFailed("a.png is gone"), StoreFailed, "a.png is gone"),
        (ValueError("no such key"), EngineFailed, "a.png cannot be read: no such key"),
    ],
)
def test_what_reading_fails_with_is_raised_in_the_process(
    ends: tuple[LentImages, BorrowedImages],
    error: Exception,
    kind: type[Exception],
    words: str,
) -> None:
    """The next image is read as usual."""

    def fail(_: bytes) -> bytes:
        raise error

    lent, borrowed = ends
    broken = DistantImage(fail, "a.png", DOG.digest, 3)
    with lent.during([broken, CAT]):
        with pytest.raises(kind, match=words):
            assert borrowed.of(distant(broken)).data
        assert borrowed.of(distant(CAT)).data == b"cat"
