"""The draft of a step as a tree: a chain of drafted tokens, and branches beside it.

The nodes of a tree are numbered: 0 is the text's last token, 1 to n are the drafted tokens, and
the branches follow. A target pass gives a row of logits after each node, by the same numbers.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from specchat.decoding.chunk import TreeToken
from specchat.decoding.distribution import LARGEST_TABLE, Random
from specchat.decoding.proposal import Branch, DraftToken

TEXT = 0
"""The node of the text's last token, which all others follow."""


class DraftTree:
    """A draft and the branches beside it; without any, it is the chain that drafters draw.

    It has `num_nodes` tokens, without the text's.
    """

    def __init__(
        self,
        draft: Sequence[DraftToken],
        branches: Sequence[Branch] = (),
        drawn: Mapping[int, Sequence[int]] | None = None,
    ) -> None:
        """Number the nodes; a branch that follows another one comes after it.

        `drawn` has the tokens of the branches that were drawn, by their fork, in the order of
        drawing.
        """
        self.draft, self.branches, self.drawn = draft, branches, drawn or {}
        self.num_nodes = len(draft) + len(branches)
        self.tokens = [drafted.token for drafted in draft]
        # a branch's own numbers count from the first branch, nodes from the text's last token
        first = len(draft) + 1
        self.links = [
            (branch.token, branch.fork if branch.behind < 0 else first + branch.behind)
            for branch in branches
        ]
        self.origins = [drafted.origin for drafted in draft]
        self.origins += [branch.origin for branch in branches]
        self._children = {
            (parent, token): node for node, (token, parent) in enumerate(self.links, first)
        }

    @property
    def depth(self) -> int:
        """The number of tokens on the longest path through the tree."""
        depths = list(range(len(self.tokens) + 1))
        for _, parent in self.links:
            depths.append(depths[parent] + 1)
        return max(depths)

    @property
    def parents(self) -> list[int]:
        """The node that each token follows, for the nodes from 1 on."""
        return [*range(len(self.tokens)), *(parent for _, parent in self.links)]

    def number_of(self, node: int) -> int | None:
        """Return the number of the branch that a node is, from 0; None for a drafted token."""
        return node - len(self.tokens) - 1 if node > len(self.tokens) else None

    def token_at(self, node: int) -> int:
        """Return the token of a node from 1 on."""
        number = self.number_of(node)
        return self.tokens[node - 1] if number is None else self.links[number][0]

    def origin_of(self, node: int) -> str:
        """Return what drafted a node from 1 on."""
        return self.origins[node - 1]

    def path_to(self, node: int) -> list[int]:
        """Return the nodes on the path from the text to a node, which is included."""
        branches: list[int] = []
        while (number := self.number_of(node)) is not None:
            branches.append(node)
            node = self.links[number][1]
        return [*range(1, node + 1), *reversed(branches)]

    def tokens_to(self, node: int) -> list[int]:
        """Return the tokens on the path to a node, its own included."""
        if node <= len(self.tokens):
            return self.tokens[:node]
        return [self.token_at(ancestor) for ancestor in self.path_to(node)]

    def followed(
        self, num_accepted: int, token: int, draw: Callable[[int, int], int]
    ) -> tuple[list[int], int]:
        """Follow a verified draft into the branches, as far as they hold the target's own tokens.

        `token` is the target's own after the `num_accepted` drafted ones. `draw` returns the
        target's token after a node, given the node and the number of the tree's tokens on the path
        to it. Returns the accepted nodes, and the target's own token after the last of them.
        """
        path = list(range(1, num_accepted + 1))
        # the target's own token decides, so a branch that holds it costs the answer no exactness
        node = self._children.get((num_accepted, token))
        while node is not None:
            path.append(node)
            token = draw(node, len(path))
            node = self._children.get((node, token))
        return path, token

    def record(self, path: Sequence[int], piece: Callable[[int], str]) -> tuple[TreeToken, ...]:
        """Return what a step records of its tree; `piece` returns the text of a token."""
        return tuple(
            [
                TreeToken(piece(self.token_at(node)), parent, origin, node in path)
                for node, (parent, origin) in enumerate(
                    zip(self.parents, self.origins, strict=True), 1
                )
            ]
        )


NOTHING = DraftTree(())
"""The tree of a step without a draft: made once, as plain steps are many."""


