"""olah, a hub server from the package index: installed, given repositories, and started."""

import hashlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

VERSION = "0.5.4"
SECONDS_TO_START = 60.0
POLL_SECONDS = 0.05
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize {}\n"
AUTHOR = ("-c", "user.name=specchat", "-c", "user.email=specchat@localhost")
LOCAL = """
[basic]
host = "127.0.0.1"
port = {port}
repos-path = "{folder}/repos"
mirrors-path = ["{mirrors}"]

[accessibility]
offline = true
"""
CACHING = """
[basic]
host = "127.0.0.1"
port = {port}
repos-path = "{folder}/repos"
hf-scheme = "http"
hf-netloc = "{before}"
hf-lfs-netloc = "{before}"
"""


def install(folder: Path) -> Path:
    """Install olah into an environment of its own, unless it is there; return its program."""
    program = folder / "bin" / "olah-cli"
    if not program.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, f"olah=={VERSION}"], check=True)
    return program


def commit(mirrors: Path, repository: str, files: Mapping[str, bytes]) -> None:
    """Make a git repository whose files are LFS objects, as models lie on the hub."""
    folder = mirrors / "models" / repository
    folder.mkdir(parents=True)
    _git(folder, "init", "--quiet", "--initial-branch=main")
    for name, content in files.items():
        digest = hashlib.sha256(content).hexdigest()
        blob = folder / ".git" / "lfs" / "objects" / digest[:2] / digest[2:4] / digest
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(content)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(POINTER.format(digest, len(content)))
    _git(folder, "add", ".")
    _git(folder, *AUTHOR, "commit", "--quiet", "-m", "Add models")


def _git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, check=True)


@contextmanager
def serving(program: Path, folder: Path, mirrors: Path, before: str = "") -> Iterator[str]:
    """Run olah on local repositories, or caching another hub `before` it; yield its address."""
    folder.mkdir(parents=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    form = CACHING if before else LOCAL
    host = before.removeprefix("http://")
    settings = folder / "olah.toml"
    settings.write_text(form.format(port=port, folder=folder, mirrors=mirrors, before=host))
    words = [str(program), "--config", str(settings), "--log-path", str(folder / "logs")]
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            words, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            env={"HOME": str(folder), "PATH": os.environ["PATH"]},
        )  # fmt: skip
    try:
        _wait(process, port, folder / "output")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _wait(process: "subprocess.Popen[bytes]", port: int, output: Path) -> None:
    """Return once the server listens. Raises RuntimeError with its output if it does not."""
    deadline = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(POLL_SECONDS)
    raise RuntimeError(f"olah does not listen: {output.read_text('utf-8', 'replace')[-2000:]}")
