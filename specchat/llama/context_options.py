"""How a model is loaded and its context made: the options, checked before llama.cpp sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from specchat.errors import InvalidOption
from specchat.planning.host_resources import num_cores

__all__ = [
    "CACHE_TYPES",
    "CacheType",
    "FlashAttention",
    "LoadOptions",
    "SplitMode",
]

SplitMode: TypeAlias = Literal["layer", "row", "none"]
FlashAttention: TypeAlias = Literal["auto", "on", "off"]
CacheType: TypeAlias = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"]

CACHE_TYPES: dict[CacheType, int] = {
    "f32": 0,
    "f16": 1,
    "q4_0": 2,
    "q4_1": 3,
    "q5_0": 6,
    "q5_1": 7,
    "q8_0": 8,
    "bf16": 30,
}
"""ggml's numbers of the types a KV cache may have (enum ggml_type)."""

LARGEST_CONTEXT = 2**27
MOST_GPUS = 16
"""ggml's limit (GGML_SCHED_MAX_BACKENDS, llama_max_devices)."""


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """Options of one model and its context.

    `ctx` 0 means the model's own training length, at most 8192. `gpu_layers` None
    offloads everything where a GPU is usable. `threads` None takes the physical cores. `n_batch` is
    the number of prompt tokens evaluated at once. Several GPUs share the layers in parts of
    `tensor_split`, or as each has memory; with `split_mode` "none" only `main_gpu` is used.
    `is_repacked` copies weights on the CPU into a quicker form. Raises InvalidOption for values
    out of range.
    """

    ctx: int = 0
    gpu_layers: int | None = None
    flash_attention: FlashAttention = "auto"
    cache_type_k: CacheType = "f16"
    cache_type_v: CacheType = "f16"
    threads: int | None = None
    use_mmap: bool = True
    use_mlock: bool = False
    batch: int = 512
    rollback_length: int = 16
    tensor_split: tuple[float, ...] = ()
    split_mode: SplitMode = "layer"
    main_gpu: int = 0
    is_repacked: bool = True

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        _require(
            0 <= self.ctx <= LARGEST_CONTEXT, "ctx must be 0 (the model's own) or more", self.ctx
        )
        _require(
            self.gpu_layers is None or self.gpu_layers >= 0,
            "gpu_layers must be 0 or more",
            self.gpu_layers,
        )
        _require(
            self.threads is None or 1 <= self.threads <= 512,
            "threads must be from 1 to 512",
            self.threads,
        )
        _require(1 <= self.batch <= 65536, "batch must be from 1 to 65536", self.batch)
        _require(
            0 <= self.rollback_length <= 256,
            "rollback_length must be from 0 to 256",
            self.rollback_length,
        )
        for kind in (self.cache_type_k, self.cache_type_v):
            _require(
                kind in CACHE_TYPES, f"a cache type must be one of {', '.join(CACHE_TYPES)}", kind
            )
        _require(
            self.flash_attention in ("auto", "on", "off"),
            "flash_attention must be auto, on or off",
            self.flash_attention,
        )
        _require(
            self.split_mode in ("layer", "row", "none"),
            "split_mode must be layer, row or none",
            self.split_mode,
        )
        _require(0 <= self.main_gpu < MOST_GPUS, "main_gpu must be from 0 to 15", self.main_gpu)
        _require(
            len(self.tensor_split) <= MOST_GPUS
            and all(0 <= share < float("inf") for share in self.tensor_split)
            and (not self.tensor_split or any(self.tensor_split)),
            "tensor_split must be the shares of up to 16 GPUs, 3,1 for instance",
            ",".join(map(str, self.tensor_split)),
        )

    @property
    def num_threads(self) -> int:
        """The number of threads to decode with."""
        return self.threads or num_cores()


def _require(holds: bool, rule: str, value: object) -> None:
    if not holds:
        raise InvalidOption(f"{rule}, not {value}")
