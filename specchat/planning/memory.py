"""The memory that llama.cpp needs for a model and its context, computed from the file's header.

Weights and caches are exact. The compute buffer is an estimate of the results alive at once in a
pass, measured for each kind of layer.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TypeAlias

from specchat.gguf.draft_kinds import DraftKind, kind_of
from specchat.gguf.header import Header
from specchat.gguf.reduced_vocabulary import MAP
from specchat.gguf.tensor_types import STORED_TYPES
from specchat.options.declarations import Part
from specchat.planning.context_shape import ContextShape
from specchat.planning.model_layout import BLOCK, Layer, ModelLayout, layout_of
from specchat.planning.placement import NONE_KEPT, BlocksOnHost, part_of
from specchat.planning.token_time import Reads

HOST = 0
"""The index of the host among the devices; GPUs are counted from 1."""
FLOAT = 4
OUTPUT = ("output", "fc.", "enc.", MAP)
"""Name prefixes of the tensors that are on the output's device."""
Place: TypeAlias = tuple[int | None, Part | None, str]
"""A layer, a part of it, and a matrix of that part."""
BITS = {kind.name: 8 * kind.num_bytes / kind.num_values for kind in STORED_TYPES.values()}


@dataclass(frozen=True, slots=True)
class Need:
    """The memory needed on one device, in bytes: weights, KV cache and states, compute buffer."""

    weights: int = 0
    cache: int = 0
    work: int = 0

    @property
    def total(self) -> int:
        """The sum in bytes."""
        return self.weights + self.cache + self.work

    def __add__(self, other: "Need") -> "Need":
        return Need(self.weights + other.weights, self.cache + other.cache, self.work + other.work)


