"""Every error specchat raises on purpose, below one base class.

A message says what happened to which thing and then what to do, because the user reads it: the code
that knows the facts raises it, and each front end shows it once. The command line exits with 2 for
InvalidOption, 130 for Cancelled and 1 for the rest. This module imports nothing of specchat.
"""

from collections import abc


class SpecchatError(Exception):
    """The base class of every error specchat raises on purpose."""


class ModelNotFound(SpecchatError):
    """Raised when a model file, a pair or a local model of that name does not exist."""


class ModelWontLoad(SpecchatError):
    """Raised when llama.cpp cannot load a file: damaged, not GGUF or an unknown architecture."""


class OutOfMemory(ModelWontLoad):
    """Raised when a device has too little memory for a model or its context."""


class IncompatibleDraft(SpecchatError):
    """Raised when the draft model's vocabulary does not match the target's."""


class ContextFull(SpecchatError):
    """Raised when the prompt is longer than the context."""


class InvalidOption(SpecchatError):
    """Raised for a usage error: an unknown option, or a value out of range."""


class CatalogueError(SpecchatError):
    """Raised when models.toml is invalid."""


class DownloadFailed(SpecchatError):
    """Raised when a file cannot be downloaded or fails its checksum."""


class SettingsError(SpecchatError):
    """Raised when the settings file is invalid, or cannot be read or written."""


class TemplateError(SpecchatError):
    """Raised when a chat template cannot be rendered."""


class ConversationNotFound(SpecchatError):
    """Raised when no conversation has the number asked for."""


class StoreFailed(SpecchatError):
    """Raised when conversations cannot be read or written: disk, permissions or a damaged file."""


class StoreBusy(StoreFailed):
    """Raised when another program is writing to the store; trying again later may work."""


class EngineFailed(SpecchatError):
    """Raised when llama.cpp fails while decoding, or the engine process dies."""


class Cancelled(SpecchatError):
    """Raised when the caller asked to stop; nothing failed."""


def nearest(name: str, known: abc.Collection[str]) -> str:
    """Return the end of a message that names the known name most like one; empty if none is."""
    import difflib  # 5 ms that only mistakes need

    found = difflib.get_close_matches(name, known, 1)
    return f" (did you mean {found[0]}?)" if found else ""
