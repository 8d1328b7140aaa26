"""Which passes of a model are exact on this machine, kept from one session to the next."""

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from specchat.pacing.pacing_cache import prune, state_file
from specchat.private_files import read_json, write_json

MOST_TRIES = 3
MAX_WAYS = 16
"""Ways of loading a model that are kept; the ones measured first are dropped."""


@dataclass(frozen=True, slots=True)
class Exactness:
    """The longest exact pass of a model loaded in one way; 1 if none of several tokens is.

    `costs` says of passes, by their number of tokens, how many times as long exact ones take,
    as far as that is a choice and was timed. If the time was too short, as on a busy machine, it is
    measured again: up to MOST_TRIES times.
    """

    longest: int
    costs: tuple[tuple[int, float], ...] = ()
    tries: int = MOST_TRIES

    @property
    def largest_cost(self) -> float | None:
        """The largest cost of an exact pass, None if none is known."""
        known = [cost for length, cost in self.costs if length <= self.longest]
        return max(known, default=None)

    def after(self, earlier: "Exactness | None", *, is_complete: bool) -> "Exactness":
        """Return this result, and the earlier one that lacked time, as one."""
        if is_complete:
            return self
        tries, longest = (earlier.tries, earlier.longest) if earlier else (0, 1)
        return Exactness(max(longest, self.longest), self.costs, tries + 1)


@dataclass(slots=True)
class _Record:
    """The content of a file: the build of llama.cpp, and what it does by the way of loading."""

    build: str = ""
    ways: dict[str, Exactness] = field(default_factory=dict)


class ExactnessCache:
    """The file with one model's exactness, by how it is loaded.

    A file that cannot be read counts as missing; one that cannot be written is measured again.
    """

    def __init__(self, model: Path) -> None:
        """Derive the file's path from the model's."""
        subject = {"model": [str(model.resolve()), model.stat().st_size]}
        self._path = state_file("exactness", subject)

    def all(self) -> dict[str, Exactness]:
        """Return what the build measured last does, by how the model was loaded."""
        return read_json(self._path, _Record, _Record()).ways

    def read(self, build: str, way: str) -> Exactness | None:
        """Return what is known of a build of llama.cpp and a way of loading."""
        record = read_json(self._path, _Record, _Record())
        return record.ways.get(way) if record.build == build else None

    def write(self, build: str, way: str, found: Exactness) -> None:
        """Keep a result, and drop those of other builds and of the oldest models and ways."""
        record = read_json(self._path, _Record, _Record())
        ways = list(record.ways.items()) if record.build == build else []
        with suppress(OSError):
            write_json(self._path, _Record(build, dict([*ways, (way, found)][-MAX_WAYS:])))
            prune(self._path.parent)
