"""Offline mode: no request is made, in this process and those it starts.

The switch is the environment variable of huggingface_hub; `--offline` and SPECCHAT_OFFLINE set it.
"""

import os

SWITCHES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
ON = {"1", "on", "yes", "true"}
"""The values that huggingface_hub reads as yes."""


def go_offline() -> None:
    """Turn offline mode on."""
    os.environ[SWITCHES[0]] = "1"


def is_offline() -> bool:
    """Return True in offline mode; the first variable that is set decides."""
    return next((text for name in SWITCHES if (text := os.environ.get(name))), "").lower() in ON
