"""Verification: which drafted tokens are accepted. The only place where acceptance happens.

A verifier takes the draft, the target's processed distribution at each position (computed only when
asked for; position i follows the first i drafted tokens, position len(draft) the whole draft) and a
source of uniform numbers. It returns how many drafted tokens are accepted and the target's own
token that follows them. The resulting text is distributed exactly as the target's own.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, repeat
from typing import NamedTuple, TypeAlias

from specchat.decoding.distribution import (
    Distribution,
    Random,
    excess_of,
    sample_shares,
    without,
)
from specchat.decoding.noise import Noise
from specchat.decoding.proposal import DraftToken

TargetAt: TypeAlias = Callable[[int], Distribution]
"""The target's processed distribution after the first i drafted tokens."""


class Verdict(NamedTuple):
    """The result of a verification: the number of accepted tokens, and the token after them.

    `prefix_probabilities` are P_0, P_1, ...: the probability that the prefix of each length is
    accepted; longer prefixes with probability 0 are left out. Where tokens are accepted one by one,
    it is 1 for each accepted prefix.
    """

    num_accepted: int
    token: int
    prefix_probabilities: Sequence[float] = ()


Verifier: TypeAlias = Callable[[Sequence[DraftToken], TargetAt, Random], Verdict]


def verify_by_argmax(draft: Sequence[DraftToken], target: TargetAt, random: Random) -> Verdict:
    """Accept a drafted token if and only if it is the target's most probable one."""
    del random  # nothing is drawn at temperature 0
    return _verify_by_equality(draft, lambda position: target(position).best())


def verify_by_noise(noise: Noise, first: int) -> Verifier:
    """Return a verifier that accepts a token if and only if the target draws it with this noise.

    `first` is the index of the draft's first token in the answer. The text is a function of the
    noise and the target alone, whatever is drafted. A drafter that draws with the same noise draws
    the target's token with probability (1 - d) / (1 + d) or more, where d is the total variation
    distance of the two distributions (Daliri, Musco and Suresh 2024, arXiv 2408.07978).
    """

    def verify(draft: Sequence[DraftToken], target: TargetAt, random: Random) -> Verdict:
        del random  # the noise decides
        return _verify_by_equality(draft, lambda index: noise.draw(target(index), first + index))

    return verify


def verify_by_block(draft: Sequence[DraftToken], target: TargetAt, random: Random) -> Verdict:
    """Accept the longest prefix that passes a joint test: on average no fewer than one by one.

    Block verification, Sun et al. 2024 (arXiv 2403.10444), for the target's p and the drafter's q:
    P_0 = 1, P_i = min(1, P_(i-1) p(x_i) / q(x_i)). Independently of shorter prefixes, prefix i
    passes with probability h_i = S_i / (S_i + 1 - P_i), where S_i = sum max(0, P_i p - q). The
    residual is norm(max(0, P_i p - q)).
    """
    num_accepted, probabilities = 0, [1.0]
    for position, (token, proposed, _) in enumerate(draft):
        wanted = probabilities[-1] * target(position).probability(token)
        if wanted == 0.0:  # every longer prefix has probability 0 too
            break
        probabilities.append(min(1.0, wanted / proposed.probability(token)))
        if random() < _chance_to_pass(probabilities[-1], position + 1, draft, target):
            num_accepted = position + 1
    if num_accepted == len(draft):
        return Verdict(num_accepted, target(num_accepted).sample(random), probabilities)
    next_proposed, scale = draft[num_accepted].distribution, probabilities[num_accepted]
    token = target(num_accepted).sample_excess(next_proposed, random, scale)
    return Verdict(num_accepted, token, probabilities)


