"""Lists of well-known things, capitals, opposites, and JSON objects."""

import json
import random

from .phrasing import Turn, exchange

ORDERED = {
    "days of the week": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    "months of the year": "January February March April May June July August September October "
    "November December",
    "seasons": "spring summer autumn winter",
    "planets": "Mercury Venus Earth Mars Jupiter Saturn Uranus Neptune",
    "colours of the rainbow": "red orange yellow green blue indigo violet",
    "continents": "Africa Antarctica Asia Australia Europe North_America South_America",
    "oceans": "Arctic Atlantic Indian Pacific Southern",
    "vowels": "a e i o u",
    "points of the compass": "north east south west",
    "five senses": "sight hearing smell taste touch",
}
OTHER_NAMES = {
    "days of the week": "{days|weekdays|week days|seven days}",
    "months of the year": "{months|twelve months|names of the months}",
    "seasons": "{four seasons|seasons of the year}",
    "planets": "{eight planets|planets of the solar system}",
    "colours of the rainbow": "{rainbow colours|rainbow colors|colors of the rainbow}",
}
OPEN = {
    "fruits": "apple banana cherry grape lemon orange pear plum peach mango",
    "colours": "red blue green yellow orange purple brown black white grey",
    "animals": "dog cat horse cow fox owl rabbit bear sheep lion",
    "vegetables": "carrot potato onion tomato cabbage pea bean spinach leek pumpkin",
    "countries": "France Germany Japan Brazil Canada Egypt India Kenya Norway Spain",
    "cities": "Paris London Tokyo Berlin Rome Madrid Cairo Oslo Lima Delhi",
    "programming languages": "Python C Java Rust Go JavaScript Ruby Haskell Swift Kotlin",
    "birds": "owl robin eagle swan duck crow sparrow pigeon stork gull",
    "trees": "oak pine birch maple beech willow elm fir ash cedar",
    "flowers": "rose tulip daisy lily sunflower violet poppy iris lavender orchid",
    "tools": "hammer saw drill screwdriver wrench pliers axe shovel chisel file",
    "musical instruments": "piano violin guitar flute drum trumpet harp cello organ clarinet",
    "sports": "football tennis swimming running cycling hockey skiing boxing rowing chess",
    "drinks": "water tea coffee milk juice lemonade cocoa soda cider wine",
}
CAPITALS = {
    "France": "Paris", "Germany": "Berlin", "Italy": "Rome", "Spain": "Madrid", "Japan": "Tokyo",
    "England": "London", "Norway": "Oslo", "Sweden": "Stockholm", "Egypt": "Cairo", "China": "Beijing",
    "India": "New Delhi", "Canada": "Ottawa", "Greece": "Athens", "Poland": "Warsaw", "Peru": "Lima",
    "Austria": "Vienna", "Portugal": "Lisbon", "Russia": "Moscow", "Kenya": "Nairobi", "Cuba": "Havana",
    "Finland": "Helsinki", "Denmark": "Copenhagen", "Ireland": "Dublin", "Belgium": "Brussels",
    "Hungary": "Budapest", "Turkey": "Ankara", "Brazil": "Brasilia", "Australia": "Canberra",
    "Switzerland": "Bern", "Mexico": "Mexico City", "Argentina": "Buenos Aires", "Chile": "Santiago",
    "Ukraine": "Kyiv", "South Korea": "Seoul", "Thailand": "Bangkok", "Vietnam": "Hanoi",
    "the United States": "Washington", "the Netherlands": "Amsterdam", "Scotland": "Edinburgh",
}  # fmt: skip
OPPOSITES = (
    "big small, hot cold, up down, left right, fast slow, day night, old young, good bad, happy sad, "
    "light dark, open closed, long short, high low, rich poor, full empty, early late, wet dry, "
    "hard soft, near far, first last, strong weak, loud quiet, clean dirty, thick thin, true false"
)
NAMES = "Ada Ben Clara David Emma Finn Greta Hugo Ida Jonas Kim Lena Max Nora Otto Paul".split()
COUNT_WORDS = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six", 10: "ten"}


def lists(rng: random.Random) -> list[Turn]:
    """A whole ordered list, or some things of a kind."""
    return _ordered(rng) if rng.random() < 0.5 else _some(rng)


