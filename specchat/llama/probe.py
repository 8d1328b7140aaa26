"""A probe of llama.cpp on this machine: it decodes small batches of a quantized model.

Run as `python -m specchat.llama.probe MODEL.gguf [gpu]` in a child process, because native code may
crash: a build can use an instruction that the CPU announces but does not have.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np

from specchat.errors import EngineFailed, SpecchatError
from specchat.llama.child_process import ProbeReport
from specchat.llama.context import Context
from specchat.llama.context_options import ModelOptions
from specchat.llama.library import api
from specchat.llama.model import Model

LARGEST_BATCH = 16
"""The kernels for quantized weights change with the batch size; 1 to 16 tokens use all of them."""
FAILED, USAGE_ERROR = 1, 2


def probe(path: Path, *, on_gpu: bool = False) -> ProbeReport:
    """Decode batches of 1 to 16 tokens on the CPU, or with all layers on the GPU.

    Native code that cannot run kills the process.
    """
    options = ModelOptions(
        ctx=256, batch=LARGEST_BATCH, gpu_layers=None if on_gpu else 0, is_repacked=True
    )
    sizes = range(1, LARGEST_BATCH + 1)
    with Model(path, options) as model, Context(model, options) as context:
        for size in sizes:
            context.rollback(0)
            tokens = [1 + index % (model.vocabulary.size - 1) for index in range(size)]
            if not np.isfinite(context.evaluate(tokens, 1)).all():
                raise EngineFailed(f"llama_decode of {size} tokens gave logits that are not finite")
    system = (api.llama_print_system_info() or b"").decode("utf-8", "replace").strip()
    return ProbeReport(str(path), len(sizes), sum(sizes), system)


def main(arguments: list[str]) -> int:
    """Probe a model and print the report as one line of JSON; return the exit code."""
    if not arguments or arguments[1:] not in ([], ["gpu"]):
        print("usage: python -m specchat.llama.probe MODEL.gguf [gpu]", file=sys.stderr)
        return USAGE_ERROR
    try:
        report = probe(Path(arguments[0]), on_gpu=len(arguments) == 2)
    except SpecchatError as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    print(json.dumps(asdict(report)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
