"""The engine: loads a pair and answers, in this process or in its own.

llama.cpp is imported when the first engine is loaded.
"""

from specchat.engine.api import Engine, Loading

__all__ = ["Engine", "Loading"]