class Sizes:
    """Computes a model's memory for any context and any placement of its layers."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self.layout: ModelLayout = layout_of(header)
        self.num_layers = len(self.layout.layers)

    @property
    def kind(self) -> DraftKind:
        """The kind of model, which says what it reads and how it is run."""
        return kind_of(self.header)

    def is_part_of(self, target: "Sizes") -> bool:
        """Return True for a prediction head in its target's file."""
        return self.kind.is_head and self.header.parts == target.header.parts

    def needs(
        self,
        shape: ContextShape,
        devices: Sequence[int],
        kept: BlocksOnHost = NONE_KEPT,
        copies_to: int | None = None,
    ) -> tuple[Need, ...]:
        """Return the memory needed on each device, the host first.

        `devices` has the device of each layer and of the output, as `devices_of_layers` returns it;
        the host has those parts that are `kept` there. Long passes compute them on the device
        `copies_to`, if any, to which llama.cpp copies one tensor after the other.
        """
        weights = self._weights(devices, kept)
        placed = list(enumerate(zip(self.layout.layers, devices, strict=False)))
        needs = []
        for device in range(max(*devices, HOST) + 1):
            here = [(number, layer) for number, (layer, where) in placed if where == device]
            layers = [layer for _, layer in here]
            cache = sum(self._cache(layer, shape) for layer in layers)
            left = kept.blocks if device != copies_to else ()
            alive = [self._alive(layer, shape, number in left) for number, layer in here]
            if device == HOST and copies_to is None:  # its input is counted with those of the pass
                alive += [self.layout.layers[number].feed_forward for number in kept.blocks]
            work = self._work(layers, max(alive, default=0), shape, devices[-1] == device)
            if device == HOST:
                is_alone = all(where == HOST for where in devices)
                masks = 0 if is_alone else self._masks(self.layout.layers, shape)
                is_dense = kept.blocks and kept.part == "ffn"  # masks are copied away before it
                work = max(work, masks) if is_dense else work + masks
                work += self._host_work(shape, is_alone=is_alone)
            if device == copies_to:
                work += self._largest_on_host(devices, kept)
            needs.append(Need(weights[device], cache, work))
        return tuple(needs)

    def blocks_with(self, part: Part) -> list[int]:
        """Return the numbers of the blocks that have a part."""
        return sorted({block for block, of, _ in self._sizes if block is not None and of == part})

    def reads(
        self,
        shape: ContextShape,
        devices: Sequence[int],
        kept: BlocksOnHost = NONE_KEPT,
        depth: int = 0,
        num_tokens: int = 1,
    ) -> Reads:
        """Return what a pass over some tokens reads on each device at a depth of the context.

        A token uses some of a mixture's experts, and a pass reads all that any of its tokens uses,
        if they choose at random. Of embeddings only a row is read, unless they are the output, too.
        """
        share = 1 - (1 - self.header.active_share) ** num_tokens
        num_bytes = [0] * (max(*devices, HOST) + 1)
        for (number, part, matrix), size in self._sizes.items():
            if number is not None:
                where = HOST if kept.has(number, part, matrix) else devices[number]
                num_bytes[where] += int(size * share) if part == "experts" else size
        num_bytes[devices[-1]] += self._tied_bytes
        text = replace(shape, ctx=depth, num_steps_back=0, num_texts=1)
        path = [HOST]
        for number, (layer, where) in enumerate(zip(self.layout.layers, devices, strict=False)):
            num_bytes[where] += self._cache(layer, text)
            path += [where, HOST, where] if number in kept.blocks else [where]
        path.append(devices[-1])
        return Reads(tuple(num_bytes), sum(one != other for one, other in pairwise(path)))

    def cache(self, shape: ContextShape) -> int:
        """Return the size of the KV cache and recurrent states in bytes."""
        return sum(self._cache(layer, shape) for layer in self.layout.layers)

    def state(self, shape: ContextShape) -> int:
        """Return the bytes of a state saved to go back in a text, 0 if any tail can be removed.

        It has the recurrent states, and the keys and values in sliding windows.
        """
        layers = self.layout.layers
        cells = min(self.layout.window, shape.ctx)
        windowed = sum(layer.num_keys + layer.num_values for layer in layers if layer.is_windowed)
        recurrent = FLOAT * sum(layer.num_states for layer in layers)
        return recurrent + int(cells * windowed * BITS[shape.cache_type] / 8)

    def _weights(self, devices: Sequence[int], kept: BlocksOnHost) -> Counter[int]:
        """Return the bytes of the weights by device."""
        total: Counter[int] = Counter()
        for place, num_bytes in self._sizes.items():
            layer, *_ = place
            total[HOST if layer is None or kept.has(*place) else devices[layer]] += num_bytes
        if devices[-1] != HOST:
            total[devices[-1]] += self._tied_bytes
        return total

    @property
    def _tied_bytes(self) -> int:
        """The bytes of embeddings that are the output, too; 0 if that has weights of its own."""
        embedding = self.header.tensors.get("token_embd.weight")
        is_tied = embedding and "output.weight" not in self.header.tensors
        return embedding.num_bytes if embedding and is_tied else 0

    @cached_property
    def _sizes(self) -> Counter[Place]:
        """The bytes of each layer's parts by matrix, and of the rest of it (None).

        The output is the last layer; the key None is for the host only.
        """
        sizes: Counter[Place] = Counter()
        for place, num_bytes in self._placed:
            sizes[place] += num_bytes
        return sizes

    @cached_property
    def _placed(self) -> list[tuple[Place, int]]:
        """The place of each tensor, as in `_sizes`, and its bytes."""
        placed = list[tuple[Place, int]]()
        for tensor in self.header.tensors.values():
            block = BLOCK.fullmatch(tensor.name)
            if not block:
                is_output = tensor.name.startswith(OUTPUT)
                layer = self.num_layers if is_output else None
                placed.append(((layer, None, ""), tensor.num_bytes))
            elif int(block[1]) < self.num_layers:
                placed.append(((int(block[1]), *part_of(block[2])), tensor.num_bytes))
        return placed

    def _largest_on_host(self, devices: Sequence[int], kept: BlocksOnHost) -> int:
        """Return the bytes of the largest weights of layers on the host."""
        largest = 0
        for place, num_bytes in self._placed:
            number, *_ = place
            if number is None or number >= self.num_layers:
                continue
            if devices[number] == HOST or kept.has(*place):
                largest = max(largest, num_bytes)
        return largest

    def _cache(self, layer: Layer, shape: ContextShape) -> int:
        """Return the bytes of a layer's KV caches and states."""
        states = layer.num_states * FLOAT * (1 + shape.num_steps_back)
        if not layer.num_keys:
            return states * shape.num_texts
        values = layer.num_values
        if values and not shape.flash:  # rows of the transposed values are as wide as the widest
            values = max(other.num_values for other in self.layout.layers)
        numbers = (layer.num_keys + layer.num_index_keys + values) * self._num_cells(layer, shape)
        numbers += layer.num_compressed * self._num_compressed(layer, shape)
        return shape.num_texts * (states + int(numbers * BITS[shape.cache_type] / 8))

    def _num_compressed(self, layer: Layer, shape: ContextShape) -> int:
        """Return the cells of compressed keys."""
        return shape.num_cells(ratio=layer.ratio) if layer.ratio else 0

    def _num_cells(self, layer: Layer, shape: ContextShape) -> int:
        return shape.num_cells(self.layout.window if layer.is_windowed else 0)

    def _work(
        self, layers: Sequence[Layer], alive: int, shape: ContextShape, has_output: bool
    ) -> int:
        """Return the bytes of a device's compute buffer for a pass over its layers.

        `alive` is the largest number of values per token that are alive at once there.
        """
        states = max((layer.num_states for layer in layers if layer.num_states), default=0)
        work = shape.num_reserved * alive + states * (1 + shape.num_steps_back)
        if has_output:
            rows = self._num_rows(shape) * (self.layout.vocabulary + self._num_mapped)
            work = max(work, rows + 2 * self.layout.width * shape.num_tokens)
        return FLOAT * work + (self._masks(layers, shape) if layers else 0)

    def _num_rows(self, shape: ContextShape) -> int:
        """Return the number of rows of logits in a pass."""
        return shape.num_tokens if self.kind.gives_all_logits else shape.num_rows_in_all

    @property
    def _num_mapped(self) -> int:
        """The number of logits of a reduced vocabulary, from which the full rows are filled."""
        mapped = self.header.tensors.get(MAP)
        return mapped.num_values if mapped else 0

    def _alive(self, layer: Layer, shape: ContextShape, is_kept: bool) -> int:
        """Return the largest number of values per token that are alive at once in a layer.

        If its feed-forward block, or each expert, `is_kept` elsewhere, their outputs come back.
        """
        width = self.layout.width
        cells, compressed = self._num_cells(layer, shape), self._num_compressed(layer, shape)
        scores = 0 if shape.flash else layer.num_heads * (cells + compressed)
        indexed = cells if layer.num_index_keys else compressed
        scores += indexed * (2 if shape.flash else 3)  # masks, scores and the chosen tokens
        attention = 2 * width + 4 * layer.num_queries + scores if layer.num_keys else 0
        given = width * max(1, self.header.own("expert_used_count"))
        forward = 3 * width + given if is_kept else 4 * width + layer.feed_forward
        recurrent = 2 * width + layer.num_recurrent
        return max(attention, forward, recurrent)

    def _masks(self, layers: Sequence[Layer], shape: ContextShape) -> int:
        """Return the bytes of the attention masks."""
        kinds = {
            layer.is_windowed: self._num_cells(layer, shape) for layer in layers if layer.num_keys
        }
        return sum(kinds.values()) * shape.num_reserved * (2 if shape.flash else 4)

    def _host_work(self, shape: ContextShape, *, is_alone: bool) -> int:
        """Return the bytes of inputs and outputs, which are in the host's memory."""
        logits = FLOAT * self._num_rows(shape) * self.layout.vocabulary
        if is_alone:
            return logits
        inputs = 2 * FLOAT * shape.num_reserved * self.layout.width
        return logits + inputs


def devices_of_layers(num_layers: int, gpu_layers: int, shares: Sequence[float]) -> tuple[int, ...]:
    """Return the device index of each layer, the output being the last, as llama.cpp splits them.

    The last `gpu_layers` layers, the output included, are on GPUs in these shares.
    """
    ends = list(accumulate(shares))
    on_gpus = min(gpu_layers, num_layers + 1) if ends and ends[-1] > 0 else 0
    parts = [end / ends[-1] for end in ends[:-1]] if on_gpus else []
    first = num_layers + 1 - on_gpus
    return (*[HOST] * first, *(1 + bisect_right(parts, rank / on_gpus) for rank in range(on_gpus)))
