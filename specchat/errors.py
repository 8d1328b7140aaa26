"""Every error specchat raises on purpose, below one base class.

Users read the messages, so each says what happened and then what to do. The code that knows the
facts raises the error, and each front end shows it once. The command line exits with 2 for
InvalidOption, 130 for Cancelled and 1 for all others. This module imports nothing from specchat.
"""

from collections import abc


class SpecchatError(Exception):
    """The base class of every error specchat raises on purpose."""


class ModelNotFound(SpecchatError):
    """Raised when a model file, a pair or a local model does not exist."""


class ModelWontLoad(SpecchatError):
    """Raised when llama.cpp cannot load a file: damaged, not GGUF or an unknown architecture."""


class OutOfMemory(ModelWontLoad):
    """Raised when a device has too little memory for a model or its context."""


class WorkerUnavailable(ModelWontLoad):
    """Raised when a worker cannot be used: not reachable, busy, or of another version."""


class IncompatibleDraft(SpecchatError):
    """Raised when the draft model's vocabulary does not match the target's."""


class ContextFull(SpecchatError):
    """Raised when the prompt is longer than the context.

    It has `num_tokens`, or more if not `is_all` was counted, and the context holds `capacity`; both
    are 0 where that is not known.
    """

    num_tokens = capacity = 0
    is_all = True


class InvalidOption(SpecchatError):
    """Raised for a usage error: an unknown option, or a value out of range."""


class NothingAllowed(InvalidOption):
    """Raised where a grammar allows only tokens that other options forbid."""


class NotDecodedNow(InvalidOption):
    """Raised for an image that may be decoded another time: it took too long, or Pillow lacks."""


class InvalidAnswer(SpecchatError):
    """Raised when an answer is not a value of the type asked for, such as one that was cut off."""


class CatalogueError(SpecchatError):
    """Raised when models.toml is invalid."""


class DownloadFailed(SpecchatError):
    """Raised when a file cannot be downloaded or fails its checksum."""


class SettingsError(SpecchatError):
    """Raised when the settings file is invalid, or cannot be read or written."""


class EditorFailed(SpecchatError):
    """Raised when the user's editor cannot be started or fails."""


class TemplateError(SpecchatError):
    """Raised when a chat template cannot be rendered."""


class ConversationNotFound(SpecchatError):
    """Raised when there is no conversation with that number."""


class StoreFailed(SpecchatError):
    """Raised when conversations cannot be read or written: disk, permissions or a damaged file."""


class AnswerGone(StoreFailed):
    """Raised when an answer is no longer in the store: removed for good, or lost by damage."""


class StoreBusy(StoreFailed):
    """Raised when another program is writing to the store; trying again later may work."""


class EngineFailed(SpecchatError):
    """Raised when llama.cpp fails while decoding, or the engine process dies."""


class NotNumbers(EngineFailed):
    """Raised when a model gives NaN or infinities: its file is damaged, or the build unfit."""


class ServerFailed(SpecchatError):
    """Raised when a server that answers for a pair cannot be reached, or fails."""


class Cancelled(SpecchatError):
    """Raised when the caller asked to stop; not a failure."""


def nearest(name: str, known: abc.Collection[str]) -> str:
    """Return " (did you mean X?)" for the known name closest to a name; empty if none is close."""
    import difflib  # takes 5 ms, which only mistakes need

    found = difflib.get_close_matches(name, known, 1)
    return f" (did you mean {found[0]}?)" if found else ""
