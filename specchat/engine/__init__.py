"""The engine: loads a pair and answers, in this process or in its own.

llama.cpp is imported when the first engine is loaded.
"""

from specchat.engine.api import Engine, Loading
from specchat.options.declarations import GenerateOptions

__all__ = ["Engine", "GenerateOptions", "Loading"]
