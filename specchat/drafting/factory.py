"""The drafter factory: resolves a choice of drafter, and makes drafters from loaded models."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from specchat import drafter_registry
from specchat.decoding.ports import Drafter, LanguageModel
from specchat.drafting.head_fit import HeadFit
from specchat.drafting.token_map import TokenMap
from specchat.errors import InvalidOption


@dataclass(frozen=True, slots=True)
class Materials:
    """What drafters are made from.

    `kind` is the kind of `draft_model`, a key of `drafter_registry.MODELS`; if it `drafts_blocks`,
    one pass gives all tokens of a draft. `tokens` maps the target's tokens to those of the draft
    model. `missing_reasons` says why a kind of model is missing or unusable, and
    `no_rollback_reason` why the target cannot speculate at all (None if it can). `head_fit` counts
    how often a head was right.
    """

    draft_model: LanguageModel | None
    tokens: TokenMap
    end_tokens: Collection[int]
    kind: str = "model"
    drafts_blocks: bool = False
    missing_reasons: Mapping[str, str | None] = field(default_factory=dict)
    no_rollback_reason: str | None = None
    head_fit: HeadFit = field(default_factory=HeadFit)


def choose_drafter(choice: str, materials: Materials) -> str:
    """Return the name of the drafter for a user's choice; "auto" takes the best that works.

    Raises InvalidOption for an unknown name.
    """
    if choice == drafter_registry.AUTO:
        return drafter_registry.automatic(
            materials.kind if materials.draft_model else "",
            can_speculate=materials.no_rollback_reason is None,
        )
    if choice not in drafter_registry.DRAFTERS:
        names = ", ".join(drafter_registry.choices())
        raise InvalidOption(f"unknown drafter {choice!r}: choose one of {names}")
    return choice


def make_drafter(choice: str, materials: Materials) -> Drafter:
    """Return a new drafter. Raises InvalidOption, saying why, if the models do not allow it."""
    described = drafter_registry.DRAFTERS[choose_drafter(choice, materials)]
    reason = materials.no_rollback_reason if described.origins else None
    advice = "use --drafter none"
    is_loaded = materials.draft_model is not None and described.needs == materials.kind
    if reason is None and described.needs and not is_loaded:
        reason = materials.missing_reasons.get(described.needs)
        reason = reason or f"{drafter_registry.MODELS[described.needs]} is not loaded"
        advice = "name another draft with --draft FILE, or choose --drafter auto"
    if reason is not None:
        raise InvalidOption(f"drafter {described.name!r} cannot work here, {reason}: {advice}")
    drafter: Drafter = drafter_registry.resolve(described.make)(materials)
    return drafter
