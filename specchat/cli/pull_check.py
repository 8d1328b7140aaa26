"""`specchat pull --check`: hash again what was pulled."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from specchat.cli.download_progress import Transfers
from specchat.cli.terminal import in_one_line, say
from specchat.errors import InvalidOption, ModelNotFound
from specchat.hub.cache import find_present
from specchat.hub.integrity import check
from specchat.hub.references import Reference

__all__ = ["check_files"]

RIGHT, WRONG = 0, 1


def check_files(references: Sequence[Reference], words: Sequence[str]) -> int:
    """Say of each file whether it is right, and what to do where it is not.

    `words` are those after `specchat pull` that fetch the files.
    """
    if not references:
        raise InvalidOption(f"{words[0]} does not come from the hub: there is nothing to compare")
    command = f"`specchat pull {shlex.join(words)}`"
    for reference in references:
        if find_present(reference) is None:
            raise ModelNotFound(f"{reference} is not here: {command} fetches it")
    code = RIGHT
    for reference in references:
        code = max(code, _check(reference, command))
    return code


def _check(reference: Reference, command: str) -> int:
    transfers = Transfers()
    wrong = []
    try:
        wrong = [path for path, is_right in check(reference, transfers.tell) if not is_right]
    finally:
        transfers.wipe()
    if not wrong:
        print(in_one_line(f"right: {reference}"))
    for path in wrong:
        say(f"wrong: {path} is not what {reference} is: delete it, then {command} fetches it again")
    return WRONG if wrong else RIGHT
