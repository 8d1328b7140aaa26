"""Whether the installed models fit into this machine's memory, beside what goes onto GPUs."""

from collections.abc import Iterator
from contextlib import suppress

from specchat.doctor import Finding
from specchat.doctor.model_speeds import installed_models
from specchat.errors import SpecchatError
from specchat.options.declarations import LoadOptions
from specchat.planning.device import find_machine
from specchat.planning.forecast import Forecast, foresee
from specchat.settings.sources import read_settings

GIB = 2**30


def check_ram() -> Iterator[Finding]:
    """Say which installed models fit; yield nothing if there are none, or if no memory is known."""
    forecasts = dict[str, Forecast]()
    with suppress(SpecchatError):  # check_settings reports unreadable settings
        options = LoadOptions(**read_settings().values(LoadOptions))
        machine = find_machine(options.workers)
        for name, target, draft in installed_models() if machine.free is not None else ():
            with suppress(SpecchatError, OSError):  # other checks report what cannot be read
                forecasts[name] = foresee(target, draft, options, machine)
    if not forecasts:
        return
    fitting = {name: each for name, each in forecasts.items() if each.fits}
    lines = [
        f"{name} does not fit: it needs {_text(each)}; {_outcome(each, options)}"
        for name, each in forecasts.items()
        if not each.fits
    ]
    if fitting:
        largest = max(fitting, key=lambda name: fitting[name].host.needed)
        fit = "1 model fits" if len(fitting) == 1 else f"{len(fitting)} models fit"
        lines.append(f"{fit}; {largest} takes the most: {_text(fitting[largest])}")
    models = [
        {"name": name, "fits": each.fits, "needed": each.host.needed, "free": each.host.free}
        for name, each in forecasts.items()
    ]
    fits_all = len(fitting) == len(forecasts)
    fix = () if fits_all else ("specchat list  # shows what fits",)
    figures = {"models": models}
    yield Finding("RAM", "ok" if fits_all else "warning", "\n".join(lines), fix, figures)


def _text(forecast: Forecast) -> str:
    """Return what a model needs beside GPUs, or in all if it does not fit, and what is free."""
    room = forecast.host
    return f"{room.needed / GIB:.1f} GiB of the {room.free / GIB:.1f} that are free"


def _outcome(forecast: Forecast, options: LoadOptions) -> str:
    """Return what happens to a model that does not fit."""
    if forecast.reads_disk:
        return "its weights are read from the disk for each token"
    reasons = {"mmap is off": not options.mmap, "mlock is on": options.mlock}
    why = " and ".join(reason for reason, holds in reasons.items() if holds)
    return f"it will not load while {why}" if why else "it does not load"
