"""The header of a GGUF file on the hub, read without downloading the file.

A header holds the architecture and the vocabulary, which decide whether a draft fits. It is a few
megabytes at the beginning of the file.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

from specchat.errors import DownloadFailed, ModelWontLoad, SpecchatError
from specchat.gguf.reader import read_header
from specchat.hub.client import find, read_from
from specchat.hub.hub_errors import explain
from specchat.hub.references import Reference

LENGTHS = (8 << 20, 48 << 20)
"""Bytes to read; the second for vocabularies with more than some 200,000 tokens."""


@contextmanager
def header_file(reference: Reference, deadline: float) -> Iterator[Path]:
    """Yield the path of a file with the hub's header and, where its weights would be, a gap.

    It has the name and the size of the whole file. Raises DownloadFailed, also at the deadline
    (time.monotonic), and ModelWontLoad for a file that is not a model.
    """
    with TemporaryDirectory(prefix="specchat-") as folder:
        path = Path(folder, reference.name)
        try:
            _fetch(reference, path, deadline)
        except SpecchatError:
            raise
        except Exception as error:
            raise explain(error, reference) from error
        yield path


def _fetch(reference: Reference, path: Path, deadline: float) -> None:
    remote = find(reference)
    with path.open("wb") as file:
        file.truncate(remote.size)
        for length in LENGTHS:
            with read_from(remote, file.tell(), end=length) as pieces:
                for piece in pieces:
                    file.write(piece[: length - file.tell()])
                    if monotonic() > deadline:
                        raise DownloadFailed(f"the header of {reference} takes too long")
                    if file.tell() >= length:
                        break
            file.flush()
            try:
                read_header(path)
            except ModelWontLoad:
                if length == LENGTHS[-1] or file.tell() >= remote.size:
                    raise
            else:
                return
