"""The server in use by several clients at once, for seconds where the script takes an hour."""

from __future__ import annotations

import gc
import random
import sys
import threading
from pathlib import Path

import httpx2
import psutil
import pytest

from scripts.support.server_load import Talk, ask, settled
from scripts.support.server_process import ServerProcess
from server.conftest import Running, until
from specchat.server.replies import LOG
from specchat.system.logs import log_size

pytestmark = pytest.mark.slow


def test_conversations_edits_and_clients_that_leave_leave_nothing_behind(
    demo_server: Running,
) -> None:
    """By all APIs, streamed and whole: every reply is right, and no file or thread is gained."""
    process, logged = psutil.Process(), log_size(LOG)
    counts = [_counts_after_use(demo_server, seed) for seed in range(3)]
    for figures in zip(*counts, strict=True):
        assert not figures[0] < figures[1] < figures[2], figures
    assert process.children()
    assert log_size(LOG) == logged


def _counts_after_use(server: Running, seed: int) -> tuple[int, int]:
    """Let three clients send five requests each; return this process's files and threads."""
    faults: list[BaseException] = []

    def work(number: int) -> None:
        draw, talk = random.Random(f"{seed} {number}"), Talk(4)
        try:
            for _ in range(5):
                path, fields, leave_after = talk.request(draw)
                ask(server.address, fields, path=path, leave_after=leave_after and 0.05)
        except BaseException as fault:  # noqa: BLE001  # the test's own thread must see it
            faults.append(fault)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert faults == []
    engine, state = server.service.engine, server.server.server_state

    def is_idle() -> bool:
        is_busy = engine.num_running or engine.num_waiting or state.tasks
        return not is_busy and len(state.connections) <= 1  # the fixture's own

    until(is_idle, "an idle server")
    gc.collect()
    process = psutil.Process()
    return process.num_fds(), process.num_threads()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems' libraries decide themselves")
def test_what_large_requests_took_is_given_back(tmp_path: Path) -> None:
    """Each of them has 24 MiB, in texts of one, and is refused."""
    text = "a" * 2**20
    with ServerProcess(tmp_path) as server:
        before = settled(server).server_mib
        for _ in range(3):
            reply = httpx2.post(f"{server.address}/tokenize", json={"content": [text] * 24})
            assert reply.status_code == 400
        assert settled(server).server_mib - before < 20  # 26 where they stay
