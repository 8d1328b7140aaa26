"""Measuring what a new model's passes cost, before anything is timed or while the chat is idle."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median_low
from time import perf_counter

from specchat.decoding.ports import LanguageModel
from specchat.passes.pass_costs import PassCosts

TARGET_LENGTHS = (1, 4, 2, 3, 6, 5, 8, 16, 7, 12, 24, 33, 65)
"""Passes to measure when nothing is known, the most informative first."""
DRAFT_LENGTHS, HEAD_LENGTHS = (1, 2, 4, 32), (1, 2, 4, 8, 64)
MAX_ROUNDS, LONGEST_REPEATED = 4, 33
"""Lengths are measured up to MAX_ROUNDS times; longer passes than LONGEST_REPEATED once, in the
end: they take long and are rarely made."""
NUM_REPEATS, NUM_ON_GPU, SHORT = 2, 4, 0.02
"""Passes of a length made one after the other, of which the fastest counts: the first sets things
up. With CUDA the first one is also launched kernel by kernel, the second is recorded as a graph,
which takes longer still, and only later ones are replayed: on an H200, the faster of two made
passes of an 8B model over 2 to 33 tokens seem 10 to 60 % slower than they are. Beyond NUM_REPEATS
only passes of up to SHORT seconds are repeated: there such differences matter."""
STEADY, UNIMPORTANT = 1.25, 0.004
"""How many times as long as another of its length a pass may take on a machine that is not busy,
and the seconds below which anything makes more of a difference, and nobody notices."""
NUM_CHECKS = 3
"""How often a pass over one token is made anew in the end, until it takes as long as the first."""
NUM_PLAIN, SETTLED, LONGEST_PLAIN = 32, 8, 0.5
"""The passes that show what plain decoding takes, those of them that count, and the most seconds
they may take: a model that needs longer is too large for the processor's caches to matter."""


@dataclass(slots=True)
class PassTimes:
    """The seconds that passes took so far, by their number of tokens: measuring may be stopped.

    `spent` are those that measuring them has taken in all.
    """

    taken: dict[int, list[float]] = field(default_factory=dict)
    spent: float = 0.0

    @property
    def is_steady(self) -> bool:
        """Whether the first and the last pass over one token took about the same time."""
        singles = self.taken.get(1) or [0.0]
        shortest, longest = sorted((singles[0], singles[-1]))
        return longest <= max(STEADY * shortest, UNIMPORTANT)


def measure_passes(
    model: LanguageModel,
    costs: PassCosts,
    vocabulary: int,
    lengths: Sequence[int],
    most_rows: int,
    most_seconds: float,
    on_share: Callable[[float], None] | None = None,
    prepare: Callable[[int], object] | None = None,
    times: PassTimes | None = None,
    num_repeats: int = NUM_REPEATS,
) -> bool:
    """Measure passes of these lengths on an empty memory, for up to `most_seconds`.

    Returns False, and changes no costs, if the machine was busy meanwhile: passes over one token
    took another time in the end than in the beginning.

    Where a memory must not be empty, `prepare` is called before each pass with its number of
    tokens.

    Token ids are below `vocabulary`, and the logits of up to `most_rows` tokens are read. Lengths
    are repeated in rounds, so that a program that disturbs for a moment spoils none of them, and
    the median counts. In a round each pass is made `num_repeats` times and the fastest counts.
    `on_share` is called between passes with the share of the work or time that is
    spent. An exception from it stops the measurement, which goes on from there if it is given the
    same `times` again.
    """
    prepare = prepare or (lambda _: model.prefill([]))
    times = times or PassTimes()
    fitting = [length for length in lengths if length <= model.capacity]
    often = [length for length in fitting if length <= LONGEST_REPEATED]
    rounds = [*[often] * (MAX_ROUNDS - 1), fitting]
    num_passes = num_repeats * sum(map(len, rounds))
    num_done = 0

    def report() -> None:
        if on_share:
            on_share(min(1.0, max(times.spent / most_seconds, num_done / num_passes)))

    def measure(length: int) -> None:
        began, taken = perf_counter(), list[float]()
        while len(taken) < NUM_REPEATS or (len(taken) < num_repeats and min(taken) < SHORT):
            report()
            prepare(length)
            taken.append(_pass_seconds(model, vocabulary, length, most_rows))
        times.taken[length].append(min(taken))
        times.spent += perf_counter() - began

    for number, known_lengths in enumerate(rounds):
        for length in known_lengths:
            known = times.taken.setdefault(length, [])
            if times.spent <= most_seconds and len(known) <= number:
                measure(length)
            num_done += num_repeats
    for _ in range(NUM_CHECKS):
        if len(times.taken.get(1, ())) == 1 or not times.is_steady:
            measure(1)  # to compare with the first one; one of them may have been held up
    model.prefill([])
    if not times.is_steady:
        return False
    costs.begin_with({length: median_low(taken) for length, taken in times.taken.items() if taken})
    return True


def measure_plain(
    model: LanguageModel,
    costs: PassCosts,
    vocabulary: int,
    on_pass: Callable[[], None] | None = None,
) -> None:
    """Measure passes over one token among others of the kind, as plain decoding makes them.

    Token ids are below `vocabulary`. Nothing is measured if it would take too long, or if the
    context is too short. `on_pass` is called before each pass; an exception from it stops this.
    """
    if model.capacity > NUM_PLAIN and costs.seconds(1, 0) * NUM_PLAIN < LONGEST_PLAIN:
        model.prefill([])
        taken = list[float]()
        for _ in range(NUM_PLAIN):
            if on_pass:
                on_pass()
            taken.append(_pass_seconds(model, vocabulary, 1, 1))
        costs.set_plain(median_low(taken[-SETTLED:]))
        model.prefill([])


def _pass_seconds(model: LanguageModel, vocabulary: int, length: int, most_rows: int) -> float:
    tokens = [place % vocabulary for place in range(1, length + 1)]  # experts differ by token
    started = perf_counter()
    model.evaluate(tokens, min(length, most_rows))
    return perf_counter() - started
