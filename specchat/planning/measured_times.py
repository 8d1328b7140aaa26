"""What passes showed of this machine: its devices' bandwidths, and what steps of a pair take.

Plans are made with these from then on. A file that cannot be read counts as missing, and one that
cannot be written is measured again.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path

from specchat.options.declarations import LoadOptions
from specchat.planning.device import Device, hand_over_of, planned_gpus
from specchat.planning.memory import Sizes
from specchat.planning.plan_ranking import MeasuredStep
from specchat.planning.planner import Planner
from specchat.planning.token_time import Reads
from specchat.system.private_files import FOLDERS, read_json, updating

MOST_PAIRS = 64
"""Pairs whose placements are remembered; the ones measured first are dropped."""


@dataclass(slots=True)
class _Measured:
    """The content of the file: bytes per second by device, and steps by pair and placement."""

    bandwidths: dict[str, float] = field(default_factory=dict)
    placements: dict[str, dict[str, MeasuredStep]] = field(default_factory=dict)


def times_path() -> Path:
    """Return the path of the file."""
    return FOLDERS.user_state_path / "device_times.json"


def planner_here(
    target: Sizes, draft: Sizes | None, devices: Iterable[Device], options: LoadOptions
) -> Planner:
    """Return a planner that knows what was measured. Raises as `Planner` does."""
    known = read_json(times_path(), _Measured, _Measured())
    devices = with_bandwidths(devices, known)
    gpus = planned_gpus(devices)
    steps = known.placements.get(_key(target, draft, gpus), {})
    measured = {way: step for way, step in steps.items() if _is_sound(step, 1 + len(gpus))}
    return Planner(target, draft, devices, options, measured)


def with_bandwidths(devices: Iterable[Device], known: _Measured | None = None) -> list[Device]:
    """Return devices with the bandwidths that passes have shown."""
    known = known or read_json(times_path(), _Measured, _Measured())
    return [
        replace(device, measured_bandwidth=_sound(known.bandwidths.get(_name_of(device), 0.0)))
        for device in devices
    ]


def note_pass(reads: Reads, devices: Sequence[Device], seconds: float) -> None:
    """Learn from a pass that decoded one token the bandwidth of the device it spent most on.

    The highest one counts: others were measured beside something that is not there always.
    """
    bandwidths = [device.bandwidth for device in devices]
    shown = reads.shown_bandwidth(bandwidths, hand_over_of(devices), seconds)
    if shown:
        number, bandwidth = shown
        with suppress(OSError), updating(times_path(), _Measured) as kept:
            name = _name_of(devices[number])
            before = _sound(kept.bandwidths.get(name, 0.0))
            kept.bandwidths[name] = max(before, float(f"{bandwidth:.3g}"))


def keep_steps(
    target: Sizes,
    draft: Sizes | None,
    gpus: Sequence[Device],
    steps: Mapping[str, MeasuredStep],
    *,
    is_complete: bool = True,
) -> None:
    """Save steps of a pair on these GPUs by the way of a plan.

    If they are complete, what was known of other ways is forgotten. Raises OSError.
    """
    key = _key(target, draft, gpus)
    with updating(times_path(), _Measured) as kept:
        before = kept.placements.pop(key, {})
        of_pair = dict(steps) if is_complete else before | dict(steps)
        kept.placements = dict([*kept.placements.items(), (key, of_pair)][-MOST_PAIRS:])


def _name_of(device: Device) -> str:
    """Return what stands for a device: of processors there is one."""
    return "CPU" if device.kind == "cpu" and not device.worker else device.label


def _key(target: Sizes, draft: Sizes | None, gpus: Sequence[Device]) -> str:
    headers = [model.header for model in (target, draft) if model]
    files = [f"{header.path.absolute()} {header.file_bytes}" for header in headers]
    return ", ".join([*files, *(gpu.label for gpu in gpus)])


def _sound(value: float) -> float:
    """Return a number of the file, 0 if it cannot be."""
    return value if isfinite(value) and value > 0 else 0.0


def _is_sound(step: MeasuredStep, num_devices: int) -> bool:
    """Return whether a step of the file can be one of a pair on these devices."""
    num_bytes = step.reads.num_bytes
    reads = len(num_bytes) == num_devices and min(num_bytes) >= 0 < sum(num_bytes)
    return reads and step.reads.hand_overs >= 0 and bool(_sound(step.seconds))
