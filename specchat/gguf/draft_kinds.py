"""The kinds of models that draft for a target: one row each, which all other code consults.

A new kind of prediction head takes three files: one that reads its GGUF metadata, one with a class
that runs it beside its target's context, and one with its row, here or in a call of `register`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, TypeAlias

from specchat.drafter_registry import MODELS
from specchat.gguf import (
    assistant_head,
    block_draft,
    eagle_draft,
    lattice_draft,
    layer_inputs,
    prediction_head,
    spark_draft,
)
from specchat.gguf.fatal_values import why_fatal
from specchat.gguf.header import Header
from specchat.gguf.vocabulary_facts import with_vocabulary_size

Input: TypeAlias = Literal["hidden states", "layer inputs"]
"""What a head reads from its target: the last layer's output, or the inputs of some layers."""


def _never(_: Header) -> bool:
    return False


def _itself(header: Header) -> Header:
    return header


def _one(_: Header) -> int:
    return 1


def _no_reason(*_: Header) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftKind:
    """The properties of one kind of draft, known before a file is loaded.

    `runs` names, as "module:attribute", the function or class that makes the context from a model,
    its options, its target's context, and a flag that stops it. The context has the methods of
    `specchat.llama.draft_context`.
    """

    name: str
    model_kind: str = "head"
    """The kind of model as drafters see it: a key of `drafter_registry.MODELS`."""
    description: str
    """A description of the file's content for users."""
    runs: str

    architectures: frozenset[str] = frozenset()
    """The architectures of files that hold a draft of this kind and nothing else."""
    marker: str = ""
    """A tensor that only files of this kind have, where others have the same architecture."""
    is_alone: Callable[[Header], bool] = _never
    """Whether a file of another architecture holds only such a draft."""
    is_inside: Callable[[Header], bool] = _never
    """Whether a file holds such a draft, with or without its target."""
    targets: Mapping[str, str] = field(default_factory=dict, compare=False)
    """The architectures of targets by which it is known, each with why it is refused, if it is."""
    catalogue_kind: str = ""
    """Its name in models.toml, if it has one of its own: a key of `catalogue.entry.HEAD_KINDS`."""
    words: str = ""
    """A pattern of the words in names of files and folders that name the kind, not the target."""
    file_names: str = "{words}"
    """A pattern of names of files that cannot be used without their target, with {words} in it."""
    why_unusable: Callable[[Header], str | None] = _no_reason
    """Returns why the draft in a file cannot be used: llama.cpp ends the process for some."""
    why_unfit: Callable[[Header, Header], str | None] = _no_reason
    """Returns why the draft cannot be used with a target, whose header comes first."""
    as_model: Callable[[Header], Header] = _itself
    """Returns the header of the draft in a file as that of a model with its own context."""

    reads: frozenset[Input] = frozenset()
    """What it reads from its target besides the tokens; empty for a whole model."""
    drafts_blocks: bool = False
    """Whether one pass gives all tokens of a draft. Chains make a pass for each token."""
    rereads_accepted: bool = False
    """Whether the first pass of a step reads all tokens accepted in the last step again, because
    they were read without the target's hidden states while drafting."""
    gives_all_logits: bool = False
    """Whether llama.cpp computes logits for every token of a pass, and returns the first rows."""
    shares_memory: bool = False
    """Whether it reads its target's KV cache, and so must be on the same device."""
    num_contexts: Callable[[Header], int] = _one
    """Returns how many contexts it has, all for the same text."""
    batch: int | None = None
    """The most tokens of a pass, which buffers grow with; None for the user's number."""

    @property
    def is_head(self) -> bool:
        """Whether it is a prediction head, which shares its target's vocabulary."""
        return bool(self.reads)

    @property
    def is_chain_head(self) -> bool:
        """Whether it is a head that continues from its own hidden states while drafting."""
        return self.is_head and not self.drafts_blocks

    @property
    def has_encoder(self) -> bool:
        """Whether an encoder first joins the inputs of several layers into one."""
        return "layer inputs" in self.reads

    @property
    def noun(self) -> str:
        """The name that messages use, without an article."""
        return MODELS[self.model_kind].removeprefix("a ")

    @property
    def word_pattern(self) -> str:
        """The pattern of its words, each a whole one, with the version of a draft behind it."""
        return rf"(?<![a-z])(?:{self.words})(?:[-_.]?v\d+(?:\.\d+)*)?(?![a-z])"

    @property
    def file_pattern(self) -> str:
        """The pattern of names of its files."""
        return self.file_names.replace("{words}", self.word_pattern)

    def header(self, of_file: Header) -> Header:
        """Return the header of the draft in a file as that of a model of this kind."""
        return replace(self.as_model(of_file), draft_kind=self.name)


