"""Another file of a model, which many processors decode faster: all its matrices in Q4_0.

llama.cpp repacks Q4_0 on x86 with AVX2 or AVX-512 and on ARM, but few other types, and its own
recipe for Q4_0 leaves the output matrix in a larger one, which in a small model is a fifth of all.
A file made from one that is quantized already is worse than one made from the full weights. So it
is compared with its source, in quality and in speed, and kept only if it does well in both.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from math import exp, log
from pathlib import Path
from statistics import median
from typing import Any

from specchat import docs
from specchat.catalogue.model_names import model_title
from specchat.derivation.derived_files import derived_path, keep_file, scratch_file
from specchat.drafter_registry import PLAIN
from specchat.engine.api import Engine, Loading
from specchat.errors import SpecchatError
from specchat.gguf.header import Header
from specchat.gguf.model_files import read_whole_model
from specchat.gguf.origin import MIN_SPEEDUP, Requantised, origin_of
from specchat.gguf.tensor_types import STORED_TYPES
from specchat.gguf.vocabulary_facts import vocabulary_of
from specchat.llama.model_copies import Copy, write_copy
from specchat.sharing.process_engine import ProcessEngine
from specchat.wording import percent, speedup_text

Q4_0 = 2
"""ggml's number of the type."""
MOST_PERPLEXITY, LEAST_AGREEMENT = 1.1, 0.8
"""The bounds of quality: the perplexity on held-out text in those of the source, and the share of
places in it at which the two find the same next token likeliest. Going from four bits to three
costs a little more: Q3_K_M made from SmolLM2-135M in Q4_1 has 1.11 and 0.79."""
PAGES = ("chat", "formats", "install", "models", "security", "server", "speculation", "structured")
"""The held-out text: the beginnings of these pages of specchat's documentation."""
NUM_TOKENS, FIRST_COUNTED = 256, 32
"""The tokens read of each page, and the first one that counts, as too little comes before it."""
NUM_ROUNDS, NUM_TIMED, NUM_PROMPT = 5, 32, 64
"""How often the speeds are measured in turn, over how many tokens, after how long a prompt."""
LEAST_PROBABILITY = 1e-30

Place = tuple[int, float]
"""The likeliest token at a place of a text, and the log-probability of the one that is there."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A requantized file and its source: perplexities, agreement, and plain tokens per second."""

    num_tokens: int
    perplexity: float
    source_perplexity: float
    agreement: float
    rate: float
    source_rate: float
    speedup: float

    @property
    def loss(self) -> float:
        """How much higher its perplexity is than its source's, as a share of that."""
        return self.perplexity / self.source_perplexity - 1

    @property
    def is_good(self) -> bool:
        """Whether its quality is within the bounds."""
        return self.loss <= MOST_PERPLEXITY - 1 and self.agreement >= LEAST_AGREEMENT

    @property
    def is_faster(self) -> bool:
        """Whether it is faster than its source here."""
        return self.speedup >= MIN_SPEEDUP

    @property
    def words(self) -> str:
        """The result in words, for the file's metadata."""
        return (
            f"{speedup_text(self.speedup, 2)} without drafts, perplexity {100 * self.loss:+.1f} %,"
            f" {percent(self.agreement)} of next tokens the same"
        )


@dataclass(frozen=True, slots=True)
class RequantisedFile:
    """A requantized file: what was measured, its size and its source's in bytes.

    `path` is None for a file that was not kept.
    """

    compared: Comparison
    num_bytes: int
    source_bytes: int
    path: Path | None


