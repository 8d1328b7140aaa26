"""Greedy answers about images are llama-server's, with the same tiny files.

It runs where LLAMA_SERVER in the environment names a llama-server of this release.
"""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from conftest import WriteModel
from engine.test_image_answers import PAIRS, files_of, size_for
from engine.test_images import WriteProjector, loaded, projector, text_about
from image_files import image
from real_model.near_ties import first_difference, logits
from scripts.support.llama_server import ask, running_server
from specchat.requests.answer_request import GenerateRequest

pytestmark = pytest.mark.slow

__all__ = ["projector"]  # a fixture
SERVER = os.environ.get("LLAMA_SERVER", "")
NUM_TOKENS = 40
LIKE_OURS = (
    *("-c", "1024", "-t", "1", "-tb", "1", "-ngl", "0", "-fa", "off", "-ctk", "f32", "-ctv", "f32"),
    *("--no-webui", "--no-mmproj-offload"),
)
NEAR_TIE = 0.01
"""Logits that may lie between two tokens where the texts part: none of them is rounded here."""


@pytest.mark.usefixtures("image_library")
@pytest.mark.skipif(not SERVER, reason="LLAMA_SERVER names no llama-server")
@pytest.mark.parametrize("family", PAIRS)
def test_answers_are_llama_servers(
    shallow: WriteModel, projector: WriteProjector, family: str
) -> None:
    """Two images, with text between and behind them; with drafts, too."""
    shown = [image(seed, size_for(family)) for seed in range(2)]
    text = text_about(*shown)
    asked: dict[str, Any] = {"temperature": 0.0, "max_tokens": NUM_TOKENS, "ignore_end": True}
    files = files_of(shallow, projector, family)
    target = files["target"]
    with running_server(
        Path(SERVER), target, *LIKE_OURS, "--mmproj", str(files["projector"])
    ) as it:
        marker = ask_for_marker(it)
        for each in shown:
            text = text.replace(str(each), marker)
        data = [base64.b64encode(each.data).decode() for each in shown]
        given = {"prompt_string": text, "multimodal_data": data}
        found = ask(
            it, "completion", prompt=given, n_predict=NUM_TOKENS, temperature=0.0,
            ignore_eos=True, cache_prompt=False, return_tokens=True,
        )["tokens"]  # fmt: skip
    with loaded(files) as engine:
        for drafter in ("none", "auto", "model"):
            request = GenerateRequest(text_about(*shown), images=shown, drafter=drafter, **asked)
            prompt = engine.prompts.prepare(request)  # keeps the images known
            updates = list(engine.begin(request))
            tokens = [
                token for update in updates for chunk in update.chunks for token in chunk.tokens
            ]
            place = first_difference(tokens, found)
            if place is None:
                continue
            row = logits(engine, prompt.tokens, tokens[: place + 1], 1)[place]
            gap = abs(float(row[tokens[place]] - row[found[place]]))
            print(f"{family}: the texts part at token {place}, {gap:.5f} logits apart")
            assert gap <= NEAR_TIE


def ask_for_marker(address: str) -> str:
    """Return what stands for an image in a prompt of a server."""
    with urlopen(f"{address}/props") as answer:  # noqa: S310 -- the address is ours
        marker: str = json.load(answer)["media_marker"]
    return marker
