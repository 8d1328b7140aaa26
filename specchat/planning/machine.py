"""What this machine can hold, without starting llama.cpp, so that a list appears at once.

Only llama.cpp knows which GPUs it can use; what it last reported is kept in a file.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from specchat.planning.device import Device
from specchat.planning.host_resources import available_bytes
from specchat.private_files import read_json, write_json


@dataclass(frozen=True, slots=True)
class Machine:
    """The host's free bytes and its GPUs; None where they are not known."""

    free: int | None
    gpus: tuple[Device, ...] | None = None

    @property
    def room_on_gpus(self) -> int:
        """The bytes for models on all GPUs together; integrated ones share the host's."""
        total = sum(gpu.room for gpu in self.gpus or ())
        is_shared = any(gpu.kind == "integrated" for gpu in self.gpus or ())
        return min(total, self.free or 0) if is_shared else total

    @property
    def room_in_all(self) -> int:
        """The bytes for models on the host and on GPUs with memory of their own."""
        return (self.free or 0) + sum(gpu.room for gpu in self.gpus or () if gpu.kind == "gpu")


def find_machine() -> Machine:
    """Return the free memory and the GPUs that llama.cpp last reported."""
    return Machine(available_bytes(), read_json(gpus_path(), tuple[Device, ...], None))


def gpus_path() -> Path:
    """Return the path of the file with the GPUs."""
    return Path(platformdirs.user_state_path("specchat", appauthor=False)) / "gpus.json"


def keep_gpus(gpus: Iterable[Device]) -> None:
    """Keep the GPUs that llama.cpp can use, as far as the file can be written."""
    with suppress(OSError):
        write_json(gpus_path(), list(gpus))
