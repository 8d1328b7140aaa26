"""What the server needs beside specchat itself. This module loads none of it."""

import importlib.util

from specchat.errors import SpecchatError

NEEDED = ("starlette", "uvicorn", "prometheus_client")


class ServerMissing(SpecchatError):
    """Raised when the packages of the server are not installed."""


def require_packages() -> None:
    """Raise ServerMissing unless all packages of the server are installed."""
    if any(importlib.util.find_spec(name) is None for name in NEEDED):
        raise ServerMissing("the server is not installed: pip install 'specchat[serve]'")
