"""Writes copies of a model, in a child process because native code may crash.

Run as `python -m specchat.llama.model_copies`, with a JSON object on standard input.
"""

import ctypes
import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Thread
from time import sleep

import msgspec

from specchat.errors import EngineFailed, SpecchatError
from specchat.llama.library import api, last_errors, start
from specchat.system.python_child import death_of, last_line, run_python

TEXT = 3
"""llama.cpp's number for the type of strings (LLAMA_KV_OVERRIDE_TYPE_STR)."""
LONGEST_TEXT = 127
"""The longest string that llama.cpp can add to a file, in bytes; longer ones are cut."""
FAILED = 1


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of a model, with metadata added.

    `file_type` is llama.cpp's number of a quantization; with None the weights stay as they are.
    A split model is copied into one file.
    """

    source: str
    destination: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    file_type: int | None = None


def write_copy(copy: Copy) -> None:
    """Write a copy of a model that only the user may read; leave no file behind on failure.

    Raises EngineFailed with the reason, KeyboardInterrupt at Ctrl+C.
    """
    destination = Path(copy.destination)
    try:
        destination.touch(mode=0o600)
        _run_child(copy)
    except BaseException:
        with suppress(OSError):
            destination.unlink()
        raise


def _run_child(copy: Copy) -> None:
    order = json.dumps(asdict(copy)).encode()  # msgspec refuses names that are not UTF-8
    # Ctrl+C goes to the parent, which kills the child if necessary
    done = run_python("specchat.llama.model_copies", input=order, start_new_session=True)
    if done.returncode:
        reason = death_of(done.returncode) or last_line(done.stderr)
        raise EngineFailed(f"llama.cpp cannot write {copy.destination}: {reason}")


def _write(copy: Copy) -> None:
    """Write a copy. Raises EngineFailed with llama.cpp's reason."""
    start()
    parameters = api.llama_model_quantize_default_params()
    parameters.only_copy = copy.file_type is None
    if copy.file_type is not None:
        parameters.ftype = copy.file_type
        parameters.allow_requantize = True
    parameters.kv_overrides = overrides = _overrides(copy.metadata)
    last_errors()
    source, destination = os.fsencode(copy.source), os.fsencode(copy.destination)
    if api.llama_model_quantize(source, destination, parameters):
        raise EngineFailed(" ".join(last_errors()[-2:]) or "it gave no reason")
    del overrides  # kept alive until here


def _overrides(metadata: Mapping[str, str]) -> "ctypes.Array[api.llama_model_kv_override]":
    """Return metadata in llama.cpp's form, ended by an empty entry."""
    added = (api.llama_model_kv_override * (len(metadata) + 1))()
    for entry, (key, text) in zip(added, metadata.items(), strict=False):
        short = text.encode(errors="replace")[:LONGEST_TEXT].decode("utf-8", "ignore")
        entry.tag, entry.key, entry.value.val_str = TEXT, key.encode(), short.encode()
    return added


def _end_with(parent: int) -> None:
    """End this process once its parent has ended, even if it was killed."""
    while os.getppid() == parent:
        sleep(0.5)
    os._exit(FAILED)


def main() -> int:
    """Write the copy that standard input describes; return the exit code."""
    Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    try:
        _write(msgspec.convert(json.load(sys.stdin), Copy))
    except SpecchatError as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
