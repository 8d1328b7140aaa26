"""Every error specchat raises on purpose, in one tree.

SpecchatError
├── ModelNotFound        a model file or a pair's name that is not there
├── ModelWontLoad        a file llama.cpp refuses: damaged, foreign, or no memory for it
│   └── OutOfMemory      no memory for a model or its context; a smaller plan may do
├── IncompatibleDraft    a draft model whose vocabulary does not fit the target's
├── ContextFull          a prompt longer than the context
├── InvalidOption        a value out of its range, or an option nobody knows
├── CatalogueError       models.toml says something that cannot be
├── DownloadFailed       a file of the hub that cannot be had, or is not what it should be
├── SettingsError        the settings file says something that cannot be
├── TemplateError        a chat template that cannot be rendered
├── ConversationNotFound a conversation that is not in the store
├── StoreFailed          conversations cannot be read or kept
│   └── StoreBusy        another program is writing to them
├── ChatFailed           the chat ended by an error of its own
├── EngineFailed         llama.cpp failed while decoding, or the engine process died
└── Cancelled            the caller asked to stop; nothing failed

Each message names the thing and the next step, because it is what the user reads: raised where the
fact is known, shown once by each front end. This module imports nothing of specchat.
"""

from __future__ import annotations

__all__ = [
    "Cancelled",
    "CatalogueError",
    "ChatFailed",
    "ContextFull",
    "ConversationNotFound",
    "DownloadFailed",
    "EngineFailed",
    "IncompatibleDraft",
    "InvalidOption",
    "ModelNotFound",
    "ModelWontLoad",
    "OutOfMemory",
    "SettingsError",
    "SpecchatError",
    "StoreBusy",
    "StoreFailed",
    "TemplateError",
]


class SpecchatError(Exception):
    """The base of everything specchat raises on purpose."""


class ModelNotFound(SpecchatError):
    """A model file or a pair's name is not there."""


class ModelWontLoad(SpecchatError):
    """llama.cpp refuses the file: damaged, no GGUF, unknown architecture, or no memory left."""


class OutOfMemory(ModelWontLoad):
    """A device has no memory for a model or its context."""


class IncompatibleDraft(SpecchatError):
    """The draft model's vocabulary does not fit the target's."""


class ContextFull(SpecchatError):
    """The prompt is longer than the context."""


class InvalidOption(SpecchatError):
    """An option has a value out of its range, or a name nobody knows."""


class CatalogueError(SpecchatError):
    """models.toml says something that cannot be."""


class DownloadFailed(SpecchatError):
    """A file of the hub cannot be had, or is not what it should be."""


class SettingsError(SpecchatError):
    """The settings file says something that cannot be, or cannot be read or written."""


class TemplateError(SpecchatError):
    """A chat template cannot be rendered."""


class ConversationNotFound(SpecchatError):
    """There is no such conversation in the store."""


class StoreFailed(SpecchatError):
    """Conversations cannot be read or kept: the disk, the permissions or the file."""


class StoreBusy(StoreFailed):
    """Another program is writing to the store: what was wanted can be tried again."""


class ChatFailed(SpecchatError):
    """The chat ended by an error of its own, which its log describes."""


class EngineFailed(SpecchatError):
    """llama.cpp failed while decoding, or the engine process died."""


class Cancelled(SpecchatError):
    """The caller asked to stop; nothing failed."""
