"""Exact verifiers of draft trees with side branches, to compare by what they accept.

The draft is a chain, the trunk, drawn from the drafter's distributions q, and at each of its
places, the forks, siblings of the trunk's token. They are leaves, which cost no draft pass. Each
verifier needs siblings of its own kind: chosen, drawn without replacement, or with replacement. How
many there are at a fork may depend on q and on the trunk, but with replacement not on its token
there or on later ones.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from specchat.decoding import verification
from specchat.decoding.distribution import (
    Distribution,
    Random,
    Shares,
    excess_of,
    sample_shares,
    without,
)
from specchat.decoding.proposal import DraftToken

HALVINGS = 16
"""Of the interval that K-SEQ's division factor is looked for in."""


class Fork(NamedTuple):
    """A place of the trunk: the drafter's distribution, and the tokens of the draft there.

    The first of the `drawn` tokens, in the order of their draws, continues the trunk. The `chosen`
    ones are distinct from those; they were not drawn.
    """

    proposed: Distribution
    drawn: tuple[int, ...]
    chosen: tuple[int, ...] = ()

    @property
    def num_nodes(self) -> int:
        """The number of distinct tokens."""
        return len({*self.drawn, *self.chosen})


TargetAfter: TypeAlias = Callable[[tuple[int, ...]], Distribution]
"""The target's processed distribution after a path of the tree, given as its tokens."""


class TreeVerdict(NamedTuple):
    """The result of a verification: the accepted path, and the target's own token after it."""

    path: tuple[int, ...]
    token: int


TreeVerifier: TypeAlias = Callable[[Sequence[Fork], TargetAfter, Random], TreeVerdict]


def chosen_fork(proposed: Distribution, token: int, count: int, random: Random) -> Fork:
    """Return a fork with the drafter's `count` most probable other tokens."""
    del random  # nothing is drawn
    likeliest = [each for each, _ in proposed.likeliest(count + 1) if each != token]
    return Fork(proposed, (token,), tuple(likeliest[:count]))


def drawn_fork(proposed: Distribution, token: int, count: int, random: Random) -> Fork:
    """Return a fork with up to `count` siblings drawn without replacement."""
    drawn, left = [token], proposed.shares()
    while len(drawn) <= count and len(left) > 1:
        left = without(left, drawn[-1])
        drawn.append(sample_shares(left, random))
    return Fork(proposed, tuple(drawn))


def mixed_fork(proposed: Distribution, token: int, count: int, random: Random) -> Fork:
    """Return a fork with one drawn sibling; the others are chosen."""
    drawn = drawn_fork(proposed, token, min(count, 1), random).drawn
    likeliest = [each for each, _ in proposed.likeliest(count + 1) if each not in drawn]
    return Fork(proposed, drawn, tuple(likeliest[: count + 1 - len(drawn)]))


def repeated_fork(proposed: Distribution, token: int, count: int, random: Random) -> Fork:
    """Return a fork with `count` siblings drawn with replacement: some may be alike."""
    return Fork(proposed, (token, *[proposed.sample(random) for _ in range(count)]))


def verify_trunk(draft: Sequence[Fork], after: TargetAfter, random: Random) -> TreeVerdict:
    """Verify the trunk alone, by block verification."""
    trunk = _trunk(draft)
    verdict = verification.verify_by_block(
        _chain(draft), lambda length: after(trunk[:length]), random
    )
    return TreeVerdict(trunk[: verdict.num_accepted], verdict.token)


def verify_chosen(draft: Sequence[Fork], after: TargetAfter, random: Random) -> TreeVerdict:
    """Verify the trunk by block verification, and accept the target's own token if it was chosen.

    Traversal verification has the same distribution of accepted paths for siblings that are certain
    rather than drawn. It contains the rule of EAGLE for chosen children.
    """
    return _extended(verify_trunk(draft, after, random), draft, after, random)


