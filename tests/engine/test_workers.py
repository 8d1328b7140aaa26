"""A target split over this process and workers: the same text, and one line when one is lost."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conftest import WriteModel
from scripts.support.tiny_gguf import write_with_head
from specchat import Engine
from specchat.engine import remote_workers
from specchat.engine.api import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.errors import EngineFailed, SpecchatError, WorkerUnavailable
from specchat.llama.rpc_library import find_rpc
from specchat.options.worker_address import WorkerAddress
from specchat.planning.device import known_workers
from specchat.sharing import process_link
from specchat.sharing.process_engine import ProcessEngine
from specchat.tui.controllers.session import Session
from specchat.workers import health, tcp_relay, worker_probe, worker_watch
from specchat.workers.health import HealthReport
from specchat.workers.health_server import HealthServer
from specchat.workers.rpc_protocol import SPOKEN, rpc_connection
from specchat.workers.tcp_relay import Relay
from specchat.workers.worker_probe import WorkerReport, probe_worker
from specchat.workers.worker_watch import WorkerWatch
from tables import table
from worker_process import (
    OtherServer,
    WorkerProcess,
    free_ports,
    of_version,
    saying,
    silence,
)

pytestmark = pytest.mark.skipif(
    find_rpc() is None, reason="this llama.cpp was built without its RPC backend"
)

EXACT: dict[str, Any] = {
    "ctx": 512,
    "threads": 1,
    "flash_attention": "on",
    "cache_type": "f32",
    "learn": False,
}
HEADS = ["qwen35", "gemma4 in two files", "qwen3 in two files", "llama with EAGLE-3"]
"""In the target's file, in its memory, with its output, and with the inputs of its layers."""
PROMPT = [40, 75, 111, 260, 90, 33, 201, 150]
LONG: dict[str, Any] = {"max_tokens": 20_000, "temperature": 0.0, "drafter": "none"}


@pytest.fixture(scope="module")
def two_workers() -> Iterator[list[WorkerProcess]]:
    """Two workers, which serve one test after the other."""
    with WorkerProcess() as first, WorkerProcess() as second:
        yield [first, second]


def addresses(workers: list[WorkerProcess]) -> list[str]:
    """Return the addresses of workers as a user writes them."""
    return [str(worker.address) for worker in workers]


def answer(engine: Engine, **options: Any) -> list[int]:
    """Decode a greedy answer and return its tokens."""
    options = {"temperature": 0.0, "max_tokens": 60} | options
    return [token for chunk in engine.generate(PROMPT, **options) for token in chunk.tokens]


def test_a_target_split_over_workers_gives_the_same_tokens(
    two_workers: list[WorkerProcess], tiny: WriteModel
) -> None:
    """Plainly and with a draft model, which stays here; each worker holds some layers."""
    target, draft = tiny("llama"), tiny("llama", "half right")
    with Engine.load(target, **EXACT) as local:
        expected = answer(local, drafter="none")
    layers = 3
    split: dict[str, Any] = {
        "workers": addresses(two_workers),
        "gpu_layers": layers,
        "tensor_split": "1,2",
    }
    with Engine.load(target, draft, process=True, **split, **EXACT) as engine:
        assert [answer(engine, drafter=each, draft_length=4) for each in ("none", "model")] == [
            expected
        ] * 2
        assert engine.stats.accepted > 0
        assert f"{layers} of" in engine.facts.plan
        assert "layers of the target on the workers, draft on the CPU" in engine.facts.plan
        for worker in two_workers:
            port = worker.address.port
            assert f"on 127.0.0.1:{port}" in engine.facts.gpu
            assert f"CPU on 127.0.0.1:{port}" in engine.facts.plan
            assert probe_clients(worker) == ("127.0.0.1",)
        assert engine.facts.gpu_total > 0
    assert [each.worker for each in known_workers(addresses(two_workers))] == addresses(two_workers)


