"""Small changes to Python source that a test should notice: what there is to change, and how."""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One change: `source` from byte `start` to `end` becomes `text`."""

    path: str
    line: int
    start: int
    end: int
    before: str
    text: str
    rank: str
    """Orders mutants at random, but alike on any tree that has the same statement."""

    def apply(self, source: bytes) -> bytes:
        """Return the changed source."""
        return source[: self.start] + self.text.encode() + source[self.end :]

    def __str__(self) -> str:
        """Return the place and the change."""
        return f"{self.path}:{self.line}: {self.before} -> {self.text}"


def find_mutants(root: Path, path: Path, seed: int) -> Iterator[Mutant]:
    """Yield every mutant of a file, in the order of its text."""
    source = path.read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    name = str(path.relative_to(root))
    seen: Counter[str] = Counter()
    for statement, node, text in _changes(ast.parse(source)):
        before = ast.unparse(node)
        key = f"{seed} {name} {ast.unparse(statement)} {before} {text}"
        seen[key] += 1
        rank = hashlib.sha256(f"{key} {seen[key]}".encode()).hexdigest()
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or 1) - 1] + (node.end_col_offset or 0)
        yield Mutant(name, node.lineno, start, end, before, text, rank)


def _changes(tree: ast.Module) -> Iterator[tuple[ast.stmt, ast.expr, str]]:
    """Yield each statement's expressions that may change, with the text to put there."""
    for statement in ast.walk(tree):
        if not isinstance(statement, ast.stmt) or isinstance(
            statement, ast.Import | ast.ImportFrom | ast.Raise
        ):
            continue
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue  # a docstring
        if isinstance(statement, ast.Return) and statement.value and not _is_none(statement.value):
            yield _header(statement), statement.value, "None"
        for part in _expressions(statement):
            for node in _inside(part):
                yield from ((_header(statement), node, text) for text in _replacements(node))


def _header(statement: ast.stmt) -> ast.stmt:
    """Return the statement without the block under it, which says nothing about its own line."""
    fields = {
        name: [] if name in {"body", "orelse", "handlers", "finalbody"} else value
        for name, value in ast.iter_fields(statement)
    }
    return ast.copy_location(type(statement)(**fields), statement)


def _expressions(statement: ast.stmt) -> Iterator[ast.expr]:
    """Yield what a statement computes: no annotation, no decorator and no type's name."""
    if _is_alias(statement):
        return
    left_out = {"annotation", "returns", "decorator_list", "target", "targets", "bases"}
    for name, value in ast.iter_fields(statement):
        if name in left_out:
            continue
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, ast.expr):
                yield item
            elif isinstance(item, ast.withitem):
                yield item.context_expr
            elif isinstance(item, ast.arguments):
                yield from (each for each in [*item.defaults, *item.kw_defaults] if each)


def _is_alias(statement: ast.stmt) -> bool:
    """Return whether the statement names a type."""
    return isinstance(statement, ast.AnnAssign) and "TypeAlias" in ast.unparse(statement.annotation)


def _inside(part: ast.AST) -> Iterator[ast.expr]:
    """Yield an expression and those in it; nothing in an f-string, whose places are not known."""
    if isinstance(part, ast.JoinedStr):
        return
    if isinstance(part, ast.expr):
        yield part
    for child in ast.iter_child_nodes(part):
        yield from _inside(child)


def _is_none(value: ast.expr) -> bool:
    """Return whether an expression is None itself."""
    return isinstance(value, ast.Constant) and value.value is None


def _replacements(node: ast.expr) -> Iterator[str]:
    """Yield what may stand in place of an expression."""
    match node:
        case ast.Compare(left, [operator, *others], comparators):
            swapped = COMPARISONS[type(operator)]()
            yield f"({ast.unparse(ast.Compare(left, [swapped, *others], comparators))})"
        case ast.BinOp(left, operator, right) if type(operator) in OPERATORS:
            yield f"({ast.unparse(ast.BinOp(left, OPERATORS[type(operator)](), right))})"
        case ast.BoolOp(operator, values):
            other = ast.Or() if isinstance(operator, ast.And) else ast.And()
            yield f"({ast.unparse(ast.BoolOp(other, values))})"
        case ast.UnaryOp(ast.Not(), operand):
            yield f"({ast.unparse(operand)})"
        case ast.IfExp(test, body, orelse):
            yield f"({ast.unparse(ast.IfExp(test, orelse, body))})"
        case ast.Constant(bool(value)):
            yield str(not value)
        case ast.Constant(int(value) | float(value)):
            yield repr(value + 1)
