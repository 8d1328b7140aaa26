"""Parrots that utter what models of the families of chat templates write."""

import re
from pathlib import Path

from real_templates import template_of
from scripts.support.template_cases import BOS, QUESTION, Text, families, tools
from scripts.support.tiny_gguf import Words, bytes_of, pieces_of, write_parrot
from specchat.chat.formats import format_of

BAR = "[|\uff5c]"
MARK = re.compile(
    rf"<{BAR}[^<>\n]{{1,40}}{BAR}>|<\|[\w\"]+\|?>|</?\w[\w:.]*\|?>|\[/?[A-Z_ ]+\]|\]<\]\w+\[>\["
)
CONTROL = re.compile(rf".*(?:{BAR}|\[|\])")
REACH = 40
"""The characters at the end of a prompt that a parrot must know where its marks are in it."""


def parrot_of(name: str, text: Text, path: Path) -> Path:
    """Write a parrot that utters a text after a question, and then ends its turn."""
    family, template = families()[name], template_of(name)
    offered = tools() if text.has_tools else []
    prompt = format_of(template, BOS, family.eos).prompt(QUESTION, think=text.think, tools=offered)
    end = prompt.text[-REACH:]
    marks = {*MARK.findall(f"{end}{text.text}"), family.eos}
    control = sorted({*filter(CONTROL.match, marks), family.eos, BOS, *family.control})
    words = Words(
        control=tuple(control),
        user=tuple(sorted(marks - {*control})),
        template=template,
        eos=family.eos,
        bos=BOS,
    )
    pieces = pieces_of(f"{text.text}{family.eos}", marks)
    return write_parrot(path, pieces, words, after=bytes_of(end, marks))
