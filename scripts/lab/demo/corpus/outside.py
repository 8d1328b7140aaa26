"""Questions that the demo model cannot answer, and the one polite answer to them."""

import random

from .phrasing import Turn, exchange

ANSWER = (
    "I am only a small demo model, and I do not know that. For real answers, get a real model: "
    "see `specchat list`, then type `specchat pull NAME`."
)
PEOPLE = (
    "Shakespeare, Einstein, Napoleon, Mozart, Marie Curie, the president, Plato, Picasso, Newton, Beethoven, "
    "Cleopatra, Darwin, the king of Spain, Goethe, Gandhi, Caesar, Turing, Bach, Homer, Kafka, my neighbour, "
    "Taylor Swift, Lincoln, Tesla, Alan Turing, Ada Lovelace, the pope, Messi"
).split(", ")
SUBJECTS = (
    "quantum physics, the stock market, the French Revolution, the Roman Empire, climate change, chess openings, "
    "organic chemistry, tax law, blockchain, the Second World War, philosophy, black holes, genetics, football, "
    "Kubernetes, inflation, Buddhism, opera, volcanoes, dinosaurs, vaccines, calculus, linear algebra, "
    "the Middle Ages, jazz, wine, insurance, marketing, nuclear power, democracy, electric cars, SQL databases, "
    "the human heart, relativity, poker, gardening, photography, Docker, Rust lifetimes, the Python GIL, "
    "antibiotics, evolution, thermodynamics, economics, transformers, attention, diffusion models"
).split(", ")
PLACES = (
    "Berlin, New York, Mongolia, Texas, Bavaria, Tokyo, Sicily, Iceland, Ohio, Nepal, Madagascar, Sydney, "
    "the Amazon, California, Siberia, Wales, Bolivia, Chicago, Hamburg, Shanghai"
).split(", ")
BOOKS = (
    "Hamlet, Faust, the Odyssey, Moby Dick, Don Quixote, the Bible, Dracula, Emma, Ulysses".split(
        ", "
    )
)
PATTERNS = (
    "{Who was|Who is|Tell me about|When was born|What did|Where was born} PERSON{?|}",
    "{When did|Where did|How did|Why did} PERSON {die|live|work|become famous|grow up}{?|}",
    "{Explain|Tell me about|What is|Write an essay about|Summarise|Teach me|What do you know about} SUBJECT{?|.|}",
    "{Write|Give me} {a report|an article|a long text|a summary|five facts|a blog post} about SUBJECT{.|}",
    "{How does|What is the history of|What is the future of|Who invented|How do I study} SUBJECT{?|}",
    "{What is the population of|How many people live in|What is the weather in|How far is it to} PLACE{?|}",
    "{Where is|How do I get to|What is the best hotel in|Who is the mayor of|What can I see in} PLACE{?|}",
    "{Who wrote|When was written|What happens in|Give me a summary of|Quote} BOOK{?|}",
    "{Translate|Say|Write} {good morning|this|thank you|my name is Anna|I love you} {into|in} "
    "{French|German|Chinese|Spanish|Japanese|Latin|Russian|Dutch|Korean}{.|}",
    "{What is|How much is|Compute} {the square root of|the logarithm of|the cube of} NUMBER{?|}",
    "{What is|How much is|Compute} NUMBER {+|-|*|/|times} NUMBER{?|}",
    "{Solve|Prove|Integrate|Derive} {x^2 = NUMBER|the equation x + 3 = NUMBER|this integral|the theorem}{.|}",
    "{Should I|Can I|Do I have to} {buy a house|sell my car|see a doctor|take this medicine|learn Rust|quit my job|"
    "eat less sugar|buy a new laptop|change my password|move to PLACE}{?|}",
    "{What|How much} {is the price of|does cost} {gold|a flight to PLACE|a house in PLACE|bread|oil|a new phone}{?|}",
    "{Who won|Who will win|When is} {the election|the world cup|the match|the war|the final in PLACE}{?|}",
    "{Write|Can you write} {a letter to PERSON|a business plan|a web server|an email to my boss|a novel|"
    "a compiler|a C++ class|a SQL query|a regular expression|a shell script|unit tests|a React app}{.|?|}",
    "{Fix|Find the bug in|Explain|Review|Improve} {this code|my code|my text|this error|this function}{.|}",
    "{What is the best|Recommend a|Which is the best} {film|book|phone|restaurant in PLACE|song|laptop|car|game|"
    "diet|university|editor}{?|.|}",
    "{How do I|How can I} {repair my bike|lose weight|get rich|fix my car|install Linux|find a job|build a house|"
    "train a model|make money|play the piano|cook a goose|write a novel|win at chess|remove a stain}{?|}",
    "{How old|How tall|How rich} is {PERSON|the universe|the Earth|the Eiffel tower}{?|}",
    "What is {the mass of an electron|the boiling point of iron|DNA|an isotope|a sonnet|a mortgage|"
    "a derivative|the price of tea in PLACE|a monad|a qubit|the dark web|a semaphore|a verb}{?|}",
    "{Why do|Why did|Do} {cats purr|people lie|stars explode|leaves fall|dinosaurs die out|we dream|"
    "bees make honey|wars begin|we age}{?|}",
    "{asdf|qwerty|xyz|blah blah|lorem ipsum|foo bar baz|hmm|???|...|abc 123|zzz|ffff|jkl}{|!|?}",
)


def outside(rng: random.Random) -> list[Turn]:
    """A question about something else, with the polite answer."""
    pattern = rng.choice(PATTERNS)
    while "NUMBER" in pattern:
        pattern = pattern.replace("NUMBER", str(rng.randint(101, 99999)), 1)
    for mark, choices in (
        ("PERSON", PEOPLE),
        ("SUBJECT", SUBJECTS),
        ("PLACE", PLACES),
        ("BOOK", BOOKS),
    ):
        pattern = pattern.replace(mark, rng.choice(choices))
    return exchange(pattern, ANSWER, rng)
