"""The options of an answer: invalid values are refused before anything is decoded."""

from __future__ import annotations

from typing import Any

import pytest

from specchat.errors import InvalidOption
from specchat.options.declarations import LONGEST_DRAFT, GenerateOptions
from tables import table


@table(
    "options",
    [
        {"max_tokens": 2.5},
        {"draft_length": 2.5},
        {"draft_length": "many"},
        {"draft_length": -1},
        {"seed": 1.0},
        {"seed": -1},
        {"top_k": 3.5},
        {"max_tokens": 0},
        {"temperature": float("nan")},
    ],
)
def test_nonsense_is_refused_by_name(options: dict[str, Any]) -> None:
    """The message names the option."""
    with pytest.raises(InvalidOption, match=next(iter(options))):
        GenerateOptions(**options)


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_out_of_range_names_the_whole_range(seed: int) -> None:
    """The largest seed is named too."""
    with pytest.raises(InvalidOption, match=f"from 0 to {2**63 - 1}, not {seed}"):
        GenerateOptions(seed=seed)


def test_a_seed_leaves_the_draft_length_alone() -> None:
    """The text of a seed does not depend on it."""
    assert GenerateOptions().num_to_draft == LONGEST_DRAFT
    assert GenerateOptions(seed=3).num_to_draft == LONGEST_DRAFT
    assert GenerateOptions(seed=3, draft_length=5).num_to_draft == 5
