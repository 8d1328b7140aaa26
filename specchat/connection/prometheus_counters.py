"""A server's counters for Prometheus, before and after an answer."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from specchat.connection.dialects import Counters

LINE = re.compile(r"^([A-Za-z_:][\w:]*)(\{.*\})?\s+([-+\w.]+)", re.MULTILINE)
POSITION = re.compile(r'position="(\d{1,3})"')
LARGEST = 2**53
"""Up to here a counter's value is exact."""


@dataclass(frozen=True, slots=True)
class Counts:
    """The values of some counters, summed over their labels."""

    generated: int = 0
    drafts: int = 0
    drafted: int = 0
    accepted: int = 0
    accepted_by_position: Mapping[int, int] = field(default_factory=dict)

    def since(self, before: "Counts") -> "Counts":
        """Return what was counted since."""
        earlier = before.accepted_by_position
        by_position = self.accepted_by_position.items()
        return Counts(
            self.generated - before.generated,
            self.drafts - before.drafts,
            self.drafted - before.drafted,
            self.accepted - before.accepted,
            {position: count - earlier.get(position, 0) for position, count in by_position},
        )

    def histogram(self) -> list[int]:
        """Return the number of steps by accepted tokens; [] where the positions do not add up."""
        reached = [self.drafts, *(count for _, count in sorted(self.accepted_by_position.items()))]
        steps = [one - other for one, other in zip(reached, [*reached[1:], 0], strict=True)]
        while steps and not steps[-1]:
            steps.pop()
        return steps if all(count >= 0 for count in steps) else []


def read_counters(text: str, names: Counters) -> Counts | None:
    """Return the counters in a text for Prometheus; None if there are none for drafts."""
    totals: dict[str, int] = {}
    by_position: dict[int, int] = {}
    for name, labels, written in LINE.findall(text):
        try:
            value = float(written)
        except ValueError:
            continue
        if not 0 <= value < LARGEST:
            continue
        totals[name] = totals.get(name, 0) + int(value)
        if name == names.accepted_by_position and (match := POSITION.search(labels)):
            number = int(match[1])
            by_position[number] = by_position.get(number, 0) + int(value)
    if names.drafted not in totals:
        return None
    return Counts(
        generated=totals.get(names.generated, 0),
        drafts=totals.get(names.drafts, 0),
        drafted=totals[names.drafted],
        accepted=totals.get(names.accepted, 0),
        accepted_by_position=by_position,
    )
