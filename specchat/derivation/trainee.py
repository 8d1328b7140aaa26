"""The network trained for a target: a prediction head if one can be run, else a small draft model.

Imports PyTorch, so it is imported only where training begins. A head reads the target's hidden
states, so it learns as much from a tenth of the answers.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from numpy.typing import NDArray

from specchat.derivation.answer_store import Example
from specchat.derivation.distillation import Distillation
from specchat.derivation.draft_format import (
    EMBEDDING,
    NORM,
    OUTPUT,
    draft_shape,
    head_layers,
    head_metadata,
    head_shape,
    network_metadata,
    weights_of,
)
from specchat.derivation.draft_training import DraftDistillation
from specchat.derivation.head_training import HeadDistillation, drafted_tokens
from specchat.gguf.header import Header
from specchat.gguf.reader import raw_metadata
from specchat.gguf.writer import Value, gguf_bytes


class Trainee(ABC):
    """A network in training for one target, and its file."""

    kind: ClassVar[str]
    description: ClassVar[str]
    method: ClassVar[str]
    """The suffix of its file's name."""
    checkpoint: ClassVar[str]
    """The name of the file that training resumes from."""
    batches: ClassVar[int]
    """The number of batches in a step."""
    layers: Sequence[int] = ()
    """The layers of the target whose inputs it reads."""
    training: Distillation

    @abstractmethod
    def begin(self, examples: Sequence[Example]) -> None:
        """Start from the target's weights. Raises SpecchatError."""

    @abstractmethod
    def file(self) -> bytes:
        """Return a GGUF file of the best network so far."""


class DraftTrainee(Trainee):
    """A small model of the target's vocabulary."""

    kind, description = "draft", "a small model"
    method, checkpoint, batches = "train", "checkpoint.pt", 2

    def __init__(self, header: Header, threads: int) -> None:
        """Make an untrained model."""
        self._header = header
        self.training = self._distillation = DraftDistillation(
            draft_shape(header), threads=threads, seed=0
        )

    def begin(self, examples: Sequence[Example]) -> None:
        """Take over the embedding as far as the width allows."""
        del examples
        self._distillation.begin_with(weights_of(self._header, EMBEDDING))

    def file(self) -> bytes:
        """Return a GGUF file."""
        metadata = network_metadata(self._distillation.network.shape, _name(self._header, self))
        return _file(self._header, metadata, self.training.weights())


class HeadTrainee(Trainee):
    """A prediction head (EAGLE-3).

    It is stored in q8_0, where q4_0 would cost 2 % of its accepted tokens; its feed-forward network
    in q4_0, which costs 0.1 %.
    """

    kind, description = "head", "a prediction head"
    method, checkpoint, batches = "head", "head.pt", 1

    def __init__(self, header: Header, threads: int) -> None:
        """Make an untrained head; raises SpecchatError."""
        self._header, self.layers = header, head_layers(header)
        self.training = self._distillation = HeadDistillation(
            head_shape(header), weights_of(header, EMBEDDING), threads=threads, seed=0
        )

    def begin(self, examples: Sequence[Example]) -> None:
        """Take over the output of the tokens that the answers use most."""
        header, shape = self._header, self._distillation.network.shape
        output = weights_of(header, OUTPUT if OUTPUT in header.tensors else EMBEDDING)
        tokens = drafted_tokens(examples, len(output), shape.vocabulary)
        self._distillation.begin_with(output, weights_of(header, NORM), tokens)

    def file(self) -> bytes:
        """Return a GGUF file."""
        metadata = head_metadata(self._header, self._distillation.network.shape)
        named = {**metadata, "general.name": _name(self._header, self)}
        weights = self.training.weights()
        fine = {name for name in weights if "ffn" not in name}
        return _file(self._header, named, weights, fine)


def _name(header: Header, trainee: Trainee) -> str:
    return f"{header.name} {trainee.kind}"


def _file(
    header: Header,
    metadata: Mapping[str, Value],
    weights: Mapping[str, NDArray[Any]],
    fine: Collection[str] = (),
) -> bytes:
    entries = raw_metadata(header.parts[0], "tokenizer.")
    return gguf_bytes(metadata, entries, weights, fine)
