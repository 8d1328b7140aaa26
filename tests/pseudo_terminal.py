"""Commands run on a pseudo-terminal, and what reached it."""

import os
import pty
import select
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def on_terminal(words: list[str], key: str = "", **environment: str) -> str:
    """Run specchat on a pseudo-terminal and return its output; press a key when asked for one."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "specchat", *words],
        stdin=follower, stdout=follower, stderr=follower, cwd=ROOT,
        env={**os.environ, **environment},
    )  # fmt: skip
    os.close(follower)
    painted = b""
    while select.select([leader], [], [], 60)[0]:
        try:
            part = os.read(leader, 65536)
        except OSError:
            break
        if not part:
            break
        painted += part
        if key and painted.endswith((b"quits: ", b"] ")):
            os.write(leader, key.encode())
            key = ""
    process.wait(timeout=30)
    os.close(leader)
    return painted.decode("utf-8", "replace")
