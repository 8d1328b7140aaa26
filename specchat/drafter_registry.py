"""The drafter registry: each drafter's name, how its tokens are shown, how it is made.

All code that lists, draws, counts or chooses drafters asks this module. A new drafter is one file
and one call of `register`.
"""

import re
from dataclasses import dataclass
from importlib import import_module
from typing import Any

AUTO = "auto"
"""The choice that picks the best drafter for the loaded models."""

PLAIN = "none"
"""The drafter that proposes nothing: plain decoding."""

MODELS = {"model": "a draft model", "head": "a prediction head"}
"""The kinds of models that drafters use in addition to the target; at most one is loaded."""

NAME = re.compile(r"[a-z0-9][a-z0-9_+.-]*")


@dataclass(frozen=True, slots=True)
class TokenOrigin:
    """Where an emitted token came from, and how screens and files show it.

    `letter` stands for the origin in stored conversations. `colour` is the name of a theme colour,
    `mark` the attributes that identify it without colours. If `costs_pass`, each token takes a pass
    of a model and is drawn from that model's distribution.
    """

    name: str
    letter: str
    label: str
    colour: str = ""
    mark: str = ""
    costs_pass: bool = False


@dataclass(frozen=True, slots=True)
class DrafterDescriptor:
    """What is known about a drafter before it is made.

    `make` names, as "module:attribute", a function from `specchat.drafting.factory.Materials` to
    the drafter; it is imported when the drafter is first used. `origins` are those of its tokens,
    empty if it proposes none. `needs` is the kind of model it drafts with, a key of MODELS, empty
    for none. `rank` is its place in the choice of "auto", which takes the highest that works; with
    None it must be named. Users cannot name one without `is_choice`.
    """

    name: str
    help: str
    make: str
    origins: tuple[TokenOrigin, ...] = ()
    needs: str = ""
    rank: int | None = None
    is_choice: bool = True


TARGET = TokenOrigin("target", "t", "target")
"""The target itself: corrections, free tokens, and all tokens of plain decoding."""

CHOSEN = "chosen"
"""The origin of a token that the user put into an answer; screens show it as the target's."""

_MODEL = TokenOrigin(
    "draft", "d", "draft model", colour="text-success", mark="underline", costs_pass=True
)
_HEAD = TokenOrigin(
    "head", "h", "prediction head", colour="text-primary", mark="underline bold", costs_pass=True
)
_SUFFIX = TokenOrigin(
    "suffix", "s", "suffix lookup", colour="text-warning", mark="underline italic"
)
PREDICTION = TokenOrigin(
    "prediction", "p", "prediction", colour="secondary-lighten-2", mark="underline reverse"
)
"""A text that a request expects, from which any drafter's answers may be drafted first."""

GRAMMAR = TokenOrigin(
    "grammar", "g", "grammar", colour="foreground-darken-3", mark="underline bold italic"
)
"""A request's grammar, where it allows one token only: no model has to make or check it."""

DRAFTERS: dict[str, DrafterDescriptor] = {}
"""All drafters by name, in the order of their registration; see `register`."""


def register(new: DrafterDescriptor) -> None:
    """Add a drafter; adding the same one again does nothing.

    Raises ValueError if its name, or the name or letter of an origin, is malformed or taken.
    """
    if DRAFTERS.get(new.name, new) != new or new.name == AUTO:
        raise ValueError(f"there is already a drafter {new.name!r}")
    if ":" not in new.make:
        raise ValueError(f"make must be 'module:attribute', not {new.make!r}")
    for name in (new.name, *(each.name for each in new.origins)):
        if not NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a name in lower-case letters and digits")
    for each in new.origins:
        if len(each.letter) != 1:
            raise ValueError(f"the letter of {each.name!r} must be one character")
        for other in origins():
            if other != each and (other.name == each.name or other.letter == each.letter):
                raise ValueError(f"origin {each.name!r} conflicts with {other.name!r}")
    DRAFTERS[new.name] = new


def resolve(named: str) -> Any:
    """Return what "module:attribute" names."""
    module, _, attribute = named.partition(":")
    return getattr(import_module(module), attribute)


def choices() -> tuple[str, ...]:
    """Return what a user may choose: "auto", the names, and plain decoding last."""
    named = [
        drafter.name for drafter in DRAFTERS.values() if drafter.is_choice and drafter.name != PLAIN
    ]
    return (AUTO, *named, PLAIN)


def working(loaded: str) -> tuple[str, ...]:
    """Return the choices, except plain decoding, that work with this kind of model loaded."""
    needs = {name: DRAFTERS[name].needs for name in choices()[1:-1]}
    return (AUTO, *[name for name, needed in needs.items() if needed in {"", loaded}])


def automatic(loaded: str, *, can_speculate: bool = True) -> str:
    """Return the name of the drafter that "auto" picks with this kind of model loaded."""
    fit = [
        drafter
        for drafter in DRAFTERS.values()
        if drafter.needs in {"", loaded} and (can_speculate or not drafter.origins)
    ]
    return max(fit, key=lambda each: -1 if each.rank is None else each.rank).name


def may_use(choice: str, *kinds: str) -> bool:
    """Return True if this choice can use a model of one of these kinds."""
    return choice == AUTO or DRAFTERS[choice].needs in kinds


def origins() -> tuple[TokenOrigin, ...]:
    """Return all origins: every drafter's, then a prediction, a grammar and the target."""
    own = (each for drafter in DRAFTERS.values() for each in drafter.origins)
    return tuple(dict.fromkeys([*own, PREDICTION, GRAMMAR, TARGET]))


def origin(name: str) -> TokenOrigin:
    """Return the origin of that name; the target if no drafter has it."""
    return next((each for each in origins() if each.name == name), TARGET)


def origin_of_letter(letter: str) -> TokenOrigin:
    """Return the origin with that letter; the target if no drafter has it."""
    return next((each for each in origins() if each.letter == letter), TARGET)


def pass_origin(kind: str) -> str:
    """Return the name of the origin of tokens from this kind of model.

    A draft model's if no drafter needs that kind.
    """
    drafting = (drafter for drafter in DRAFTERS.values() if drafter.needs == kind)
    own = (origin for each in drafting for origin in each.origins if origin.costs_pass)
    return next((each.name for each in own), _MODEL.name)


for _each in (
    DrafterDescriptor(
        "model", "a smaller model", "specchat.drafting.draft_model:make", (_MODEL,), needs="model"
    ),
    DrafterDescriptor(
        "head",
        "the target's own prediction head (MTP)",
        "specchat.drafting.head_drafter:make",
        (_HEAD,),
        needs="head",
    ),
    DrafterDescriptor(
        "suffix",
        "what followed the same words earlier in the conversation",
        "specchat.drafting.suffix:make",
        (_SUFFIX,),
        rank=10,
    ),
    DrafterDescriptor(
        "suffix+model",
        "both: in each step the one that promises more",
        "specchat.drafting.combined:make",
        (_MODEL, _SUFFIX),
        needs="model",
        rank=20,
        is_choice=False,
    ),
    DrafterDescriptor(
        "suffix+head",
        "both: in each step the one that promises more",
        "specchat.drafting.head_drafter:make_combined",
        (_HEAD, _SUFFIX),
        needs="head",
        rank=20,
        is_choice=False,
    ),
    DrafterDescriptor(PLAIN, "plain decoding", "specchat.drafting.silent:make", rank=0),
):
    register(_each)
