"""Tests on a real device, which `scripts/test --device` runs; skipped by name elsewhere."""

import os
from pathlib import Path
from typing import Any

import pytest

from conftest import WriteModel
from device_options import WritePair
from scripts.setup_env.devices import OPTION, VARIABLE
from specchat.engine import pair_pacing
from specchat.llama.device_list import list_devices
from specchat.planning.device import Device, gpus_of

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests of this folder where no device was asked for."""
    if VARIABLE in os.environ:
        return
    for item in items:
        if item.path.is_relative_to(HERE):
            name = getattr(item, "originalname", item.name)
            reason = f"{name} needs a device: scripts/test {OPTION} vulkan"
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(autouse=True)
def _few_passes_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure short passes only, and briefly: long ones take kernels of their own."""
    monkeypatch.setattr(pair_pacing, "MOST_SECONDS", 0.1)
    monkeypatch.setattr(pair_pacing, "TARGET_LENGTHS", (1, 4))
    monkeypatch.setattr(pair_pacing, "DRAFT_LENGTHS", (1, 2))


@pytest.fixture(scope="session")
def device() -> Device:
    """Return the device that llama.cpp offloads to."""
    found = gpus_of(list_devices())
    assert found, "llama.cpp finds no device: its build or the driver is wrong"
    return found[0]


@pytest.fixture(scope="session")
def pair(tiny: WriteModel) -> WritePair:
    """Return a writer of a target of two layers and a draft that is half right."""

    def write(architecture: str, **options: Any) -> tuple[Path, Path]:
        options = {"num_layers": 2, **options}
        return tiny(architecture, **options), tiny(architecture, "half right", **options)

    return write
