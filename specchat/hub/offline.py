"""The offline mode, in which nothing asks the hub or any other machine on the network."""

import os

OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
"""The switches of huggingface_hub; `--offline` and SPECCHAT_OFFLINE set the first."""

ON = {"1", "on", "yes", "true"}
"""Values that huggingface_hub reads as true."""


def go_offline() -> None:
    """Switch offline mode on, for this process and those it starts."""
    os.environ[OFFLINE[0]] = "1"


def is_offline() -> bool:
    """Return True in offline mode; the first environment variable that is set decides."""
    return next((text for name in OFFLINE if (text := os.environ.get(name))), "").lower() in ON
