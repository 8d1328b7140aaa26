"""Writing a copy of a model in a child process, which does not outlive its parent."""

from __future__ import annotations

import subprocess
import sys

CHILD = """
import io, sys, time
from specchat.llama import model_copies
model_copies._write = lambda _: (print("writing", flush=True), time.sleep(60))
sys.stdin = io.StringIO('{"source": "", "destination": ""}')
model_copies.main()
"""
PARENT = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"


def test_the_child_ends_when_its_parent_was_killed() -> None:
    """A large copy would be written for minutes for no one."""
    command = [sys.executable, "-c", PARENT, CHILD]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"writing\n"
        parent.kill()
        assert parent.communicate(timeout=20)[0] == b""  # the child has closed it, too
