"""Which passes of a model are exact on this machine, kept from one session to the next."""

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from specchat.pacing.pacing_cache import state_file
from specchat.private_files import read_json, write_json


@dataclass(slots=True)
class _Record:
    """The content of a file: the build of llama.cpp, and the longest exact passes it makes."""

    build: str = ""
    longest: dict[str, int] = field(default_factory=dict)


class ExactnessCache:
    """The file with one model's longest exact passes, by how it is loaded.

    A file that cannot be read counts as missing; one that cannot be written is measured again.
    """

    def __init__(self, model: Path) -> None:
        """Derive the file's path from the model's."""
        self._path = state_file(
            "exactness", {"model": [str(model.resolve()), model.stat().st_size]}
        )

    def all(self) -> dict[str, int]:
        """Return the longest exact passes of the build measured last, by how it was loaded."""
        return read_json(self._path, _Record, _Record()).longest

    def read(self, build: str, way: str) -> int:
        """Return the longest exact pass of a build of llama.cpp; 0 if unknown."""
        record = read_json(self._path, _Record, _Record())
        return record.longest.get(way, 0) if record.build == build else 0

    def write(self, build: str, way: str, longest: int) -> None:
        """Keep a result; those of other builds are dropped."""
        record = read_json(self._path, _Record, _Record())
        others = record.longest if record.build == build else {}
        with suppress(OSError):
            write_json(self._path, _Record(build, {**others, way: longest}))
