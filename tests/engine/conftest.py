"""Engines of tiny models are loaded quickly: few of their passes are measured."""

import pytest

from specchat.engine import pair_pacing
from specchat.pacing import pass_measurement

MEASURED_LENGTHS = (1, 4, 2, 8)
"""Measured once each, where all lengths in four rounds take most of the time to load a model."""


@pytest.fixture
def full_measurement() -> None:
    """For tests of pacing: measure passes as users' models are measured."""


@pytest.fixture(autouse=True)
def _short_measurement(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "full_measurement" not in request.fixturenames:
        monkeypatch.setattr(pair_pacing, "TARGET_LENGTHS", MEASURED_LENGTHS)
        monkeypatch.setattr(pass_measurement, "MAX_ROUNDS", 1)
