"""The tools of a request to the responses API: its own, those in namespaces, and in its input."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

Tool: TypeAlias = Mapping[str, Any]
FUNCTION_FIELDS = ("name", "description", "parameters", "strict")


class ToolName(NamedTuple):
    """What a client calls a tool; `namespace` is "" for one outside of any."""

    namespace: str
    name: str


@dataclass(slots=True)
class OfferedTools:
    """The tools as the chat API has them, and the client's names of those in namespaces.

    For the model such a tool keeps its own name unless another one has the same.
    """

    functions: list[Tool] = field(default_factory=list)
    names: dict[str, ToolName] = field(default_factory=dict)
    shown_names: dict[ToolName, str] = field(default_factory=dict)

    def shown(self, name: ToolName) -> str:
        """Return the name by which the model knows a tool."""
        return self.shown_names.get(name, name.name)


def offered_tools(tools: Iterable[Tool], items: Iterable[Mapping[str, Any]]) -> OfferedTools:
    """Return the tools that a request lists, and those that come with the items of its input."""
    listed = [*tools, *(tool for item in items for tool in _tools_of(item))]
    found = {_key(name, tool): (name, tool) for name, tool in _flattened(listed)}
    counts = Counter(name.name for name, _ in found.values())
    offered = OfferedTools()
    for name, tool in found.values():
        shown = name.name
        if name.namespace:
            if counts[shown] > 1:
                shown = f"{name.namespace}__{shown}"
            offered.names[shown] = name
            offered.shown_names[name] = shown
        offered.functions.append(_function(tool, shown))
    return offered


def _tools_of(given: Mapping[str, Any]) -> list[Tool]:
    """Return the tools that an item or a namespace has."""
    tools = given.get("tools")
    return [each for each in tools if isinstance(each, Mapping)] if isinstance(tools, list) else []


def _flattened(tools: Sequence[Tool], namespace: str = "") -> Iterator[tuple[ToolName, Tool]]:
    """Yield each tool, of namespaces too, with its name."""
    for tool in tools:
        if tool.get("type") == "namespace" and not namespace:
            yield from _flattened(_tools_of(tool), str(tool.get("name") or ""))
        else:
            yield ToolName(namespace, str(tool.get("name") or "")), tool


def _key(name: ToolName, tool: Tool) -> object:
    """Return what two tools have in common that are the same one: an item may repeat some."""
    return name if name.name else id(tool)


def _function(tool: Tool, name: str) -> Tool:
    """Return a tool as the chat API has it; other types are skipped there."""
    if tool.get("type") != "function" or "function" in tool:
        return tool
    function = {key: tool[key] for key in FUNCTION_FIELDS if tool.get(key) is not None}
    return {"type": "function", "function": {**function, "name": name}}