def valid_branches(
    branches: Sequence[Branch],
    draft: Sequence[DraftToken],
    may_follow: Callable[[Sequence[int], int], bool],
) -> list[Branch]:
    """Return the branches of use beside a draft, which may be shorter than it was offered for.

    Four kinds of branches are left out: those after tokens that are no longer drafted; duplicates
    of the draft or of another branch; those for which `may_follow` is false; and the descendants of
    any of these.
    """
    tokens = [drafted.token for drafted in draft]
    kept: list[int] = []
    seen: set[tuple[int, int, int]] = set()
    texts: dict[int, list[int]] = {}  # the tokens on the way to each branch of use
    for number, branch in enumerate(branches):
        token, fork, behind = branch.token, branch.fork, branch.behind
        # a parent comes before its descendants, so one that was dropped is known by now
        is_lost = fork > len(tokens) or (behind >= 0 and behind not in texts)
        is_drafted = behind < 0 and tokens[fork : fork + 1] == [token]
        if is_lost or is_drafted or (fork, behind, token) in seen:
            continue
        before = texts[behind] if behind >= 0 else tokens[:fork]
        if may_follow(before, token):
            kept.append(number)
            seen.add((fork, behind, token))
            texts[number] = [*before, token]
    return some_of(branches, kept)


def some_of(branches: Sequence[Branch], numbers: Iterable[int]) -> list[Branch]:
    """Return the branches of these numbers in order, except those without their ancestors."""
    renumbered: dict[int, int] = {-1: -1}
    chosen: list[Branch] = []
    for number in sorted(numbers):
        branch = branches[number]
        # in ascending order a parent comes first, so its new number is known
        if branch.behind in renumbered:
            renumbered[number] = len(chosen)
            chosen.append(branch._replace(behind=renumbered[branch.behind]))
    return chosen


def with_drawn(
    branches: Sequence[Branch], draft: Sequence[DraftToken], random: Random
) -> tuple[list[Branch], dict[int, list[int]]]:
    """Return branches in which the leaves beside drawn tokens are replaced by as many drawn ones.

    Also returns the drawn tokens by their fork. They are drawn without replacement from the
    distribution that the drafted token was drawn from, and are verified as such, which accepts more
    than if they had been chosen. A fork at which any branch has descendants is left as it is.
    """
    parents = {branch.behind for branch in branches}
    counts: dict[int, int] = {}
    for fork, (_, proposed, _) in enumerate(draft):
        siblings = [
            number
            for number, branch in enumerate(branches)
            if branch.fork == fork and branch.behind < 0
        ]
        # drawing needs a table of the drafter's distribution; a certain token has no siblings
        is_drawn = 1 < len(proposed) <= LARGEST_TABLE
        if siblings and is_drawn and parents.isdisjoint(siblings):
            counts[fork] = len(siblings)
    drawn = {
        fork: draft[fork].distribution.sample_others(draft[fork].token, count, random)
        for fork, count in counts.items()
    }
    unused = {fork: iter(tokens) for fork, tokens in drawn.items()}
    kept: list[int] = []
    replaced = list(branches)
    for number, branch in enumerate(branches):
        if branch.fork in drawn and branch.behind < 0:
            token = next(unused[branch.fork], None)
            if token is None:  # the distribution has no more tokens
                continue
            replaced[number] = branch._replace(token=token)
        kept.append(number)
    return some_of(replaced, kept), drawn


def chances_of(
    chain: Sequence[float], branches: Sequence[Branch], right: Sequence[float] = ()
) -> list[float]:
    """Return the chance of each branch to be accepted.

    `chain` has the chance of each drafted token to be accepted after those before it, and `right`
    that of each branch to be the target's token where the target leaves the draft, by default the
    drafter's confidence:

        chain[0] ... chain[fork - 1] (1 - chain[fork]) right       beside the draft
        chance of the branch before it, times right                behind another branch

    Behind the whole draft, the target leaves it in any case.
    """
    # leaving[n] is the chance that n drafted tokens are accepted and the next one is not
    survival, leaving = 1.0, list[float]()
    for chance in chain:
        leaving.append(survival * (1.0 - chance))
        survival *= chance
    leaving.append(survival)
    chances: list[float] = []
    for branch, share in zip(
        branches, right or [branch.confidence for branch in branches], strict=True
    ):
        fork = min(branch.fork, len(chain))
        before = chances[branch.behind] if branch.behind >= 0 else leaving[fork]
        chances.append(before * share)
    return chances


def likeliest(chances: Sequence[float], most: int) -> list[int]:
    """Return the numbers of the branches with the highest chances, best first.

    A branch never has a higher chance than its parent, which therefore comes before it.
    """
    return sorted(range(len(chances)), key=lambda number: (-chances[number], number))[:most]