@pytest.mark.slow
def test_one_worker_under_two_names_is_refused(
    two_workers: list[WorkerProcess], tiny: WriteModel
) -> None:
    """It serves one client, and its memory is there once."""
    worker = two_workers[0].address
    with closing(Relay(socket.create_server(("127.0.0.1", 0)), worker.host, worker.port)) as relay:
        health_too = socket.create_server(("127.0.0.1", relay.port + 1))
        with closing(Relay(health_too, worker.host, worker.health_port)):
            for other in (f"localhost:{worker.port}", f"127.0.0.1:{relay.port}"):
                with pytest.raises(WorkerUnavailable, match=f"{worker} and {other} are one worker"):
                    Engine.load(tiny("llama"), workers=[str(worker), other], **EXACT)


@pytest.mark.slow
def test_a_worker_is_left_alone_where_no_layer_may_leave_the_cpu(tiny: WriteModel) -> None:
    """It is not even asked, and a notice says why."""
    gone = f"127.0.0.1:{free_ports()}"
    with Engine.load(tiny("llama"), workers=[gone], gpu_layers=0, **EXACT) as engine:
        assert f"{gone} is not used: --gpu-layers is 0" in engine.facts.notices
        assert engine.facts.gpu == ""


def test_no_other_machine_is_asked_offline(
    tiny: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even for its number."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(socket, "getaddrinfo", pytest.fail)
    with pytest.raises(WorkerUnavailable, match="workstation:50052 is on the network, and spec"):
        LocalEngine(Loading(tiny("llama"), workers=("127.0.0.1", "workstation"), **EXACT))


def probe_clients(worker: WorkerProcess) -> tuple[str, ...]:
    """Return the clients that a worker says it has."""
    return health.ask_for_report(worker.address, 5).clients


def test_devices_of_workers_are_used_only_where_they_are_named(
    two_workers: list[WorkerProcess], tiny: WriteModel
) -> None:
    """Two engines in this process, and only one has a worker, which is free afterwards."""
    first = tuple(addresses(two_workers)[:1])
    with LocalEngine(Loading(tiny("llama"), workers=first, **EXACT)) as split:
        with Engine.load(tiny("llama"), **EXACT) as local:
            assert local.facts.gpu == ""
            assert local.facts.plan.startswith("all on the CPU")
            assert answer(local) == answer(split)
        assert split.facts.plan.startswith("target on the worker")
    deadline = time.monotonic() + 60
    while probe_clients(two_workers[0]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert probe_clients(two_workers[0]) == ()


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_lost_worker_is_named_and_the_answer_so_far_is_kept(
    how: signal.Signals, tiny: WriteModel
) -> None:
    """Where it is killed llama.cpp would end the process, where it is stopped wait for ever."""
    options = EXACT | {"ctx": 30_000}
    with Engine.load(tiny("llama"), **options) as local:
        expected = answer(local, max_tokens=30, drafter="none")
    with (
        WorkerProcess() as worker,
        Engine.load(tiny("llama"), workers=[str(worker.address)], **options) as engine,
    ):
        tokens: list[int] = []
        with pytest.raises(EngineFailed) as raised:  # noqa: PT012  # the tokens so far count
            for chunk in engine.generate(PROMPT, **LONG):
                tokens += chunk.tokens
                if len(tokens) == 30:
                    worker.process.send_signal(how)
        said = str(raised.value)
        assert said.startswith(f"the worker {worker.address} stopped answering: ")
        assert "SIGABRT" not in said
        assert tokens[:30] == expected
        with pytest.raises(EngineFailed, match=r"^the worker .* stopped answering"):
            engine.check()
    if how == signal.SIGKILL:
        with pytest.raises(WorkerUnavailable, match=r"is not reachable \(connection refused\)"):
            Engine.load(tiny("llama"), workers=[str(worker.address)], **options)


@pytest.mark.parametrize(
    ("server", "said"),
    [
        (of_version(6, 1, 0), "speaks version 6.1.0 of llama.cpp's RPC protocol, not 7.0.0"),
        (saying(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "is not a worker: something else answers"),
        (saying(b""), "is not a worker: something else answers"),
        (silence, "accepts connections and does not answer: it is stopped, or busy"),
    ],
)
def test_what_is_no_worker_of_this_version_is_refused(
    server: Any, said: str, tiny: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before llama.cpp asks, which would end the process or wait."""
    monkeypatch.setattr(worker_probe, "ANSWER_SECONDS", 0.3)
    with OtherServer(server) as other, pytest.raises(WorkerUnavailable) as raised:
        LocalEngine(Loading(tiny("llama"), workers=(str(other.address),), **EXACT))
    assert said in str(raised.value)
    assert str(other.address) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_busy_worker_is_refused(
    two_workers: list[WorkerProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It serves one client; another waits a little, in case that one is going."""
    monkeypatch.setattr(worker_probe, "ANSWER_SECONDS", 0.3)
    address = two_workers[0].address
    with rpc_connection(address.host, address.port, 5, 5) as client:
        assert client.hello() == SPOKEN
        with pytest.raises(WorkerUnavailable, match=r"busy with another client \(127\.0\.0\.1\)"):
            probe_worker(address, patience=0.5)
        threading.Timer(0.5, lambda: client.stream.peer.shutdown(socket.SHUT_RDWR)).start()
        assert probe_worker(address).devices[0].name == "CPU"


def test_the_protocol_is_that_of_the_installed_llama_cpp(two_workers: list[WorkerProcess]) -> None:
    """Its version is a constant, because the library does not say it."""
    report = probe_worker(two_workers[0].address)
    assert report.version == SPOKEN == tuple(report.health.rpc)
    assert report.has_health
    assert report.round_trip > 0


@pytest.mark.slow
def test_a_server_without_a_health_port_can_be_used(
    two_workers: list[WorkerProcess], tiny: WriteModel
) -> None:
    """Such as llama.cpp's own rpc-server; a notice says that it may hang unnoticed."""
    worker = two_workers[0].address
    relay = Relay(socket.create_server(("127.0.0.1", 0)), worker.host, worker.port)
    with closing(relay):
        other = f"127.0.0.1:{relay.port}"
        with Engine.load(tiny("llama"), workers=[other], **EXACT) as engine:
            assert f"{other} has no health port" in " ".join(engine.facts.notices)
            assert len(answer(engine)) == 60


class Hold:
    """Holds back what relays pass on, as a worker does whose device hangs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let relays pass everything on at first."""
        self.limit = 1 << 40
        """Bytes that are passed on each way of a connection."""
        self._until = 0.0
        monkeypatch.setattr(tcp_relay, "_copy", self._copy)

    def hang(self, seconds: float) -> None:
        """Hold back what is said for some seconds."""
        self._until = time.monotonic() + seconds

    @property
    def is_hanging(self) -> bool:
        """Whether everything is held back now."""
        return time.monotonic() < self._until

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        num_passed = 0
        with suppress(OSError):
            while part := source.recv(1 << 16):
                num_passed += len(part)
                while self.is_hanging or num_passed > self.limit:
                    time.sleep(0.01)
                target.sendall(part)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@pytest.mark.slow
def test_a_worker_that_hangs_is_waited_for_with_a_line_and_then_given_up(
    two_workers: list[WorkerProcess], tiny: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an answer, and while the target is loaded; nothing else can notice it."""
    monkeypatch.setattr(process_link, "WAIT_SECONDS", 0.3)
    hold, worker = Hold(monkeypatch), two_workers[0].address
    seen: list[tuple[str, float]] = []

    def note(stage: str, share: float) -> None:
        seen.append((stage, share))

    with closing(Relay(socket.create_server(("127.0.0.1", 0)), worker.host, worker.port)) as relay:
        address = f"127.0.0.1:{relay.port}"
        loading = Loading(tiny("llama"), workers=(address,), **EXACT | {"ctx": 30_000})
        with ProcessEngine(loading) as engine:
            num_chunks = 0
            with pytest.raises(EngineFailed) as raised:  # noqa: PT012  # the chunks so far count
                for _ in engine.generate(PROMPT, on_progress=note, **LONG):
                    num_chunks += 1
                    if num_chunks == 3:
                        hold.hang(1.0)
                    if ("worker", 1.0) in seen and not hold.is_hanging:
                        monkeypatch.setattr(process_link, "GIVE_UP_SECONDS", 1.0)
                        hold.hang(600)
            assert ("worker", 0.0) in seen
            said = f"the worker {address} stopped answering: nothing came for 1 s"
            assert str(raised.value).startswith(said)
        seen.clear()
        hold.hang(0)
        hold.limit = 1 << 11
        monkeypatch.setattr(process_link, "GIVE_UP_SECONDS", 3.0)
        with pytest.raises(WorkerUnavailable, match="stopped answering: nothing came for 3 s"):
            ProcessEngine(loading, note)
        assert "worker" in [stage for stage, _ in seen]
        hold.limit = 1 << 40


class Lost:
    """Keeps what a watch reports."""

    def __init__(self) -> None:
        """Nothing is lost yet."""
        self.lines: list[str] = []
        self.is_known = threading.Event()

    def __call__(self, line: str) -> None:
        """Keep a line."""
        self.lines.append(line)
        self.is_known.set()


def watched(address: WorkerAddress) -> list[WorkerReport]:
    """Return a report of a worker with a health port."""
    return [WorkerReport(address, SPOKEN, (), 0.0, has_health=True, health=HealthReport())]


def test_a_restarted_worker_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its memory is empty, although it answers."""
    monkeypatch.setattr(worker_watch, "INTERVAL_SECONDS", 0.05)
    port, lost = free_ports(), Lost()
    server = HealthServer(socket.AF_INET, ("127.0.0.1", port + 1), HealthReport)
    server.start()
    with WorkerWatch(watched(WorkerAddress("127.0.0.1", port)), lost):
        assert not lost.is_known.wait(0.5)
        server.id = "another"
        assert lost.is_known.wait(60)
    assert "it was restarted" in lost.lines[0]
    server.shutdown()
    server.server_close()


def test_one_late_answer_is_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may be late once; twice in a row is too much."""
    monkeypatch.setattr(worker_watch, "INTERVAL_SECONDS", 0.05)
    monkeypatch.setattr(worker_watch, "SILENCE_SECONDS", 1.0)
    port, lost, num_asked = free_ports(), Lost(), [0]

    def late(peer: socket.socket) -> None:
        num_asked[0] += 1
        peer.recv(1 << 10)
        if num_asked[0] % 2:  # every other time
            time.sleep(1.2)
        peer.sendall(b'HTTP/1.0 200 OK\r\n\r\n{"id": "a"}')

    with (
        OtherServer(late, port + 1),
        WorkerWatch(watched(WorkerAddress("127.0.0.1", port)), lost),
    ):
        deadline = time.monotonic() + 60
        while num_asked[0] < 6 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert lost.lines == []
        assert num_asked[0] >= 6


@pytest.mark.parametrize("how", ["closed at once", "no health"])
def test_an_overloaded_worker_is_not_lost(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless it never answers: then something else may have taken its place."""
    monkeypatch.setattr(worker_watch, "INTERVAL_SECONDS", 0.05)
    monkeypatch.setattr(worker_watch, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(worker_watch, "SILENCE_SECONDS", 0.5)
    port, lost, num_asked, answers = free_ports(), Lost(), [0], [4]

    def rarely(peer: socket.socket) -> None:
        num_asked[0] += 1
        if num_asked[0] % 4 == 0 and num_asked[0] <= answers[0] * 4:
            peer.recv(1 << 10)
            peer.sendall(b'HTTP/1.0 200 OK\r\n\r\n{"id": "a"}')
        elif how == "no health":
            peer.recv(1 << 10)
            peer.sendall(b"HTTP/1.0 503 Busy\r\n\r\n")

    with (
        OtherServer(rarely, port + 1),
        WorkerWatch(watched(WorkerAddress("127.0.0.1", port)), lost),
    ):
        assert lost.is_known.wait(60)
        assert num_asked[0] > 16
    assert "no sign of life for 1 s" in lost.lines[0]


def test_a_first_request_that_waits_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another client may come between looking at a worker and connecting to it."""
    monkeypatch.setattr(worker_watch, "LOAD_SECONDS", 0.2)
    monkeypatch.setattr(worker_watch, "REACH_SECONDS", 0.05)
    lost, address = Lost(), WorkerAddress("127.0.0.1", free_ports())
    with WorkerWatch([], lost) as watch:
        with watch.connecting(address):
            pass
        assert not lost.is_known.wait(0.5)
        with watch.connecting(address):
            assert lost.is_known.wait(60)
    assert "it serves another client, or it is stopped" in lost.lines[0]


@table(
    "said",
    [
        b"",
        b"HTTP/1.0 200 OK\r\n\r\n{",
        b"HTTP/1.0 200 OK\r\n\r\n[]",
        b'HTTP/1.0 200 OK\r\n\r\n{"devices": 3}',
        b"HTTP/1.0 200 OK\r\n\r\n" + b"[" * 60_000,
        b"HTTP/1.0 200 OK\r\n\r\n" + b" " * 70_000,
        b"HTTP/1.0 500 Oops\r\n\r\n{}",
        b"SSH-2.0-OpenSSH_9.6\r\n",
    ],
)
def test_a_health_port_may_say_anything(said: bytes) -> None:
    """What is not a report is none."""
    port = free_ports()

    def say(peer: socket.socket) -> None:
        peer.recv(1 << 10)
        peer.sendall(said)

    with OtherServer(say, port + 1), pytest.raises((health.NoHealth, ConnectionError)):
        health.ask_for_report(WorkerAddress("127.0.0.1", port), 5)


def test_what_a_worker_says_of_its_devices_is_made_harmless(
    two_workers: list[WorkerProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control characters and impossible numbers do not reach the screen or the plan."""
    device = health.OfferedDevice("\x1b[31mred", "x" * 9999, "gpu", -5, 2**80)
    report = HealthReport(devices=(device,))
    monkeypatch.setattr(worker_probe, "ask_for_report", lambda *_: report)
    (found,) = probe_worker(two_workers[0].address).devices
    assert found.name == "?[31mred"
    assert (len(found.description), found.free, found.total) == (100, 0, 2**50)


@pytest.mark.slow
def test_a_worker_lost_while_loading_is_named(tiny: WriteModel) -> None:
    """As soon as llama.cpp tells of its progress, the worker ends."""
    with WorkerProcess() as worker:
        seen: list[float] = []

        def kill(stage: str, share: float) -> None:
            del stage
            seen.append(share)
            if share > 0:
                worker.kill()

        options = EXACT | {"workers": [str(worker.address)], "on_progress": kill}
        with (
            pytest.raises((EngineFailed, WorkerUnavailable), match=r"^the worker .* stopped"),
            Engine.load(tiny("llama", num_layers=24), process=True, **options) as engine,
        ):
            answer(engine)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("kind", HEADS)
def test_heads_draft_beside_a_target_on_workers(
    kind: str, two_workers: list[WorkerProcess], tmp_path: Path
) -> None:
    """A head in the target's file is where the target's last layers are, others are here."""
    files = _files(kind, tmp_path)
    with Engine.load(**files, **EXACT) as local:
        expected = answer(local, drafter="none")
    options = EXACT | files | {"workers": addresses(two_workers), "gpu_layers": 2}
    with Engine.load(**options) as engine:
        assert engine.facts.draft_off_reason is None
        assert answer(engine, drafter="head", draft_length=3) == expected
        assert engine.stats.drafted > 0


def _files(kind: str, folder: Path) -> dict[str, Any]:
    """Write a target with a head, in one file or two."""
    architecture, _, how = kind.partition(" ")
    if not how:
        return {"target": write_with_head(folder / "whole.gguf", architecture, part="whole")}
    draft = "EAGLE-3" if how.endswith("EAGLE-3") else ""
    parts = {"target": "trunk", "draft": "head"}
    return {
        role: write_with_head(folder / f"{part}.gguf", architecture, part=part, draft=draft)
        for role, part in parts.items()
    }


@pytest.mark.slow
@pytest.mark.skipif(not socket.has_ipv6, reason="there is no IPv6")
def test_a_worker_may_have_an_ipv6_address_alone(tiny: WriteModel) -> None:
    """llama.cpp connects with IPv4: what is said is passed on."""
    with Engine.load(tiny("llama"), **EXACT) as local:
        expected = answer(local)
    with WorkerProcess(("--host", "::1")) as worker:
        address = f"[::1]:{worker.address.port}"
        with Engine.load(tiny("llama"), workers=[address], **EXACT) as engine:
            assert answer(engine) == expected
            assert engine.facts.gpu.endswith(f"on {address}")


def test_passes_are_measured_anew_with_workers_and_on_a_slower_network(
    two_workers: list[WorkerProcess], tiny: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was learned of the target here, or of a fast network, does not hold there."""
    options = EXACT | {"learn": True, "exact": "off"}
    split = options | {"workers": addresses(two_workers)[:1]}
    target = tiny("llama", seed=7)

    def is_known(**options: Any) -> bool:
        with LocalEngine(Loading(target, **options)) as engine:
            before = engine.pacing.is_settled
            engine.prepare()
            return before

    assert [is_known(**each) for each in (options, options, split, split)] == [
        False, True, False, True,
    ]  # fmt: skip
    report = probe_worker(two_workers[0].address)
    far = replace(report, round_trip=report.round_trip + 0.008)
    monkeypatch.setattr(remote_workers, "probe_worker", lambda _: far)
    assert [is_known(**each) for each in (split, split)] == [False, True]


class Listener:
    """Keeps what a session reports."""

    def __init__(self) -> None:
        """Nothing was reported yet."""
        self.is_loaded, self.is_lost = threading.Event(), threading.Event()
        self.reason = ""

    def progressed(self, stage: str, share: float) -> None:
        """Nothing."""

    def measured(self, facts: object) -> None:
        """Nothing."""

    def loaded(self, facts: object) -> None:
        """Note it."""
        self.is_loaded.set()

    def lost(self, error: SpecchatError) -> None:
        """Keep the reason."""
        self.reason = str(error)
        self.is_lost.set()


@pytest.mark.slow
def test_the_chat_says_which_worker_is_lost_and_that_it_is_still_gone(tiny: WriteModel) -> None:
    """Between questions, and when the next one loads the target again."""
    with WorkerProcess() as worker:
        loading = Loading(tiny("llama"), workers=(str(worker.address),), **EXACT)
        first, second = Listener(), Listener()
        session = Session(loading, first, lambda call, *facts: call(*facts))
        assert first.is_loaded.wait(30)
        worker.kill()
        assert first.is_lost.wait(30)
        assert first.reason.startswith(f"the worker {worker.address} stopped answering: ")
        again = Session(loading, second, lambda call, *facts: call(*facts), before=session)
        assert second.is_lost.wait(30)
        assert second.reason.startswith(f"the worker {worker.address} is not reachable")
        for each in (session, again):
            each.close()
            each.wait(5)
