"""A device's memory: rolled back, planned, and running out."""

import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from conftest import WriteModel
from device_options import ALL, EXACT, SHORT_PASS, WritePair
from llama_log import listening
from memory_bench import bench
from scripts.support.tiny_gguf import Shape, write_hollow
from specchat.engine import loader, pair_pacing
from specchat.engine.api import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.llama.device_list import list_devices
from specchat.llama.library import AbortFlag
from specchat.planning.device import Device, gpus_of

TEXT = [3 + 7 * place % 240 for place in range(30)]
DRAFT = [50, 60, 70, 80, 90]
LONG = Shape(2048, num_layers=32, width=1024, feed_forward=256, head_width=64)
"""A text's memory of 64 KiB per token. CUDA has flash attention for heads of this width."""
OWN_MEMORY = 2**30
"""What CUDA may take for itself in each process: about 700 MiB on an H200."""
ARCHITECTURES = ["llama", "gemma3", "lfm2", "qwen35", "mamba", "granitehybrid"]


@pytest.fixture(scope="module")
def hungry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a model that wants much memory for its context."""
    return write_hollow(tmp_path_factory.mktemp("fit") / "hungry.gguf", "llama", LONG)


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_rolled_back_tokens_leave_no_trace_on_the_device(
    tiny: WriteModel, architecture: str
) -> None:
    """Attention, sliding window, hybrids and recurrent: as if the tokens had never been there."""
    options = {"gpu_layers": ALL, "batch": SHORT_PASS, "ctx": 256}
    with bench(tiny, architecture, fresh_batch=SHORT_PASS, **options) as it:
        it.memory.prefill(TEXT)
        for num_kept in (5, 3, 0):
            length = it.memory.length
            it.memory.mark()
            it.memory.evaluate(DRAFT, len(DRAFT))
            it.memory.rollback(length + num_kept)
            it.memory.mark()
            it.require_right()


def test_a_context_beyond_the_device_gets_a_plan_that_fits(hungry: Path, device: Device) -> None:
    """Layers stay on the CPU, and the facts say how many."""
    ctx = int(1.5 * device.free / (64 * 1024))
    with LocalEngine(Loading(hungry, **EXACT | {"ctx": ctx, "cache_type": "f16"})) as engine:
        assert engine.facts.context == ctx
        assert f"on {device.name}" in engine.facts.plan
        (notice,) = engine.facts.notices
        assert notice.startswith("memory is short: ")
        assert "of 33 layers of the target run on the CPU" in notice
        assert sum(len(chunk.tokens) for chunk in engine.generate([5, 6, 7], max_tokens=3)) == 3


SHORT_OF_MEMORY = """
import resource, sys
from contextlib import ExitStack
from pathlib import Path
from specchat.engine import loader, pair_pacing
from specchat.engine.api import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.llama.library import AbortFlag

def load(**options):
    with ExitStack() as stack:
        loading = Loading(Path(sys.argv[1]), None, **options)
        return loader.load_pair(loading, AbortFlag(), stack, lambda *_: None).plan

load(ctx=256)  # what is loaded once is there
size = next(line for line in open("/proc/self/status") if line.startswith("VmSize"))
limit = int(size.split()[1]) * 1024 + int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
plan = load()
print(plan.ctx, plan.gpu_layers)
print(plan.notice)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and RLIMIT_AS")
def test_a_device_with_less_memory_than_it_reports_gets_the_next_plan(
    hungry: Path, device: Device
) -> None:
    """The driver refuses what was planned, and the smaller plan that is loaded is reported.

    Only the software renderer's memory can be limited; a GPU's is what it is.
    """
    if not device.description.startswith("llvmpipe"):
        pytest.skip(f"the memory of {device.description} cannot be limited")
    done = subprocess.run(
        [sys.executable, "-c", SHORT_OF_MEMORY, str(hungry), str(700 * 2**20)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    context, notice = done.stdout.splitlines()
    assert context == "4096 33"
    assert notice.startswith(
        "less memory was free than reported, so the plan is: target on the GPU, context"
    )


def test_a_plan_is_what_llama_cpp_allocates(hungry: Path, device: Device) -> None:
    """Weights, KV cache and work space on the device, within 10 %."""
    loading = Loading(hungry, None, ctx=4096)
    with ExitStack() as stack, listening() as log:
        pair = loader.load_pair(loading, AbortFlag(), stack, lambda *_: None)
        needs = pair.plan.needs
    buffers = re.findall(rf"{device.name} +\w+ buffer size = +([\d.]+) MiB", "".join(log))

    assert len(buffers) == 3
    assert needs[1].total == pytest.approx(2**20 * sum(map(float, buffers)), rel=0.1)


HOLDS_MEMORY = """
import sys
from contextlib import ExitStack
from pathlib import Path
from specchat.engine import loader
from specchat.engine.api import Loading
from specchat.llama.library import AbortFlag

with ExitStack() as stack:
    loading = Loading(Path(sys.argv[1]), ctx=4096)
    pair = loader.load_pair(loading, AbortFlag(), stack, lambda *_: None)
    print(pair.plan.needs[1].total, flush=True)
    sys.stdin.read()
"""


def test_memory_that_another_process_holds_is_not_planned_with(
    hungry: Path, device: Device
) -> None:
    """The device reports less free memory, so a plan for it takes less."""
    command = [sys.executable, "-c", HOLDS_MEMORY, str(hungry)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout
        held = int(other.stdout.readline())
        (now, *_) = gpus_of(list_devices())
        other.communicate()
    assert held > 2**27
    if now.free == device.free:
        pytest.skip(f"{device.description} does not count what other processes hold")
    assert 0.9 * held <= device.free - now.free <= 1.1 * held + OWN_MEMORY


def test_passes_are_measured_once_for_a_device_and_its_layers(
    pair: WritePair, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pair on the CPU has costs of its own."""
    files = pair("llama")
    reports: list[str] = []

    def load(layers: int) -> dict[int, float]:
        """Load and prepare the pair, and return the seconds of its passes."""
        reports.clear()
        options = EXACT | {"learn": True, "gpu_layers": layers}
        with LocalEngine(Loading(*files, **options)) as it:
            assert it.prepare(lambda stage, _: reports.append(stage))
            assert (device.name in it.facts.plan) == bool(layers)
            assert sum(len(chunk.tokens) for chunk in it.generate([5, 6, 7], max_tokens=12)) == 12
            return it.pacing.pass_costs(8)

    costs = load(ALL)
    assert "measuring" in reports
    assert 0 < costs[1] < 5
    monkeypatch.setattr(pair_pacing, "measure_passes", pytest.fail)
    load(ALL)
    assert "measuring" not in reports
    monkeypatch.undo()
    load(0)
    assert "measuring" in reports
