"""The engine: load a pair, generate, stop, count. In this process or in one of its own.

The seam between decoding and everything a user sees. Nothing of llama.cpp is loaded before an
engine is.
"""

from __future__ import annotations

from specchat.engine.api import Engine, Loading
from specchat.options import GenerateOptions

__all__ = ["Engine", "GenerateOptions", "Loading"]
