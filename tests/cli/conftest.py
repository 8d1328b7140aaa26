"""Fixtures shared by the tests of commands."""

from in_process import engines_here

__all__ = ["engines_here"]
