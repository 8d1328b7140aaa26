"""Jinja's immutable sandbox, in which everything that makes much of little pays from a budget.

Where a template offers no hook of its own (a loop's turn, `~`, a list written down), one is put in
when it is read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from specchat.chat.spending import (
    CONTAINERS,
    LARGEST_TEXT,
    LARGEST_WIDTH,
    MISSING,
    WIDE_FIELD,
    Budget,
    number,
    paid,
    require_narrow,
    require_small,
    size,
)

__all__ = ["Sandbox"]


UNITS_PER_FIELD = 64
"""What a letter of a date's form may cost: one field can be a whole date."""


class Sandbox(ImmutableSandboxedEnvironment):
    """The sandbox of one rendering: everything in it pays from one budget."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, **options: Any) -> None:
        """Begin with a whole budget."""
        self.budget = Budget()
        super().__init__(finalize=self.written, **options)
        self.globals["namespace"] = _Namespace
        self.globals["strftime_now"] = self.now
        for name in MISSING:
            self.globals.pop(name, None)
            self.filters.pop(name, None)
        self.filters["tojson"] = self.as_json
        for name, function in list(self.filters.items()):
            self.filters[name] = paid(self.budget, name, function)

    # --- called by templates, where reading them has put it in

    def turn(self, num_characters: int) -> None:
        """Pay for one turn of a loop that has so much text in it."""
        self.budget.spend(1 + num_characters)

    def joined(self, *parts: object) -> str:
        """Put texts together: `~`."""
        for part in parts:
            self.budget.spend_on(part)
        return "".join(map(str, parts))

    def built(self, value: object) -> object:
        """Pay for a list, a tuple or a mapping that was written down."""
        self.budget.spend_on(value)
        return value

    def written(self, value: object) -> object:
        """Pay for what is written out."""
        self.budget.spend_on(value)
        return value

    def now(self, form: str) -> str:
        """Write the time as Hugging Face's templates ask for it."""
        if len(form) > LARGEST_WIDTH:
            raise jinja2.TemplateError("a form of the date too long")
        require_narrow(form)
        self.budget.spend(UNITS_PER_FIELD * len(form))
        return datetime.now().astimezone().strftime(form)

    def as_json(self, value: object, indent: int | None = None, **options: Any) -> str:
        """Write JSON as Hugging Face's templates expect it: not escaped for HTML."""
        encoder = json.JSONEncoder(
            indent=indent,
            ensure_ascii=options.get("ensure_ascii", False),
            separators=options.get("separators"),
        )
        return "".join(self._paid_pieces(encoder.iterencode(value)))

    def _paid_pieces(self, pieces: Iterable[str]) -> Iterator[str]:
        for piece in pieces:
            self.budget.spend(len(piece))
            yield piece

    # --- called by Jinja

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        return _with_hooks(super()._parse(source, name, filename), self)

    def call(self, context: Context, function: Any, /, *given: Any, **named: Any) -> Any:
        """Call what a template calls, where that does not make too much of too little."""
        self.budget.spend()
        owner = getattr(function, "__self__", None)
        if isinstance(owner, (str, bytes, int, float)):
            self._pay_for_method(owner, function.__name__, given)
        result = super().call(context, function, *given, **named)
        if isinstance(owner, (str, bytes)) or function is dict:
            self.budget.spend_on(result)
        return result

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Return the sandbox's own `str.format`, which here pays too."""
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None
        text = str(value.__self__)

        def paying(*given: Any, **named: Any) -> str:
            if WIDE_FIELD.search(text):
                raise jinja2.TemplateError("a width too large")
            for _ in range(text.count("{")):
                self.budget.spend_on([*given, *named.values()])
            return wrapped(*given, **named)

        return paying

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Calculate, where the result is none that fills memory."""
        if isinstance(left, int) and isinstance(right, int):
            require_small(operator, left, right)
        elif operator == "*":
            self._pay_for_one(size(left) * number(right) + size(right) * number(left))
        elif operator == "+":
            self._pay_for_one(size(left) + size(right))
        elif operator == "%" and isinstance(left, (str, bytes)):
            self._pay_for_format(str(left), right)
        return super().call_binop(context, operator, left, right)

    def _pay_for_one(self, size: int) -> None:
        """Pay for one text or list, which must not be too large by itself."""
        if size > LARGEST_TEXT:
            raise jinja2.TemplateError("a text or a list too long")
        self.budget.spend(size)

    def _pay_for_format(self, form: str, value: object) -> None:
        require_narrow(form)
        for _ in range(form.count("%")):
            self.budget.spend_on(value)

    def _pay_for_method(self, owner: Any, name: str, given: tuple[Any, ...]) -> None:
        """Pay for what a method of a text or a number makes."""
        for each in given:
            if isinstance(each, int) and abs(each) > LARGEST_TEXT:
                raise jinja2.TemplateError("a number too large")
        if name == "translate":
            raise jinja2.TemplateError("translate is nothing for a chat")
        if name == "replace" and len(given) > 1:
            self.budget.spend(owner.count(given[0]) * len(given[1]))
        elif name == "join" and given and isinstance(given[0], CONTAINERS):
            self.budget.spend_on(given[0])
            self.budget.spend(len(owner) * len(given[0]))
        elif name == "expandtabs":
            self.budget.spend(owner.count("\t") * max(map(number, given), default=8))


class _Namespace(Namespace):
    """Jinja's namespace, which says nothing of what is in it."""

    def __repr__(self) -> str:
        return "<namespace>"


def _with_hooks(template: nodes.Template, sandbox: Sandbox) -> nodes.Template:
    """Put a hook into every loop, and around every `~` and everything written down."""
    for loop in template.find_all((nodes.For, nodes.Macro, nodes.CallBlock)):
        num_characters = sum(len(text.data) for text in loop.find_all(nodes.TemplateData))
        body: list[nodes.Node] = loop.body  # type: ignore[attr-defined]  # all three have one
        body.insert(0, nodes.ExprStmt(_asked("turn", nodes.Const(num_characters))))
    _Rewriting().visit(template)
    template.set_environment(sandbox)
    return template


class _Rewriting(NodeTransformer):
    """Exchanges what makes texts and lists for calls that do."""

    def get_visitor(self, node: nodes.Node) -> Callable[..., nodes.Node] | None:
        """Return what rewrites a node, for those that need it."""
        if isinstance(node, nodes.Concat):
            return self._joined
        is_made = isinstance(node, (nodes.List, nodes.Dict, nodes.Tuple))
        return self._built if is_made and getattr(node, "ctx", "load") == "load" else None

    def _joined(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _asked("joined", *node.nodes)

    def _built(self, node: nodes.Expr) -> nodes.Node:
        self.generic_visit(node)
        return _asked("built", node)


def _asked(name: str, *given: nodes.Expr) -> nodes.Call:
    """Return a call of a method of the sandbox."""
    return nodes.Call(nodes.EnvironmentAttribute(name), list(given), [], None, None)
