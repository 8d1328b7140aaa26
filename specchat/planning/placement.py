"""The parts of a model's blocks that stay in the host's memory while the rest is on GPUs.

A token reads few of a mixture's experts, so they lose least in slow memory, and attention with its
KV cache gains most on the GPU.
"""

import re
from dataclasses import dataclass

from specchat.options.declarations import Part

PARTS: dict[Part, str] = {
    "experts": r"ffn_(gate_up|gate|up|down)_(?:ch)?exps\..+",
    "ffn": r"ffn_(gate|up|down)\..+",
}
"""The tensors of each part by their names in a block; shared experts and routers are in neither.

Biases go with their weights: on another device each costs a hand-over. A pass of gpt-oss with the
experts of 4 blocks on the host has 10 parts with them and 26 without.
"""
SPARED = ((), ("down",), ("up", "gate", "gate_up"))
"""The matrices of a block's part that are on the GPU if none, one or two thirds of it are there.

They are neighbours in a pass, so that the block is on the host once.
"""
THIRDS = 3
NOUNS: dict[Part, str] = {"experts": "experts", "ffn": "feed-forward weights"}
FEWEST = -1
"""Stands for as few blocks as the GPUs' memory requires."""
ALL_BLOCKS = 2**31
"""More blocks than any model has."""


def part_of(name: str) -> tuple[Part | None, str]:
    """Return the part that a block's tensor belongs to, and its matrix, by its name in the block.

    Other tensors are of no part (None).
    """
    for part, names in PARTS.items():
        if match := re.fullmatch(names, name):
            return part, match[1]
    return None, ""


@dataclass(frozen=True, slots=True)
class OnHost:
    """A part, and the number of blocks, counted in thirds, that have theirs on the host."""

    part: Part = "experts"
    num_blocks: float = 0

    def __bool__(self) -> bool:
        """Whether any block has its part on the host."""
        return self.num_blocks != 0

    def __str__(self) -> str:
        """The part and the blocks in words."""
        blocks = f"{self.count} block{'s' * (self.num_blocks != 1)}"
        return f"the {NOUNS[self.part]} of {blocks}" if self else "nothing"

    @property
    def count(self) -> str:
        """The number of blocks in words, such as "29.3"."""
        return f"{self.num_blocks:.1f}".removesuffix(".0")


NOTHING = OnHost()


def wanted(option: str | None) -> OnHost | None:
    """Return what the user wants on the host; None leaves it to the plan."""
    if option is None:
        return None
    part, _, number = option.partition(":")
    named: Part = "ffn" if part == "ffn" else "experts"
    thirds = round(THIRDS * float(number or ALL_BLOCKS))
    return NOTHING if part == "none" else OnHost(named, thirds / THIRDS)


@dataclass(frozen=True, slots=True)
class BlocksOnHost:
    """A part and the numbers of the blocks that have theirs on the host.

    Of the last one `num_spared` thirds are not there.
    """

    part: Part = "experts"
    blocks: tuple[int, ...] = ()
    num_spared: int = 0

    @property
    def on_host(self) -> OnHost:
        """The number of blocks."""
        return OnHost(self.part, (THIRDS * len(self.blocks) - self.num_spared) / THIRDS)

    def has(self, number: int | None, part: Part | None, matrix: str) -> bool:
        """Return whether a matrix of a block's part is on the host."""
        if part != self.part or number not in self.blocks:
            return False
        return number != self.blocks[-1] or matrix not in SPARED[self.num_spared]

    @property
    def pattern(self) -> str:
        """The regular expression for the names of the weights, as llama.cpp reads it."""
        numbers, spared = "|".join(map(str, self.blocks)), "|".join(SPARED[self.num_spared])
        others = rf"(?!blk\.{self.blocks[-1]}\.ffn_(?:{spared})[_.])" if spared else ""
        return rf"^{others}blk\.({numbers})\.{PARTS[self.part]}$"


NONE_KEPT = BlocksOnHost()
