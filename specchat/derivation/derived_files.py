"""Derived drafts: measured with their target, and kept with their origin, or not."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from specchat.catalogue.local_models import derived_folder
from specchat.derivation.gain import Costs, Guess, PredictedGain, cheapest, guesses_of, predict
from specchat.derivation.head_guesses import head_guesses
from specchat.derivation.sampled_texts import Text
from specchat.drafter_registry import pass_origin
from specchat.engine.api import Loading
from specchat.engine.loaded_pair import LoadedPair
from specchat.engine.loader import load_pair
from specchat.engine.pair_pacing import PairPacing
from specchat.errors import SpecchatError
from specchat.gguf.header import Header
from specchat.gguf.origin import fingerprints
from specchat.llama.context import Context
from specchat.llama.library import AbortFlag
from specchat.llama.model import Model
from specchat.llama.model_copies import Copy, write_copy
from specchat.options.declarations import LoadOptions, Sampling
from specchat.pacing.knowledge import Knowledge
from specchat.passes.pass_costs import PLAIN
from specchat.planning.context_shape import ModelOptions
from specchat.requests.progress import stopping_report
from specchat.system.private_files import make_private

NO_NAME, MAX_NAME_LENGTH = re.compile(r"[^\w.-]+|^[.-]+", re.ASCII), 100
WRITING, SCRATCH, NEW = ".writing", ".scratch", ".new"
NUM_ROUNDS = 3
"""Costs of passes are measured in several rounds, as other programs may disturb one of them."""


def derived_path(target: Header, method: str) -> Path:
    """Return the path of what a method derives from a file; deriving it again replaces it."""
    is_named = target.path.suffix.lower() == ".gguf"  # Ollama names files by their checksums
    name = NO_NAME.sub("-", target.path.stem if is_named else target.name)[:MAX_NAME_LENGTH]
    return derived_folder() / f"{name}-{method}-{fingerprints(target).file[:8]}.gguf"


def measure_draft(
    loading: Loading, draft: Path, texts: Sequence[Text], sampling: Sampling
) -> PredictedGain:
    """Load a draft with its target, measure both, and return the draft's predicted gain.

    `texts` are the target's own. Raises as `Engine.load` does, and SpecchatError for a draft that
    cannot be used with the target.
    """
    with _loaded(loading, draft) as (pair, costs):
        wanted, offered = _guesses(pair, texts, loading, sampling)
    return predict(costs, wanted, offered)


def _guesses(
    pair: LoadedPair, texts: Sequence[Text], loading: Loading, sampling: Sampling
) -> tuple[list[Guess], list[list[Guess]]]:
    """Return the target's guesses, and the draft's guesses by position in a draft."""
    if pair.draft_context and pair.files.kind and pair.files.kind.is_head:
        return head_guesses(pair.context, pair.draft_context, texts, sampling)
    models = [context.model for context in (pair.context, pair.draft_context) if context]
    wanted, offered = (expectations(model, texts, loading, sampling) for model in models)
    return wanted, [offered]


def expectations(
    model: Model, texts: Sequence[Text], loading: Loading, sampling: Sampling
) -> list[Guess]:
    """Return a model's guesses along texts, each of which it reads in one pass."""
    longest = max(len(tokens) for tokens, _ in texts)
    own: dict[str, Any] = {"ctx": longest, "batch": longest, "exact": "off"}
    own["rollback_length"] = max(count for _, count in texts)
    guesses: list[Guess] = []
    with Context(model, replace(ModelOptions(**loading.values(LoadOptions)), **own)) as context:
        for tokens, count in texts:
            context.prefill([])
            guesses += guesses_of(context.evaluate(tokens[:-1], count), sampling)
    return guesses


def measured_costs(loading: Loading, draft: Path) -> Costs:
    """Return the costs of a pair's passes. Raises as `measure_draft` does."""
    with _loaded(loading, draft) as (_, costs):
        return costs


@contextmanager
def _loaded(loading: Loading, draft: Path) -> Iterator[tuple[LoadedPair, Costs]]:
    """Load a pair; yield it with the costs of its passes."""
    report = stopping_report(None)
    own = replace(loading, draft=draft, head=False, learn=False)  # all is measured now
    with ExitStack() as stack:
        pair = load_pair(own, AbortFlag(), stack, report)
        if reason := pair.facts.draft_off_reason:
            raise SpecchatError(f"the draft cannot be used: {reason}")
        rounds = list[Costs]()
        for _ in range(NUM_ROUNDS):
            pacing = PairPacing(pair)
            pacing.measure(pair, report)
            rounds.append(costs_of(pacing.knowledge, pass_origin(pair.draft_kind)))
        yield pair, cheapest(rounds)


def costs_of(knowledge: Knowledge, origin: str) -> Costs:
    """Return the measured costs of passes, with those of an origin's tokens if there are any.

    A target pass over one token counts as in plain decoding, the time that speculation must beat.
    """
    both = knowledge.target, knowledge.costs_of(origin)
    target, draft = (list(costs.row(0)) for costs in both)
    target[1] = target[PLAIN]
    return Costs(target, draft, knowledge.reads_accepted)


def keep_file(made: Path, path: Path, metadata: Mapping[str, str]) -> None:
    """Copy what was made to its path, with metadata that says how.

    Raises EngineFailed if it cannot be written.
    """
    written = path.with_suffix(WRITING)
    write_copy(Copy(str(made), str(written), metadata=metadata))
    written.replace(path)


@contextmanager
def deriving_alone() -> Iterator[None]:
    """Lock out other derivations, and delete the files that killed ones left.

    Two at once would disturb each other's measurements. Raises SpecchatError if one is running.
    """
    from filelock import FileLock, Timeout

    folder = derived_folder()
    make_private(folder)
    lock = FileLock(folder.with_suffix(".lock"), timeout=0, mode=0o600)
    try:
        held = lock.acquire()
    except Timeout:
        raise SpecchatError("another draft is being derived: wait until it is done") from None
    with held:
        for path in folder.iterdir():
            if path.suffix in {WRITING, SCRATCH, NEW}:
                path.unlink()
        yield


@contextmanager
def scratch_file(path: Path) -> Iterator[Path]:
    """Yield a path in the same folder, of a file that is deleted at the end."""
    scratch = path.with_suffix(SCRATCH)
    make_private(path.parent)
    try:
        yield scratch
    finally:
        scratch.unlink(missing_ok=True)
