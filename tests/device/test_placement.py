"""Where a pair's layers are changes nothing in what it answers."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import WriteModel
from device_options import ALL, EXACT, PROMPT, WritePair
from llama_log import listening
from specchat.engine.api import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.engine.losslessness import PromptCheck, check_prompt
from specchat.planning.device import Device

PLACES = {
    "all on the CPU": (0, 0),
    "some layers on the device": (1, 0),
    "target on the device": (ALL, 0),
    "draft on the device": (0, ALL),
    "all on the device": (ALL, ALL),
}
CASES = [
    *(("llama", place) for place in PLACES),
    *((name, "all on the device") for name in ("gemma3", "lfm2", "mamba", "qwen35")),
]
"""Every place with one architecture, and every kind of memory on the device."""
NUM_TOKENS = 32


def load(files: tuple[Path, Path], **options: Any) -> LocalEngine:
    """Load a pair into this process."""
    return LocalEngine(Loading(*files, **EXACT | options))


def require_lossless(engine: LocalEngine, draft_length: int) -> PromptCheck:
    """Decode with and without drafts; only a near tie may part the answers, and is printed."""
    check = check_prompt(engine, "", PROMPT, NUM_TOKENS, draft_length)
    size = f"gap {check.gap:.2g}, rounding {check.rounding:.2g}"
    if check.parted_at is not None:
        print(f"near tie at token {check.parted_at}: {size}")
    assert check.drafted > 0
    assert check.is_lossless, f"parted at token {check.parted_at}: {size}"
    return check


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize(("architecture", "place"), CASES)
def test_greedy_answers_are_plain_decodings_wherever_the_layers_are(
    pair: WritePair, architecture: str, place: str
) -> None:
    """As `specchat check` compares them; llama.cpp's log confirms how many layers are offloaded."""
    layers, draft_layers = PLACES[place]
    with listening() as log:
        engine = load(pair(architecture), gpu_layers=layers, draft_gpu_layers=draft_layers)
        offloaded = re.findall(r"offloaded (\d+)/\d+ layers", "".join(log))
    whole = 3  # two layers and the output
    expected = [str(min(number, whole)) for number in (layers, draft_layers)]
    with engine:
        assert offloaded == expected
        for draft_length in (2, 6):
            require_lossless(engine, draft_length)


@pytest.mark.parametrize("cache_type", ["f32", "f16"])
def test_every_type_of_cache_decodes_as_plainly(
    tiny: WriteModel, device: Device, cache_type: str
) -> None:
    """Quantized types need flash attention, which is off in the tests on a device."""
    model = tiny("llama", num_layers=2, width=64, head_width=32)
    with load((model, model), gpu_layers=ALL, cache_type=cache_type) as engine:
        assert device.name in engine.facts.plan
        assert require_lossless(engine, 3).acceptance_rate > 0.9


def test_a_prompt_in_long_passes_is_what_single_tokens_make_of_it(
    pair: WritePair, device: Device
) -> None:
    """The kernels for many tokens give the same most likely token as those for one."""
    prompt = [3 + 7 * place % 240 for place in range(40)]
    answers = []
    for batch in (1, 64):
        with load(pair("llama"), gpu_layers=ALL, batch=batch) as engine:
            assert device.name in engine.facts.plan
            chunks = engine.generate(prompt, temperature=0.0, max_tokens=4, drafter="none")
            answers.append([token for chunk in chunks for token in chunk.tokens])
    assert answers[0] == answers[1]


@pytest.mark.parametrize(("architecture", "part"), [("llama", "ffn"), ("qwen3moe", "experts")])
def test_parts_on_the_cpu_change_no_token(
    pair: WritePair, device: Device, architecture: str, part: str
) -> None:
    """Drafts are verified as plain decoding goes, and the text is the one without the CPU."""
    answers = []
    for placement in ("none", part):
        options = {"gpu_layers": ALL, "draft_gpu_layers": ALL, "on_cpu": placement}
        with load(pair(architecture), **options) as engine:
            assert device.name in engine.facts.plan
            assert ("but for the" in engine.facts.plan) == (placement != "none")
            require_lossless(engine, 3)
            chunks = engine.generate(PROMPT, temperature=0.0, max_tokens=12, drafter="none")
            answers.append([token for chunk in chunks for token in chunk.tokens])
    assert answers[0] == answers[1]


ON_TWO_DEVICES = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[1].split(":")
from device_options import ALL, EXACT
from device.test_placement import load, require_lossless
from specchat.llama.device_list import list_devices
from specchat.planning.device import gpus_of

print(*[gpu.name for gpu in gpus_of(list_devices())])
with load((Path(sys.argv[2]), Path(sys.argv[3])), gpu_layers=ALL, tensor_split=(1, 1)) as engine:
    print(engine.facts.plan)
    require_lossless(engine, 3)
"""


def test_two_devices_share_a_model(
    pair: WritePair, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is one device, llama.cpp takes it twice if it is named twice."""
    if device.name != "Vulkan0":
        pytest.skip(f"{device.name} cannot be named twice")
    monkeypatch.setenv("GGML_VK_VISIBLE_DEVICES", "0,0")
    command = [sys.executable, "-c", ON_TWO_DEVICES, ":".join(sys.path), *map(str, pair("llama"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    names, plan = done.stdout.splitlines()[:2]
    assert names == "Vulkan0 Vulkan1"
    assert "on Vulkan0" in plan
    assert "on Vulkan1" in plan
