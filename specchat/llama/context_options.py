"""How one model is loaded and its context made, checked before llama.cpp sees it."""

from dataclasses import dataclass
from typing import get_args

from specchat.gguf.tensor_types import STORED_TYPES
from specchat.options import CacheType, LoadOptions, declare
from specchat.planning.host_resources import num_cores

CACHE_TYPES: dict[str, int] = {
    kind.name: number for number, kind in STORED_TYPES.items() if kind.name in get_args(CacheType)
}
"""ggml's numbers of the types a KV cache may have."""

USUAL_CACHE_TYPE: CacheType = "f16"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions(LoadOptions):
    """How one model of a pair is loaded, and its context: what the plan chose.

    `rollback_length` is the number of tokens that can be taken back. `is_repacked` copies weights
    on the CPU into a faster form.
    """

    rollback_length: int = declare(
        16, "Tokens that can be rolled back.", minimum=0, maximum=256, is_setting=False
    )
    is_repacked: bool = True

    def __post_init__(self) -> None:
        """Check every value; replace "auto" cache types by the usual ones."""
        LoadOptions.__post_init__(self)
        for name in ("cache_type_k", "cache_type_v"):
            if getattr(self, name) == "auto":
                object.__setattr__(self, name, USUAL_CACHE_TYPE)

    @property
    def num_threads(self) -> int:
        """The number of threads to decode with."""
        return self.threads or num_cores()
