"""What an engine does when it is stopped, closed, killed or misused at the worst moment."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from conftest import WriteModel
from scripts.support.processes import still_running
from scripts.support.tiny_gguf import ARCHITECTURES
from specchat import Engine
from specchat.decoding.chunk import Chunk
from specchat.engine.api import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.engine.pair_pacing import PairPacing
from specchat.errors import Cancelled, EngineFailed, ModelWontLoad
from specchat.llama.context import Context
from specchat.planning.device import Device, Machine
from specchat.sharing import process_death, process_link
from specchat.sharing.process_engine import ProcessEngine
from tables import table

ROOT = Path(__file__).parents[2]
EXACT: dict[str, Any] = {
    "ctx": 512,
    "threads": 1,
    "flash_attention": "off",
    "cache_type": "f32",
}
LONG = {"ctx": 100_000}
PROMPT = [40, 75, 111, 260, 90, 33, 201, 150]
KINDS = ["llama", "gemma3", "mamba", "granitehybrid", "lfm2", "qwen35"]
unix_only = pytest.mark.skipif(sys.platform == "win32", reason="signals are named otherwise there")


def tokens_of(chunks: Sequence[Chunk]) -> list[int]:
    """Return the tokens of an answer."""
    return [token for chunk in chunks for token in chunk.tokens]


def answer(engine: Engine, prompt: Any = PROMPT, **options: Any) -> list[int]:
    """Decode a greedy answer and return its tokens."""
    return tokens_of(
        list(engine.generate(prompt, **{"temperature": 0.0, "max_tokens": 40} | options))
    )


def process_engine(tiny: WriteModel, **options: Any) -> ProcessEngine:
    """Load a tiny pair into a process of its own."""
    files = tiny("llama"), tiny("llama", "half right")
    engine = Engine.load(*files, process=True, **EXACT | options)
    assert isinstance(engine, ProcessEngine)
    return engine


@pytest.mark.slow(keep=3)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_shortest_prompts_are_answered(tiny: WriteModel, architecture: str) -> None:
    """A prompt of one token leaves nothing to prefill, and speculation still works."""
    files = tiny(architecture), tiny(architecture, "half right")
    with Engine.load(*files, **EXACT) as engine:
        for prompt in ([7], [7, 8]):
            plain = answer(engine, prompt, drafter="none")

            assert answer(engine, prompt) == plain
            assert answer(engine, prompt) == plain


@pytest.mark.slow
@table("architecture", KINDS)
def test_a_prompt_stopped_during_prefill_gives_no_token(
    tiny: WriteModel, architecture: str
) -> None:
    """Stopped at any chunk of the prompt, the answer ends "cancelled" and the next one is right."""
    files = tiny(architecture), tiny(architecture, "half right")
    long = PROMPT * 40
    with Engine.load(*files, batch=64, **EXACT) as engine:
        expected = answer(engine, long, drafter="none", max_tokens=10)
        for share in (0.0, 0.2, 0.5, 0.9, 1.0):
            answer(engine, [9])

            def stop_there(stage: str, done: float, wanted: float = share) -> None:
                assert stage == "prompt"
                if done >= wanted:
                    engine.stop()

            chunks = list(engine.generate(long, on_progress=stop_there, temperature=0.0))

            assert chunks[-1].finish == "cancelled"
            assert tokens_of(chunks) == []
            assert answer(engine, long, max_tokens=10) == expected


@pytest.mark.slow
def test_a_stop_in_the_engines_process_ends_the_prompt_too(tiny: WriteModel) -> None:
    """A stop at the first report of progress ends the prompt; no token is decoded."""
    with process_engine(tiny, ctx=20_000, batch=32) as engine:
        reported: list[float] = []

        def stop_at_once(stage: str, done: float) -> None:
            reported.append(done)
            engine.stop()

        chunks = list(engine.generate([5, 6, 7, 8] * 4500, on_progress=stop_at_once))

        assert chunks[-1].finish == "cancelled"
        assert tokens_of(chunks) == []
        assert 0 < len(reported) < 500
        assert len(answer(engine)) == 40


@pytest.mark.parametrize("process", [False, True], ids=["local", "remote"])
def test_a_stop_before_the_first_token_counts(tiny: WriteModel, process: bool) -> None:
    """After generate() returns a stop is for that answer, begun or not."""
    with Engine.load(tiny("llama"), process=process, **EXACT) as engine:
        chunks = engine.generate(PROMPT, max_tokens=100, ignore_end=True)
        engine.stop()

        *begun, end = [chunk.finish for chunk in chunks]
        assert end == "cancelled"
        assert not any(begun)
        assert process or not begun  # the other process begins at once
        assert len(answer(engine)) == 40


@pytest.mark.parametrize("process", [False, True], ids=["local", "remote"])
def test_a_stop_without_an_answer_does_nothing(tiny: WriteModel, process: bool) -> None:
    """A late stop does not reach the next answer."""
    with Engine.load(tiny("llama"), process=process, **EXACT) as engine:
        engine.stop()
        assert len(answer(engine)) == 40
        engine.stop()
        assert len(answer(engine)) == 40


def test_an_answer_abandoned_in_the_other_process_leaves_no_message(tiny: WriteModel) -> None:
    """Closed after any number of chunks, the next answer and its statistics are its own."""
    with process_engine(tiny) as engine:
        expected = answer(engine)
        for num_chunks in (1, 2, 5, 9):
            stream = engine.generate([5, 6, 7], max_tokens=400, ignore_end=True)
            for _ in range(num_chunks):
                next(stream)
            stream.close()  # type: ignore[attr-defined]

            assert answer(engine) == expected
            assert engine.stats.generated_tokens == 40


@pytest.mark.slow
@unix_only
def test_a_process_that_dies_while_an_answer_is_abandoned_is_reported_dead(
    tiny: WriteModel,
) -> None:
    """By the abandoned answer and by the next one, which does not find the engine busy."""
    with process_engine(tiny, **LONG) as engine:
        stream = engine.generate([5, 6, 7], ignore_end=True)
        next(stream)
        assert engine._process.pid
        os.kill(engine._process.pid, signal.SIGSTOP)
        threading.Timer(0.3, os.kill, (engine._process.pid, signal.SIGKILL)).start()
        with pytest.raises(EngineFailed, match="SIGKILL"):
            stream.close()  # type: ignore[attr-defined]

        with pytest.raises(EngineFailed, match="SIGKILL"):
            answer(engine)


@pytest.mark.parametrize("architecture", ["llama", "gemma3", "mamba", "lfm2"])
def test_a_second_question_is_cached_by_both_models(
    tiny: WriteModel, architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither model evaluates the first question and its answer again."""
    read: list[tuple[int, int]] = []
    reading = Context.reading

    def noted(self: Context, tokens: Sequence[int], *others: Any) -> Generator[None, None, int]:
        num_cached = yield from reading(self, tokens, *others)
        read.append((num_cached, len(tokens)))
        return num_cached

    files = tiny(architecture), tiny(architecture, "half right")
    with Engine.load(*files, **EXACT) as engine:
        prompt = PROMPT * 10
        said = answer(engine, prompt, drafter="model", draft_length=3)
        monkeypatch.setattr(Context, "reading", noted)
        answer(engine, [*prompt, *said, 50, 51, 52], drafter="model", draft_length=3)

    ((target_cached, target_read), (draft_cached, draft_read)) = read
    assert target_read == draft_read == len(prompt) + 40 + 2
    assert target_cached >= len(prompt) + 40 - 20
    assert draft_cached >= len(prompt) + 40 - 20


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("process", [False, True], ids=["local", "remote"])
def test_two_engines_do_not_affect_each_other(tiny: WriteModel, process: bool) -> None:
    """Interleaved answers of two engines are the same as each alone."""
    with (
        Engine.load(tiny("llama"), tiny("llama"), process=process, **EXACT) as first,
        Engine.load(tiny("mamba"), tiny("mamba"), process=process, **EXACT) as second,
    ):
        expected = answer(first), answer(second)
        options: dict[str, Any] = {"temperature": 0.0, "max_tokens": 40}
        streams = first.generate(PROMPT, **options), second.generate(PROMPT, **options)
        found: tuple[list[Chunk], list[Chunk]] = ([], [])
        for one, other in zip(*streams, strict=False):
            found[0].append(one)
            found[1].append(other)
        first.stop()

        assert tokens_of(found[0]) == expected[0][: len(tokens_of(found[0]))] != []
        assert tokens_of(found[1]) == expected[1][: len(tokens_of(found[1]))] != []


