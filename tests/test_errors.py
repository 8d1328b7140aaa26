"""The exceptions: caught as one, and each says when it is raised."""

import inspect

from specchat import errors
from specchat.errors import SpecchatError

KINDS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]


def test_every_error_is_caught_as_one() -> None:
    """Each class of the module is a SpecchatError."""
    assert len(KINDS) > 1
    assert all(issubclass(kind, SpecchatError) for kind in KINDS)


def test_every_error_says_when_it_is_raised() -> None:
    """A docstring of a class begins with "Raised"; the base class describes itself."""
    for kind in KINDS:
        assert kind is SpecchatError or (kind.__doc__ or "").startswith("Raised ")
