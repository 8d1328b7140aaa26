"""How models are loaded, and which: the options of `Engine.load` and of the table [model]."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from specchat.options.declarations import Options
from specchat.options.option import Option

SplitMode: TypeAlias = Literal["layer", "row", "none"]
FlashAttention: TypeAlias = Literal["auto", "on", "off"]
CacheType: TypeAlias = Literal["auto", "f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"]

NO_DRAFT = Path("none")
"""Given as draft model, it means to go without one."""

MOST_GPUS = 16
"""ggml's limit (GGML_SCHED_MAX_BACKENDS, llama_max_devices)."""


def _split(given: object) -> tuple[float, ...]:
    """Return the shares of GPUs, given as numbers or as a text with commas."""
    parts: Any = given.split(",") if isinstance(given, str) else given
    if not isinstance(parts, Sequence):
        raise ValueError(given)  # noqa: TRY004  # as for every other wrong value
    shares = tuple(float(part) for part in parts)
    is_right = len(shares) <= MOST_GPUS and all(0 <= share < float("inf") for share in shares)
    if not is_right or (shares and not any(shares)):
        raise ValueError(given)
    return shares


@dataclass(frozen=True, slots=True, kw_only=True)
class PairOptions(Options):
    """What names the models to load, on the command line and in the settings."""

    TABLE: ClassVar = "model"

    pair: Annotated[
        str | None,
        Option("The pair to load, by its name in the catalogue.", metavar="NAME", example="demo"),
    ] = None
    target: Annotated[
        Path | None,
        Option(
            "The target instead of a pair: a GGUF file, or a local model by name.",
            expected="a path or a name",
            metavar="FILE",
            example="~/models/target.gguf",
        ),
    ] = None
    draft: Annotated[
        Path | None,
        Option(
            "Its draft model, or none; if unset, the best one on this machine.",
            expected='a path, a name or "none"',
            metavar="FILE",
            example="~/models/draft.gguf",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions(Options):
    """How models are loaded; None leaves a choice to the plan for this machine."""

    TABLE: ClassVar = "model"

    ctx: Annotated[
        int,
        Option(
            "Context size in tokens; 0 takes the model's own, up to 8192.", minimum=0, maximum=2**27
        ),
    ] = 0
    gpu_layers: Annotated[
        int | None,
        Option("Target layers on the GPU; auto offloads as many as fit.", minimum=0, none="auto"),
    ] = None
    draft_gpu_layers: Annotated[
        int | None,
        Option("Draft model layers on the GPU; auto follows the target.", minimum=0, none="auto"),
    ] = None
    tensor_split: Annotated[
        tuple[float, ...],
        Option(
            "The share of each GPU; by default in proportion to their free memory.",
            convert=_split,
            expected=f'the shares of up to {MOST_GPUS} GPUs, such as "3,1"',
            metavar="SHARES",
            example="3,1",
        ),
    ] = ()
    split_mode: Annotated[
        SplitMode, Option("How several GPUs share a model; none uses only main_gpu.")
    ] = "layer"
    main_gpu: Annotated[
        int, Option("The GPU that is used alone, counted from 0.", minimum=0, maximum=MOST_GPUS - 1)
    ] = 0
    threads: Annotated[
        int | None,
        Option("CPU threads; auto uses the physical cores.", minimum=1, maximum=512, none="auto"),
    ] = None
    batch: Annotated[int, Option("Prompt tokens evaluated at once.", minimum=1, maximum=65536)] = (
        512
    )
    flash_attention: Annotated[FlashAttention, Option("Flash attention.")] = "auto"
    cache_type_k: Annotated[
        CacheType,
        Option(
            "Type of the KV cache's keys; auto: f16, or q8_0 if only that fits the GPU.",
            metavar="TYPE",
        ),
    ] = "auto"
    cache_type_v: Annotated[CacheType, Option("Type of the KV cache's values.", metavar="TYPE")] = (
        "auto"
    )
    mmap: Annotated[bool, Option("Map model files into memory instead of reading them.")] = True
    mlock: Annotated[bool, Option("Lock models in memory, so that they are never swapped out.")] = (
        False
    )
    learn: Annotated[
        bool, Option("Keep what is learned of a pair's speed on this machine for the next session.")
    ] = True
    first_guess: Annotated[
        float | None,
        Option(
            "The acceptance rate that others report for this pair.",
            minimum=0,
            maximum=1,
            is_setting=False,
        ),
    ] = None

    @property
    def draft_layers(self) -> int | None:
        """Layers of the draft model on the GPU: as for the target unless it has its own number."""
        return self.gpu_layers if self.draft_gpu_layers is None else self.draft_gpu_layers
