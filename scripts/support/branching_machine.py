"""A simulated pair whose draft model also offers branches beside its drafts.

What becomes of a token comes from a record of a real pair: `tree_places.json` has what
`compare_trees.py --json` wrote, shortened.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from scripts.support.tree_record import MISSED, Place
from specchat.decoding.distribution import Distribution
from specchat.decoding.draft_tree import some_of
from specchat.decoding.ports import Pacer
from specchat.decoding.proposal import Branch, DraftToken, Hint
from specchat.decoding.verification import verify_by_argmax
from specchat.derivation.simulated_pair import DEPTH, ORIGIN, RIGHT, SURE, WRONG, Machine

__all__ = ["Branching", "recorded_places"]

FILE = Path(__file__).with_name("tree_places.json")
FIRST_BESIDE = 3
"""The token of the best branch beside a drafted one; those of the others follow."""
LONGEST_TEXT = 20_000


@cache
def recorded_places(pair: str) -> tuple[Place, ...]:
    """Return the places recorded with a pair."""
    found = json.loads(FILE.read_text("utf-8"))[pair]
    return tuple(Place(sure, bool(right), tuple(beside), hit) for sure, right, beside, hit in found)


@dataclass
class Branching(Machine):
    """A pair at temperature 0 whose passes verify up to `most_nodes` tokens, side branches too.

    Whether a drafted token is right is a matter of `chance`. All else that is known of a token
    is that of a recorded one with the same outcome. The text is the same however it is drafted.
    """

    places: Sequence[Place] = ()
    most_nodes: int = 32
    num_branches: int = 0

    def __post_init__(self) -> None:
        """Write the text."""
        super().__post_init__()
        right = [each for each in self.places if each.is_right]
        wrong = [each for each in self.places if not each.is_right]
        draws = self.random.random(LONGEST_TEXT)
        picks = self.random.integers(1 << 30, size=LONGEST_TEXT)
        self.text = [
            alike[pick % len(alike)]
            for index, (draw, pick) in enumerate(zip(draws, picks.tolist(), strict=True))
            for alike in [right if draw < self.chance(index) else wrong]
        ]

    def decode(self, pacer: Pacer, num_tokens: int, longest: int = 16) -> float:
        """Decode with a draft model that knows the prompt; return tokens per second."""
        first, began = self.emitted, self.seconds
        self.num_read = first
        while self.emitted - first < num_tokens:
            pacer.begin_step(DEPTH, min(longest, num_tokens - (self.emitted - first) - 1))
            self._step(pacer)
        return (self.emitted - first) / (self.seconds - began)

    def _step(self, pacer: Pacer) -> None:
        """Draft as `DraftModelDrafter` does, choose branches and verify them."""
        num_read, num_siblings, draft, offered = 0, 0, list[DraftToken](), list[Branch]()
        while self._draft_pass(pacer, 1 if num_read else self.emitted - self.num_read + 1):
            num_siblings = num_siblings if num_read else pacer.num_siblings(ORIGIN)
            num_read = len(draft) + 1
            place = self.text[self.emitted + len(draft)]
            beside = place.beside[:num_siblings]
            offered += [
                Branch(FIRST_BESIDE + number, len(draft), ORIGIN, confidence)
                for number, confidence in enumerate(beside)
            ]
            if not pacer.wants_token(ORIGIN, Hint(place.confidence, SURE[RIGHT])):
                if num_siblings:  # the best token itself
                    offered.append(Branch(RIGHT, len(draft), ORIGIN, _share_of_best(place)))
                break
            draft.append(DraftToken(RIGHT, SURE[RIGHT], ORIGIN))
        most = self.most_nodes - len(draft)
        numbers = pacer.choose_branches(draft, offered, most) if offered else ()
        self._verify(pacer, draft, some_of(offered, numbers), num_read)

    def _verify(
        self, pacer: Pacer, draft: Sequence[DraftToken], branches: Sequence[Branch], num_read: int
    ) -> None:
        """Verify a tree in one pass, and let the pacer learn."""
        took = self.pass_seconds(self.padded(1 + len(draft) + len(branches)))
        self.seconds += took
        wanted = [self._wanted(self.emitted + place) for place in range(len(draft) + 2)]
        target = [Distribution.certain(token) for token in wanted].__getitem__
        verdict = verify_by_argmax(draft, target, float)
        pacer.learn(draft, target, verdict)
        kept = verdict.num_accepted
        is_hit = any(each.fork == kept and each.token == wanted[kept] for each in branches)
        if num_read:
            self.num_read = self.emitted + min(kept + 1, num_read)
        emitted = wanted[: kept + 1 + is_hit]
        self.drafted.append(len(draft))
        self.num_branches += len(branches)
        self.emitted += len(emitted)
        pacer.end_step(emitted, took)

    def _wanted(self, index: int) -> int:
        """Return the target's token at an index of the text."""
        place = self.text[index]
        if place.is_right:
            return RIGHT
        return WRONG if place.hit == MISSED else FIRST_BESIDE + place.hit


def _share_of_best(place: Place) -> float:
    """Return the best token's probability over that of the branches, at most 1.

    The confidence c is p1 / (p1 + p2), and the best branch has the share p2 / (p2 + p3 + ...).
    """
    odds = place.confidence / max(1e-9, 1.0 - place.confidence)
    return min(1.0, odds * place.beside[0]) if place.beside else 1.0
