"""A parser of command lines that says in one line what is wrong, and where to go on."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from specchat.errors import InvalidOption

__all__ = ["Parser"]


class Parser(argparse.ArgumentParser):
    """As argparse's own, whose errors come below a page of usage and name no likely word."""

    def parse_known_args(  # type: ignore[override]  # the base class has overloads
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse a command's words, and tell of a word too many where its options are known."""
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self._tell_unknown(unknown[0])
        return parsed, unknown

    def error(self, message: str) -> NoReturn:
        """Raise InvalidOption."""
        raise InvalidOption(f"{message}; see {self.prog} --help")

    def _tell_unknown(self, word: str) -> NoReturn:
        import difflib  # 5 ms that only mistakes need

        name = word.partition("=")[0]
        if not name.startswith("-"):
            self.error(f"{word!r} is a word too many")
        found = difflib.get_close_matches(name, self._option_string_actions, 1)
        self.error(f"there is no option {name}" + (f"; the nearest is {found[0]}" if found else ""))
