"""The end of the chat by a signal."""

import asyncio
import signal
from contextlib import suppress
from functools import partial

from textual.app import App


def exit_on_sigterm(app: App[None]) -> None:
    """Leave the terminal as it was, and store the answer, on SIGTERM.

    Not on SIGHUP, which ends the process at once: writing to a terminal that is gone may block.
    """
    with suppress(NotImplementedError, RuntimeError):  # Windows, and other threads
        end = partial(app.exit, return_code=128 + signal.SIGTERM)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end)
