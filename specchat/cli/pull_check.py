"""`specchat pull --check`: compare installed files with their checksums."""

import shlex
from collections.abc import Sequence

from specchat.chat.safe_text import in_one_line
from specchat.cli.download_progress import ProgressLine
from specchat.cli.terminal import say
from specchat.errors import InvalidOption, ModelNotFound
from specchat.hub.cache import find_present
from specchat.hub.integrity import check
from specchat.hub.references import Reference

RIGHT, WRONG = 0, 1


def check_files(references: Sequence[Reference], words: Sequence[str]) -> int:
    """Report whether each file matches its checksum; return 1 if one does not.

    `words` are the arguments of `specchat pull` that fetch the files.
    """
    if not references:
        raise InvalidOption(f"{words[0]} does not come from the hub: there is nothing to compare")
    command = f"`specchat pull {shlex.join(words)}`"
    for reference in references:
        if find_present(reference) is None:
            raise ModelNotFound(f"{reference} is not installed: {command} fetches it")
    return max(_check(reference, command) for reference in references)


def _check(reference: Reference, command: str) -> int:
    with ProgressLine() as line:
        wrong = [path for path, is_right in check(reference, line.update) if not is_right]
    if not wrong:
        print(in_one_line(f"right: {reference}"))
    for path in wrong:
        say(f"wrong: {path} is not {reference}: delete it, then {command} fetches it again")
    return WRONG if wrong else RIGHT
