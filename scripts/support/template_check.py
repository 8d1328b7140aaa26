"""What specchat makes of a template, beside what llama-server was recorded to make of it."""

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import zip_longest
from typing import Any, Literal, TypeAlias

from scripts.support.template_cases import (
    AUTO,
    BOS,
    QUESTION,
    Asked,
    Family,
    Message,
    Text,
    digest,
    ideal,
    tools,
    unpacked,
    without_date,
)
from specchat.errors import SpecchatError
from specchat.formats.answer_reader import AnswerReader
from specchat.formats.chat_format import ChatFormat
from specchat.formats.families import format_of

Verdict: TypeAlias = Literal["same", "better", "differs"]
"""better: specchat does what is meant, and llama-server does not."""

LEFT_OUT = "llama-server keeps the reasoning of earlier answers, the template by default does not"
DESCRIBED = "the template leaves out tools: specchat describes them in the system prompt"
GENERIC = "the template does not show calls: specchat offers tools in its generic form"
BLANK_LINE = "a blank line follows the system prompt, as in Gemma 3's template"
MEANT: Mapping[tuple[str, str], str] = {
    ("google-gemma-2-2b-it", "auto"): BLANK_LINE,
    ("ibm-granite-granite-3.3-2B-Instruct", "tools"): GENERIC,
    ("deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "tool result"): DESCRIBED,
    ("deepseek-ai-DeepSeek-V3.1", "tool result"): DESCRIBED,
    ("fireworks-ai-llama-3-firefunction-v2", "tool result"): DESCRIBED,
    ("poolside-Laguna-S-2.1", "off"): LEFT_OUT,
    ("GLM-4.7-Flash", "earlier reasoning"): LEFT_OUT,
    ("LFM2.5-8B-A1B", "earlier reasoning"): LEFT_OUT,
    ("NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "earlier reasoning"): LEFT_OUT,
    **{
        (f"deepseek-ai-DeepSeek-{version}", case): LEFT_OUT
        for version, more in (("V4", ()), ("V4-Flash-0731", ("high",)))
        for case in ("auto", "on", "max", "earlier reasoning", *more)
    },
}
"""Why a prompt is meant to differ, by the template and the name of the prompt."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One comparison: of what ("prompt", "history", a kind of text, "cut", ...), and the verdict.

    `case` is the word of `--think`, or the name of a history.
    """

    what: str
    case: str
    verdict: Verdict
    detail: str = ""


@dataclass(slots=True)
class Checked:
    """All that was found about one template, with the milliseconds to learn its format."""

    name: str
    findings: list[Finding] = field(default_factory=list)
    learned_ms: float = 0.0
    read_us: list[float] = field(default_factory=list)
    """Microseconds for each character of answers that came one by one."""

    def count(self, verdict: Verdict, *kinds: str) -> int:
        """Return the number of findings of some kinds with a verdict."""
        return sum(each.verdict == verdict and each.what in kinds for each in self.findings)


def check(name: str, template: str, family: Family, recorded: Mapping[str, Any]) -> Checked:
    """Compare a template's prompts, answers and calls with the recorded ones."""
    begun = time.perf_counter()
    form = format_of(template, BOS, family.eos)
    checked = Checked(name, learned_ms=1000 * (time.perf_counter() - begun))
    known = {"NUMBER" if word.isdecimal() else word for word in family.switches}
    words: Verdict = "same" if known == set(form.thinking) else "differs"
    detail = f"{' '.join(form.thinking)} instead of {' '.join(known)}"
    checked.findings.append(Finding("words", AUTO, words, "" if words == "same" else detail))
    for case, asked in family.prompts.items():
        found = _prompt(form, case, asked, recorded["prompts"][case])
        if reason := MEANT.get((name, case)):
            verdict: Verdict = "better" if found.verdict == "differs" else "differs"
            found = replace(found, verdict=verdict, detail=reason)
        checked.findings.append(found)
    for text, theirs in zip(family.texts, recorded["texts"], strict=True):
        try:
            checked.findings += _text(form, text, theirs, checked.read_us)
        except SpecchatError as error:
            checked.findings.append(Finding(text.kind, text.think, "differs", str(error)))
    return checked


def _prompt(form: ChatFormat, case: str, asked: Asked, theirs: Mapping[str, Any]) -> Finding:
    """Compare a prompt by its digest, or, from a running server, as text."""
    what = "prompt" if case == asked.think else "history"
    offered = tools() if asked.has_tools else []
    try:
        prompt = form.prompt(asked.messages, think=asked.think, tools=offered)
    except SpecchatError as error:
        return Finding(what, case, "same" if "refused" in theirs else "differs", str(error))
    if "refused" in theirs:
        return Finding(what, case, "better", "llama-server refuses it")
    lost, lost_by_them = asked.lacking(prompt.text), theirs.get("lacks", [])
    if what == "prompt" and lost:
        return Finding(what, case, "differs", f"leaves out {lost}")
    ours = without_date(prompt.text, datetime.now().astimezone())
    if digest(ours) == theirs["sha256"]:
        return Finding(what, case, "same")
    shown = difference(theirs["text"], ours) if "text" in theirs else "another digest"
    if {*lost} < {*lost_by_them}:
        return Finding(what, case, "better", f"llama-server leaves out {lost_by_them}, not {lost}")
    return Finding(what, case, "differs", shown)


def difference(theirs: str, ours: str) -> str:
    """Return where two texts begin to differ, with what is around it."""
    pairs = enumerate(zip_longest(theirs, ours))
    place = next((number for number, (one, other) in pairs if one != other), 0)
    shown = slice(max(0, place - 30), place + 50)
    return f"llama-server has {theirs[shown]!r}, specchat {ours[shown]!r}"


def _text(
    form: ChatFormat, text: Text, theirs: Mapping[str, Any], read_us: list[float]
) -> Iterator[Finding]:
    """Compare the parts of a text, whole, character by character, and cut after each."""
    offered = tools() if text.has_tools else []
    state = form.prompt(QUESTION, think=text.think, tools=offered).state
    ours = read([text.text], AnswerReader(form, state, offered))
    begun = time.perf_counter()
    slowly = read(text.text, AnswerReader(form, state, offered))
    read_us.append(1e6 * (time.perf_counter() - begun) / len(text.text))
    whole = None if "refused" in theirs else _message(theirs)
    yield _whole(text, ours, whole)
    streamed: Verdict = "same" if slowly == ours else "differs"
    yield Finding("streamed", text.think, streamed, f"{text.kind}: {slowly}, at once {ours}")
    if whole and "steps" in theirs and ours.trimmed() == whole.trimmed():
        for beginning, cut in zip(text.beginnings, unpacked(theirs["steps"], whole), strict=True):
            reader = AnswerReader(form, state, offered)
            so_far = read([beginning], reader, is_cut=beginning != text.text)
            yield _cut(text, beginning, so_far, cut)


def read(pieces: Iterable[str], reader: AnswerReader, *, is_cut: bool = False) -> Message:
    """Return what a reader makes of an answer that comes in pieces."""
    parts = [part for piece in pieces for part in reader.read(piece)]
    parts += reader.finish(is_cut=is_cut)
    texts = {
        wanted: "".join(text for kind, text in parts if kind == wanted)
        for wanted in ("reasoning", "answer")
    }
    calls = [[call.name, json.loads(call.arguments)] for call in reader.calls]
    return Message(texts["reasoning"], texts["answer"], calls)


def _message(theirs: Mapping[str, Any]) -> Message:
    return Message(theirs["reasoning"], theirs["answer"], theirs.get("calls", []))


def _whole(text: Text, ours: Message, theirs: Message | None) -> Finding:
    if theirs and ours.trimmed() == theirs.trimmed():
        return Finding(text.kind, text.think, "same")
    said = f"llama-server reads {theirs}" if theirs else "llama-server refuses it"
    verdict: Verdict = "better" if ours.trimmed() == ideal(text.kind).trimmed() else "differs"
    return Finding(text.kind, text.think, verdict, f"{said}, specchat {ours}")


def _cut(text: Text, beginning: str, ours: Message, theirs: Message) -> Finding:
    verdict: Verdict = "same" if ours.trimmed() == theirs.trimmed() else "differs"
    detail = f"{text.kind} {beginning!r}: llama-server reads {theirs}, specchat {ours}"
    return Finding("cut", text.think, verdict, detail)