def verify_by_traversal(siblings: Mapping[int, Sequence[int]]) -> Verifier:
    """Return a verifier of a draft beside which siblings were drawn, without replacement.

    `siblings` has them by the number of drafted tokens before them, in the order of their draws; an
    accepted one is the token of the verdict. How many there are may depend on the draft, not on
    which they are.

    Traversal verification, Weng et al. 2025 (arXiv 2505.12398), goes from the leaves up. The text
    has P = 1, a token x after a node with P has min(1, P p(x) / q(x)), and a leaf is accepted with
    its P. A rejected one is removed: with S = sum max(0, P p - q), p becomes norm(max(0, P p - q))
    after its parent, whose P becomes S / (S + 1 - P), and q loses x. After a node with no
    candidates left, the target's own token is drawn from what remains of p. Without siblings that
    is block verification; with them it accepts more than any other way that was tried (the table in
    docs/benchmarks.md).
    """

    def verify(draft: Sequence[DraftToken], target: TargetAt, random: Random) -> Verdict:
        probabilities, rows = [1.0], list[Distribution]()
        for position, (token, proposed, _) in enumerate(draft):
            rows.append(target(position))
            wanted = probabilities[-1] * rows[-1].probability(token)
            if wanted == 0.0:  # every longer prefix has probability 0 too
                break
            probabilities.append(min(1.0, wanted / proposed.probability(token)))
        length = len(draft)
        # the end of the draft is the deepest leaf; from there, up to the text
        if len(probabilities) == length + 1 and random() < probabilities[-1]:
            return Verdict(length, target(length).sample(random), probabilities)
        for position in range(len(rows) - 1, -1, -1):
            token, proposed, _ = draft[position]
            wanted_here, chance = rows[position].shares(), probabilities[position]
            left = proposed.shares()
            for number, other in enumerate((token, *siblings.get(position, ()))):
                passing = chance * wanted_here.get(other, 0.0) / left[other]
                if number and random() < passing:  # 0 is the drafted one, rejected with its leaves
                    return Verdict(position, other, probabilities)
                wanted_here, mass = excess_of(wanted_here, left, chance)
                # 1 stays 1, also where nothing of p is left: 0 / 0
                chance = 1.0 if chance == 1.0 else mass / (mass + 1.0 - chance)
                left = without(left, other)
            if random() < chance:
                return Verdict(position, sample_shares(wanted_here, random), probabilities)
        raise AssertionError("the text is always accepted")

    return verify


def verify_replayed(usual: Verifier, text: Sequence[int], *, is_coupled: bool) -> Verifier:
    """Return a verifier of drafts of a known text, which accepts as many as `usual` did there.

    `text` has the tokens from the draft's first one on. Where drafts are certain, or coupled with
    the target by noise, the right ones are accepted. Drafts that are drawn must be the text's own
    tokens wherever those can be drawn: drawn anew, they would be right less often than the text's
    drafts were. After accepted tokens with their P, block verification emits a token x with
    probability P p(x), and as an accepted draft with min(q(x), P p(x)). Given the text, its token
    was therefore an accepted draft with probability min(1, q(x) / (P p(x))), whatever follows.

    `usual` is called, too, because its time counts.
    """

    def verify(draft: Sequence[DraftToken], target: TargetAt, random: Random) -> Verdict:
        probabilities = usual(draft, target, random).prefix_probabilities
        num_accepted = 0
        for (token, proposed, _), own, reached in zip(
            draft, text, chain(probabilities, repeat(1.0)), strict=False
        ):
            if token != own:
                break
            if not is_coupled:
                wanted = reached * target(num_accepted).probability(token)
                if random() * wanted >= proposed.probability(token):
                    break
            num_accepted += 1
        return Verdict(num_accepted, text[num_accepted], probabilities)

    return verify


def _verify_by_equality(draft: Sequence[DraftToken], own: Callable[[int], int]) -> Verdict:
    """Accept tokens as long as they are the target's own ones."""
    for position, drafted in enumerate(draft):
        token = own(position)
        if token != drafted.token:
            return Verdict(position, token, (1.0,) * (position + 1))
    return Verdict(len(draft), own(len(draft)), (1.0,) * (len(draft) + 1))


def _chance_to_pass(
    probability: float, length: int, draft: Sequence[DraftToken], target: TargetAt
) -> float:
    """Return h_i for the prefix of this length with its P_i; for the whole draft, P_i itself."""
    if length == len(draft) or probability == 1.0:
        return probability
    excess = target(length).excess_mass(draft[length].distribution, probability)
    return excess / (excess + 1.0 - probability)
