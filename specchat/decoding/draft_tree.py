"""The draft of a step as a tree: the drafted tokens one behind another, and branches beside them.

The places of a tree are numbered: 0 is the text's last token, 1 to n are the drafted tokens, and
the branches follow. A target pass gives a row of logits behind each place, in this order.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from specchat.decoding.distribution import LARGEST_TABLE, Random
from specchat.decoding.proposal import Branch, DraftToken

TEXT = 0
"""The place of the text's last token."""


class DraftTree:
    """A draft and the branches beside it; without any, it is the chain that drafters draw."""

    def __init__(
        self,
        draft: Sequence[DraftToken],
        branches: Sequence[Branch] = (),
        drawn: Mapping[int, Sequence[int]] | None = None,
    ) -> None:
        """Number the places; a branch that hangs behind another comes after it.

        `drawn` has the tokens of those that were drawn, in this order, by their fork.
        """
        self.draft, self.branches, self.drawn = draft, branches, drawn or {}
        self.tokens = [each.token for each in draft]
        first = len(draft) + 1
        self.links = [
            (each.token, each.fork if each.behind < 0 else first + each.behind) for each in branches
        ]
        self._places = {
            (parent, token): first + at for at, (token, parent) in enumerate(self.links)
        }

    @property
    def num_nodes(self) -> int:
        """The number of tokens in the tree."""
        return len(self.tokens) + len(self.links)

    @property
    def depth(self) -> int:
        """The number of tokens on the longest way through the tree."""
        depths = list(range(len(self.tokens) + 1))
        for _, parent in self.links:
            depths.append(depths[parent] + 1)
        return max(depths)

    @property
    def origins(self) -> list[str]:
        """What drafted the token at each place but that of the text."""
        drafted = [each.origin for each in self.draft]
        return drafted + [each.origin for each in self.branches]

    @property
    def parents(self) -> list[int]:
        """The place that each token follows, for the places from 1 on."""
        return [*range(len(self.tokens)), *(parent for _, parent in self.links)]

    def branch_at(self, place: int, token: int) -> int | None:
        """Return the place of the branch that follows a place with this token, None without."""
        return self._places.get((place, token))

    def number_of(self, place: int) -> int | None:
        """Return which branch is at a place, None for a drafted token."""
        return place - len(self.tokens) - 1 if place > len(self.tokens) else None

    def token_at(self, place: int) -> int:
        """Return the token at a place from 1 on."""
        number = self.number_of(place)
        return self.tokens[place - 1] if number is None else self.links[number][0]

    def path_to(self, place: int) -> list[int]:
        """Return the places on the way from the text to a place, that place included."""
        behind: list[int] = []
        while (number := self.number_of(place)) is not None:
            behind.append(place)
            place = self.links[number][1]
        return [*range(1, place + 1), *reversed(behind)]

    def tokens_to(self, place: int) -> list[int]:
        """Return the tokens on the way to a place, its own included."""
        if place <= len(self.tokens):
            return self.tokens[:place]
        return [self.token_at(each) for each in self.path_to(place)]

    def followed(
        self, num_accepted: int, token: int, draw: Callable[[int, int], int]
    ) -> tuple[list[int], int]:
        """Go on from a verified draft along branches that hold the target's own tokens.

        `token` is the target's own behind the accepted ones. `draw` returns that behind a place,
        which so many tokens of the tree lead to. Returns the accepted places, and the token behind.
        """
        path = list(range(1, num_accepted + 1))
        place: int | None = self.branch_at(num_accepted, token)
        while place is not None:
            path.append(place)
            token = draw(place, len(path))
            place = self.branch_at(place, token)
        return path, token


