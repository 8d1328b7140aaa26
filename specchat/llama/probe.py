"""Finds out what this build of llama.cpp was built for, and whether it decodes on this machine.

Run as `python -m specchat.llama.probe --build` or `... MODEL.gguf [gpu]` in a child process, which
prints its report as one line of JSON. Native code may crash: a build can use an instruction that
the CPU reports but does not have. Listing devices starts their drivers, which may also crash, or
hold GPU memory until the process ends.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np

from specchat.errors import EngineFailed, SpecchatError
from specchat.llama import mtmd_library, tinyblas
from specchat.llama.child_process import BuildReport, ProbeReport
from specchat.llama.context import Context
from specchat.llama.device_list import all_backends, list_devices
from specchat.llama.hidden_states import can_read_hidden_states, can_read_layer_inputs
from specchat.llama.library import api, version
from specchat.llama.model import Model
from specchat.llama.native_libraries import variant, why_not_loaded
from specchat.llama.rpc_library import find_rpc
from specchat.passes.exact_passes import LONGEST_COMPARED
from specchat.passes.exactness_measurement import ExactnessMeasurement
from specchat.planning.context_shape import ModelOptions
from specchat.planning.device import gpus_of

LARGEST_BATCH = 16
"""The kernels for quantized weights depend on the batch size; 1 to 16 tokens use all of them."""
MOST_SECONDS = 2.0
"""The time limit for comparing passes."""
RPC = "RPC"
"""The backend of workers, which are not devices of this machine."""
FAILED, USAGE_ERROR = 1, 2


def describe_build() -> BuildReport:
    """Start llama.cpp and describe its build."""
    devices = tuple(list_devices())
    return BuildReport(
        version=version(),
        system=(api.llama_print_system_info() or b"").decode("utf-8", "replace").strip(),
        variant=variant(),
        can_offload=bool(gpus_of(devices)),
        backends=tuple(backend for backend in all_backends() if backend != RPC),
        devices=devices,
        can_use_workers=find_rpc() is not None,
        image_library=str(mtmd_library.path() or ""),
        images_off_reason=mtmd_library.why_not(),
        can_run_heads=can_read_hidden_states and can_read_layer_inputs,
        not_loaded=why_not_loaded(),
    )


def probe(path: Path, *, on_gpu: bool = False) -> ProbeReport:
    """Decode batches of 1 to 16 tokens on the CPU, or with all layers on the GPU, and compare."""
    layers = None if on_gpu else 0
    tinyblas.leave_out(LONGEST_COMPARED)
    options = ModelOptions(ctx=1024, batch=LARGEST_BATCH, gpu_layers=layers, exact="on")
    sizes = range(1, LARGEST_BATCH + 1)
    with Model(path, options) as model, Context(model, options) as context:
        for size in sizes:
            context.rollback(0)
            tokens = [1 + index % (model.vocabulary.size - 1) for index in range(size)]
            if not np.isfinite(context.evaluate(tokens, 1)).all():
                raise EngineFailed(f"llama_decode of {size} tokens gave logits that are not finite")
        measurement = ExactnessMeasurement("on", most_seconds=MOST_SECONDS)
        draft = measurement.run(context, tinyblas).longest - 1
    return ProbeReport(len(sizes), sum(sizes), draft, measurement.has_compared_all)


def main(arguments: list[str]) -> int:
    """Print a report; return the exit code."""
    if not arguments or arguments[1:] not in ([], ["gpu"]):
        print("usage: python -m specchat.llama.probe --build | MODEL.gguf [gpu]", file=sys.stderr)
        return USAGE_ERROR
    try:
        is_build, on_gpu = arguments == ["--build"], len(arguments) == 2
        report = describe_build() if is_build else probe(Path(arguments[0]), on_gpu=on_gpu)
    except SpecchatError as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    print(json.dumps(asdict(report)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
