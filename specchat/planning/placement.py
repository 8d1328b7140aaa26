"""The parts of a model's blocks that stay in the host's memory while the rest is on GPUs.

A token reads few of a mixture's experts, so they lose least in slow memory, and attention with its
KV cache gains most on the GPU.
"""

import re
from dataclasses import dataclass

from specchat.options.declarations import Part

PARTS: dict[Part, str] = {
    "experts": r"ffn_(?:gate_up|gate|up|down)_(?:ch)?exps\..+",
    "ffn": r"ffn_(?:gate|up|down)\..+",
}
"""The tensors of each part by their names in a block; shared experts and routers are in neither.

Biases go with their weights: on another device each costs a hand-over. A pass of gpt-oss with the
experts of 4 blocks on the host has 10 parts with them and 26 without.
"""
NOUNS: dict[Part, str] = {"experts": "experts", "ffn": "feed-forward weights"}
FEWEST = -1
"""Stands for as few blocks as the GPUs' memory requires."""
ALL_BLOCKS = 2**31
"""More blocks than any model has."""


def part_of(name: str) -> Part | None:
    """Return the part that a block's tensor belongs to, by its name in the block."""
    return next((part for part, names in PARTS.items() if re.fullmatch(names, name)), None)


@dataclass(frozen=True, slots=True)
class OnHost:
    """A part, and the number of blocks that have theirs on the host."""

    part: Part = "experts"
    num_blocks: int = 0

    def __bool__(self) -> bool:
        """Whether any block has its part on the host."""
        return self.num_blocks != 0

    def __str__(self) -> str:
        """The part and the blocks in words."""
        blocks = f"{self.num_blocks} block{'s' * (self.num_blocks != 1)}"
        return f"the {NOUNS[self.part]} of {blocks}" if self else "nothing"


NOTHING = OnHost()


def wanted(option: str | None) -> OnHost | None:
    """Return what the user wants on the host; None leaves it to the plan."""
    if option is None:
        return None
    part, _, number = option.partition(":")
    named: Part = "ffn" if part == "ffn" else "experts"
    return NOTHING if part == "none" else OnHost(named, int(number or ALL_BLOCKS))


@dataclass(frozen=True, slots=True)
class BlocksOnHost:
    """A part and the numbers of the blocks that have theirs on the host."""

    part: Part = "experts"
    blocks: tuple[int, ...] = ()

    @property
    def pattern(self) -> str:
        """The regular expression for the names of the weights, as llama.cpp reads it."""
        numbers = "|".join(map(str, self.blocks))
        return rf"^blk\.({numbers})\.{PARTS[self.part]}$"


NONE_KEPT = BlocksOnHost()
