"""The tokens of a step as the steps screen lists them, drafted one behind another or as a tree."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from textual.content import Content

from specchat.decoding.chunk import Chunk
from specchat.drafter_registry import CHOSEN, GRAMMAR
from specchat.safe_text import harmless
from specchat.tui.texts.cards import MUTED
from specchat.tui.texts.step_drafts import num_accepted, num_before_branches, num_kept
from specchat.wording import percent

KEPT, DROPPED, OWN, FORCED = "✔", "✘", "+", "="
"""The marks of tokens, so that they can be told apart without colours."""
NOT_CHECKED = "not checked: a token before it was rejected"


class StepToken(NamedTuple):
    """A token of a step.

    `origin` is empty for a rejected one. `place` is its own among the emitted tokens, or that of
    the one in its place; their number if it has no place in the answer. `follows` is the number in
    the list of the token before it, -1 for the text. A tree's tokens beside the draft are its
    branches. `chances` are the probabilities of the target and of the drafter, if they are known.
    """

    mark: str
    text: str
    origin: str
    place: int
    follows: int
    is_branch: bool = False
    is_checked: bool = True
    chances: tuple[float, float] | None = None


def tokens_of(step: Chunk) -> list[StepToken]:
    """Return the tokens of a step, the drafted ones first.

    Those of a tree come in an order in which each is followed by what could stand in its place.
    """
    return _of_tree(step) if step.tree else _of_chain(step)


def index_in_answer(step: Chunk, chip: int) -> int:
    """Return the index among a step's tokens of the one at a chip, or of the one in its place.

    For a rejected token that is the target's own; the ones after it have no place in the answer.
    """
    return tokens_of(step)[chip].place


def fate(step: Chunk, cursor: int, temperature: float | None) -> Content:
    """Return what became of the token under the cursor, and why.

    The probabilities are those at the temperature of the answer, as far as that is known.
    """
    each = tokens_of(step)[cursor]
    token = f"[{visible(each.text)}] "
    if each.mark in {OWN, FORCED}:
        return Content.assemble(token, (_kind(step, each), MUTED))
    outcome = "accepted" if each.mark == KEPT else "rejected"
    if each.chances:
        target, drafter = map(percent, each.chances)
        where = "probability" if temperature is None else f"at temperature {temperature:g}"
        words = (
            (f"{outcome} · {where}: drafter ", MUTED),
            drafter,
            (" · target ", MUTED),
            target,
        )
        return Content.assemble(token, *words)
    outcome += ": a branch beside the draft" if each.is_branch else ""
    return Content.assemble(token, (outcome if each.is_checked else NOT_CHECKED, MUTED))


def _kind(step: Chunk, token: StepToken) -> str:
    if token.origin == CHOSEN:
        return "chosen by you: the answer goes on from here"
    if token.origin == GRAMMAR.name:
        return "forced by the grammar: no other token may come here"
    tokens = tokens_of(step)
    if any(each.mark == DROPPED and each.place == token.place for each in tokens):
        return "correction: replaces the first rejected token"
    if token.follows >= 0 and tokens[token.follows].is_branch:
        return "free token: it follows an accepted branch"
    if num_accepted(step):
        return "free token: all draft tokens accepted"
    return "plain decoding: no drafts"


def _of_chain(step: Chunk) -> list[StepToken]:
    """Return the draft in order, then the target's own token.

    A grammar may force some within the draft and others behind it.
    """
    kept, num_rejected = num_kept(step), len(step.rejected)
    last_checked = len(step.chances) - 1 if step.chances else kept
    found: list[StepToken] = []
    for index, (text, name) in enumerate(zip(step.texts, step.origins, strict=True)):
        number = index if index < kept else index + num_rejected
        mark = FORCED if name == GRAMMAR.name else KEPT if index < kept else OWN
        known = step.chances[index] if index < min(kept, len(step.chances)) else None
        follows = index - 1 if index <= kept else number - 1
        found.append(StepToken(mark, text, name, index, follows, chances=known))
    rejected = [
        StepToken(
            DROPPED, text, "", kept if number == kept else len(step.tokens), number - 1,
            is_checked=number <= last_checked,
            chances=step.chances[number] if number < len(step.chances) else None,
        )
        for number, text in enumerate(step.rejected, kept)
    ]  # fmt: skip
    return [*found[:kept], *rejected, *found[kept:]]


def _of_tree(step: Chunk) -> list[StepToken]:
    """Return the tokens of a tree, and the target's own behind the accepted ones."""
    num_nodes = len(step.tree)
    path = [number for number, token in enumerate(step.tree, 1) if token.is_accepted]
    own = range(num_nodes + 1, num_nodes + 1 + len(step.texts) - len(path))
    parents = [token.parent for token in step.tree]
    num_drafted = num_before_branches(parents)
    parents += [path[-1] if path else 0, *own][: len(own)]
    emitted = {number: place for place, number in enumerate((*path, *own))}
    behind = {0: 0} | {number: place + 1 for number, place in emitted.items()}
    order = list(_in_order(parents))
    listed = {0: -1} | {number: at for at, number in enumerate(order)}
    found: list[StepToken] = []
    for number in order:
        parent, mark, text, name = parents[number - 1], DROPPED, "", ""
        if number in emitted:
            text, name = step.texts[emitted[number]], step.origins[emitted[number]]
            mark = FORCED if name == GRAMMAR.name else OWN if number in own else KEPT
        else:
            text = step.tree[number - 1].text
        token = StepToken(
            mark, text, name, behind.get(parent, len(step.tokens)), listed[parent],
            is_branch=num_drafted < number <= num_nodes,
            is_checked=parent in behind,
            chances=next(iter(step.chances[number - 1 : number]), None)
            if number <= num_drafted else None,
        )  # fmt: skip
        found.append(token)
    return found


def _in_order(parents: Sequence[int]) -> Iterator[int]:
    """Yield the numbers of a tree's tokens: one, what could stand in its place, what follows it."""
    children: dict[int, list[int]] = {}
    for number, parent in enumerate(parents, 1):
        children.setdefault(parent, []).append(number)
    left = [(0, False, True)]  # a stack: a tree from a file may be deeper than calls can go
    while left:
        number, is_next, goes_on = left.pop()
        if is_next:
            yield number
        if goes_on and number in children:
            first, *others = children[number]
            left.append((first, False, True))
            left += [(other, True, True) for other in reversed(others)]
            left.append((first, True, False))


def visible(piece: str) -> str:
    """Return a token's text, with visible signs for line ends, tabs and surrounding spaces."""
    shown = harmless(piece).replace("\n", "⏎").replace("\t", "⇥")
    inner = shown.strip(" ")
    before, _, after = shown.partition(inner) if inner else ("", "", shown)
    return f"{'·' * len(before)}{inner}{'·' * len(after)}" or "(part of a character)"