class Requantisation:
    """The making of one file."""

    def __init__(
        self, loading: Loading, report: Callable[[str], object], *, keep_slower: bool = False
    ) -> None:
        """Check the source; `report` is called with each progress line. Raises SpecchatError."""
        self._header = read_whole_model(loading.target)
        require_requantisable(self._header)
        longest = min(self._header.longest_context or NUM_TOKENS, 2 * NUM_TOKENS)
        self._loading = replace(loading, draft=None, head=False, learn=False, ctx=longest)
        self._report, self._keeps_slower = report, keep_slower

    def run(self) -> RequantisedFile:
        """Return the file, kept or not. Raises EngineFailed if it cannot be written."""
        name = self._header.path.name
        title = model_title(name) if name.lower().endswith(".gguf") else self._header.name
        path = derived_path(self._header, STORED_TYPES[Q4_0].name, title)
        with scratch_file(path) as scratch:
            self._report("writing the file")
            source, kind = str(self._loading.target), STORED_TYPES[Q4_0].file_type
            write_copy(Copy(source, str(scratch), file_type=kind, is_pure=True))
            compared, num_bytes = self._compare(scratch), scratch.stat().st_size
            is_kept = compared.is_good and (compared.is_faster or self._keeps_slower)
            if is_kept:
                record = Requantised(self._loading.target.name, compared.words)
                keep_file(scratch, path, record.metadata)
        kept = path if is_kept else None
        return RequantisedFile(compared, num_bytes, self._header.file_bytes, kept)

    def _compare(self, scratch: Path) -> Comparison:
        """Load the file beside its source, and compare them."""
        with ExitStack() as stack:
            self._report("loading both files")
            files = self._loading, replace(self._loading, target=scratch)
            source, made = engines = [stack.enter_context(ProcessEngine(each)) for each in files]
            texts = [source.tokenize(docs.read(page))[:NUM_TOKENS] for page in PAGES]
            prompt = texts[0][:NUM_PROMPT]
            rounds = list[tuple[float, float]]()
            for number in range(NUM_ROUNDS):
                self._report(f"measuring the speed of both: {number + 1} of {NUM_ROUNDS}")
                order = engines if number % 2 else engines[::-1]  # so that both gain by a drift
                rates = {engine: _rate(engine, prompt) for engine in order}
                rounds.append((rates[source], rates[made]))
            places: list[tuple[Place, Place]] = []
            for number, text in enumerate(texts, 1):
                self._report(f"measuring the quality of both: {number} of {len(texts)}")
                places += zip(_places(source, text), _places(made, text), strict=True)
        agreement = sum(own[0] == other[0] for own, other in places) / len(places)
        perplexities = [_perplexity(each) for each in zip(*places, strict=True)]
        source_rate, rate = map(median, zip(*rounds, strict=True))
        speedup = median(made / source for source, made in rounds)
        return Comparison(
            len(places), perplexities[1], perplexities[0], agreement, rate, source_rate, speedup
        )


def require_requantisable(header: Header) -> None:
    """Raise SpecchatError, with the reason, for a file of which no faster one can be made."""
    types = {tensor.stored for tensor in header.tensors.values() if len(tensor.shape) > 1}
    if origin_of(header):
        reason = "it is a derived draft"
    elif Q4_0 in types and types <= {Q4_0, 0}:
        reason = "all its matrices are in Q4_0 already"
    elif vocabulary_of(header).kind == "none":
        reason = "it has no vocabulary, so there is no text to compare it on"
    else:
        return
    raise SpecchatError(f"{header.name} cannot be requantized: {reason}; choose another file")


def _rate(engine: Engine, prompt: Sequence[int]) -> float:
    """Return the tokens per second of plain decoding."""
    options: dict[str, Any] = {"temperature": 0.0, "drafter": PLAIN, "ignore_end": True}
    for _ in engine.generate(prompt, max_tokens=NUM_TIMED, **options):
        pass
    return engine.stats.tokens_per_second


def _places(engine: Engine, text: Sequence[int]) -> list[Place]:
    """Return what a model finds at each place of a text that counts."""
    scored = list(zip(text, engine.score(text, 1), strict=True))
    found = list[Place]()
    for token, alternatives in scored[FIRST_COUNTED:]:
        chances = {other: chance for other, _, chance in alternatives}
        found.append((alternatives[0][0], log(max(chances[token], LEAST_PROBABILITY))))
    return found


def _perplexity(places: Sequence[Place]) -> float:
    return exp(-sum(chance for _, chance in places) / len(places))
