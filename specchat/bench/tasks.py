"""The prompts of the benchmark, of the project's own writing, by what they stand for."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TASKS", "Task"]


@dataclass(frozen=True, slots=True)
class Task:
    """One kind of use, with prompts that are asked in turn, round by round."""

    name: str
    prompts: tuple[str, ...]


REPORT = """\
The lighthouse at Kerrin Point was built in three summers by forty masons and a blacksmith. The \
first summer went into the road, because no cart could reach the point before it, and into the \
foundation, which had to be cut seven feet into the rock. In the second summer the tower rose to \
the height of the gallery. Stone came by boat from the quarry at Ossel, twelve miles to the south, \
and on days with an easterly wind no boat could land, so the masons mended their tools and carved \
their names into the lower steps, where they can still be read. In the third summer the lantern \
was lifted in four parts, each of them drawn up by oxen that walked away from the tower along the \
new road. The lamp was lit on the ninth of October, and the keeper wrote into the first page of \
his book that the light had been seen from a ship nineteen miles out.

The keeper's book is the best source for what happened at the point in the following years. It \
records the weather four times a day, every ship that passed, and the oil that was used. It also \
records smaller things: that the keeper's daughter learned to read from the signal code, that a \
goat lived on the roof of the oil store for a whole winter, and that a painter stayed for a month, \
paid with a picture, and left without saying goodbye. The picture still hangs in the hall of the \
village school. It shows the tower from the sea, with the lamp lit at noon, which no keeper would \
have allowed.

In the year of the great storm the sea broke the road in two places and took the oil store away, \
goat and all. For eleven weeks the keeper and his family lived on what they had and on what could \
be brought by boat on quiet days. The light did not fail in any of those nights. When the road was \
open again the harbour office sent an inspector, who measured the damage, praised the keeper in \
his report, and asked the office to pay for a new store, a longer wall, and a second goat.

The lamp burned oil for sixty years and gas for eleven, and then a cable came along the road. \
With the cable came a man from the town who screwed a switch to the wall beside the stairs, \
showed the keeper which way was on, and had the last cart back. The keeper wrote down the hour, \
the weather, and that he did not know what to do with his evenings."""

CODE = """\
def read_records(path, separator=","):
    records = []
    file = open(path)
    header = file.readline().strip().split(separator)
    for line in file:
        line = line.strip()
        if line == "":
            continue
        values = line.split(separator)
        record = {}
        for i in range(len(header)):
            record[header[i]] = values[i]
        records.append(record)
    file.close()
    return records


def total_by_key(records, key, amount):
    totals = {}
    for record in records:
        name = record[key]
        if name not in totals:
            totals[name] = 0
        totals[name] = totals[name] + float(record[amount])
    return totals


def print_totals(totals):
    names = list(totals.keys())
    names.sort()
    for name in names:
        print(name + ": " + str(round(totals[name], 2)))


def largest_by_key(records, key, amount):
    largest = {}
    for record in records:
        name = record[key]
        if name not in largest or float(record[amount]) > float(largest[name][amount]):
            largest[name] = record
    return largest


def records_of_year(records, year):
    chosen = []
    for record in records:
        if record["date"][0:4] == str(year):
            chosen.append(record)
    return chosen


def write_records(path, records, separator=","):
    file = open(path, "w")
    header = list(records[0].keys())
    file.write(separator.join(header) + "\\n")
    for record in records:
        values = []
        for name in header:
            values.append(str(record[name]))
        file.write(separator.join(values) + "\\n")
    file.close()


def main(path, year):
    records = records_of_year(read_records(path), year)
    totals = total_by_key(records, "customer", "amount")
    print_totals(totals)
    largest = largest_by_key(records, "customer", "amount")
    write_records("largest.csv", list(largest.values()))
"""

CHAT = """\
I have a free weekend and would like to learn something with my hands. What would you suggest, and
how would I begin?

My neighbour plays the trumpet every evening. How do I bring it up without starting a quarrel?

What is the difference between weather and climate, for a curious child of ten?"""

PROGRAMMING = """\
Write a Python class for a queue of jobs with priorities. Jobs can be added, taken, cancelled by
their number and counted. Give it type hints and docstrings.

Write a Python function that merges overlapping intervals, given as pairs of numbers, and a test for
it with at least six cases.

Write a small command line program in Python that counts the words of a text file and prints the ten
most common ones in a table."""

REASONING = """\
A train leaves at 9:40 and covers 210 km at 84 km/h. It waits 15 minutes half way. When does it
arrive? Think step by step and check the result.

Three boxes are labelled apples, pears, and mixed. All labels are wrong. You may take one fruit from
one box. How do you find out what is in each? Reason step by step.

A tank is filled by one pipe in 6 hours and by another in 4. A drain empties it in 12. How long does
it take with all three open? Show every step."""

JSON = """\
Give a JSON array of eight books, each an object with title, author, year, pages and a list of two
topics. JSON only.

Give a JSON object that describes a weekly timetable for a small gym: for each day a list of courses
with name, start, minutes and trainer. JSON only.

Turn this into JSON with one object per person: Ada is 36 and lives in Turin, Ben is 41 and lives in
Oslo, Cleo is 29 and lives in Porto, Dora is 52 and lives in Graz."""

EDITING = """\
Rewrite this text: the point is called Marrow Point, and the goat is a sheep. Change nothing else
and give the whole text.

Add type hints to every function of this module and open files in with statements. Change
nothing else and give the whole module.

Replace every number word of this text by figures. Change nothing else and give the whole text."""

SUMMARISING = """\
Summarise this text in five sentences.

Explain what each function of this module does.

List the events of this text in their order, one line each."""


def _paragraphs(text: str) -> tuple[str, ...]:
    return tuple(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def _about(instructions: str, texts: tuple[str, ...]) -> tuple[str, ...]:
    pairs = zip(_paragraphs(instructions), texts, strict=True)
    return tuple(f"{instruction}\n\n{text}" for instruction, text in pairs)


TASKS = (
    Task("chat", _paragraphs(CHAT)),
    Task("code", _paragraphs(PROGRAMMING)),
    Task("edit", _about(EDITING, (REPORT, CODE, REPORT))),
    Task("summary", _about(SUMMARISING, (REPORT, CODE, REPORT))),
    Task("reasoning", _paragraphs(REASONING)),
    Task("json", _paragraphs(JSON)),
)
