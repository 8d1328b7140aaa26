"""`--mlock`: a model that cannot be locked in memory is used all the same, with a notice."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import WriteModel
from specchat import Engine
from specchat.llama import memory_lock
from specchat.llama.memory_lock import lock_notice

ROOT = Path(__file__).parents[2]
DROP_FROM_BOUNDING_SET, IPC_LOCK = 24, 14
"""Of Linux's prctl; whoever has the second may lock any amount."""
LOADED = """
import json, sys
from specchat import Engine
with Engine.load(sys.argv[1], ctx=256, threads=1, mlock=True) as engine:
    chunks = engine.generate([5, 6, 7], max_tokens=3, ignore_end=True)
    print(json.dumps([engine.facts.notices, sum(len(chunk.tokens) for chunk in chunks)]))
"""


def limited() -> None:
    """Allow this process to lock 64 KiB; for the superuser, too."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (2**16, hard))
    ctypes.CDLL(None).prctl(DROP_FROM_BOUNDING_SET, IPC_LOCK, 0, 0, 0)


def may_lock() -> bool:
    """Return True if a process started with `limited` may lock more all the same."""
    words = "import ctypes; print(ctypes.CDLL(None).mlock(bytes(10**7), 10**7))"
    done = subprocess.run(
        [sys.executable, "-c", words], capture_output=True, preexec_fn=limited, check=True
    )
    return done.stdout.strip() == b"0"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the limit is set as Linux has it")
def test_a_lock_that_fails_is_reported_with_the_limit(tiny: WriteModel) -> None:
    """And the model answers."""
    if may_lock():
        pytest.skip("this user may lock any amount of memory")
    done = subprocess.run(
        [sys.executable, "-c", LOADED, str(tiny("llama"))],
        capture_output=True,
        preexec_fn=limited,
        check=True,
        cwd=ROOT,
    )
    notices, num_tokens = json.loads(done.stdout)

    (notice,) = notices
    assert notice == (
        "tiny llama 0 is not locked in memory, so it may be swapped out: the limit is 64 KiB"
        " (`ulimit -l`, RLIMIT_MEMLOCK); raise it, or leave out --mlock"
    )
    assert num_tokens == 3


def test_no_lock_asked_for_is_none_missed(tiny: WriteModel) -> None:
    """Without the option there is no notice."""
    with Engine.load(tiny("llama"), ctx=256, threads=1) as engine:
        assert engine.facts.notices == ()


@pytest.mark.parametrize(
    ("warning", "reason"),
    [
        ("warning: failed to mlock 9-byte buffer (after ...): Not permitted", "Not permitted"),
        ("warning: failed to VirtualLock 9-byte buffer (after ...): Quota", "Quota"),
        ("warning: SetProcessWorkingSetSize failed: Access is denied.", "Access is denied."),
        ("warning: mlock not supported on this system", "mlock not supported on this system"),
        ("warning: something else", ""),
    ],
)
def test_the_reason_is_llama_cpps_where_there_is_no_limit(
    monkeypatch: pytest.MonkeyPatch, warning: str, reason: str
) -> None:
    """Windows has none, and a Unix may have set none."""
    monkeypatch.setattr(memory_lock, "_limit", lambda: "")
    notice = lock_notice("x", ["first", warning])

    assert notice.endswith(reason)
    assert bool(notice) is bool(reason)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
@pytest.mark.parametrize(
    ("limit", "size"), [(0, "0 KiB"), (2**16, "64 KiB"), (8 * 2**20, "8 MiB"), (-1, "")]
)
def test_the_limit_is_given_in_the_units_that_suit_it(
    monkeypatch: pytest.MonkeyPatch, limit: int, size: str
) -> None:
    """None if there is none."""
    monkeypatch.setattr("resource.getrlimit", lambda _: (limit, -1))

    assert (f" {size} " in memory_lock._limit()) if size else memory_lock._limit() == ""
