"""What tests of derivation share: room for answers, however full the disk is."""

from __future__ import annotations

import pytest

from specchat.derivation import answer_store


@pytest.fixture(autouse=True)
def _room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the store keep answers where less is free than it leaves to the user."""
    monkeypatch.setattr(answer_store, "LEAST_FREE", 0)
