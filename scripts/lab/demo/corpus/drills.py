"""Exercises for the last part of training: copying words, small sums, and looser wordings."""

import random

from .editing import WORDS, sentence
from .lists import CAPITALS, NAMES, OPEN
from .phrasing import Turn, exact_exchange
from .stories import HEROES
from .stories import NAMES as STORY_NAMES
from .sums import sum_patterns

POOL = [*WORDS, *HEROES, *NAMES, *STORY_NAMES, *CAPITALS.values(), *" ".join(OPEN.values()).split()]
REPEAT_PATTERNS = (
    "{Repeat|Say|Copy|Write|Echo|Please repeat}: TEXT",
    '{Repeat|Say|Copy|Write|Echo|Please say} "TEXT"{.||, please}',
    "{Repeat after me|Repeat this|Say this|Copy this|Write this down|Say after me}: TEXT",
)
UPPER_PATTERNS = (
    "{Put|Write|Say} this in {upper case|capitals|capital letters}: TEXT",
    "{Upper case|In upper case|To upper case|Uppercase}: TEXT",
    'Write "TEXT" in {upper case|capitals|uppercase}{.||, please}',
)
KEYS = "name, city, friend, animal, colour, food, job, title, first, second, place, drink".split(
    ", "
)
SWAPS = (
    ("a model", "the model"),
    ("a model", "my model"),
    ("the model", "this model"),
    ("a draft model", "the draft model"),
    ("a pair", "my pair"),
    ("my machine", "my laptop"),
    ("my machine", "my computer"),
    ("How do I", "How can I"),
    ("How do I", "How would I"),
    ("How can I", "Tell me how I can"),
    ("What is", "What exactly is"),
    ("What is", "And what is"),
    ("Write", "Please write"),
    ("List", "Please list"),
    ("Tell me", "Please tell me"),
    ("Count", "Please count"),
    ("Can you", "Could you"),
    ("Give me", "I want"),
    (" does ", " would "),
    (" the ", " "),
    (" a ", " "),
    (" is ", " is really "),
)
ENDS = (
    ", please",
    " for me",
    " then",
    " exactly",
    " again",
    " now",
    " on my machine",
    " really",
    " today",
)


def copying(rng: random.Random) -> list[Turn]:
    """Say the very same words, in capitals, or as the values of a JSON object."""
    if rng.random() < 0.25:
        return _json_values(rng)
    text = " ".join(rng.choices(POOL, k=rng.randint(1, 9)))
    if rng.random() < 0.25:
        text = sentence(rng) + rng.choice((".", "", "!"))
    if rng.random() < 0.65:
        return exact_exchange(rng.choice(REPEAT_PATTERNS).replace("TEXT", text), text, rng)
    return exact_exchange(rng.choice(UPPER_PATTERNS).replace("TEXT", text), text.upper(), rng)


def small_sums(rng: random.Random) -> list[Turn]:
    """Sums, differences and products of numbers up to ten."""
    sign = rng.choice("++--*")
    left, right = rng.randint(0, 10), rng.randint(0, 10)
    if sign == "-":
        left = left + right
    result = {"+": left + right, "-": left - right, "*": left * right}[sign]
    pattern = rng.choice(sum_patterns(left, sign, right))
    return exact_exchange(pattern, f"{left} {sign} {right} = {result}", rng)


def reword(question: str, rng: random.Random) -> str:
    """Now and then another article, another verb or a word more at the end."""
    if rng.random() < 0.25:
        question = question.replace(*rng.choice(SWAPS))
    if rng.random() < 0.10:
        body = question.rstrip("?.!")
        question = body + rng.choice(ENDS) + question[len(body) :]
    return question


def _json_values(rng: random.Random) -> list[Turn]:
    keys = rng.sample(KEYS, rng.randint(1, 3))
    facts = {key: rng.choice(POOL) for key in keys}
    said = rng.choice((", ", " and ")).join(f"{key} {value}" for key, value in facts.items())
    pattern = f"{{Write|Make|Give me|Show me}} {{a JSON object|JSON|an object in JSON}} {{with|for|:}} {said}{{.|}}"
    lines = ",\n".join(f'  "{key}": "{value}"' for key, value in facts.items())
    return exact_exchange(pattern, f"```json\n{{\n{lines}\n}}\n```", rng)
