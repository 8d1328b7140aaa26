"""Describes a pair before it is loaded: its drafter, its context, and the memory it needs here."""

from dataclasses import replace
from pathlib import Path

from specchat.catalogue.entry import EMBEDDED, HEAD_KINDS, Entry, File, KnownHead
from specchat.catalogue.fit import memory_of_entry, need_of_size, predicted_rate, rate_of_size
from specchat.catalogue.header_cache import HeaderCache
from specchat.catalogue.known_speed import known_speed
from specchat.catalogue.model_names import model_title, quantisation_in
from specchat.catalogue.outlook import HEAD, LOOKUP, OWN_HEAD, Outlook
from specchat.drafter_registry import PLAIN
from specchat.errors import SpecchatError
from specchat.gguf.draft_kinds import kind_of
from specchat.options.declarations import LoadOptions
from specchat.planning.device import Machine, find_machine
from specchat.planning.forecast import UNKNOWN, Forecast, HeadCost, Room, foresee, free_rooms
from specchat.wording import rate_text, short_size

NO_DRAFTS = "nothing"
SHIPPED = "its own small model"
"""A draft model that comes with specchat, under no name that says anything."""
SHIPPED_FILES = Path(__file__).parent


def listed_outlook(entry: Entry, machine: Machine) -> Outlook:
    """Return what the catalogue knows of a pair, and how fast it is likely to be on a machine."""
    rate = predicted_rate(entry, machine)
    draft = _title_of_draft(entry.draft) if entry.draft else LOOKUP
    draft = HEAD if entry.kind in HEAD_KINDS else draft
    return Outlook(
        target=entry.target.name,
        drafts=OWN_HEAD if entry.kind == EMBEDDED else draft,
        quantisation=quantisation_in(entry.target.name),
        rate=rate,
        speed=_speed_by_size(rate),
    )


def outlook_of_entry(entry: Entry, held_bytes: int) -> Outlook:
    """Return the outlook of a pair of the catalogue that is not installed.

    `held_bytes` is the memory that the loaded pair frees.
    """
    machine = find_machine()
    listed = listed_outlook(entry, machine)
    memory = next(iter(memory_of_entry(entry)), None)
    if memory is None:
        return listed
    on_gpus, in_all = free_rooms(machine, held_bytes)
    is_on_gpus = memory.num_bytes <= on_gpus
    room = Room(memory.num_bytes, on_gpus if is_on_gpus else in_all)
    text = _room_text(room, "GPU memory" if is_on_gpus else "memory")
    return replace(listed, context=memory.ctx, memory=f"≈ {text}", fits=room.needed <= room.free)


def outlook_of_files(
    target: Path, draft: Path | None, options: LoadOptions, drafter: str, held_bytes: int
) -> Outlook:
    """Return the outlook of an installed pair, read from its files.

    `held_bytes` is the memory that the loaded pair frees.
    """
    try:
        machine = find_machine(options.workers)
        forecast = foresee(target, draft, options, machine, held_bytes)
    except SpecchatError as error:
        return Outlook(target=target.name, fits=False, notice=str(error))
    on_gpus = "GPU and worker memory" if options.workers else "GPU memory"
    from specchat.catalogue.known_heads import missing_head  # loads msgspec

    with HeaderCache() as cache:
        missing = None if forecast.head else missing_head(target, cache)
    header = forecast.target
    speed = known_speed(machine, header, draft)
    rate = speed.drafted_rate or speed.plain_rate
    num_bytes = header.file_bytes
    by_size = rate_of_size(num_bytes * header.active_share, need_of_size(num_bytes), machine)
    rooms = ((on_gpus, forecast.gpus), ("memory", forecast.host))
    return Outlook(
        target=target.name,
        drafts=_drafts_text(forecast, draft, drafter),
        quantisation=forecast.target.quantisation,
        context=forecast.ctx,
        memory=" and ".join(_room_text(room, name) for name, room in rooms if room),
        fits=forecast.fits,
        rate=rate or by_size,
        speed=speed.speed_text or _speed_by_size(by_size),
        head=_head_text(forecast.head, missing),
        notice="; ".join(filter(None, (forecast.placement, forecast.notice))),
    )


def _speed_by_size(rate: float) -> str:
    return f"predicted by its size: {rate_text(rate)}" if rate else ""


def _head_text(head: HeadCost | None, missing: KnownHead | None) -> str:
    """Return what a target's prediction head takes, or how to get the one that it lacks."""
    if missing:
        return f"lacks its head, {missing.offer}"
    return f"the head {head}" if head else ""


def _drafts_text(forecast: Forecast, draft: Path | None, drafter: str) -> str:
    """Return the drafter of a pair in words, for this choice of a drafter."""
    if drafter == PLAIN:
        return NO_DRAFTS
    if forecast.draft is None:
        return LOOKUP
    if draft is None:
        return OWN_HEAD
    kind = kind_of(forecast.draft)
    if kind.is_head:
        return HEAD if _is_shipped(draft) else f"{model_title(draft.name)}, {HEAD}"
    return _title_of_draft(draft)


def _title_of_draft(file: File) -> str:
    """Return the name of a draft model, from its file's."""
    return SHIPPED if _is_shipped(file) else model_title(file.name)


def _is_shipped(file: File) -> bool:
    return isinstance(file, Path) and file.is_relative_to(SHIPPED_FILES)


def _room_text(room: Room, name: str) -> str:
    """Return the memory needed and free, the latter only if the system reports it."""
    if room.free >= UNKNOWN:
        return f"{' '.join(short_size(room.needed))} {name}"
    needed, unit = short_size(room.needed)
    free, unit_of_free = short_size(room.free)
    return f"{needed}{f' {unit}' * (unit != unit_of_free)} of {free} {unit_of_free} {name}"
