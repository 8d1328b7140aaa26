"""`specchat tune` for a pair that is larger than the device: it times placements; plans follow."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from conftest import WriteModel
from in_process import say_here
from scripts.support.model_headers import MODELS, write_header
from specchat.catalogue.tuned_settings import find_tuned
from specchat.cli import placement_tuning
from specchat.cli import tune as tune_command
from specchat.cli.placement_tuning import PlacementTuning, devices_now
from specchat.engine.api import Loading
from specchat.errors import EngineFailed, OutOfMemory, SpecchatError, WorkerUnavailable
from specchat.gguf.reader import read_header
from specchat.llama.child_process import BuildReport, ChildResult
from specchat.llama.rpc_library import find_rpc
from specchat.options.declarations import LoadOptions
from specchat.planning import device
from specchat.planning.device import Device
from specchat.planning.measured_times import planner_here, times_path
from specchat.planning.memory import Sizes
from specchat.planning.plan import Plan
from specchat.planning.plan_ranking import NEVER
from specchat.planning.planner import Planner
from worker_process import WorkerProcess

pytestmark = pytest.mark.skipif(
    find_rpc() is None, reason="this llama.cpp was built without its RPC backend"
)
CONTEXT = 1024
CARD = [
    Device("CPU", "", "cpu", 2**36, 2**36),
    Device("CUDA0", "a card", "gpu", 2**33, 2**33),
]


@pytest.fixture(scope="module")
def worker() -> Iterator[str]:
    """The address of a worker, which is the device."""
    with WorkerProcess() as process:
        yield str(process.address)


@pytest.fixture
def target(tiny: WriteModel, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a mixture that is a little larger than the device, whose hand-overs cost nothing."""
    path = tiny("qwen3moe", width=128, feed_forward=1024)
    lent = Device("RPC0", "", "gpu", 2**40, 2**40, worker="a:1")
    options = LoadOptions(ctx=CONTEXT, workers=("a:1",))
    whole = Planner(Sizes(read_header(path)), None, [lent], options).first()

    usual = cast(property, Device.budget).fget
    assert usual is not None

    def short(self: Device) -> int:
        return whole.needs[1].total - 1 if self.worker else usual(self)

    monkeypatch.setattr(Device, "budget", property(short))
    monkeypatch.setattr(device, "REMOTE_HAND_OVER", 0.0)
    monkeypatch.setattr(placement_tuning, "NEAR", 10.0)  # a third of a block's experts are few
    times_path().unlink(missing_ok=True)
    return path


def way(target: Path, worker: str) -> str:
    """Return how the next plan places the target."""
    options = LoadOptions(ctx=CONTEXT, workers=(worker,))
    devices = devices_now(Loading(target, workers=(worker,)))
    return planner_here(Sizes(read_header(target)), None, devices, options).first().way


def tune(target: Path, worker: str, *words: str, code: int = 0) -> tuple[str, str]:
    """Tune it without a draft, in this process, and return what is printed."""
    done = say_here(
        *("tune", "--target", target, "--draft", "none", "--worker", worker, "--threads", "1"),
        *("--ctx", str(CONTEXT), "--rounds", "1", "--max-tokens", "6", *words),
    )
    assert done.returncode == code, done.stderr
    return done.stdout, done.stderr


@pytest.mark.slow(keep=1)
def test_the_quickest_placement_is_used_from_then_on(target: Path, worker: str) -> None:
    """Each is loaded and timed; what is measured decides, whatever was predicted."""
    printed, _ = tune(target, worker, "--json")
    timed = json.loads(printed)["placements"]
    assert sorted(each["way"].partition(",")[0] for each in timed) == ["experts", "layers"]
    assert timed[0]["step_s"] == min(each["step_s"] for each in timed) > 0
    assert all(each["tokens_per_second"] > 0 for each in timed)
    assert all(each["prompt_tokens_per_second"] > 0 for each in timed)
    assert way(target, worker) == timed[0]["way"]

    content = json.loads(times_path().read_text("utf-8"))
    (steps,) = content["placements"].values()
    assert {way: step["seconds"] for way, step in steps.items()} == {
        each["way"]: each["step_s"] for each in timed
    }
    for number, each in enumerate(timed[::-1]):
        steps[each["way"]]["seconds"] = 10.0**number
    times_path().write_text(json.dumps(content), "utf-8")
    assert way(target, worker) == timed[-1]["way"]


