"""Tiny models with few layers, and engines that are loaded quickly: few passes are measured."""

from functools import partial

import pytest

from conftest import WriteModel
from specchat.engine import pair_pacing
from specchat.passes import pass_measurement

MEASURED_LENGTHS = (1, 4, 2, 8)
"""Measured once each, where all lengths in four rounds take most of the time to load a model."""


@pytest.fixture(scope="session")
def shallow(tiny: WriteModel) -> WriteModel:
    """Return the writer of tiny models, for two layers: hybrids have one of each sort then."""
    return partial(tiny, num_layers=2)


@pytest.fixture
def full_measurement() -> None:
    """For tests of pacing: measure passes as users' models are measured."""


@pytest.fixture(autouse=True)
def _short_measurement(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pass_measurement, "STEADY", 1000.0)  # however busy this machine is
    if "full_measurement" not in request.fixturenames:
        monkeypatch.setattr(pair_pacing, "TARGET_LENGTHS", MEASURED_LENGTHS)
        monkeypatch.setattr(pass_measurement, "MAX_ROUNDS", 1)