def valid_branches(
    branches: Sequence[Branch],
    draft: Sequence[DraftToken],
    may_follow: Callable[[Sequence[int], int], bool],
) -> list[Branch]:
    """Return the branches of use beside a draft, which may be shorter than it was offered for.

    Left out are those behind tokens that are not drafted any more, those that the draft or another
    branch holds already, those that `may_follow` says may not come behind these tokens, and what
    hangs behind any of them.
    """
    tokens = [each.token for each in draft]
    kept: list[int] = []
    seen: set[tuple[int, int, int]] = set()
    known: dict[int, list[int]] = {}
    for number, branch in enumerate(branches):
        token, fork, behind = branch.token, branch.fork, branch.behind
        place = fork, behind, token
        is_lost = fork > len(tokens) or (behind >= 0 and behind not in known)
        if is_lost or place in seen or (behind < 0 and tokens[fork : fork + 1] == [token]):
            continue
        before = known[behind] if behind >= 0 else tokens[:fork]
        if may_follow(before, token):
            kept.append(number)
            seen.add(place)
            known[number] = [*before, token]
    return some_of(branches, kept)


def some_of(branches: Sequence[Branch], numbers: Iterable[int]) -> list[Branch]:
    """Return some branches in their order; what hangs behind others that are left out is, too."""
    renamed: dict[int, int] = {-1: -1}
    found: list[Branch] = []
    for number in sorted(numbers):
        branch = branches[number]
        if branch.behind in renamed:
            renamed[number] = len(found)
            found.append(branch._replace(behind=renamed[branch.behind]))
    return found


def with_drawn(
    branches: Sequence[Branch], draft: Sequence[DraftToken], random: Random
) -> tuple[list[Branch], dict[int, list[int]]]:
    """Return branches of which leaves beside drawn tokens are replaced by as many drawn ones.

    Also returns the tokens of those, by their fork. They are drawn from what the drafted token was
    drawn from, without replacement, and verified as such, which accepts more than if they were
    chosen. Where something hangs behind a branch of a fork, none of that is replaced.
    """
    parents = {each.behind for each in branches}
    counts: dict[int, int] = {}
    for fork, (_, proposed, _) in enumerate(draft):
        here = [at for at, each in enumerate(branches) if each.fork == fork and each.behind < 0]
        is_drawn = 1 < len(proposed) <= LARGEST_TABLE
        if here and is_drawn and parents.isdisjoint(here):
            counts[fork] = len(here)
    drawn = {
        fork: draft[fork].distribution.sample_others(draft[fork].token, count, random)
        for fork, count in counts.items()
    }
    others = {fork: iter(tokens) for fork, tokens in drawn.items()}
    kept: list[int] = []
    found = list(branches)
    for number, branch in enumerate(branches):
        if branch.fork in drawn and branch.behind < 0:
            token = next(others[branch.fork], None)
            if token is None:  # there were no more
                continue
            found[number] = branch._replace(token=token)
        kept.append(number)
    return some_of(found, kept), drawn


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
    survival, leaving = 1.0, list[float]()
    for chance in chain:
        leaving.append(survival * (1.0 - chance))
        survival *= chance
    leaving.append(survival)
    chances: list[float] = []
    for branch, share in zip(
        branches, right or [each.confidence for each in branches], strict=True
    ):
        fork = min(branch.fork, len(chain))
        before = chances[branch.behind] if branch.behind >= 0 else leaving[fork]
        chances.append(before * share)
    return chances


def likeliest(chances: Sequence[float], most: int) -> list[int]:
    """Return the numbers of the branches with the highest chances, best first.

    None has a higher chance than the one it hangs behind, which therefore comes before it.
    """
    return sorted(range(len(chances)), key=lambda number: (-chances[number], number))[:most]


def with_ancestors(branches: Sequence[Branch], numbers: Iterable[int], most: int) -> list[int]:
    """Return some branches and those that they hang behind, in order, as far as there is room."""
    found: set[int] = set()
    for number in numbers:
        line = {number}
        while (number := branches[number].behind) >= 0:
            line.add(number)
        if len(found | line) <= most:
            found |= line
    return sorted(found)