AFTER_CLOSE = """
import sys
from specchat import Engine
from specchat.errors import EngineFailed
for target, draft in zip(sys.argv[1::2], sys.argv[2::2]):
    engine = Engine.load(target, draft, ctx=256, threads=1)
    begun = engine.generate([5, 6, 7], max_tokens=50, ignore_end=True)
    next(begun)
    engine.close()
    engine.close()
    for attempt in (
        lambda: next(begun),
        lambda: list(engine.generate([5, 6, 7])),
        lambda: list(engine.generate("hello")),
        lambda: list(engine.chat([{"role": "user", "content": "hello"}])),
    ):
        try:
            attempt()
        except EngineFailed as error:
            print(error)
    engine.stop()
"""


@pytest.mark.slow
def test_a_closed_engine_raises_and_does_not_crash(tiny: WriteModel) -> None:
    """Neither an old answer nor a new request touches freed memory, whatever the architecture."""
    files = [tiny(each, kind) for each in KINDS for kind in ("right", "half right")]
    done = subprocess.run(
        [sys.executable, "-c", AFTER_CLOSE, *files],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "GGML_NO_BACKTRACE": "1"},
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["the engine is closed: load it again"] * 4 * len(KINDS)


@pytest.mark.slow
def test_closing_ends_an_answer_in_progress_without_force(
    tiny: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process stops when asked to, exits by itself and frees its models in order."""
    monkeypatch.setattr(process_link, "JOIN_TIMEOUT_SECONDS", 60.0)
    engine = process_engine(tiny, ctx=100_000)
    stream = engine.generate(PROMPT, ignore_end=True)
    next(stream)
    engine.close()

    assert engine._process._process.exitcode == 0
    with pytest.raises(EngineFailed):
        next(stream)


@pytest.mark.slow
def test_closing_never_fails(tiny: WriteModel) -> None:
    """The engine process is gone afterwards, even if it could not be reached."""
    engine = process_engine(tiny)
    engine._process._connection.close()
    engine.close()

    assert not engine._process.is_alive()


def test_a_late_load_failure_frees_everything(
    tiny: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Models that are loaded already are freed, too."""
    closed: list[Context] = []
    close = Context.close

    def noted(self: Context) -> None:
        closed.append(self)
        close(self)

    def failing(*_: object) -> None:
        raise EngineFailed("no")

    monkeypatch.setattr(Context, "close", noted)
    monkeypatch.setattr(PairPacing, "_begin_with", failing)
    with pytest.raises(EngineFailed):
        LocalEngine(Loading(tiny("llama"), tiny("llama"), **EXACT))
    assert len(set(map(id, closed))) == 2


def test_forget_closes_drafters(tiny: WriteModel) -> None:
    """Drafters lose all they learned from the text."""
    with LocalEngine(Loading(tiny("llama"), tiny("llama"), **EXACT)) as engine:
        answer(engine, max_tokens=5)
        drafter = weakref.ref(engine._places[0].drafter("suffix+model"))
        engine.forget()
        gc.collect()
        assert drafter() is None


@pytest.mark.slow
def test_the_process_that_renders_templates_ends_with_the_engine(tiny: WriteModel) -> None:
    """The process ends even if the engine process is killed."""
    engine = process_engine(tiny)
    list(engine.chat([{"role": "user", "content": "hi"}], max_tokens=2))
    (renderer,) = psutil.Process(engine._process.pid).children()
    engine.kill()

    assert still_running([renderer], timeout_s=20) == []
    engine.close()


@pytest.mark.parametrize("options", [{"draft_length": 0}, {"max_tokens": 1}])
def test_an_unusable_draft_model_does_not_prefill(
    tiny: WriteModel, options: dict[str, Any]
) -> None:
    """Nothing will be drafted, so the first token does not wait for it."""
    with LocalEngine(Loading(tiny("llama"), tiny("llama"), **EXACT)) as engine:
        answer(engine, **{"max_tokens": 3, "drafter": "model", **options})
        assert engine._draft_context is not None
        assert engine._draft_context.length == 0


WITHOUT_GUARD = """
import sys
from specchat import Engine
with Engine.load(sys.argv[1], process=True, ctx=64, threads=1) as engine:
    print([chunk.finish for chunk in engine.generate([1], max_tokens=1)])
"""


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("is_file", [True, False], ids=["file", "standard input"])
def test_a_script_needs_no_main_guard(tiny: WriteModel, tmp_path: Path, is_file: bool) -> None:
    """The engine's process does not run the script that started it again."""
    script = tmp_path / "script.py"
    script.write_text(WITHOUT_GUARD)
    done = subprocess.run(
        [sys.executable, str(script) if is_file else "-", str(tiny("llama"))],
        input="" if is_file else WITHOUT_GUARD, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (done.stdout, done.stderr) == ("['length']\n", "")


FIRST_PROCESS = """
import sys
from specchat import Engine
if __name__ == "__main__":
    with Engine.load(sys.argv[1], process=True, ctx=64, threads=1) as engine:
        print(open(f"/proc/{engine._process.pid}/status").read())
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads what a process blocks from /proc")
def test_engine_processes_receive_no_interrupt(tiny: WriteModel) -> None:
    """From its first moment, when Python would print a traceback; a later process neither."""
    done = subprocess.run(
        [sys.executable, "-c", FIRST_PROCESS, str(tiny("llama"))],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    [blocked] = [line for line in done.stdout.splitlines() if line.startswith("SigBlk")]

    assert int(blocked.split()[1], 16) & 1 << (signal.SIGINT - 1)


@unix_only
def test_a_process_killed_between_answers_is_reported_by_the_next(
    killed_engine: ProcessEngine,
) -> None:
    """The next request and all later ones raise an error that names the signal."""
    for _ in range(2):
        with pytest.raises(EngineFailed, match="SIGKILL"):
            answer(killed_engine)


@pytest.fixture(scope="module")
def killed_engine(tiny: WriteModel) -> Iterator[ProcessEngine]:
    """Return an engine whose process was killed."""
    engine = process_engine(tiny)
    os.kill(engine._process.pid or 0, signal.SIGKILL)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def crashed_engine(tiny: WriteModel) -> Iterator[ProcessEngine]:
    """Return an engine whose process crashed."""
    engine = process_engine(tiny)
    os.kill(engine._process.pid or 0, signal.SIGSEGV)
    yield engine
    engine.close()


@unix_only
@pytest.mark.parametrize("is_loading", [True, False])
def test_a_process_that_the_system_kills_probably_had_too_little_memory(
    tiny: WriteModel, is_loading: bool
) -> None:
    """The error says so with what takes less; trying the same again would not help."""
    engine = process_engine(tiny)
    os.kill(engine._process.pid or 0, signal.SIGKILL)
    if is_loading:
        engine._process._is_loaded = False
    with pytest.raises(ModelWontLoad if is_loading else EngineFailed) as raised:
        answer(engine)
    message = str(raised.value)

    assert "was ended by SIGKILL, probably because memory ran out" in message
    assert ": try a smaller --ctx or a smaller model" in message


@pytest.mark.slow
@unix_only
def test_a_lack_of_memory_is_named_once(
    crashed_engine: ProcessEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows has exit codes that mean it; what takes less memory is advised all the same."""
    monkeypatch.setattr(process_death, "_ending", lambda _: "was ended by a lack of memory")
    message = str(crashed_engine._process.death())

    assert message.startswith("the engine process was ended by a lack of memory: try a smaller")


@pytest.mark.slow
@unix_only
def test_a_process_that_we_kill_did_not_run_out_of_memory(tiny: WriteModel) -> None:
    """The chat kills an engine that hangs."""
    engine = process_engine(tiny)
    engine.kill()
    with pytest.raises(EngineFailed, match="SIGKILL") as raised:
        answer(engine)

    assert "memory" not in str(raised.value)


def test_the_advice_for_too_little_memory_names_what_is_in_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A draft model, locked memory and layers on a GPU only where there are any."""
    plain = Loading(Path("t"))
    gpu = Device("Metal", "a card", "integrated", 2**33, 2**33)
    monkeypatch.setattr(process_death, "find_machine", lambda: Machine(2**33, ()))
    assert process_death._memory_advice(plain) == "try a smaller --ctx or a smaller model"
    full = process_death._memory_advice(Loading(Path("t"), Path("d"), mlock=True))
    assert full.endswith("a smaller model, --draft none, no --mlock")
    monkeypatch.setattr(process_death, "find_machine", lambda: Machine(2**33, (gpu,)))
    assert process_death._memory_advice(plain).endswith(", or fewer --gpu-layers")
    assert "gpu" not in process_death._memory_advice(replace(plain, gpu_layers=0))


@unix_only
@pytest.mark.parametrize(
    ("written", "named"),
    [
        ({}, None),
        ({"engine.log": ""}, None),
        ({"llama.log": "a", "engine.log": ""}, "llama.log"),
        ({"llama.log": "a", "engine.log": "b"}, "engine.log"),
        ({"engine.log": "b", "llama.log": "a"}, "llama.log"),
    ],
)
def test_the_error_names_the_latest_log(
    crashed_engine: ProcessEngine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    written: dict[str, str],
    named: str | None,
) -> None:
    """The one written last that is not empty; none if both are empty."""
    monkeypatch.setattr("specchat.system.logs.log_path", lambda name: tmp_path / name)
    monkeypatch.setattr(process_death, "find_machine", lambda: Machine(2**33, ()))
    for seconds, (name, text) in enumerate(written.items()):
        (tmp_path / name).write_text(text)
        os.utime(tmp_path / name, (seconds, seconds))
    with pytest.raises(EngineFailed) as raised:
        answer(crashed_engine)
    words = f"see {tmp_path / named}; " if named else ""

    message = str(raised.value).partition("; if it crashes again, `specchat doctor`")[0]
    assert message == f"the engine process was ended by SIGSEGV: {words}try again"
    assert message != str(raised.value)


@unix_only
@pytest.mark.parametrize("is_loading", [True, False])
def test_a_build_for_another_cpu_is_to_be_rebuilt(tiny: WriteModel, is_loading: bool) -> None:
    """An instruction that the CPU lacks ends the process each time: trying again cannot help."""
    engine = process_engine(tiny)
    os.kill(engine._process.pid or 0, signal.SIGILL)
    if is_loading:
        engine._process._is_loaded = False
    with pytest.raises(ModelWontLoad if is_loading else EngineFailed) as raised:
        answer(engine)

    message = str(raised.value)
    assert "was ended by SIGILL" in message
    assert "another CPU: `specchat doctor` prints how to rebuild it" in message
    assert "try again" not in message


@pytest.mark.parametrize(
    ("gpus", "layers", "of_draft", "is_advised"),
    [
        ((Device("CUDA0", "a card", "gpu", 2**33, 2**33),), None, None, True),
        ((Device("CUDA0", "a card", "gpu", 2**33, 2**33),), 0, 5, True),
        ((Device("CUDA0", "a card", "gpu", 2**33, 2**33),), 0, 0, False),
        ((), None, None, False),
        (None, None, None, False),
    ],
)
def test_decoding_without_gpus_is_advised_if_some_are_used(
    monkeypatch: pytest.MonkeyPatch,
    gpus: tuple[Device, ...] | None,
    layers: int | None,
    of_draft: int | None,
    is_advised: bool,
) -> None:
    """There is no advice if llama.cpp found or uses no GPU."""
    monkeypatch.setattr(process_death, "find_machine", lambda: Machine(2**33, gpus))
    pair = Loading(Path("t"), Path("d"), gpu_layers=layers, draft_gpu_layers=of_draft)
    alone = Loading(Path("t"), gpu_layers=layers)

    assert ("--gpu-layers 0" in process_death._advice(pair)) is is_advised
    assert ("--gpu-layers 0" in process_death._advice(alone)) is (is_advised and layers is None)
    assert (
        "use --flash-attention off or --gpu-layers 0" in process_death._advice(pair)
    ) is is_advised
    assert "flash" not in process_death._advice(replace(pair, flash_attention="off"))


@unix_only
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_process_killed_while_loading_raises_model_wont_load(
    tiny: WriteModel, number: signal.Signals
) -> None:
    """A large vocabulary takes long to load; the error names the signal."""
    slow = tiny("llama", vocabulary=100_000, num_layers=1, width=32)
    known = {child.pid for child in multiprocessing.active_children()}
    killed: set[int | None] = set()

    def kill(stage: str, share: float) -> None:
        children = {child.pid for child in multiprocessing.active_children()} - known - killed
        for child in children:
            killed.add(child)
            os.kill(child or 0, number)

    with pytest.raises(ModelWontLoad, match=number.name):
        Engine.load(slow, slow, process=True, on_progress=kill, **EXACT)
    assert len(killed) == 1
    assert {child.pid for child in multiprocessing.active_children()} <= known


STOPPED_WHILE_SENDING = """
import signal, sys
from specchat import Engine
if __name__ == "__main__":
    engine = Engine.load(sys.argv[1], process=True, ctx=256, threads=1)
    signal.signal(signal.SIGALRM, lambda *_: engine.stop())
    for delay in (0.0005, 0.001, 0.002, 0.005, 0.02):
        chunks = engine.generate("a " * 1_500_000, max_tokens=5)
        signal.setitimer(signal.ITIMER_REAL, delay)
        try:
            print([chunk.finish for chunk in chunks])
        except Exception as error:
            print(error)
        signal.setitimer(signal.ITIMER_REAL, 0)
    engine.close()
    print("done")
"""


@pytest.mark.slow
@unix_only
def test_a_signal_handler_can_stop_while_a_request_is_sent(tiny: WriteModel) -> None:
    """The handler runs while the same thread is sending; messages stay whole and nothing hangs."""
    done = subprocess.run(
        [sys.executable, "-c", STOPPED_WHILE_SENDING, tiny("llama")],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=60,
    )

    assert (done.returncode, done.stderr) == (0, "")
    *answers, last = done.stdout.splitlines()
    assert last == "done"
    assert len(answers) == 5
    for said in answers:
        assert "cancelled" in said or "the context holds 256" in said


@pytest.mark.slow
@unix_only
def test_abandoning_an_answer_kills_a_process_that_hangs(
    tiny: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait is bounded; the next request reports that the engine is closed."""
    monkeypatch.setattr(process_link, "JOIN_TIMEOUT_SECONDS", 0.3)
    engine = process_engine(tiny, ctx=100_000)
    stream = engine.generate([5, 6], ignore_end=True)
    next(stream)
    os.kill(engine._process.pid or 0, signal.SIGSTOP)
    stream.close()  # type: ignore[attr-defined]

    assert not engine._process.is_alive()
    with pytest.raises(EngineFailed, match="load it again"):
        answer(engine)


@pytest.mark.slow
def test_an_interrupt_while_sending_ends_the_process(
    tiny: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a message may be sent, so no other can follow."""
    engine = process_engine(tiny)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(engine._process._connection, "_send_bytes", interrupted)
        with pytest.raises(KeyboardInterrupt):
            answer(engine)

    assert not engine._process.is_alive()


@pytest.mark.slow
def test_an_unexpected_error_while_loading_is_reported(tiny: WriteModel, tmp_path: Path) -> None:
    """With its type and text; a path with a NUL byte cannot be opened."""
    with pytest.raises(EngineFailed, match=r"ValueError.*null"):
        Engine.load(tmp_path / "a\0b.gguf", process=True, **EXACT)


def test_every_way_a_process_can_end_is_described() -> None:
    """Including a signal without a name."""
    assert process_death._ending(0) == "ended with exit code 0"
    assert process_death._ending(3) == "ended with exit code 3"
    assert process_death._ending(-9) == "was ended by SIGKILL"
    assert process_death._ending(0xC0000017) == "was ended by a lack of memory"
    assert process_death._ending(-61) == "was ended by signal 61"
    assert process_death._ending(None) == "closed its connection"


@pytest.mark.parametrize("process", [False, True], ids=["local", "remote"])
def test_stopping_a_closed_engine_does_nothing(tiny: WriteModel, process: bool) -> None:
    """A signal handler may stop an engine that was closed."""
    engine = Engine.load(tiny("llama"), process=process, **EXACT)
    engine.close()
    engine.stop()


@pytest.mark.parametrize("process", [False, True], ids=["local", "remote"])
def test_a_busy_engine_raises_at_once(tiny: WriteModel, process: bool) -> None:
    """Before the second answer's first token is requested."""
    with Engine.load(tiny("llama"), process=process, **EXACT) as engine:
        stream = engine.generate(PROMPT, max_tokens=50, ignore_end=True)
        next(stream)
        with pytest.raises(EngineFailed, match="busy"):
            engine.generate(PROMPT)
        assert len(tokens_of(list(stream))) > 10


@unix_only
def test_cancelled_loading_leaves_no_process(tiny: WriteModel) -> None:
    """Returning False ends the process whatever it is doing."""
    slow = tiny("llama", vocabulary=100_000, num_layers=1, width=32)
    known = {child.pid for child in multiprocessing.active_children()}
    with pytest.raises(Cancelled):
        Engine.load(slow, slow, process=True, on_progress=lambda *_: False, **EXACT)

    assert {child.pid for child in multiprocessing.active_children()} <= known


@pytest.mark.parametrize("process", [False, True], ids=["local", "remote"])
def test_an_error_in_on_progress_is_raised_unchanged(tiny: WriteModel, process: bool) -> None:
    """During loading and prefill; the engine goes on working."""

    def fail(stage: str, share: float) -> None:
        raise ZeroDivisionError(stage)

    with pytest.raises(ZeroDivisionError, match="target"):
        Engine.load(tiny("llama"), process=process, on_progress=fail, **EXACT)
    with Engine.load(tiny("llama"), process=process, **EXACT) as engine:
        with pytest.raises(ZeroDivisionError, match="prompt"):
            list(engine.generate(PROMPT, on_progress=fail))
        assert len(answer(engine)) == 40


@pytest.mark.slow
def test_a_request_that_cannot_be_pickled_raises_at_once(tiny: WriteModel) -> None:
    """A generator cannot be sent to another process, so there is no answer to wait for."""
    with process_engine(tiny) as engine:
        raised: list[BaseException] = []

        def ask() -> None:
            try:
                answer(engine, (token for token in PROMPT))
            except TypeError as error:
                raised.append(error)

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        thread.join(20)

        assert not thread.is_alive()
        assert len(raised) == 1
        assert len(answer(engine)) == 40


def test_one_stop_string_is_one_string(tiny: WriteModel) -> None:
    """A text given as `stop` is not split into letters."""
    with Engine.load(tiny("llama"), **EXACT) as engine:
        whole = "".join(
            chunk.text for chunk in engine.generate(PROMPT, temperature=0.0, max_tokens=60)
        )
        stop = whole[30:34]
        chunks = engine.generate(PROMPT, temperature=0.0, max_tokens=60, stop=stop)

        assert "".join(chunk.text for chunk in chunks) == whole[: whole.index(stop)]


@table("bias", [{-1: 1.0}, {5: float("nan")}, {5: float("inf")}])
def test_an_invalid_bias_is_refused(tiny: WriteModel, bias: dict[int, float]) -> None:
    """The error is about the option, not the model's file."""
    with (
        Engine.load(tiny("llama"), **EXACT) as engine,
        pytest.raises(Exception, match="logit_bias"),
    ):
        answer(engine, logit_bias=bias)


def test_a_bias_bans_a_token_from_drafted_and_plain_text_alike(tiny: WriteModel) -> None:
    """Minus infinity removes a token from every distribution; the two texts stay equal."""
    files = tiny("llama"), tiny("llama", "half right")
    with Engine.load(*files, **EXACT) as engine:
        most_common = max(answer(engine), key=answer(engine).count)
        banned = {most_common: float("-inf")}
        drafted = answer(engine, logit_bias=banned)

        assert most_common not in drafted
        assert drafted == answer(engine, logit_bias=banned, drafter="none")


@pytest.mark.slow
def test_an_engine_is_unchanged_by_many_answers(tiny: WriteModel) -> None:
    """After fifty answers of every kind, a question gets the same answer as at first."""
    files = tiny("qwen35"), tiny("qwen35", "half right")
    with LocalEngine(Loading(*files, **EXACT)) as engine:
        expected = answer(engine, drafter="none")
        for number in range(50):
            drafter = ("auto", "model", "suffix", "none")[number % 4]
            stream = engine.generate(
                [*PROMPT[: 1 + number % 8], 3 + number],
                drafter=drafter,
                draft_length=number % 17,
                temperature=number % 3,
                seed=number,
                max_tokens=1 + number,
            )
            for _ in zip(range(number % 7), stream, strict=False):
                pass
            stream.close()  # type: ignore[attr-defined]
            assert answer(engine, draft_length=1 + number % 16) == expected


@pytest.mark.slow(keep=1)
@unix_only
@pytest.mark.parametrize("is_loading", [True, False])
def test_a_failed_assertion_is_named(
    tiny: WriteModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_loading: bool
) -> None:
    """With the log that has it; while loading, trying again would not help."""
    monkeypatch.setattr("specchat.system.logs.log_path", lambda name: tmp_path / name)
    monkeypatch.setattr(process_death, "log_path", lambda name: tmp_path / name)
    (tmp_path / "engine.log").write_text("x.c:1: GGML_ASSERT(of another day) failed\n")
    engine = process_engine(tiny)
    with (tmp_path / "engine.log").open("a") as log:
        log.write("y.c:2: GGML_ASSERT(ggml_is_contiguous(a)) failed\n")
    os.kill(engine._process.pid or 0, signal.SIGABRT)
    if is_loading:
        engine._process._is_loaded = False
    with pytest.raises(ModelWontLoad if is_loading else EngineFailed) as raised:
        answer(engine)
    message = str(raised.value)

    assert "SIGABRT (GGML_ASSERT(ggml_is_contiguous(a)) failed" in message
    assert str(tmp_path / "engine.log") in message
    assert "another day" not in message
    assert ("try again" in message) is not is_loading
