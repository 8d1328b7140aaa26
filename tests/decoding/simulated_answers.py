"""Simulated answers, whose speedup is known, on quiet machines and on busy ones.

Drafts are decoded as pacing decodes: one length for some steps, and now and then plain steps in a
row, of which the first is slower. In some answers draft passes are made in vain, and plain steps
look passages up. Passes get slower as the answer goes on.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from specchat.decoding.step_times import StepTimes

RUN, CHECK, INTERVAL = 6, 4, (24, 90)
COLD = 1.25
"""How much longer a pass over one token takes after one of another kind."""


@dataclass
class Machine:
    """A machine with other programs; `now` is its clock."""

    chance: random.Random
    spread: float
    levels: tuple[float, float] = (1.0, 1.0)
    """How much longer passes take, at least and at most, while another program runs."""
    seconds: float = 1.5
    """How long one runs, or does not, on average."""
    stalls: float = 0.0
    now: float = 0.0
    until: float = 0.0
    level: float = 1.0

    def take(self, seconds: float) -> float:
        """Return what a step takes that takes so long undisturbed."""
        chance = self.chance
        if self.now >= self.until:
            self.until = self.now + chance.expovariate(1 / self.seconds)
            self.level = chance.uniform(*self.levels) if chance.random() < 0.5 else 1.0
        took = seconds * self.level * chance.lognormvariate(0, self.spread)
        if chance.random() < self.stalls:
            took += chance.expovariate(1 / 0.2)
        self.now += took
        return took


def quiet(chance: random.Random) -> Machine:
    """Return a machine with nothing else to do."""
    return Machine(chance, chance.uniform(0.01, 0.05))


@dataclass
class SharedCores(Machine):
    """A machine whose cores other programs share by turns: a step takes its time or twice that."""

    turn: float = 0.03
    """How long passes run alone, or share, on average."""
    left: float = 0.0
    shares: bool = False

    def take(self, seconds: float) -> float:
        """Return what a step takes that takes so long undisturbed."""
        took, undone = 0.0, seconds * self.chance.lognormvariate(0, self.spread)
        while undone > 0:
            if self.left <= 0:
                self.left = self.chance.expovariate(1 / self.turn)
                self.shares = not self.shares
            speed = 0.5 if self.shares else 1.0
            part = min(self.left, undone / speed)
            undone, self.left, took = undone - part * speed, self.left - part, took + part
        return took


def loaded(chance: random.Random) -> Machine:
    """Return a machine with other programs all the time."""
    return SharedCores(chance, chance.uniform(0.02, 0.1), turn=chance.uniform(0.015, 0.06))


def unsteady(chance: random.Random) -> Machine:
    """Return a machine on which other programs come and go."""
    return Machine(chance, chance.uniform(0.05, 0.2), levels=(1.3, 2.5), stalls=0.005)


def interrupted(chance: random.Random) -> Machine:
    """Return a machine on which a program begins or ends once or twice in an answer."""
    return Machine(chance, chance.uniform(0.02, 0.1), levels=(1.5, 2.5), seconds=8.0)


def answer(chance: random.Random, machine: Machine) -> tuple[StepTimes, float]:
    """Return the times of an answer, and what its speedup is without the noise."""
    times, plain_s, own_s = StepTimes(), 0.0, 0.0
    single, slope = chance.uniform(0.006, 0.05), chance.choice([0.1, 0.25, 0.45])
    accepted, growth = chance.uniform(0.3, 0.95), chance.uniform(0.0, 0.4)
    num_tokens, emitted = chance.randint(150, 700), 0
    lookup, look = chance.uniform(0.0, 0.06), chance.uniform(0.15, 0.4)
    in_vain = chance.choice([0.0, 0.0, 0.3])
    interval, since, plain_left, length = chance.randint(*INTERVAL), 0, 0, 2
    last_drafted = True
    step = 0
    while emitted < num_tokens:
        depth = 1 + growth * emitted / num_tokens
        if not plain_left and since >= interval:
            plain_left, since = CHECK, 0
        drafting, drafted, kept = 0.0, 0, 0
        if plain_left:
            plain_left -= 1
            drafting = single * depth * lookup
            took = single * depth * (COLD if last_drafted else 1.0) + drafting
            last_drafted = False
        elif chance.random() < in_vain:
            since, last_drafted = since + 1, True
            drafting = single * depth * look
            took = single * depth * COLD + drafting
        else:
            if step % RUN == 0:
                length = chance.choice([1, 2, 2, 3, 4, 6])
            since += 1
            drafted, last_drafted = length, True
            took = single * (1 + (slope + 0.08) * drafted) * (0.3 + 0.7 * depth)
            while kept < drafted and chance.random() < accepted:
                kept += 1
        step += 1
        taken = machine.take(took)
        times.add(drafted, kept + 1, taken, taken * drafting / took)
        plain_s += single * depth * (kept + 1)
        own_s += took
        emitted += kept + 1
    return times, plain_s / own_s


def race(chance: random.Random, machine: Machine) -> tuple[StepTimes, StepTimes, float]:
    """Return the times of both lanes, which take turns, and the speedup without the noise.

    In some races nearly all steps with drafts are plain ones, too.
    """
    single, slope = chance.uniform(0.006, 0.05), chance.choice([0.1, 0.25, 0.45])
    accepted, drafts = chance.uniform(0.3, 0.95), chance.choice([0.02, 0.1, 1.0])
    plain, own, num_tokens = StepTimes(), StepTimes(), chance.randint(150, 500)
    own_s, written = 0.0, 0
    for turn in range(32, num_tokens, 32):
        times = StepTimes()
        for step in range(32):
            times.add(0, 1, machine.take(single * (COLD if step == 0 else 1.0)))
        plain, times = plain.joined(times), StepTimes()
        is_cold = True
        while written < turn:
            drafted = kept = 0
            took, is_cold = single * (COLD if is_cold else 1.0), False
            if chance.random() < drafts:
                drafted, is_cold = chance.choice([1, 2, 3, 5]), True
                took = single * (1 + (slope + 0.08) * drafted)
                while kept < drafted and chance.random() < accepted:
                    kept += 1
            times.add(drafted, kept + 1, machine.take(took))
            own_s, written = own_s + took, written + kept + 1
        own = own.joined(times)
    return plain, own, single * written / own_s
