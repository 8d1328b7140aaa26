"""What the tests of networks have in common: a hub with TLS, and no proxies of this machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from certificate_authority import VARIABLES, Authority, write_authority
from hub_server import HubServer


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Return an authority that certifies a server on this machine."""
    if shutil.which("openssl") is None:
        pytest.skip("this machine has no openssl program")
    return write_authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def tls_hub(
    hub: HubServer, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> Iterator[HubServer]:
    """Return a hub that speaks TLS with a certificate of the authority."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    with HubServer(certificate=authority.server) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.address)
        yield server


@pytest.fixture
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove all variables that name proxies."""
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
