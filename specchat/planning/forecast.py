"""The memory and context of a pair on this machine, forecast from its files before it is loaded."""

from dataclasses import dataclass, replace
from pathlib import Path

from specchat.errors import ModelWontLoad
from specchat.gguf.draft_kinds import kind_of
from specchat.gguf.header import Header
from specchat.gguf.model_files import read_pair
from specchat.gguf.split_files import size_with_parts
from specchat.options.declarations import LoadOptions
from specchat.planning.device import Device, Machine, find_machine
from specchat.planning.host_resources import total_bytes
from specchat.planning.measured_times import planner_here
from specchat.planning.memory import HOST, Sizes
from specchat.planning.plan import Plan
from specchat.planning.planner import Planner
from specchat.wording import size_text

UNKNOWN = 2**60
"""Stands for the free bytes where the system does not report them."""


@dataclass(frozen=True, slots=True)
class Room:
    """The bytes that a pair needs on a kind of device, and those that models may take there."""

    needed: int
    free: int


@dataclass(frozen=True, slots=True)
class HeadCost:
    """What a prediction head takes beside its target: bytes, 0 if it is left out for memory.

    `device` is where it runs if its target is on a GPU, else empty. With the head the context holds
    `ctx` tokens, without it `longest_ctx`.
    """

    num_bytes: int
    device: str
    ctx: int
    longest_ctx: int

    def __str__(self) -> str:
        """Return the cost in words, after "the head"."""
        if not self.num_bytes:
            return "is left out here: there is no memory for it beside the target"
        where = f" on the {self.device}" if self.device else ""
        slow = ", away from its target, which is slow" if self.device == "CPU" else ""
        shorter = f", the context {self.ctx} tokens instead of {self.longest_ctx}"
        text = f"takes {size_text(self.num_bytes)} of memory{where}{slow}"
        return text + shorter * (self.ctx < self.longest_ctx)


@dataclass(frozen=True, slots=True)
class Forecast:
    """The context and the memory that a pair will get.

    `gpus` is None if no layer goes onto a GPU. Unless it `fits`, `host` is what the pair would need
    in all. `placement` says what is where if parts of layers on GPUs are on the host. `notice` says
    what is given up for memory, None for nothing. `draft` is the header of the draft model or head,
    None without one. `head` is what a head takes, None for a target that does not load.
    """

    target: Header
    draft: Header | None
    ctx: int
    host: Room
    gpus: Room | None = None
    fits: bool = True
    notice: str | None = None
    placement: str = ""
    head: HeadCost | None = None

    @property
    def reads_disk(self) -> bool:
        """Whether it does not fit, and yet loads: its weights are read again for each token."""
        return not self.fits and self.notice is not None


def foresee(
    target: Path, draft: Path | None, options: LoadOptions, machine: Machine, held: int = 0
) -> Forecast:
    """Return what a pair will take on a machine, of which a loaded pair holds `held` bytes.

    GPUs count as free except for what is left to other programs; only llama.cpp knows how much
    those use. Raises as `read_pair` does, and InvalidOption as `Planner` does.
    """
    headers = model, of_draft = read_pair(target, draft, with_head=options.head)
    sizes, draft_sizes = Sizes(model), Sizes(of_draft) if of_draft else None
    devices = devices_of(machine, held)
    planner = planner_here(sizes, draft_sizes, devices, options)
    plan: Plan | None = None
    head: HeadCost | None = None
    try:
        plan = planner.first()
        if of_draft and kind_of(of_draft).is_head:
            alone = planner_here(sizes, None, devices, options).first()
            head = _head_cost(planner, plan, alone)
    except ModelWontLoad:
        pass
    if plan is not None and not _reads_disk(plan, devices[HOST]):
        return _planned(headers, planner, plan, head)
    whole = Planner(sizes, draft_sizes, (), options).first()
    total = sum(need.total for need in whole.needs) + planner.projector_bytes
    needed = Room(total, free_rooms(machine, held)[1])
    ctx, notice = (plan.ctx, plan.notice) if plan is not None else (whole.ctx, None)
    return Forecast(*headers, ctx, needed, fits=False, notice=notice, head=head)


def _head_cost(planner: Planner, plan: Plan, alone: Plan) -> HeadCost:
    """Return what a head takes, by the plan with it, and that for its target alone."""
    if plan.draft_gpu_layers is None:
        return HeadCost(0, "", alone.ctx, alone.ctx)
    device = ("GPU" if plan.draft_gpu_layers else "CPU") if plan.gpu_layers else ""
    return HeadCost(planner.draft_bytes(plan), device, plan.ctx, alone.ctx)


def warning_of_disk(target: Path, draft: Path | None, options: LoadOptions) -> str | None:
    """Return that a pair needs more memory than is free here; None if it fits or is not known.

    Then the system reads its weights from the disk again for each token. Raises as `foresee` does.
    """
    machine = find_machine(options.workers)
    if machine.free is None or machine.gpus is None:
        return None
    if size_with_parts(target) < machine.free // 2:  # reading headers takes time
        return None
    forecast = foresee(target, draft, options, machine)
    if not forecast.reads_disk:
        return None
    needed, free = (size / 2**30 for size in (forecast.host.needed, forecast.host.free))
    return (
        f"{target.name} needs {needed:.1f} GiB of memory, and {free:.1f} GiB are free here: its"
        " weights are read from the disk for each token, which is slow"
    )


def free_rooms(machine: Machine, held: int = 0) -> tuple[int, int]:
    """Return the bytes that models may take on GPUs, and on all devices together."""
    host, *gpus = devices_of(machine, held)
    own = sum(gpu.budget for gpu in gpus if gpu.kind != "integrated")
    return min(sum(gpu.budget for gpu in gpus), host.budget + own), host.budget + own


def devices_of(machine: Machine, held: int = 0) -> list[Device]:
    """Return the host and the GPUs with the memory that a pair may take."""
    free = 2 * UNKNOWN if machine.free is None else machine.free + held
    host = Device("CPU", "", "cpu", free, total_bytes() or free)
    return [host, *(replace(gpu, free=gpu.total) for gpu in machine.gpus or ())]


def _reads_disk(plan: Plan, host: Device) -> bool:
    """Return True if the weights do not stay in memory: they are read again for each token."""
    return not plan.is_repacked and plan.needs[HOST].total > host.budget


def _planned(
    headers: tuple[Header, Header | None], planner: Planner, plan: Plan, head: HeadCost | None
) -> Forecast:
    host, *gpus = (need.total for need in plan.needs)
    if planner.has_room_for_projector(plan):
        gpus.append(planner.projector_bytes)
    else:
        host += planner.projector_bytes
    of_host, *of_gpus = planner.devices
    room = Room(sum(gpus), sum(device.budget for device in of_gpus)) if sum(gpus) else None
    placement = plan.summary if plan.is_placed else ""
    return Forecast(
        *headers,
        plan.ctx,
        Room(host, of_host.budget),
        room,
        notice=plan.notice,
        placement=placement,
        head=head,
    )
