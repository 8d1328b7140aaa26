"""Parrots that utter what models of the families of chat templates write."""

import re
from pathlib import Path

from real_templates import template_of
from scripts.support.template_cases import BOS, QUESTION, Text, families, tools
from scripts.support.tiny_gguf import Words, bytes_of, pieces_of, write_parrot
from specchat.formats.families import format_of

BAR = "[|\uff5c]"
MARK = re.compile(
    rf"<{BAR}[^<>\n]{{1,40}}{BAR}>|<\|[\w\"]+\|?>|</?\w[\w:.]*\|?>|\[/?[A-Z_ ]+\]|\]<\]\w+\[>\["
)
CONTROL = re.compile(rf".*(?:{BAR}|\[|\])")
REACH = 40
"""The characters at the end of a prompt that a parrot must know where its marks are in it."""


def parrot_of(name: str, text: Text, path: Path, *, is_whole: bool = False) -> Path:
    """Write a parrot that utters a text after a question, and then ends its turn.

    With `is_whole` its tokenizer finds the pieces that it utters, so that a grammar can force them.
    """
    family, template = families()[name], template_of(name)
    offered = tools() if text.has_tools else []
    prompt = format_of(template, BOS, family.eos).prompt(QUESTION, think=text.think, tools=offered)
    end = prompt.text[-REACH:]
    marks = {*MARK.findall(f"{end}{text.text}"), family.eos}
    control = sorted({*filter(CONTROL.match, marks), family.eos, BOS, *family.control})
    pieces = pieces_of(f"{text.text}{family.eos}", marks)
    words = Words(
        control=tuple(control),
        user=tuple(sorted(marks - {*control})),
        whole=tuple(each for each in pieces if is_whole and str(each) not in end),
        template=template,
        eos=family.eos,
        bos=BOS,
    )
    return write_parrot(path, pieces, words, after=bytes_of(end, marks))