@pytest.mark.slow
def test_placements_are_named_and_one_that_fails_is_left_out(
    target: Path, worker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line each; plans take the best of the others."""
    tuned = placement_tuning.time_placement

    def fails_with_experts(*arguments: object) -> placement_tuning.Timed:
        timed = tuned(*arguments)  # type: ignore[arg-type]
        if timed.way.startswith("experts"):
            raise OutOfMemory("there is no memory for it")
        return timed

    monkeypatch.setattr(placement_tuning, "time_placement", fails_with_experts)
    printed, _ = tune(target, worker)
    assert "layers of the target on the worker, context 1024" in printed
    assert ": not timed, there is no memory for it\n" in printed
    (steps,) = json.loads(times_path().read_text("utf-8"))["placements"].values()
    failed = {way for way, step in steps.items() if step["seconds"] == NEVER}
    assert {each.partition(",")[0] for each in steps.keys() - failed} == {"layers"}
    assert failed
    assert way(target, worker).startswith("layers")


def test_memory_that_other_programs_hold_is_not_planned_with(
    worker: str, tiny: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The devices are those that loading finds: with what is free there now."""
    target = tiny("llama")
    host, remote = devices_now(Loading(target, workers=(worker,)))
    assert host.kind == "cpu"
    assert remote.worker == worker
    assert 0 < remote.free < remote.total

    found = Device("CUDA0", "a card", "gpu", free=2**30, total=2**33)
    build = BuildReport("", "", can_offload=True, backends=(), devices=(host, found))
    monkeypatch.setattr(placement_tuning, "ask_for_build", lambda: ChildResult(build))
    assert devices_now(Loading(target))[1:] == [found]


@pytest.mark.slow
def test_an_interrupt_ends_at_once_and_keeps_what_was_timed(
    target: Path, worker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With exit code 130, after what was measured; nothing else is loaded."""
    tuned, names = placement_tuning.time_placement, list[str]()

    def interrupted(*arguments: object) -> placement_tuning.Timed:
        if names:
            raise KeyboardInterrupt
        timed = tuned(*arguments)  # type: ignore[arg-type]
        names.append(timed.way)
        return timed

    monkeypatch.setattr(placement_tuning, "time_placement", interrupted)
    monkeypatch.setattr(tune_command, "measure_pair", lambda *_: pytest.fail("it goes on"))
    printed, _ = tune(target, worker, "--json", code=130)
    assert [each["way"] for each in json.loads(printed)["placements"]] == names
    (steps,) = json.loads(times_path().read_text("utf-8"))["placements"].values()
    assert list(steps) == names
    assert find_tuned(target)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "code"),
    [(OSError(28, "No space left on device", "a file"), 1), (KeyboardInterrupt, 130)],
)
def test_what_was_timed_is_printed_whatever_ends_it(
    error: BaseException | type[BaseException],
    code: int,
    target: Path,
    worker: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Then comes the error's line, with its exit code; the way that plans take now is named."""
    tuned, done = placement_tuning.time_placement, list[placement_tuning.Timed]()

    def failing(*arguments: object) -> placement_tuning.Timed:
        if done:
            raise error
        done.append(tuned(*arguments))  # type: ignore[arg-type]
        return done[0]

    monkeypatch.setattr(placement_tuning, "time_placement", failing)
    printed, errors = tune(target, worker, code=code)
    assert f"{done[0].placement}: " in printed
    assert "saved for this target: " in printed
    assert errors.endswith("a file: No space left on device\n") == (code == 1)
    used = [line for line in printed.splitlines() if line.startswith("used from now on")]
    now = way(target, worker)
    is_timed = now == done[0].way
    named = f": {done[0].placement}: " if is_timed else f": {now}: not timed yet"
    assert len(used) == 1
    assert used[0].startswith(f"used from now on{named}")


@pytest.fixture
def mixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loading:
    """How to load a large mixture without weights, which a card of 8 GiB can hold in several ways.

    Nothing was measured yet.
    """
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (model,) = [each for each in MODELS if each.name == "Qwen3 30B-A3B"]
    monkeypatch.setattr(placement_tuning, "devices_now", lambda _: CARD)
    monkeypatch.setattr(placement_tuning, "NEAR", 100.0)
    return Loading(write_header(tmp_path, model))


def first_way(loading: Loading) -> str:
    """Return the way of the next plan."""
    return planner_here(Sizes(read_header(loading.target)), None, CARD, loading).first().way


@pytest.mark.parametrize("error", [WorkerUnavailable, EngineFailed])
def test_only_a_placement_that_will_not_load_is_avoided(
    error: type[SpecchatError], mixture: Loading, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost worker says nothing of the placement: it may be the one that is used from then on."""
    best = first_way(mixture)

    def timed(_: Loading, plan: Plan) -> placement_tuning.Timed:
        if plan.way == best:
            raise error("gone")
        if "4096" in plan.way:
            raise OutOfMemory("too large")
        return placement_tuning.Timed(plan.way, plan.way, 0.05, 20.0, 100.0)

    monkeypatch.setattr(placement_tuning, "time_placement", timed)
    tuning = PlacementTuning()
    tuning.run(mixture)
    (steps,) = json.loads(times_path().read_text("utf-8"))["placements"].values()
    assert best not in steps
    assert [way for way, step in steps.items() if step["seconds"] == NEVER] == [
        way for way, reason in tuning.failed.items() if reason == "too large"
    ]
    assert tuning.used == first_way(mixture) == best
    used = [line for line in tuning.lines() if line.startswith("used from now on: ")]
    assert used == [f"used from now on: {best}: not timed, gone"]
    assert "not timed yet" not in "".join(tuning.lines())


def test_nothing_is_kept_if_no_placement_could_be_timed(
    mixture: Loading, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plans stay as they were, also where all of them failed to load."""

    def fails(*_: object) -> placement_tuning.Timed:
        raise OutOfMemory("too large")

    monkeypatch.setattr(placement_tuning, "time_placement", fails)
    tuning = PlacementTuning()
    tuning.run(mixture)
    assert not times_path().exists()
    assert len(tuning.failed) > 1
    assert list(tuning.lines()) == [f"{way}: not timed, too large" for way in tuning.failed]


def test_the_way_that_is_named_as_used_is_the_one_that_plans_take(
    mixture: Loading, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A little time does not buy half of the context; after an interruption none is named."""

    def timed(_: Loading, plan: Plan) -> placement_tuning.Timed:
        step_s = 0.02 + 0.001 * (plan.ctx > 4096) + 0.01 * ("experts" not in plan.way)
        return placement_tuning.Timed(plan.way, plan.way, step_s, 1 / step_s, 100.0)

    monkeypatch.setattr(placement_tuning, "time_placement", timed)
    tuning = PlacementTuning()
    tuning.run(mixture)
    first, *_ = tuning.lines()
    assert tuning.used == first_way(mixture) == "experts, no draft, context 8192 in f16"
    assert first.startswith("experts, no draft, context 4096 ")
    assert [line for line in tuning.lines() if line.startswith("used from now on: ")] == [
        f"used from now on: {tuning.used}: 47.6 tokens/s, prompts 100.0 tokens/s"
    ]

    def interrupted(*_: object) -> placement_tuning.Timed:
        raise KeyboardInterrupt

    monkeypatch.setattr(placement_tuning, "time_placement", interrupted)
    stopped = PlacementTuning()
    with pytest.raises(KeyboardInterrupt):
        stopped.run(mixture)
    assert not list(stopped.lines())