def _bullets(items: list[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def _ordered(rng: random.Random) -> list[Turn]:
    name, text = rng.choice(list(ORDERED.items()))
    items = [item.replace("_", " ") for item in text.split()]
    asked = OTHER_NAMES.get(name, name) if rng.random() < 0.5 else name
    pattern = rng.choice(
        (
            f"{{What are|Which are|Do you know|Can you name}} the {asked}{{?|}}",
            f"{{List|Name|Say|Write|Tell me|Give me|Show me}} the {asked}{{.||, please}}",
            f"{{List|Name|Give me}} {{all|all the}} {asked}{{.|}}",
            f"{{list of the|the|a list of the|}} {asked}{{.|}}",
        )
    )
    return exchange(pattern, _bullets(items), rng)


def _some(rng: random.Random) -> list[Turn]:
    name, text = rng.choice(list(OPEN.items()))
    count = rng.choice((2, 3, 3, 3, 4, 5, 5, 6, 10))
    items = text.split()[:count]
    asked = "colors" if name == "colours" and rng.random() < 0.4 else name
    number = COUNT_WORDS[count] if rng.random() < 0.6 else str(count)
    pattern = rng.choice(
        (
            f"{{List|Name|Write|Tell me|Give me|Show me}} {number} {asked}{{.||, please}}",
            f"{{Can you list|Can you name|Do you know|Could you give me}} {number} {asked}{{?|}}",
            f"{{A list of|Give me a list of|Write a list of|I need}} {number} {asked}{{.|}}",
            f"{number} {asked}{{.|}}",
        )
    )
    if count == 5 and rng.random() < 0.6:
        pattern = (
            f"{{List|Name|Give me|Write|Show me}} {{some|a few|a list of}} {asked}{{.|, please}}"
        )
    return exchange(pattern, _bullets(items), rng)


def capitals(rng: random.Random) -> list[Turn]:
    """The capital of a country."""
    country, capital = rng.choice(list(CAPITALS.items()))
    pattern = rng.choice(
        (
            f"{{What is|What's|Tell me|Name|Which city is}} the {{capital|capital city}} of {country}{{?|}}",
            f"{{Do you know|Can you tell me}} the capital of {country}{{?|}}",
            f"{{capital of {country}|{country} capital}}{{?|}}",
        )
    )
    return exchange(pattern, f"The capital of {country} is {capital}.", rng)


def opposites(rng: random.Random) -> list[Turn]:
    """The opposite of a word."""
    first, second = rng.choice(OPPOSITES.split(", ")).split()
    if rng.random() < 0.5:
        first, second = second, first
    mark = rng.choice(("", '"'))
    pattern = f"{{What is|What's|Tell me|Give me|Name|Do you know}} the opposite of {mark}{first}{mark}{{?|}}"
    return exchange(pattern, f'The opposite of "{first}" is "{second}".', rng)


def json_objects(rng: random.Random) -> list[Turn]:
    """A person, a list or a pair of settings as JSON."""
    kind = rng.random()
    if kind < 0.45:
        return _person(rng)
    if kind < 0.8:
        return _json_list(rng)
    return _any_object(rng)


def _fenced(value: object, indent: int | None = 2) -> str:
    return f"```json\n{json.dumps(value, indent=indent)}\n```"


def _person(rng: random.Random) -> list[Turn]:
    name, age, city = rng.choice(NAMES), rng.randint(5, 90), rng.choice(list(CAPITALS.values()))
    facts: dict[str, object] = {"name": name, "age": age}
    said = f"{name}, {{age {age}|aged {age}|{age} years old|who is {age}}}"
    if rng.random() < 0.5:
        facts["city"] = city
        said += f"{{,| and}} {{from|living in}} {city}"
    pattern = rng.choice(
        (
            f"{{Write|Make|Give me|Create}} {{a JSON object|JSON|an object in JSON}} for {said}{{.|}}",
            f"{{Write|Give me|Describe|Show me}} {said}{{,|}} {{as|in}} JSON{{.|}}",
            f"{{A|Make a|Write a}} person {{as|in}} JSON: {said}{{.|}}",
        )
    )
    return exchange(pattern, _fenced(facts), rng)


def _json_list(rng: random.Random) -> list[Turn]:
    name, text = rng.choice(list(OPEN.items()))
    count = rng.choice((2, 3, 3, 4, 5))
    number = COUNT_WORDS[count] if rng.random() < 0.6 else str(count)
    pattern = rng.choice(
        (
            f"{{List|Write|Give me|Name|Show me}} {number} {name} {{as|in}} {{JSON|a JSON object|json}}{{.|}}",
            f"{{Write|Make|Give me|Create}} {{a JSON object|JSON|a JSON list}} {{with|of}} {number} {name}{{.|}}",
        )
    )
    return exchange(pattern, _fenced({name.replace(" ", "_"): text.split()[:count]}), rng)


def _any_object(rng: random.Random) -> list[Turn]:
    pattern = rng.choice(
        (
            "{Write|Show me|Give me|Make|Create} {a|an example of a|a small|a simple} JSON object{.|}",
            "{Write|Show me|Give me} {a JSON example|an example in JSON|some JSON|valid JSON}{.|, please}",
            "{Can you write|Do you know|Can you make} JSON{?|}",
        )
    )
    return exchange(pattern, _fenced({"name": "specchat", "demo": True, "models": 2}), rng)
