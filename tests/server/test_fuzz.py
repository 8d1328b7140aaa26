"""What no client should send is refused in the API's own shape, and harms nothing."""

from __future__ import annotations

import pytest

from scripts.support.server_fuzz import fuzz
from server.conftest import Running
from specchat.server.replies import LOG
from specchat.system.logs import log_size


@pytest.mark.parametrize("seed", range(2))
def test_odd_requests_are_refused_well(demo_server: Running, seed: int) -> None:
    """No fault, no internal error, and a normal request is answered afterwards."""
    logged = log_size(LOG)

    assert fuzz(demo_server.address, seed, 100) == []

    assert log_size(LOG) == logged
    assert demo_server.chat(max_tokens=2)["usage"]["completion_tokens"] == 2
