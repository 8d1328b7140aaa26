"""A step costs its passes and next to nothing else, and decoding waits once for each of them."""

import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest

from device_options import ALL, EXACT, PROMPT, WritePair
from specchat.decoding.ports import Rows
from specchat.engine.api import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.llama import native_context as passes
from specchat.llama.context import Context
from specchat.llama.library import api, logits_address

PLACES = {
    "target on the device": (ALL, 0),
    "draft on the device": (0, ALL),
    "all on the device": (ALL, ALL),
}
DRAFT_LENGTH = 3
LARGEST_SHARE, MOST_REST = 1.05, 0.0005
"""Of the passes' time that a step may take, or seconds beside them: a fast GPU's passes of a tiny
model take less than a millisecond."""
MOST_FAULTS = 100
"""Page faults per pass: with memory that is mapped for each dispatch, there are thousands."""
DRAFTED: dict[str, Any] = {
    "drafter": "model",
    "draft_length": DRAFT_LENGTH,
    "temperature": 0.0,
    "max_tokens": 60,
}
pytestmark = pytest.mark.usefixtures("device")


@pytest.fixture(params=PLACES)
def engine(request: pytest.FixtureRequest, pair: WritePair) -> Any:
    """Return a pair whose models are on one or two devices; every draft is accepted."""
    layers, draft_layers = PLACES[request.param]
    target, _ = pair("llama")
    loading = Loading(target, target, gpu_layers=layers, draft_gpu_layers=draft_layers, **EXACT)
    with LocalEngine(loading) as loaded:
        yield loaded


def test_a_step_takes_the_sum_of_its_passes(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where draft and target are on different devices: the median step of an answer.

    Passes are timed where they are made, so that other programs on the machine slow both alike.
    """
    inside = 0.0
    evaluate = Context.evaluate

    def timed(context: Context, tokens: Sequence[int], num_rows: int) -> Rows:
        nonlocal inside
        began = time.perf_counter()
        rows = evaluate(context, tokens, num_rows)
        inside += time.perf_counter() - began
        return rows

    monkeypatch.setattr(Context, "evaluate", timed)
    ends = [(time.perf_counter(), inside) for _ in engine.generate(PROMPT, **DRAFTED)]
    assert engine.stats.acceptance_rate > 0.9
    steps = [(end[0] - begin[0], end[1] - begin[1]) for begin, end in pairwise(ends[:-1])]
    assert len(steps) > 10
    share = statistics.median(took / passes for took, passes in steps)
    rest = statistics.median(took - passes for took, passes in steps)
    print(f"steps take {share:.3f} of their passes' time, {1e6 * rest:.0f} us more")
    assert share <= LARGEST_SHARE or rest <= MOST_REST


def test_decoding_waits_once_for_each_pass(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logits are read once per pass, nothing else waits, and what was read is complete.

    The profile counts calls after the prompt: passes, reads of logits, and other waits. A wait
    after a read has nothing left to wait for.
    """
    calls: Counter[str] = Counter()

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            calls[name] += 1
            return function(*arguments)

        return call

    waits: list[float] = []
    read = logits_address

    def read_and_wait_again(handle: Any) -> Any:
        calls["read"] += 1
        address = read(handle)
        began = time.perf_counter()
        synchronize(handle)
        waits.append(time.perf_counter() - began)
        return address

    synchronize = api.llama_synchronize
    chunks = engine.generate(PROMPT, **DRAFTED)
    next(chunks)
    monkeypatch.setattr(api, "llama_decode", counted("pass", api.llama_decode))
    monkeypatch.setattr(api, "llama_synchronize", counted("wait", synchronize))
    monkeypatch.setattr(passes, "logits_address", read_and_wait_again)
    began = time.perf_counter()
    assert sum(len(chunk.tokens) for chunk in chunks) > 30
    took = time.perf_counter() - began
    again = statistics.median(waits) * len(waits)
    print(f"{dict(calls)}; waiting again took {again / took:.2%} of {took:.2f} s")
    assert calls["pass"] == calls["read"] > 20
    assert calls["wait"] == 0
    assert again < 0.02 * took


def test_passes_take_no_new_memory(pair: WritePair) -> None:
    """A pass that maps memory anew, in llama.cpp or in the driver, pays for each page of it."""
    resource = pytest.importorskip("resource")
    with LocalEngine(Loading(pair("llama")[0], gpu_layers=ALL, **EXACT)) as engine:
        options: dict[str, Any] = {"ignore_end": True, "drafter": "none", "max_tokens": 20}
        faults = []
        for _ in range(3):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            list(engine.generate(PROMPT, **options))
            after = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            faults.append((after - before) / engine.stats.steps)
    assert min(faults) < MOST_FAULTS
