"""Draft models on the hub for a target that is here: the catalogue's, or the same organization's.

A draft is offered only after its header was read: its vocabulary must be the target's. What it will
gain is estimated from the sizes, as every pass reads the weights once, and from a usual acceptance
rate (Leviathan et al. 2023, theorem 3.8).
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from time import monotonic

from specchat.catalogue.catalogue_file import read_catalogue
from specchat.catalogue.draft_choice import GOOD_SHARES, LARGEST_SHARE
from specchat.catalogue.entry import Entry
from specchat.catalogue.model_names import model_title
from specchat.catalogue.repository_models import best_of, models_of
from specchat.errors import SpecchatError
from specchat.gguf.common_vocabulary import common_vocabulary
from specchat.gguf.header import Header
from specchat.gguf.reader import read_header
from specchat.hub.listing import files_soon, list_repositories
from specchat.hub.names import HubName
from specchat.hub.references import Reference
from specchat.hub.remote_header import header_file
from specchat.planning.device import Machine
from specchat.wording import percent, size_text, speedup_text

USUAL_ACCEPTANCE = 0.7
"""The usual rate for drafts of the same family and a tenth of the target's size."""
LONGEST_WEIGHED = 16
SEARCH_SECONDS = 20.0
MOST_REPOSITORIES, MOST_LISTED, MOST_CANDIDATES = 40, 3, 3
"""Repositories that the hub may name, those whose files are listed, and headers that are read."""
BILLIONS = re.compile(r"(?<![a-z0-9.])(\d+(?:\.\d+)?)(b|m)(?![a-z0-9])", re.IGNORECASE)
"""The number of parameters in a name."""


@dataclass(frozen=True, slots=True)
class DraftOffer:
    """A draft model on the hub that fits a target, and the reasons to take it."""

    reference: Reference
    num_bytes: int
    share: float
    source: str

    @property
    def why(self) -> str:
        """The reasons in words."""
        gain = speedup_text(expected_speedup(self.share))
        return (
            f"{self.source}, same vocabulary, {size_text(self.num_bytes)},"
            f" 1/{1 / self.share:.0f} of its size; {gain} where {percent(USUAL_ACCEPTANCE)} of its"
            " drafts are accepted"
        )


def expected_speedup(share: float) -> float:
    """Return the speedup over plain decoding with the usual acceptance and the best draft length.

    `share` is the cost of a pass of the draft as a share of the target's.
    """
    return max(
        sum(USUAL_ACCEPTANCE**index for index in range(length + 1)) / (1 + length * share)
        for length in range(1, LONGEST_WEIGHED + 1)
    )


def offer_draft(path: Path, reference: Reference, machine: Machine) -> DraftOffer | None:
    """Return a draft on the hub for a target that was pulled to a path, None if none is found.

    The catalogue's drafts come first. A hub that cannot be asked offers nothing.
    """
    deadline = monotonic() + SEARCH_SECONDS
    with suppress(SpecchatError, OSError):
        target = read_header(path)
        candidates = islice(_candidates(reference, machine), MOST_CANDIDATES)
        for candidate, source in candidates:
            if monotonic() > deadline:
                break
            with suppress(SpecchatError):
                if offer := _offer(target, candidate, source, deadline):
                    return offer
    return None


def _offer(target: Header, reference: Reference, source: str, deadline: float) -> DraftOffer | None:
    """Return a draft as an offer, None unless its header fits the target's."""
    with header_file(reference, deadline) as path:
        draft = read_header(path)
        share = draft.file_bytes / (target.file_bytes * target.active_share)
        if share > LARGEST_SHARE or common_vocabulary(target, draft) is not None:
            return None
        return DraftOffer(reference, draft.file_bytes, share, source)


def _candidates(target: Reference, machine: Machine) -> Iterator[tuple[Reference, str]]:
    """Yield drafts that may fit: the file, and where it is from."""
    for entry in _of_same_model(target):
        if isinstance(entry.draft, Reference):
            yield entry.draft, f"the catalogue's draft for {entry.name}"
    org = target.repository.partition("/")[0]
    for repository in _smaller_kin(target)[:MOST_LISTED]:
        name = HubName(repository)
        if best := best_of(models_of(name, files_soon(repository, name.revision)), machine):
            yield best.reference, f"from {org} too"


def _of_same_model(target: Reference) -> list[Entry]:
    """Return the catalogue's pairs whose target is the same model, quantized in any way."""
    title = model_title(target.file).lower()
    return [
        entry
        for entry in read_catalogue().entries.values()
        if entry.kind == "simple"
        and isinstance(entry.target, Reference)
        and model_title(entry.target.file).lower() == title
    ]


def _smaller_kin(target: Reference) -> Sequence[str]:
    """Return the organization's repositories of the same family whose models are much smaller.

    Those of the most suitable size come first.
    """
    org, _, repository = target.repository.partition("/")
    size = _parameters(repository)
    if size is None:
        return ()
    family = BILLIONS.split(repository)[0].strip("-_.")
    with suppress(Exception):  # an offer is no reason to fail
        names = list_repositories(org, family, MOST_REPOSITORIES)
        sizes = {
            name: billions for name in names if (billions := _parameters(name.partition("/")[2]))
        }
        low, high = GOOD_SHARES
        fits = {
            name: abs(candidate_size / size - (low + high) / 2)
            for name, candidate_size in sizes.items()
            if candidate_size / size <= LARGEST_SHARE
            and _kin_name(name.partition("/")[2]) == _kin_name(repository)
            and name.startswith(f"{org}/")
        }
        return sorted(fits, key=lambda name: fits[name])
    return ()


def _kin_name(repository: str) -> str:
    """Return a repository's name without the number of parameters."""
    return BILLIONS.sub("", repository).lower()


def _parameters(name: str) -> float | None:
    """Return the number of parameters in a name, in billions."""
    match = BILLIONS.search(name)
    return float(match[1]) * (1 if match[2] in "bB" else 1e-3) if match else None
