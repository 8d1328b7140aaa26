"""Which tools a request offers, and whether the answer must call some."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specchat.requests.answer_request import ToolChoice
from specchat.server.api_errors import BAD_REQUEST, ApiError

FIELD = "tool_choice"
MODES: Mapping[str, ToolChoice] = {
    "auto": "auto",
    "none": "none",
    "required": "required",
    "any": "required",
}
"""What the words of OpenAI, and of Anthropic and Mistral, mean."""
MOST_NOTICES = 20
FUNCTION = "function"
NAMED = (None, FUNCTION, "tool")


@dataclass(frozen=True, slots=True)
class AskedTools:
    """The tools of a request, whether they must be called, and which; empty for any.

    A choice that names a tool asks for a single call of it.
    """

    tools: Sequence[Mapping[str, Any]] = ()
    choice: ToolChoice = "auto"
    names: Sequence[str] = ()
    is_single: bool = False


def asked_tools(tools: Sequence[Mapping[str, Any]] | None, choice: Any) -> AskedTools:
    """Return the tools to offer and how; those of unknown types are left out, as elsewhere.

    Raises ApiError for a choice that is malformed or cannot be met.
    """
    offered = [tool for tool in tools or () if tool.get("type", FUNCTION) == FUNCTION]
    mode, names = _choice_of(choice)
    if mode == "none":
        return AskedTools()
    if mode == "required" and not offered:
        raise ApiError(BAD_REQUEST, f"{FIELD}: there are no functions in tools to call", FIELD)
    offered_names = {_name_of(each) for each in offered}
    for name in names:
        if name not in offered_names:
            raise ApiError(BAD_REQUEST, f"{FIELD}: no function {name!r:.80} in tools", FIELD)
    is_single = mode == "required" and _kind_of(choice) in NAMED
    return AskedTools(offered, mode if offered else "auto", names, is_single)


def notices_of_tools(tools: Sequence[Mapping[str, Any]] | None) -> list[str]:
    """Return a notice for each type of tools that are not offered."""
    kinds = dict.fromkeys(str(tool.get("type", FUNCTION)) for tool in tools or ())
    kinds.pop(FUNCTION, None)
    return [f"tools of type {kind!r:.40} are left out" for kind in [*kinds][:MOST_NOTICES]]


def _choice_of(given: Any) -> tuple[ToolChoice, list[str]]:
    """Return what a `tool_choice` asks for, and the names of the only tools to call."""
    if given is None:
        return "auto", []
    kind = _kind_of(given)
    if isinstance(kind, str) and kind in MODES:
        return MODES[kind], []
    if kind == "allowed_tools" and isinstance(given, Mapping):
        allowed = given.get("allowed_tools", given)
        listed = allowed.get("tools") if isinstance(allowed, Mapping) else None
        mode = allowed.get("mode", "auto") if isinstance(allowed, Mapping) else None
        if isinstance(listed, list) and mode in ("auto", "required"):
            return _of_allowed(MODES[mode], listed)
    if isinstance(given, Mapping) and kind in NAMED and _name_of(given):
        return "required", [_name_of(given)]
    modes = "auto, none, required or a function"
    raise ApiError(BAD_REQUEST, f"{FIELD} must be {modes}, not {given!r:.60}", FIELD)


def _kind_of(choice: Any) -> Any:
    return choice.get("type") if isinstance(choice, Mapping) else choice


def _of_allowed(mode: ToolChoice, tools: list[Any]) -> tuple[ToolChoice, list[str]]:
    """Return what a list of the only tools to call asks for: nothing is called if it is empty."""
    if mode == "required" and not tools:
        raise ApiError(BAD_REQUEST, f"{FIELD}: allowed_tools lists no tool to call", FIELD)
    return mode if tools else "none", [_name_of(tool) for tool in tools]


def _name_of(tool: Any) -> str:
    """Return the name of a function, of a tool or of a choice; "" if it has none."""
    inner = tool.get("function", tool) if isinstance(tool, Mapping) else None
    name = inner.get("name") if isinstance(inner, Mapping) else None
    return name if isinstance(name, str) else ""
