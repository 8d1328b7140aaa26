"""Offline mode: nothing is asked of the network, whatever else is wanted.

One switch for specchat, huggingface_hub and every process started from here: the environment
variable of huggingface_hub. specchat's own `--offline` and SPECCHAT_OFFLINE set it.
"""

from __future__ import annotations

import os

__all__ = ["go_offline", "is_offline"]

SWITCHES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
ON = {"1", "on", "yes", "true"}
"""The words that huggingface_hub takes for yes."""


def go_offline() -> None:
    """Ask nothing of the network from here on, in this process and those it starts."""
    os.environ[SWITCHES[0]] = "1"


def is_offline() -> bool:
    """Say whether the network is to be left alone; the first variable that is set decides."""
    return next((text for name in SWITCHES if (text := os.environ.get(name))), "").lower() in ON
