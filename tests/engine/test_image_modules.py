"""Texts load nothing of what images need: it comes with a projector, or with the first image."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from conftest import WriteModel
from scripts.support.tiny_gguf import write_projector

ROOT = Path(__file__).parents[2]
ANSWER = """
import sys
from pathlib import Path
from specchat.engine.api import Loading
from specchat.engine.local_engine import LocalEngine

target, *projector = map(Path, sys.argv[1:])
loading = Loading(target, projector=projector[0] if projector else None, ctx=256, threads=1)
with LocalEngine(loading) as engine:
    assert "".join(chunk.text for chunk in engine.generate("What?", max_tokens=4))
    maps = Path("/proc/self/maps")
    print("mtmd" in maps.read_text() if maps.exists() else False, *sys.modules)
"""
FOR_IMAGES = {
    "PIL",
    "llama_cpp.mtmd_cpp",
    "specchat.images.decoder",
    "specchat.images.picture",
    "specchat.llama.encoder_stop",
    "specchat.llama.kept_images",
    "specchat.llama.mtmd_library",
    "specchat.llama.vision",
}
WITH_A_PROJECTOR = {name for name in FOR_IMAGES if name.startswith("specchat.")}


@pytest.mark.parametrize("has_projector", [False, True])
def test_an_answer_to_a_text_loads_nothing_of_images(
    tiny: WriteModel, tmp_path: Path, has_projector: bool
) -> None:
    """Neither code nor llama.cpp's library; with a projector, no more than a little code."""
    files = [tiny("llama", num_layers=2)]
    if has_projector:
        files.append(write_projector(tmp_path / "mmproj.gguf", "mlp"))
    command = [sys.executable, "-c", ANSWER, *map(str, files)]
    has_library, *modules = subprocess.check_output(command, cwd=ROOT, text=True).split()
    assert has_library == "False"
    assert FOR_IMAGES.intersection(modules) <= (WITH_A_PROJECTOR if has_projector else set())
    assert "specchat.llama.image_reading" in modules  # what contexts need is small
