"""Counting and small arithmetic."""

import random

from .phrasing import Turn, exchange

WORDS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty"
).split()


def counting(rng: random.Random) -> list[Turn]:
    """Count up or down, by ones or in steps."""
    kind = rng.random()
    if kind < 0.4:
        return _count_up(rng)
    if kind < 0.6:
        return _count_down(rng)
    if kind < 0.85:
        return _count_in_steps(rng)
    return _even_or_odd(rng)


def _as_word(number: int, rng: random.Random) -> str:
    return WORDS[number] if number <= 20 and rng.random() < 0.35 else str(number)


def _join(numbers: range) -> str:
    return ", ".join(map(str, numbers))


def _count_up(rng: random.Random) -> list[Turn]:
    first = 1 if rng.random() < 0.6 else rng.randint(0, 20)
    last = first + rng.choice((4, 5, 7, 9, 9, 9, 11, 14, 19))
    start, end = _as_word(first, rng), _as_word(last, rng)
    patterns = [
        f"{{Count|Please count|Can you count|Count up}} from {start} to {end}{{.||?}}",
        f"{{Numbers|The numbers|List the numbers|Write the numbers}} from {start} to {end}{{.|}}",
        f"{{Write|Show me|Give me}} {{all|}} numbers between {start} and {end}{{.|}}",
    ]
    if first == 1:
        patterns += [f"{{Count|Please count|Can you count|Count up}} to {end}{{.||?}}"] * 2
    return exchange(rng.choice(patterns), _join(range(first, last + 1)), rng)


def _count_down(rng: random.Random) -> list[Turn]:
    first = rng.choice((3, 5, 10, 10, 10, 12, 15, 20, rng.randint(4, 20)))
    last = rng.choice((1, 1, 0)) if first > 3 else 1
    start, end = _as_word(first, rng), _as_word(last, rng)
    patterns = [
        f"{{Count|Please count|Can you count}} {{down|backwards}} from {start} to {end}{{.||?}}",
        f"Count from {start} {{down|back}} to {end}{{.|}}",
        f"{{Count|Give me a countdown}} from {start} to {end}{{.|}}",
    ]
    if last == 1:
        patterns.append(f"{{Count down|Count backwards|Countdown}} from {start}{{.|}}")
    return exchange(rng.choice(patterns), _join(range(first, last - 1, -1)), rng)


def _count_in_steps(rng: random.Random) -> list[Turn]:
    step = rng.choice((2, 2, 3, 4, 5, 10, 10, 100))
    count = rng.choice((5, 6, 8, 10, 10))
    name = {2: "twos", 3: "threes", 4: "fours", 5: "fives", 10: "tens", 100: "hundreds"}[step]
    end = step * count
    pattern = rng.choice(
        (
            f"{{Count|Please count|Can you count}} {{by|in}} {name} to {end}{{.||?}}",
            f"{{Count|Count up}} {{by|in steps of}} {step} to {end}{{.|}}",
            f"{{Count|Go}} to {end} {{by|in}} {{{name}|steps of {step}}}{{.|}}",
            f"{{The|List the|Write the}} multiples of {step} up to {end}{{.|}}",
        )
    )
    return exchange(pattern, _join(range(step, end + 1, step)), rng)


def _even_or_odd(rng: random.Random) -> list[Turn]:
    even = rng.random() < 0.5
    end = rng.choice((10, 20, 12, 16, 30))
    name = "even" if even else "odd"
    pattern = rng.choice(
        (
            f"{{List|Write|Give me|Show me}} the {name} numbers {{up to|to|below}} {end}{{.|}}",
            f"{{What are|Which are}} the {name} numbers up to {end}{{?|}}",
            f"{{Count|List}} {name} numbers to {end}{{.|}}",
        )
    )
    return exchange(pattern, _join(range(2 if even else 1, end + even, 2)), rng)


def arithmetic(rng: random.Random) -> list[Turn]:
    """One small sum, difference, product or quotient."""
    sign = rng.choice("+++--*/")
    left, right = rng.randint(0, 20), rng.randint(0, 20)
    if sign == "-":
        left, right = max(left, right), min(left, right)
    if sign == "*":
        left, right = rng.randint(0, 10), rng.randint(0, 10)
    if sign == "/":
        right = rng.randint(1, 10)
        left = right * rng.randint(1, 10)
    result = {"+": left + right, "-": left - right, "*": left * right}.get(sign)
    answer = f"{left} {sign} {right} = {left // right if result is None else result}"
    return exchange(rng.choice(sum_patterns(left, sign, right)), answer, rng)


def sum_patterns(left: int, sign: str, right: int) -> list[str]:
    """The ways of asking for one result."""
    verbs = {
        "+": [f"Add {left} and {right}", f"the sum of {left} and {right}", f"{left} plus {right}"],
        "-": [
            f"Subtract {right} from {left}",
            f"{left} minus {right}",
            f"{left} take away {right}",
        ],
        "*": [f"Multiply {left} by {right}", f"{left} times {right}", f"{left} x {right}"],
        "/": [f"Divide {left} by {right}", f"{left} divided by {right}", f"{left} : {right}"],
    }[sign]
    return [
        f"{{What is|What's|How much is|Compute|Calculate|}} {left} {sign} {right}{{?|}}",
        f"{{What is|What's|How much is}} {verbs[1]}{{?|}}",
        f"{{What is|How much is|}} {verbs[2]}{{?|}}",
        f"{verbs[0]}{{.|}}",
        f"{left}{sign}{right}{{=|?|}}",
        f"{{Do you know|Can you tell me|Tell me}} {{what|how much}} {left} {sign} {right} is{{?|}}",
    ]
