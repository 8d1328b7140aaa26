"""Tests on a real device, which `scripts/test --device` runs; skipped by name elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from setup_env.devices import OPTION, VARIABLE
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


@pytest.fixture(scope="session")
def device() -> Device:
    """Return the device that llama.cpp offloads to."""
    found = gpus_of(list_devices())
    assert found, "llama.cpp finds no device: its build or the driver is wrong"
    return found[0]