KINDS: dict[str, DraftKind] = {}
"""All kinds by name, in the order of their registration; see `register`."""


def register(new: DraftKind) -> None:
    """Add a kind; adding the same one again does nothing.

    Raises ValueError if its name or one of its architectures is taken, or `runs` is malformed.
    """
    if KINDS.get(new.name) == new:
        return
    taken = {
        architecture
        for kind in KINDS.values()
        if kind.marker == new.marker
        for architecture in kind.architectures
    }
    if new.name in KINDS or taken & new.architectures:
        raise ValueError(f"there is already a kind of draft like {new.name!r}")
    if ":" not in new.runs:
        raise ValueError(f"runs must be 'module:attribute', not {new.runs!r}")
    KINDS[new.name] = new


def kind_of(header: Header) -> DraftKind:
    """Return the kind of a loaded model, or of the draft in a file, by its header."""
    return KINDS[header.draft_kind]


def kind_of_file(header: Header) -> DraftKind:
    """Return the kind of draft that a file holds: a head without its target, or a whole model."""
    if named := _kind_of_architecture(header):
        return named
    return next((kind for kind in KINDS.values() if kind.is_alone(header)), MODEL)


def is_head_only(header: Header) -> bool:
    """Return True if a file holds a prediction head without its target.

    llama.cpp crashes if an ordinary context is made for such a file.
    """
    return kind_of_file(header).is_head


def is_of_head(header: Header) -> bool:
    """Return True for an architecture that only prediction heads have."""
    return _kind_of_architecture(header) is not None


def has_head(header: Header) -> bool:
    """Return True if a model's file also has a prediction head."""
    return _kind_inside(header) is not None


def is_name_of_head(file: str) -> bool:
    """Return True if a file with this name may hold a head for another one's model."""
    patterns = (kind.file_pattern for kind in KINDS.values() if kind.words)
    return any(re.search(pattern, file, re.IGNORECASE) for pattern in patterns)


def words_of_heads() -> re.Pattern[str]:
    """Return a pattern of the words that name kinds of heads."""
    patterns = (kind.word_pattern for kind in KINDS.values() if kind.words)
    return re.compile("|".join(patterns), re.IGNORECASE)


def why_no_head(header: Header) -> str | None:
    """Return why the prediction head in a file cannot be used, None if it can."""
    kind = kind_of_file(header)
    head = kind if kind.is_head else _kind_inside(header)
    if head is None:
        return f"{header.name} has no prediction head"
    return why_fatal(header) or head.why_unusable(header)


def own_head(target: Header) -> Header | None:
    """Return the header of the head in a target's file, None if it has no usable one."""
    kind = _kind_inside(target)
    return kind.header(target) if kind and kind.why_unusable(target) is None else None


def _kind_of_architecture(header: Header) -> DraftKind | None:
    named = [kind for kind in KINDS.values() if header.architecture in kind.architectures]
    named.sort(key=lambda kind: not kind.marker)
    return next((kind for kind in named if not kind.marker or kind.marker in header.tensors), None)


def _kind_inside(header: Header) -> DraftKind | None:
    return next((kind for kind in KINDS.values() if kind.is_inside(header)), None)


HEAD_BATCH = 64
MODEL = DraftKind(
    name="model",
    model_kind="model",
    description="a model",
    runs="specchat.llama.draft_context:of_draft_model",
)
"""A whole model: a target, or a smaller model that drafts for a target."""

