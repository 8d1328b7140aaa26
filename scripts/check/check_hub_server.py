"""Pull from a hub server that others wrote: olah, on local repositories and as a caching proxy.

    python scripts/check/check_hub_server.py [--folder FOLDER] [--megabytes 64]

Installs olah with pip into an environment outside the repository, a temporary one unless a folder
is given (where it is already installed, nothing is fetched). Each row runs against an olah that
serves git repositories with LFS objects, and against a second one that caches the first: a full
download, one that was killed and resumed, two at once, wrong names, a quantization in place of a
file, shards, and the cache shared with `hf` in both directions. Prints a line for each and exits
with 1 if one fails. All traffic stays on this machine. Linux and macOS only.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from scripts.support.olah_server import commit, install, serving
from scripts.support.tiny_gguf import write_model

REPOSITORY, SPLIT = "acme/tiny-gguf", "acme/split-gguf"
SMALL, LARGE = "tiny.Q8_0.gguf", "tiny.F16.gguf"
SHARDS = [f"parts/big-{number:05}-of-00005.gguf" for number in range(1, 6)]
SECONDS = 180
POLL_SECONDS = 0.002


class Failed(Exception):
    """Raised where a row does not end as it should."""


@dataclass(frozen=True)
class Place:
    """A hub, and a folder for the caches of the rows that use it."""

    address: str
    folder: Path
    contents: dict[str, bytes]

    def user(self, name: str) -> "User":
        """Return a user with an empty home."""
        home = self.folder / name
        home.mkdir(parents=True)
        return User(home, self.address)


@dataclass(frozen=True)
class User:
    """Who pulls from a hub into an own cache."""

    home: Path
    address: str

    def start(self, *words: str, offline: bool = False) -> "subprocess.Popen[str]":
        """Run a module of Python: specchat, or the `hf` of huggingface_hub."""
        names = ("PATH", "PYTHONPATH", "VIRTUAL_ENV")
        environment = {name: os.environ[name] for name in names if name in os.environ}
        environment |= {"HOME": str(self.home), "HF_ENDPOINT": self.address}
        environment |= {"HF_HUB_DISABLE_XET": "1"} | ({"HF_HUB_OFFLINE": "1"} if offline else {})
        return subprocess.Popen(
            [sys.executable, "-m", *words], env=environment, text=True, cwd=self.home,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def run(self, *words: str, offline: bool = False) -> tuple[int, str, str]:
        """Run it to its end; return the exit code and what it prints."""
        with self.start(*words, offline=offline) as process:
            out, error = process.communicate(timeout=SECONDS)
        return process.returncode, out, error

    def pull(self, name: str, expected: Iterable[bytes]) -> str:
        """Pull a model, compare its files, and return what is printed beside their paths."""
        code, out, error = self.run("specchat", "pull", name)
        if code:
            raise Failed(f"pull {name}: exit code {code}: {error.strip()[-400:]}")
        first = Path(out.strip())
        files = sorted(first.parent.iterdir()) if "-of-" in first.name else [first]
        if [each.read_bytes() for each in files] != list(expected):
            raise Failed(f"pull {name}: {len(files)} files, with other bytes than the hub's")
        return error

    def cached(self, suffix: str) -> list[Path]:
        """Return the blobs in the cache whose names end in a suffix."""
        return list(self.home.glob(f".cache/huggingface/hub/*/blobs/*{suffix}"))


def full(place: Place) -> str:
    """Download two files, and check one with `--check`."""
    user = place.user("full")
    for name in (SMALL, LARGE):
        user.pull(f"{REPOSITORY}/{name}", [place.contents[name]])
    code, out, error = user.run("specchat", "pull", "--check", f"{REPOSITORY}/{LARGE}")
    if code or not out.startswith("right: "):
        raise Failed(f"pull --check: {out}{error}")
    return ""


def killed(place: Place) -> str:
    """Kill a pull in the middle, and pull again."""
    user, size = place.user("killed"), len(place.contents[LARGE])
    process = user.start("specchat", "pull", f"{REPOSITORY}/{LARGE}")
    deadline, arrived = time.monotonic() + SECONDS, 0
    while process.poll() is None and time.monotonic() < deadline and arrived < size // 4:
        arrived = sum(part.stat().st_size for part in user.cached("-part") if part.exists())
        time.sleep(POLL_SECONDS)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    kept = sum(part.stat().st_size for part in user.cached("-part"))
    if not 0 < kept < size:
        raise Failed(f"killed too late or too early, with {kept} bytes of {size}")
    user.pull(f"{REPOSITORY}/{LARGE}", [place.contents[LARGE]])
    return f"killed at {100 * kept // size} %"


def two(place: Place) -> str:
    """Start two pulls of one file."""
    user = place.user("two")
    both = [user.start("specchat", "pull", f"{REPOSITORY}/{LARGE}") for _ in range(2)]
    ends = [process.communicate(timeout=SECONDS) for process in both]
    codes, paths = [process.returncode for process in both], {out for out, _ in ends}
    blobs = user.cached("")
    if codes != [0, 0] or len(paths) != 1 or len(blobs) != 1:
        raise Failed(f"exit codes {codes}, {len(blobs)} blobs: {ends}")
    if blobs[0].read_bytes() != place.contents[LARGE]:
        raise Failed("other bytes than the hub's")
    return ""


def wrong(place: Place) -> str:
    """Ask for a file and a repository that are not there."""
    user = place.user("wrong")
    for name in (f"{REPOSITORY}/absent.gguf", f"acme/absent/{SMALL}"):
        code, _, error = user.run("specchat", "pull", name)
        lines, missing = error.strip().splitlines(), Path(name).name
        expected = "has no file absent.gguf" if missing == "absent.gguf" else "there is no acme/abs"
        if code != 1 or len(lines) != 1 or expected not in lines[0]:
            raise Failed(f"pull {name}: exit code {code}: {error.strip()[-400:]}")
    return ""


def quantization(place: Place) -> str:
    """Name a quantization in place of a file."""
    place.user("quantization").pull(f"{REPOSITORY}:Q8_0", [place.contents[SMALL]])
    return ""


def shards(place: Place) -> str:
    """Name one part of a split file."""
    user, every = place.user("shards"), [place.contents[name] for name in SHARDS]
    user.pull(f"{SPLIT}/{SHARDS[-1]}", every)
    if "already installed" not in user.pull(f"{SPLIT}/{SHARDS[0]}", every):
        raise Failed("the first part's name does not find what the last one's fetched")
    return ""


def to_hf(place: Place) -> str:
    """Find what specchat pulled with `hf`, which must not ask the hub."""
    user = place.user("to hf")
    user.pull(f"{REPOSITORY}/{SMALL}", [place.contents[SMALL]])
    words = ("huggingface_hub.cli.hf", "download", REPOSITORY, SMALL, "--quiet")
    code, out, error = user.run(*words, offline=True)
    if code or Path(out.strip()).read_bytes() != place.contents[SMALL]:
        raise Failed(f"hf download: exit code {code}: {out}{error[-400:]}")
    return ""


def from_hf(place: Place) -> str:
    """Find what `hf` downloaded with specchat, which must not fetch it again."""
    user = place.user("from hf")
    code, out, error = user.run("huggingface_hub.cli.hf", "download", REPOSITORY, SMALL, "--quiet")
    if code:
        raise Failed(f"hf download: exit code {code}: {out}{error[-400:]}")
    said = user.pull(f"{REPOSITORY}/{SMALL}", [place.contents[SMALL]])
    if "already installed" not in said:
        raise Failed(f"specchat pull fetched it again: {said}")
    return ""


ROWS: dict[str, Callable[[Place], str]] = {
    "full download": full,
    "resumed after kill -9": killed,
    "two at once": two,
    "wrong name": wrong,
    "org/repo:Q8_0": quantization,
    "shards": shards,
    "cache shared with hf: pulled by specchat": to_hf,
    "cache shared with hf: downloaded by hf": from_hf,
}


def main() -> int:
    """Run all rows against both servers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="where olah is, or is to be installed")
    parser.add_argument("--megabytes", type=int, default=64, help="size of the large file")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="specchat-hub-") as temporary:
        folder = Path(temporary)
        program = install((arguments.folder or folder / "olah").absolute())
        contents, mirrors = _contents(folder, arguments.megabytes), folder / "mirrors"
        split = {name: contents[name] for name in SHARDS}
        commit(mirrors, REPOSITORY, {name: contents[name] for name in (SMALL, LARGE)})
        commit(mirrors, SPLIT, split)
        with serving(program, folder / "local", mirrors) as local:
            place = Place(local, folder / "users of local", contents)
            failures = _check("local repositories", place)
            with serving(program, folder / "caching", mirrors, before=local) as caching:
                place = Place(caching, folder / "users of caching", contents)
                failures += _check("caching proxy", place)
    return 1 if failures else 0


def _contents(folder: Path, megabytes: int) -> dict[str, bytes]:
    """Return the files of the repositories: a tiny model, alone and with bytes behind it."""
    model = write_model(folder / "tiny.gguf", "llama").read_bytes()
    noise = random.Random(7)
    large = model + noise.randbytes(megabytes * 10**6 - len(model))
    parts = {name: model + noise.randbytes(2 * 10**6) for name in SHARDS}
    return {SMALL: model, LARGE: large, **parts}


def _check(title: str, place: Place) -> int:
    """Run all rows against one server; return the number of failures."""
    failures = 0
    for name, row in ROWS.items():
        began = time.monotonic()
        try:
            note = row(place)
        except (Failed, subprocess.TimeoutExpired, OSError) as problem:
            failures += 1
            print(f"FAILED  {title}: {name}: {problem}", flush=True)
        else:
            seconds = f"{time.monotonic() - began:.1f} s"
            details = ", ".join(filter(None, [seconds, note]))
            print(f"ok      {title}: {name} ({details})", flush=True)
    return failures


if __name__ == "__main__":
    sys.exit(main())
