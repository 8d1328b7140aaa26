"""An argument parser whose errors are one line: what is wrong, and where to read on."""

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from specchat.errors import InvalidOption
from specchat.options import nearest


class Parser(argparse.ArgumentParser):
    """argparse's parser, but errors are raised, without the usage, and name the nearest option."""

    def parse_known_args(  # type: ignore[override]  # the base class has overloads
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse a command's arguments, refusing unexpected ones where the options are known."""
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self._refuse(unknown[0])
        return parsed, unknown

    def error(self, message: str) -> NoReturn:
        """Raise InvalidOption."""
        raise InvalidOption(f"{message}; see {self.prog} --help")

    def _refuse(self, word: str) -> NoReturn:
        name = word.partition("=")[0]
        if not name.startswith("-"):
            self.error(f"unexpected argument {word!r}")
        self.error(f"unknown option {name}{nearest(name, self._option_string_actions)}")
