"""Prediction heads on the hub for a target that is here: of its repository, or the catalogue's.

A head is offered only after its header was read: its sizes and its vocabulary must be the target's.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from time import monotonic

from specchat.catalogue.draft_offers import MOST_CANDIDATES, SEARCH_SECONDS
from specchat.catalogue.known_heads import known_heads
from specchat.catalogue.model_names import are_trained_alike, model_words
from specchat.catalogue.repository_models import heads_of
from specchat.errors import SpecchatError
from specchat.gguf.draft_kinds import kind_of
from specchat.gguf.header import Header
from specchat.gguf.reader import read_header
from specchat.hub.listing import files_soon
from specchat.hub.names import HubName
from specchat.hub.references import Reference
from specchat.hub.remote_header import header_file
from specchat.options.declarations import LoadOptions
from specchat.planning.device import Machine
from specchat.planning.forecast import foresee
from specchat.wording import size_text


@dataclass(frozen=True, slots=True)
class HeadOffer:
    """A prediction head on the hub that fits a target, what it is and costs, and other ones.

    `has_room` is False if there is no memory for it beside the target, or for that alone.
    """

    reference: Reference
    why: str
    has_room: bool = True
    others: tuple[Reference, ...] = ()


def offer_head(
    path: Path, target: Reference, machine: Machine, options: LoadOptions
) -> HeadOffer | None:
    """Return the head on the hub for a target that was pulled to a path, None if none is found.

    The options are those that the pair will be loaded with. A hub that cannot be asked offers none.
    """
    deadline = monotonic() + SEARCH_SECONDS
    with suppress(SpecchatError, OSError):
        candidates = list(_candidates(target, read_header(path)))
        for candidate, source in islice(candidates, MOST_CANDIDATES):
            with suppress(SpecchatError), header_file(candidate, deadline) as head_path:
                forecast = foresee(path, head_path, options, machine)
                if forecast.draft is None or not kind_of(forecast.draft).is_head:
                    continue
                cost = forecast.head
                facts = [source, size_text(head_path.stat().st_size), *filter(None, [cost])]
                others = tuple([other for other, _ in candidates if other != candidate])
                has_room = cost is not None and cost.num_bytes > 0
                return HeadOffer(candidate, ", ".join(map(str, facts)), has_room, others)
    return None


def _candidates(target: Reference, header: Header) -> Iterator[tuple[Reference, str]]:
    """Yield heads that may fit, each with where it is from: those of the repository first.

    These name their model's size and version as the target does, if they do.
    """
    names = header.name, target.name, target.repository.partition("/")[2]
    words = model_words(*names)
    repository = HubName(target.repository, revision=target.revision)
    for head in heads_of(repository, files_soon(target.repository, target.revision)):
        name = head.reference.name
        is_named = {word for word in model_words(name) if not word.isalpha()} <= words
        if is_named and are_trained_alike([name], names):
            yield head.reference, "from the same repository"
    for known in known_heads(header.name, target.name):
        if known.reference.repository != target.repository:
            yield known.reference, "the catalogue's head for it"
