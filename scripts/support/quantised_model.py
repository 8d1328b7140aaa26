"""A model converted to another type of weights by llama.cpp."""

from __future__ import annotations

import sys
from pathlib import Path

from llama_cpp import llama_cpp as api


def quantised(model: Path, name: str, folder: Path) -> Path:
    """Convert a model to another type."""
    parameters = api.llama_model_quantize_default_params()
    parameters.ftype = getattr(api, f"LLAMA_FTYPE_MOSTLY_{name}")
    parameters.allow_requantize = True
    path = folder / f"{name}.gguf"
    if api.llama_model_quantize(str(model).encode(), str(path).encode(), parameters):
        sys.exit(f"llama.cpp cannot convert {model} to {name}")
    return path
