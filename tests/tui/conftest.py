"""Fixtures shared by the tests of the chat."""

from __future__ import annotations

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """Run coroutines as Textual does."""
    return "asyncio"
