"""Asks a server once, before the first question, for its kind and its model."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from specchat.connection import dialects
from specchat.connection.dialects import Dialect
from specchat.connection.http_session import HttpSession
from specchat.connection.prometheus_counters import read_counters
from specchat.connection.server_errors import not_an_api
from specchat.errors import ServerFailed, SpecchatError, nearest
from specchat.safe_text import in_one_line

OWNERS = {
    "specchat": dialects.SPECCHAT,
    "llamacpp": dialects.LLAMA_SERVER,
    "vllm": dialects.VLLM,
    "sglang": dialects.SGLANG,
    "organization_owner": dialects.LM_STUDIO,
}
"""Dialects by the owner that a server names for its models; Ollama names the user."""
LIST_SECONDS = 30.0
"""How long the list of models may take: a router may wake its models for it."""
MOST_MODELS, LONGEST_NAME, MOST_NAMED = 1000, 200, 8
LARGEST_CONTEXT = 1 << 30
THINKING = ("on", "off", "low", "medium", "high")
"""What may switch a model's reasoning, where a server does not say."""
LOOKUP = "suffix lookup"
"""The drafter of `specchat serve` without a draft model."""


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The facts about a server; `context` is 0 where it does not say.

    `drafting` names the server's drafter in a few words, "" if it is unknown. `has_counters` says
    whether its counters for Prometheus can be read and count drafts. `thinking` are the values
    of `think` that its model may take. It `takes_images` unless the server says otherwise.
    """

    dialect: Dialect
    model: str
    models: tuple[str, ...] = ()
    version: str = ""
    context: int = 0
    drafting: str = ""
    speculation_off_reason: str | None = None
    has_counters: bool = False
    thinking: tuple[str, ...] = THINKING
    takes_images: bool = True


def find_server(session: HttpSession) -> ServerFacts:
    """Return the facts about a server and the model that its address names.

    Raises ServerFailed if it cannot be reached, has another API, or has no such model.
    """
    listed = session.get("/v1/models", LIST_SECONDS)
    if not isinstance(listed, Mapping) or not isinstance(listed.get("data"), list):
        raise not_an_api(session.address, "without a list of models")
    cards = [card for card in listed["data"][:MOST_MODELS] if _name_of(card)]
    dialect = _dialect_of(session, cards)
    names = tuple(_name_of(card) for card in cards)
    names += tuple(alias for card in cards for alias in _aliases_of(card) if alias not in names)
    if dialect is dialects.LM_STUDIO:
        names = _loaded_first(session, names)
    model = _choose(session, names)
    card = next((card for card in cards if card["id"] == model), cards[0] if cards else {})
    takes_images = _takes_images(card)
    facts = ServerFacts(dialect, model, names, context=_context_of(card), takes_images=takes_images)
    facts = ASK_MORE.get(dialect.label, lambda _, same: same)(session, facts)
    if dialect is dialects.SPECCHAT:
        meta = card["meta"] if isinstance(card.get("meta"), Mapping) else {}
        off_reason = _short(meta.get("speculation_off_reason")) or None
        drafting = _short(meta.get("draft")) or ("" if off_reason or not meta else LOOKUP)
        facts = replace(facts, drafting=drafting, speculation_off_reason=off_reason)
        if isinstance(words := meta.get("thinking"), list):
            facts = replace(facts, thinking=tuple(filter(None, map(_short, words[:MOST_NAMED]))))
    elif dialect is dialects.OTHER:
        facts = replace(facts, thinking=())
    return replace(facts, has_counters=_has_counters(session, dialect))


def _name_of(card: object) -> str:
    name = card.get("id") if isinstance(card, Mapping) else None
    return name if isinstance(name, str) and len(name) <= LONGEST_NAME else ""


def _dialect_of(session: HttpSession, cards: Sequence[Mapping[str, Any]]) -> Dialect:
    owner = cards[0].get("owned_by") if cards else ""
    if (dialect := OWNERS.get(str(owner))) is not None:
        return dialect
    with suppress(SpecchatError):
        if isinstance(_asked(session, "/api/version").get("version"), str):
            return dialects.OLLAMA
    return dialects.OTHER


def _aliases_of(card: Mapping[str, Any]) -> list[str]:
    """Return llama-server's other names of a model."""
    names = card.get("names")
    return [alias for alias in names if isinstance(alias, str)] if isinstance(names, list) else []


def _choose(session: HttpSession, names: Sequence[str]) -> str:
    """Return the model to ask for. Raises ServerFailed if there is none of that name."""
    wanted, where = session.address.model, session.address.shown
    if not names and not wanted:
        raise ServerFailed(f"{where} has no model: load one there first")
    if not wanted:
        return names[0]
    if wanted in names or not names:
        return wanted
    if f"{wanted}:latest" in names:
        return f"{wanted}:latest"
    shown = ", ".join(_short(name) for name in names[:MOST_NAMED])
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    raise ServerFailed(
        f"{where} has no model {wanted}{nearest(wanted, names)}; it has {shown}{more}"
    )


