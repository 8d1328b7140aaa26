"""What measurements of pacing switch off is there to be switched off."""

from __future__ import annotations

from scripts.support.pacing_ablations import ABLATIONS, ablated


def test_each_mechanism_of_pacing_is_switched_off_and_on_again() -> None:
    """An ablation replaces attributes by their names, and puts them back."""
    for mechanism, patches in ABLATIONS.items():
        before = [getattr(patch.owner, patch.name) for patch in patches]
        with ablated(mechanism):
            inside = [getattr(patch.owner, patch.name) for patch in patches]
        assert all(new is not old for new, old in zip(inside, before, strict=True))
        assert [getattr(patch.owner, patch.name) for patch in patches] == before
