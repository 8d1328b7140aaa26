"""The exception tree: drawn in the module's docstring as it is, and caught as one."""

from __future__ import annotations

import inspect
import re

from specchat import errors
from specchat.errors import SpecchatError

DRAWN = re.compile(r"^([│ ]*[├└]── )?(\w+)(?=\s|$)")


def drawn_tree() -> dict[str, int]:
    """Return the classes in the drawing with their depth."""
    docstring = inspect.getdoc(errors) or ""
    drawing = docstring.split("\n\n")[1].splitlines()
    matches = [match for match in map(DRAWN.match, drawing) if match]
    return {match[2]: len(match[1] or "") // 4 for match in matches}


def test_the_drawing_shows_every_error_in_its_place() -> None:
    """Each class of the module is in the drawing, below its base class."""
    classes = {name: getattr(errors, name) for name in errors.__all__}
    depths = {name: kind.__mro__.index(SpecchatError) for name, kind in classes.items()}

    assert drawn_tree() == depths


def test_every_error_says_when_it_is_raised() -> None:
    """A docstring of a class begins with "Raised"; the base class describes itself."""
    for name in errors.__all__:
        kind = getattr(errors, name)
        assert kind is SpecchatError or (kind.__doc__ or "").startswith("Raised ")
