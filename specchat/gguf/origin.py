"""The origin of a derived file: the record in its metadata of what it was made from.

A derived draft predicts the model that it was made from best, in any quantization. That model is
recorded by a fingerprint. A fine-tuned version has another one: whether the draft fits it, too, is
measured while it drafts.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from math import isfinite
from typing import NamedTuple

from specchat.errors import ModelNotFound
from specchat.gguf.header import Header, Tensor
from specchat.gguf.reader import read_part
from specchat.gguf.vocabulary_facts import vocabulary_of

PREFIX = "specchat.origin."
SAMPLED_BYTES = 4096
CONSTANTS = ("rope_freqs", "rope_factors")
"""What the names of vectors begin with that are not trained, and that some conversions lack."""
LONGEST_TEXT = 127
"""The longest value that llama.cpp writes, in bytes; other files may have longer ones."""
MIN_SPEEDUP = 1.02
"""A predicted speedup below this may be chance."""


@dataclass(frozen=True, slots=True)
class DraftOrigin:
    """How a draft was derived: from which target, by which method, on which texts.

    `target_sha256` is one of the target's `fingerprints`: the model's, or in older drafts the
    file's. `target` is its name. `predicted_speedup` is the speedup predicted on the machine where
    the draft was made, a number as text.
    """

    target_sha256: str
    target: str
    method: str
    data: str
    predicted_speedup: str = ""

    @property
    def speedup(self) -> float:
        """The predicted speedup, 0.0 if no number is recorded: anyone may have written the file."""
        try:
            speedup = float(self.predicted_speedup)
        except ValueError:
            return 0.0
        return speedup if isfinite(speedup) and speedup > 0 else 0.0

    @property
    def is_predicted_to_gain(self) -> bool:
        """Whether the draft was predicted to make decoding faster where it was made."""
        return self.speedup >= MIN_SPEEDUP

    @property
    def metadata(self) -> Mapping[str, str]:
        """The record as metadata of a GGUF file."""
        return {f"{PREFIX}{key}": text for key, text in asdict(self).items()}


class Fingerprints(NamedTuple):
    """Checksums in hexadecimal: of a model in any quantization, and of its weights as stored."""

    model: str
    file: str


def origin_of(header: Header) -> DraftOrigin | None:
    """Return the record in a draft's header, None for a model that is not a derived draft."""
    keys = DraftOrigin.__dataclass_fields__
    texts = [header.text(f"{PREFIX}{key}")[:LONGEST_TEXT] for key in keys]
    return DraftOrigin(*texts) if texts[0] else None


def fingerprints(header: Header) -> Fingerprints:
    """Return the checksums that identify a model. Raises as `read_header` does.

    Each is the SHA-256 of the architecture, the vocabulary, and tensors: of each its name, shape,
    type and first 4096 bytes, which is fast for files of any size. Training changes all of a
    tensor, so its beginning identifies it. Another chat template, or a split into several files,
    changes nothing.

    The file's counts all tensors, the model's only vectors (norms and biases): quantization leaves
    them as they are. So an adapter merged into matrices alone goes unnoticed. A model without
    vectors is known by its file.
    """
    tensors = list(_tensors(header))
    vectors = [beginning for tensor, beginning in tensors if _is_trained_vector(tensor)]
    facts = f"{header.architecture} {vocabulary_of(header).digest}".encode()
    counted = vectors, [beginning for _, beginning in tensors]
    digests = [sha256(b"".join([facts, *sorted(each)])).hexdigest() for each in counted]
    return Fingerprints(digests[0] if vectors else digests[1], digests[1])


def other_weights_notice(target: Header, draft: Header) -> str:
    """Return that a draft was made for other weights than a target's; empty if it was not.

    Raises as `fingerprints` does.
    """
    origin = origin_of(draft)
    if origin is None or origin.target_sha256 in fingerprints(target):
        return ""
    return (
        f"{draft.path.name} was made for other weights, {origin.target}: the first answers show"
        " whether it fits"
    )


def _is_trained_vector(tensor: Tensor) -> bool:
    return tensor.shape[:1] == (tensor.num_values,) and not tensor.name.startswith(CONSTANTS)


def _tensors(header: Header) -> Iterator[tuple[Tensor, bytes]]:
    """Yield each tensor with its description and the beginning of its data."""
    for path in header.parts:
        part = read_part(path)
        try:
            with path.open("rb") as file:
                for tensor in part.tensors.values():
                    file.seek(part.data_position + tensor.offset)
                    beginning = file.read(min(tensor.num_bytes, SAMPLED_BYTES))
                    description = f"{tensor.name} {tensor.shape} {tensor.stored} "
                    yield tensor, description.encode() + beginning
        except OSError as error:
            raise ModelNotFound(f"{path} cannot be read: {error.strerror}") from None
