"""The table of what is planned for models that people run, on GPUs and RAM of several sizes.

Beside each plan stands what llama-server's `--fit` would load with the same context, as its source
says (common/fit.cpp): it leaves 1 GiB of a GPU free, splits dense models by whole layers, and keeps
the experts of the last blocks on the CPU, of one block in part.
"""

from __future__ import annotations

import math
from pathlib import Path
from tempfile import TemporaryDirectory

from scripts.support.model_headers import MODELS, write_header
from specchat.gguf.reader import read_header
from specchat.options.declarations import LoadOptions
from specchat.planning.context_shape import DEFAULT_CONTEXT
from specchat.planning.device import Device
from specchat.planning.memory import HOST, Sizes
from specchat.planning.plan import Plan
from specchat.planning.planner import Planner

GIB = 2**30
GPUS = (6, 8, 12, 16, 24, 32, 48)
RAMS = (32, 128)
FIT_MARGIN = GIB
FIT_OPTIONS = LoadOptions(ctx=DEFAULT_CONTEXT, cache_type="f16")
LARGE_RATE = 9.95
"""From here on, tokens per second are shown without decimals."""
MARKS = {RAMS[0]: "", RAMS[1]: "*"}


def plan_table() -> str:
    """Return the table: a row for each model, a column for each size of a GPU's memory."""
    headings = ("model, in GB", *(f"{size} GB" for size in GPUS))
    lines = [headings, ("---",) * len(headings)]
    with TemporaryDirectory() as folder:
        for model in MODELS:
            sizes = Sizes(read_header(write_header(Path(folder), model)))
            gigabytes = sizes.header.num_bytes / 1e9
            cells = (_cell(sizes, size) for size in GPUS)
            lines.append((f"{model.name}, {gigabytes:.0f}", *cells))
    return "\n" + "".join(f"| {' | '.join(cells)} |\n" for cells in lines) + "\n"


def planned(sizes: Sizes, gpu: int, ram: int) -> tuple[Planner, Plan]:
    """Return the plan for a model on a machine, in GiB, and what made it."""
    planner = Planner(sizes, None, _machine(gpu * GIB, gpu * GIB, ram), LoadOptions())
    return planner, planner.first()


def fitted(sizes: Sizes, gpu: int, ram: int) -> tuple[Planner, Plan]:
    """Return what llama-server would load with the same context, and what predicts its time."""
    total = gpu * GIB
    spared = total - Device("", "", "gpu", total, total).budget
    planner = Planner(sizes, None, _machine(total - FIT_MARGIN + spared, total, ram), FIT_OPTIONS)
    has_experts = bool(sizes.blocks_with("experts"))
    plans = [plan for plan in planner.near(math.inf) if bool(plan.on_host) == has_experts]
    return planner, plans[0] if plans else planner.first()


def _machine(free: int, total: int, ram: int) -> list[Device]:
    gpu = Device("GPU", "", "gpu", free, total)
    return [gpu, Device("CPU", "", "cpu", ram * GIB, ram * GIB)]


def _cell(sizes: Sizes, gpu: int) -> str:
    """Return what is planned with as little RAM as will do, and the two predicted speeds."""
    for ram in RAMS:
        planner, plan = planned(sizes, gpu, ram)
        if plan.is_repacked or plan.needs[HOST].total <= ram * GIB:
            rates = (
                _rate(planner.step_seconds(plan))
                for planner, plan in ((planner, plan), fitted(sizes, gpu, ram))
            )
            return f"{_placement(sizes, plan)} {' / '.join(dict.fromkeys(rates))}{MARKS[ram]}"
    return "-"


def _rate(seconds: float) -> str:
    rate = 1 / seconds
    return f"{rate:.1f}" if rate < LARGE_RATE else f"{rate:.0f}"


def _placement(sizes: Sizes, plan: Plan) -> str:
    left = sizes.num_layers + 1 - plan.gpu_layers
    parts = [f"L{left}"] * bool(left) + [f"E{plan.on_host.count}"] * bool(plan.on_host)
    text = "+".join(parts) or "all"
    return text if plan.ctx == DEFAULT_CONTEXT else f"{text} 4k"
