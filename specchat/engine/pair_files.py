"""The headers of a pair's files, read before anything is loaded."""

from dataclasses import dataclass

from specchat.engine.api import Loading
from specchat.gguf.common_vocabulary import CommonVocabulary, common_vocabulary
from specchat.gguf.draft_kinds import DraftKind
from specchat.gguf.header import Header
from specchat.gguf.model_files import read_pair
from specchat.gguf.origin import other_weights_notice
from specchat.gguf.projector import read_projector
from specchat.llama.hidden_states import why_not_runnable
from specchat.planning.memory import Sizes


@dataclass(frozen=True, slots=True)
class PairFiles:
    """The headers of a target and of its draft, with the sizes of their parts.

    `draft` is None if there is none, or a head that this build of llama.cpp cannot run: then
    `no_head_reason` says why. Models of different vocabularies have a `common_vocabulary`.
    `origin_notice` says that the draft was made for other weights, empty if it was not. The
    `projector` makes images readable for the target, and the `draft_projector` for the draft.
    """

    target: Sizes
    draft: Sizes | None = None
    common_vocabulary: CommonVocabulary | None = None
    no_head_reason: str | None = None
    origin_notice: str = ""
    projector: Header | None = None
    draft_projector: Header | None = None

    @property
    def kind(self) -> DraftKind | None:
        """The kind of the draft, None without one."""
        return self.draft.kind if self.draft else None


def read_pair_files(loading: Loading) -> PairFiles:
    """Read the files of a pair.

    Raises as `read_pair`, `other_weights_notice` and `read_projector` do.
    """
    target, draft = read_pair(loading.target, loading.draft, with_head=loading.head)
    projector = read_projector(loading.projector, target) if loading.projector else None
    if draft is None:
        return PairFiles(Sizes(target), projector=projector)
    if reason := why_not_runnable(draft):
        return PairFiles(Sizes(target), no_head_reason=reason, projector=projector)
    sizes = Sizes(draft)
    common = None if sizes.kind.is_head else common_vocabulary(target, draft)
    notice = other_weights_notice(target, draft)
    own = loading.draft_projector if projector and not sizes.kind.is_head else None
    return PairFiles(
        Sizes(target),
        sizes,
        common,
        origin_notice=notice,
        projector=projector,
        draft_projector=read_projector(own, draft) if own else None,
    )
