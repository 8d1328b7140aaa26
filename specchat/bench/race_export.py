"""The files a race can be exported to."""

import json
from collections.abc import Callable, Mapping

from specchat.bench.race_picture import animate
from specchat.bench.race_record import Race
from specchat.bench.race_recording import as_cast


def as_json(race: Race) -> str:
    """Return the record of a race."""
    return json.dumps(race.as_record(), ensure_ascii=False) + "\n"


EXPORTS: Mapping[str, Callable[[Race], str]] = {".svg": animate, ".cast": as_cast, ".json": as_json}
