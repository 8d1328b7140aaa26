"""TCP keep-alive: the system's own check that a silent peer is still there."""

import socket
from contextlib import suppress

IDLE_SECONDS, INTERVAL_SECONDS, NUM_PROBES = 15, 5, 3
"""Seconds of silence before the first probe, seconds between probes, and unanswered probes."""
LIMIT_SECONDS = IDLE_SECONDS + INTERVAL_SECONDS * NUM_PROBES
USER_TIMEOUT = "TCP_USER_TIMEOUT"
VALUES = {
    "TCP_KEEPIDLE": IDLE_SECONDS,
    "TCP_KEEPALIVE": IDLE_SECONDS,  # what macOS calls it
    "TCP_KEEPINTVL": INTERVAL_SECONDS,
    "TCP_KEEPCNT": NUM_PROBES,
    USER_TIMEOUT: 1000 * LIMIT_SECONDS,  # where sent bytes wait, Linux asks nothing
}


def keep_alive_options(*, may_read_late: bool = False) -> list[tuple[int, int, int]]:
    """Return the level, name and value of each socket option that this system has.

    A peer that `may_read_late` is not given up for leaving sent data unacknowledged.
    """
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in VALUES.items():
        if hasattr(socket, name) and not (may_read_late and name == USER_TIMEOUT):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


def keep_alive(connection: socket.socket) -> None:
    """Let the system end a connection whose other machine is gone, as well as it can."""
    for level, name, value in keep_alive_options():
        with suppress(OSError):
            connection.setsockopt(level, name, value)
