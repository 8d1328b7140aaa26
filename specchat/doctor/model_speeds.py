"""What passes of the installed models cost, and the speed that this predicts."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from specchat.catalogue.catalogue_file import DEMO
from specchat.catalogue.header_cache import HeaderCache
from specchat.catalogue.known_speed import KnownSpeed, known_speed
from specchat.catalogue.local_models import find_local_models
from specchat.catalogue.pairs import load_pairs
from specchat.doctor import Finding
from specchat.errors import SpecchatError
from specchat.gguf.reader import read_header
from specchat.planning.device import find_machine


def check_speeds() -> Iterator[Finding]:
    """Show what is known of each installed model; yield nothing if there is none."""
    machine, speeds = find_machine(), dict[str, KnownSpeed]()
    paths: dict[str, str] = {}
    for name, target, draft in installed_models():
        with suppress(SpecchatError, OSError):  # other checks report what cannot be read
            speeds[name], paths[name] = (
                known_speed(machine, read_header(target), draft),
                str(target),
            )
    if not speeds:
        return
    lines = [
        f"{name}: {speed.stair_text}; {speed.speed_text}"
        for name, speed in speeds.items()
        if speed.is_measured
    ]
    usual: dict[str, list[str]] = {}
    for name, speed in speeds.items():
        if not speed.is_measured:
            usual.setdefault(speed.stair_text, []).append(name)
    lines += [f"{', '.join(names)}: {text}" for text, names in usual.items()]
    models = [{"name": name, "path": paths[name], **asdict(speeds[name])} for name in speeds]
    yield Finding("passes", "ok", "\n".join(lines), figures={"models": models})


def installed_models() -> Iterator[tuple[str, Path, Path | None]]:
    """Yield the name, target and draft of each pair, then each other model that can chat."""
    used = set[Path]()
    with suppress(SpecchatError):
        for pair in load_pairs().values():
            used |= {path.resolve() for path in (pair.target, pair.draft) if path}
            if pair.name != DEMO:
                yield pair.name, pair.target, pair.draft
    with HeaderCache() as cache:
        for model in find_local_models():
            facts = cache.of(model.path)
            is_target = facts.kind == "chat" and facts.origin is None
            if is_target and model.path.resolve() not in used:
                yield model.name, model.path, None
