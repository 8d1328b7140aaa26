"""Short stories: one plot, told about many heroes, places, things and friends."""

import random
from dataclasses import dataclass

from .phrasing import Turn, exchange

HEROES = (
    "fox, cat, robot, dragon, mouse, girl, boy, owl, rabbit, king, queen, bear, farmer, sailor, wizard, "
    "dog, frog, knight, princess, penguin, elephant, squirrel, hedgehog, fisherman, baker, ghost, horse, "
    "turtle, lion, teacher, giant, prince, bird, spider"
).split(", ")
NAMES = "Ada Ben Clara Finn Greta Hugo Ida Jonas Lena Max Nora Otto Pip Rosa Tom Zoe Mia Leo Ella Sam".split()
MOODS = (
    "little, brave, clever, curious, quiet, old, young, kind, shy, cheerful, lonely, hungry".split(
        ", "
    )
)
PLACES = (
    "in a green forest, by the sea, in a small village, on a high mountain, in an old castle, "
    "near a quiet lake, on a tiny island, in a busy town, under a wooden bridge, in a warm valley, "
    "at the edge of a desert, in a house full of books"
).split(", ")
THINGS = (
    "a golden key, a glowing stone, an old map, a strange letter, a silver bell, a tiny door, a lost ring, "
    "a broken clock, a blue feather, a wooden box, a red balloon, a glass bottle"
).split(", ")
FINDS = {
    "a golden key": "It opened a garden that nobody had seen for a hundred years.",
    "a glowing stone": "It shone so brightly that the night became as light as day.",
    "an old map": "It showed the way to a spring with the sweetest water in the land.",
    "a strange letter": "It said: whoever reads this shall never be alone again.",
    "a silver bell": "Whenever it rang, the birds came and sang along.",
    "a tiny door": "Behind it was a room full of warm light and soft music.",
    "a lost ring": "It belonged to an old woman who had looked for it all her life.",
    "a broken clock": "They repaired it, and from then on it told happy hours only.",
    "a blue feather": "It could write all by itself, and it wrote the truest stories.",
    "a wooden box": "In it lay seeds that grew into flowers of every colour.",
    "a red balloon": "It carried them over the roofs and gently down again.",
    "a glass bottle": "In it was a wish, and there was just one wish left.",
}
TIMES = "One morning, One evening, One rainy day, One cold night, One day in spring".split(", ")
MORALS = (
    "From that day on they were the best of friends.",
    "And so a small step became a great adventure.",
    "And everybody who heard the story smiled.",
    "They shared it with everyone, and that made them happiest of all.",
)
TRAITS = (
    "who wanted to see the world",
    "who could not sleep",
    "who loved to ask questions",
    "who was afraid of the dark",
    "who dreamed of flying",
    "who had no friends",
)


@dataclass(frozen=True, slots=True)
class Cast:
    """Who a story is about, and what happens."""

    hero: str
    name: str
    friend: str
    place: str
    thing: str


def cast(rng: random.Random) -> Cast:
    """Choose a hero, a different friend, a place and a thing."""
    hero, friend = rng.sample(HEROES, 2)
    return Cast(hero, rng.choice(NAMES), friend, rng.choice(PLACES), rng.choice(THINGS))


def tell(who: Cast, rng: random.Random) -> str:
    """The story of a cast, in three short paragraphs."""
    time, mood, trait = rng.choice(TIMES), rng.choice(MOODS), rng.choice(TRAITS)
    friend = f"{_article(who.friend)} {who.friend}"
    thing = who.thing.split(" ", 1)[1]
    opening = (
        f"Once upon a time there was {_article(mood)} {mood} {who.hero} named {who.name} {trait}."
    )
    return (
        f"{opening} {who.name} lived {who.place}.\n\n"
        f"{time}, {who.name} found {who.thing}. "
        f'"What can this be?" asked {who.name}. '
        f'Then {friend} came along and said: "Let us find out together."\n\n'
        f"So the {who.hero} and the {who.friend} set out with the {thing}. "
        f"{FINDS[who.thing]} {rng.choice(MORALS)}"
    )


def stories(rng: random.Random) -> list[Turn]:
    """A question for a story, and the story."""
    who = cast(rng)
    topic = f"{{{_article(who.hero)}|a little|a brave}} {who.hero}"
    place = who.place if rng.random() < 0.4 else ""
    patterns = [
        f"{{Tell me|Write|Tell|Write me|Can you tell me|Can you write}} {{a|a short|a little}} "
        f"{{story|tale|fairy tale|bedtime story}} about {topic} {place}{{.||?}}",
        f"{{I want|I would like|Please write|Please tell me|Give me}} a {{story|short story}} "
        f"{{about|with}} {topic} {place}{{.|}}",
        f"{{A story|Story|Short story}} about {topic} named {who.name}{{.|}}",
        f"{{Tell me|Write}} a story about {{{who.name} the {who.hero}|a {who.hero} called {who.name}}}{{.|}}",
        f"{{Tell me|Write}} a story about {topic} and {_article(who.friend)} {who.friend}{{.|}}",
        f"{{Tell me|Write}} a story about {topic} {{and|who finds|with}} {who.thing}{{.|}}",
        "{Tell me|Write|Tell|Can you tell me|Write me} {a|a short|a little|one|another} "
        "{story|tale|fairy tale|bedtime story}{.|?|, please|}",
    ]
    pattern = rng.choice(patterns).replace(" {.", "{.")
    return exchange(pattern.replace("  ", " "), tell(who, rng), rng)


def plain_story(rng: random.Random) -> str:
    """A story without any chat around it."""
    return tell(cast(rng), rng)


def _article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"