def verify_by_rejection(draft: Sequence[Fork], after: TargetAfter, random: Random) -> TreeVerdict:
    """Verify children drawn without replacement one after another, from the root down.

    Recursive rejection, Sequoia (Chen et al. 2024, arXiv 2402.12374): a child is accepted with
    probability min(1, p/q); if not, p becomes norm(max(0, p - q)), and q loses the child.
    """
    trunk = _trunk(draft)
    for length, fork in enumerate(draft):
        wanted, proposed = after(trunk[:length]).shares(), fork.proposed.shares()
        for place, token in enumerate(fork.drawn):
            if random() < min(1.0, wanted.get(token, 0.0) / proposed[token]):
                if place:
                    return _ended((*trunk[:length], token), after, random)
                break
            wanted, _ = excess_of(wanted, proposed)
            proposed = without(proposed, token)
        else:
            verdict = TreeVerdict(trunk[:length], sample_shares(wanted, random))
            return _extended(verdict, draft, after, random)
    return _ended(trunk, after, random)


def verify_by_selection(draft: Sequence[Fork], after: TargetAfter, random: Random) -> TreeVerdict:
    """Verify children drawn with replacement by K-SEQ, from the root down.

    SpecTr, Sun et al. 2023 (arXiv 2310.15141): each of k children is accepted with probability
    min(1, p / (f q)), so any of them with A = 1 - (1 - b)^k, where b = sum min(q, p / f). The
    division factor f is the smallest in [1, k] for which A <= f b. The residual is
    norm(p - min(q, p / f) A / b).
    """
    trunk = _trunk(draft)
    for length, fork in enumerate(draft):
        wanted, proposed = after(trunk[:length]).shares(), fork.proposed.shares()
        factor, weight = division(wanted, proposed, len(fork.drawn))
        for token in fork.drawn:
            if random() < min(1.0, wanted.get(token, 0.0) / (factor * proposed[token])):
                break
        else:
            left = {
                token: max(0.0, share - weight * min(proposed.get(token, 0.0), share / factor))
                for token, share in wanted.items()
            }
            own = sample_shares(left if any(left.values()) else wanted, random)
            return TreeVerdict(trunk[:length], own)
        if token != trunk[length]:
            return _ended((*trunk[:length], token), after, random)
    return _ended(trunk, after, random)


def verify_by_traversal(draft: Sequence[Fork], after: TargetAfter, random: Random) -> TreeVerdict:
    """Verify children drawn without replacement from the leaves up, as answers do without a seed.

    Traversal verification, Weng et al. 2025 (arXiv 2505.12398): see specchat.decoding.verification.
    """
    trunk = _trunk(draft)
    siblings = {length: fork.drawn[1:] for length, fork in enumerate(draft)}
    verify = verification.verify_by_traversal(siblings)
    verdict = verify(_chain(draft), lambda length: after(trunk[:length]), random)
    path, token = trunk[: verdict.num_accepted], verdict.token
    if len(path) < len(draft) and token in siblings[len(path)]:
        return _ended((*path, token), after, random)
    return _extended(TreeVerdict(path, token), draft, after, random)


def division(wanted: Shares, proposed: Shares, count: int) -> tuple[float, float]:
    """Return K-SEQ's division factor for `count` children, and A / b in the docstring's terms.

    The factor is the smallest up to rounding, from above: any larger one is exact as well.
    """
    pairs = [(share, wanted.get(token, 0.0)) for token, share in proposed.items()]

    def weight(factor: float) -> float:
        accepted = sum([min(share, other / factor) for share, other in pairs])
        accepted = min(accepted, 1.0)
        return (1.0 - (1.0 - accepted) ** count) / accepted if accepted > 0 else float(count)

    low, high = 1.0, float(count)
    if (found := weight(low)) <= low:
        return low, found
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if weight(middle) <= middle:
            high = middle
        else:
            low = middle
    return high, weight(high)


def _chain(draft: Sequence[Fork]) -> list[DraftToken]:
    return [DraftToken(fork.drawn[0], fork.proposed, "draft") for fork in draft]


def _trunk(draft: Sequence[Fork]) -> tuple[int, ...]:
    return tuple([fork.drawn[0] for fork in draft])


def _ended(path: tuple[int, ...], after: TargetAfter, random: Random) -> TreeVerdict:
    """Accept a path up to a leaf; the target's own token follows it."""
    return TreeVerdict(path, after(path).sample(random))


def _extended(
    verdict: TreeVerdict, draft: Sequence[Fork], after: TargetAfter, random: Random
) -> TreeVerdict:
    """Accept the target's own token if it is a chosen sibling; another one follows it then."""
    path, token = verdict
    if len(path) < len(draft) and token in draft[len(path)].chosen:
        return _ended((*path, token), after, random)
    return verdict
