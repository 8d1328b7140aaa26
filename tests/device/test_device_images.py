"""An encoder of images on the device: placed by the plan, in its memory, with the CPU's text."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from conftest import WriteModel
from device_options import ALL, EXACT
from image_files import image
from llama_log import listening
from scripts.support.tiny_gguf import write_projector
from specchat.engine.api import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.llama import mtmd_library
from specchat.llama.library import api, log_callback
from specchat.planning.device import Device
from specchat.planning.planner import PROJECTOR_WORK, Planner

pytestmark = pytest.mark.usefixtures("device", "image_library")
KINDS = {"llama": "mlp", "gemma3": "gemma3", "qwen2vl": "qwen2vl_merger"}
MIB = 2**20


@contextmanager
def encoder_log() -> Iterator[list[str]]:
    """Return what llama.cpp's library for images logs."""
    mtmd: Any = mtmd_library.load()
    with listening():
        lines: list[str] = []
        callback = api.llama_log_callback(lambda _level, text, _data: lines.append(text.decode()))
        mtmd.mtmd_helper_log_set(callback, None)
        try:
            yield lines
        finally:
            mtmd.mtmd_helper_log_set(log_callback(), None)


@pytest.mark.parametrize("family", KINDS)
def test_an_encoder_on_the_device_changes_no_token(
    tiny: WriteModel,
    tmp_path: Path,
    device: Device,
    monkeypatch: pytest.MonkeyPatch,
    family: str,
) -> None:
    """Nor do drafts after an image that it encoded; without room it is on the CPU."""
    target, draft = (tiny(family, kind, num_layers=2) for kind in ("right", "half right"))
    projector = write_projector(tmp_path / "mmproj.gguf", KINDS[family])
    shown = image(1)
    answers: list[list[int]] = []
    for place in (device.name, "CPU"):
        loading = Loading(target, draft, projector=projector, gpu_layers=ALL, **EXACT)
        with encoder_log() as log, LocalEngine(loading) as engine:
            for drafter in ("none", "model"):
                chunks = engine.generate(
                    f"what {shown} is this? It is",
                    images=[shown],
                    temperature=0.0,
                    max_tokens=12,
                    drafter=drafter,
                    draft_length=3,
                )
                answers.append([token for chunk in chunks for token in chunk.tokens])
        assert re.findall(r"CLIP using (\w+)", "".join(log)) == [place]
        monkeypatch.setattr(Planner, "has_room_for_projector", lambda *_: False)
    assert answers == [answers[0]] * 4


def test_the_memory_of_an_encoder_is_what_is_planned_for_it(
    tiny: WriteModel, tmp_path: Path, device: Device
) -> None:
    """Of the width and the patches of Gemma 3's, but of few layers: its buffers are of any depth's.

    Nothing is encoded for that, which takes minutes on a software renderer.
    """
    sizes: dict[str, Any] = {"width": 1152, "feed_forward": 4304, "num_heads": 16, "num_layers": 1}
    path = tmp_path / "mmproj.gguf"
    projector = write_projector(path, "gemma3", **sizes, image_side=896, patch_side=14, merged=4)
    mtmd: Any = mtmd_library.load()
    loading = Loading(tiny("gemma3", num_layers=2), projector=projector, gpu_layers=ALL, **EXACT)
    with encoder_log() as log, LocalEngine(loading) as engine:
        parameters = mtmd.mtmd_context_params_default()  # which reserves memory at once
        encoder = mtmd.mtmd_init_from_file(str(path).encode(), engine.model.handle, parameters)
        assert encoder
        mtmd.mtmd_free(encoder)
    text = "".join(log)
    (weights,) = re.findall(r"model size: +([\d.]+) MiB", text)
    assert float(weights) * MIB == pytest.approx(path.stat().st_size, rel=0.02)
    (work,) = re.findall(rf"{device.name} compute buffer size = +([\d.]+) MiB", text)
    assert PROJECTOR_WORK / 4 < float(work) * MIB < PROJECTOR_WORK