_block_kind = partial(
    DraftKind,
    architectures=frozenset({block_draft.ARCHITECTURE}),
    targets=layer_inputs.TARGETS,
    why_unfit=block_draft.why_unfit,
    as_model=with_vocabulary_size,
    reads=frozenset({"layer inputs"}),
    drafts_blocks=True,
    rereads_accepted=True,
    batch=HEAD_BATCH,
)
"""Makes the row of a draft in the format of DFlash, which gives whole blocks."""

_mtp_kind = partial(
    DraftKind,
    description="a prediction head (MTP) without its model",
    catalogue_kind="mtp",
    words="mtp|nextn",
    file_names=r"^{words}[-_.]|[-_.]nextn(?![a-z])|[-_.]mtp[-_.]only(?![a-z])",
    why_unusable=prediction_head.why_unusable,
    why_unfit=prediction_head.why_unfit,
    as_model=prediction_head.as_model,
    reads=frozenset({"hidden states"}),
    rereads_accepted=True,
    batch=HEAD_BATCH,
)
"""Makes the row of heads that are layers after a model's last one."""

for _each in (
    MODEL,
    _mtp_kind(
        name="heads in turn",
        runs="specchat.llama.heads_in_turn:HeadsInTurn",
        is_alone=prediction_head.are_several_alone,
        is_inside=prediction_head.has_several,
        targets=prediction_head.IN_TURN,
        num_contexts=prediction_head.num_in_turn,
    ),
    _mtp_kind(
        name="prediction head",
        runs="specchat.llama.head:Head",
        is_alone=prediction_head.is_alone,
        is_inside=prediction_head.is_inside,
        targets=prediction_head.TARGETS,
    ),
    DraftKind(
        name="assistant",
        description="a prediction head (MTP) without its model",
        runs="specchat.llama.head:SharedHead",
        architectures=frozenset({assistant_head.ARCHITECTURE}),
        targets={assistant_head.TARGET: ""},
        catalogue_kind="assistant",
        words="assistant",
        file_names="gemma-?4.*{words}",
        why_unusable=assistant_head.why_unusable,
        why_unfit=assistant_head.why_unfit,
        as_model=assistant_head.as_model,
        reads=frozenset({"hidden states"}),
        shares_memory=True,
        batch=1,
    ),
    DraftKind(
        name="EAGLE-3",
        description="an EAGLE-3 draft, a prediction head for another model",
        runs="specchat.llama.eagle_head:EagleHead",
        architectures=frozenset({eagle_draft.ARCHITECTURE}),
        targets=layer_inputs.TARGETS,
        catalogue_kind="eagle",
        words="eagle[-_]?3?",
        file_names=r"^eagle[-_](?!\d*\.?\d*b)|(?<![a-z])eagle-?3(?!\d*\.?\d*b)",
        why_unusable=eagle_draft.why_unusable,
        why_unfit=eagle_draft.why_unfit,
        as_model=with_vocabulary_size,
        reads=frozenset({"hidden states", "layer inputs"}),
        rereads_accepted=True,
        gives_all_logits=True,
        batch=HEAD_BATCH,
    ),
    _block_kind(
        name="DFlash 2",
        description="a DFlash 2 draft, a prediction head for another model",
        runs="specchat.llama.lattice_head:LatticeHead",
        marker=lattice_draft.MARKER,
        why_unusable=lattice_draft.why_unusable,
    ),
    _block_kind(
        name="DSpark",
        description="a DSpark draft, a prediction head for another model",
        runs="specchat.llama.spark_head:SparkHead",
        marker=spark_draft.MARKER,
        catalogue_kind="dspark",
        words="d-?spark",
        why_unusable=spark_draft.why_unusable,
    ),
    _block_kind(
        name="DFlash",
        description="a DFlash draft, a prediction head for another model",
        runs="specchat.llama.block_head:BlockHead",
        catalogue_kind="dflash",
        words="d-?flash-?2?",
        why_unusable=block_draft.why_unusable,
    ),
):
    register(_each)