def _loaded_first(session: HttpSession, names: Sequence[str]) -> tuple[str, ...]:
    """Return LM Studio's models without those for embeddings, loaded ones first."""
    states: dict[str, str] = {}
    with suppress(SpecchatError):
        for card in _asked(session, "/api/v0/models").get("data", ()):
            if (name := _name_of(card)) and card.get("type") != "embeddings":
                states[name] = str(card.get("state"))
    kept = [model for model in names if model in states or not states]
    return tuple(sorted(kept, key=lambda model: states.get(model) != "loaded"))


def _context_of(card: Mapping[str, Any]) -> int:
    """Return the context that a model's card names, in any server's words; 0 if it names none."""
    meta = card.get("meta")
    candidates = [card.get("max_model_len"), card.get("context_length")]
    candidates += [meta.get("n_ctx")] if isinstance(meta, Mapping) else []
    return next((size for candidate in candidates if (size := _size(candidate))), 0)


def _takes_images(card: Mapping[str, Any]) -> bool:
    """Return whether a model may take images: specchat, llama-server and others list what it does.

    For specchat itself that was nothing before it took any.
    """
    architecture = card.get("architecture")
    kinds = architecture.get("input_modalities") if isinstance(architecture, Mapping) else None
    if isinstance(kinds, list):
        return "image" in kinds
    return card.get("owned_by") != "specchat"


def _size(value: object) -> int:
    is_size = isinstance(value, int) and not isinstance(value, bool) and 0 < value < LARGEST_CONTEXT
    return value if is_size else 0  # type: ignore[return-value]  # mypy does not follow is_size


def _ask_llama_server(session: HttpSession, facts: ServerFacts) -> ServerFacts:
    drafting = ""
    with suppress(SpecchatError):
        slots = session.get("/slots")
        if isinstance(slots, list) and slots and isinstance(slots[0], Mapping):
            drafting = "drafts are on" if slots[0].get("speculative") is True else ""
    with suppress(SpecchatError):
        props = _asked(session, "/props")
        settings = props.get("default_generation_settings")
        size = _size(settings.get("n_ctx")) if isinstance(settings, Mapping) else 0
        version = _short(props.get("build_info"))
        kinds = props.get("modalities")
        if isinstance(kinds, Mapping):
            facts = replace(facts, takes_images=kinds.get("vision") is True)
        return replace(facts, context=facts.context or size, version=version, drafting=drafting)
    return replace(facts, drafting=drafting)


def _ask_vllm(session: HttpSession, facts: ServerFacts) -> ServerFacts:
    with suppress(SpecchatError):
        return replace(facts, version=_short(_asked(session, "/version").get("version")))
    return facts


def _ask_sglang(session: HttpSession, facts: ServerFacts) -> ServerFacts:
    for path in ("/server_info", "/get_server_info"):
        with suppress(SpecchatError):
            info = _asked(session, path)
            algorithm = _short(info.get("speculative_algorithm"))
            return replace(facts, version=_short(info.get("version")), drafting=algorithm)
    return facts


def _ask_lm_studio(session: HttpSession, facts: ServerFacts) -> ServerFacts:
    with suppress(SpecchatError):
        for card in _asked(session, "/api/v0/models").get("data", ()):
            if _name_of(card) == facts.model:
                sizes = card.get("loaded_context_length"), card.get("max_context_length")
                size = next((s for e in sizes if (s := _size(e))), 0)
                return replace(facts, context=size, takes_images=card.get("type") != "llm")
    return facts


def _ask_ollama(session: HttpSession, facts: ServerFacts) -> ServerFacts:
    with suppress(SpecchatError):
        facts = replace(facts, version=_short(_asked(session, "/api/version").get("version")))
        for card in _asked(session, "/api/ps").get("models", ()):
            if isinstance(card, Mapping) and card.get("name") == facts.model:
                return replace(facts, context=_size(card.get("context_length")))
    return facts


ASK_MORE = {
    dialects.LLAMA_SERVER.label: _ask_llama_server,
    dialects.VLLM.label: _ask_vllm,
    dialects.SGLANG.label: _ask_sglang,
    dialects.LM_STUDIO.label: _ask_lm_studio,
    dialects.OLLAMA.label: _ask_ollama,
}
"""What each kind of server can be asked besides the list of its models."""


def _asked(session: HttpSession, path: str) -> Mapping[str, Any]:
    answer = session.get(path)
    return answer if isinstance(answer, Mapping) else {}


def _has_counters(session: HttpSession, dialect: Dialect) -> bool:
    if dialect.counters is None:
        return False
    with suppress(SpecchatError):
        return read_counters(session.get_text("/metrics"), dialect.counters) is not None
    return False


def _short(value: object) -> str:
    """Return a server's text in one line, cut off if it is long; "" for anything else."""
    return in_one_line(value)[:LONGEST_NAME] if isinstance(value, str) else ""
