"""The header of a GGUF file: metadata and tensors; split files count as one model."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from specchat.gguf.tensor_types import FILE_TYPES, STORED_TYPES

SCALINGS = frozenset({"linear", "yarn", "longrope"})
"""llama.cpp's methods of scaling positions."""


@dataclass(frozen=True, slots=True)
class LongArray:
    """An array left in the file: `length` values of `kind`, from byte `position` on.

    A string too long to keep is one of kind "text", its length in bytes.
    """

    kind: str
    length: int
    position: int


Value: TypeAlias = bool | int | float | str | tuple[bool | int | float | str, ...] | LongArray


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor: its shape in ggml's order (the contiguous dimension first) and type."""

    name: str
    shape: tuple[int, ...]
    stored: int
    """ggml's number of the type, a key of STORED_TYPES."""
    offset: int = field(default=0, compare=False)
    """The position of its data in bytes, from where the data of its file begins."""

    @property
    def num_values(self) -> int:
        """The number of weights."""
        return math.prod(self.shape)

    @property
    def num_bytes(self) -> int:
        """The size of its data in bytes."""
        kind = STORED_TYPES[self.stored]
        return self.num_values // kind.num_values * kind.num_bytes


@dataclass(frozen=True)
class Header:
    """A model's header; `parts` are all its files, in order.

    Only the format is checked: llama.cpp may refuse the model. Every draft, a head included, has a
    header like a model's.
    """

    parts: tuple[Path, ...]
    metadata: Mapping[str, Value]
    tensors: Mapping[str, Tensor]
    file_bytes: int
    """The size of all files in bytes."""
    draft_kind: str = "model"
    """The name of its row in `specchat.gguf.draft_kinds`."""
    data_position: int = 0
    """Where the tensors' data begins, in bytes; 0 if not read, or if there are several files."""
    is_whole: bool = True
    """False if only its beginning was read, without the tensors."""

    @property
    def path(self) -> Path:
        """The first file, which stands for the model."""
        return self.parts[0]

    @property
    def name(self) -> str:
        """The model's name in its metadata, or the file's name."""
        return self.text("general.name") or self.path.stem

    @property
    def architecture(self) -> str:
        """The architecture's name in llama.cpp."""
        return self.text("general.architecture") or "unknown"

    @property
    def num_layers(self) -> int:
        """The number of layers, including MTP layers; 0 if unknown."""
        return self.own("block_count")

    @property
    def num_heads(self) -> int:
        """The number of prediction heads (MTP), which count as layers."""
        return self.own("nextn_predict_layers")

    @property
    def training_context(self) -> int:
        """The context size in training, in tokens; 0 if unknown."""
        return self.own("context_length")

    @property
    def longest_context(self) -> int:
        """The largest context size that the model supports, in tokens; 0 if unknown.

        Scaled positions (YaRN and others) reach beyond the training context, which some files give
        as the context size.
        """
        original = self.own("rope.scaling.original_context_length")
        factor = self.metadata.get(f"{self.architecture}.rope.scaling.factor", 1.0)
        if self.text(f"{self.architecture}.rope.scaling.type") in SCALINGS:
            scaled = original * factor if isinstance(factor, float | int) else 0
            return max(self.training_context, int(scaled) if math.isfinite(scaled) else 0)
        return self.training_context

    @property
    def num_positions(self) -> int:
        """The size of a table of absolute positions, such as GPT-2's; 0 for a model without one.

        llama.cpp ends the process at a position beyond its end.
        """
        table = self.tensors.get("position_embd.weight")
        return table.shape[-1] if table else 0

    @property
    def chat_template(self) -> str | None:
        """The chat template in Jinja, None without one."""
        return self.text("tokenizer.chat_template") or None

    @cached_property
    def num_bytes(self) -> int:
        """The size of all weights in bytes."""
        return sum(tensor.num_bytes for tensor in self.tensors.values())

    @cached_property
    def num_parameters(self) -> int:
        """The number of weights."""
        return sum(tensor.num_values for tensor in self.tensors.values())

    @property
    def active_share(self) -> float:
        """The share of a mixture's experts that one token uses, 1 for other models."""
        num_experts, num_used = self.own("expert_count"), self.own("expert_used_count")
        return num_used / num_experts if 0 < num_used < num_experts else 1.0

    @property
    def quantisation(self) -> str:
        """The quantization's name as in file names, such as "Q4_K_M"."""
        name = FILE_TYPES.get(self.number("general.file_type", -1))
        if name or not self.tensors:
            return name or "unknown"
        sizes: Counter[int] = Counter()
        for tensor in self.tensors.values():
            sizes[tensor.stored] += tensor.num_bytes
        return STORED_TYPES[max(sizes, key=sizes.__getitem__)].name.upper()

    def text(self, key: str) -> str:
        """Return a string from the metadata, "" if missing."""
        value = self.metadata.get(key)
        return value if isinstance(value, str) else ""

    def number(self, key: str, default: int = 0) -> int:
        """Return an integer from the metadata, the default if missing."""
        value = self.metadata.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else default

    def own(self, key: str, default: int = 0) -> int:
        """Return an integer of the architecture's own keys, such as "attention.head_count"."""
        return self.number(f"{self.architecture}.{key}", default)
