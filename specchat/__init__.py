"""specchat: chat with a language model on your own machine, speculatively decoded, visibly."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specchat.connection.opening import connect
    from specchat.images.image import Image
    from specchat.sharing.loading import Engine

__all__ = ["Engine", "Image", "__version__", "connect"]

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Import the engine only when it is used."""
    if name == "Engine":
        from specchat.sharing.loading import Engine

        return Engine
    if name == "connect":
        from specchat.connection.opening import connect

        return connect
    if name == "Image":
        from specchat.images.image import Image

        return Image
    raise AttributeError(f"module 'specchat' has no attribute {name!r}")
