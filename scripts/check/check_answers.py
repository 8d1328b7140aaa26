"""Check that what a model writes by the JSON Schemas of functions fits them, with any drafter.

    python scripts/check/check_answers.py TARGET.gguf [--draft DRAFT.gguf] [--schemas 200]
        [--heads 20] [--exact on] [--calls WHEEL]

The answers are arguments of BFCL's functions, at temperature 0 and, with two seeds, at 0.8, each
without drafts, with suffix lookup and with a draft model (the target is its own unless another one
is given). Texts that ended by themselves are checked by jsonschema-rs, by the schema as it is
given. With `--exact on`, the tokens must be those without drafts, too. The target has no head:
`--heads` has a tiny model of random weights with one answer that many of the schemas.
pip fetches the functions unless the wheel bfcl-eval is given. Prints a table and each fault with
its schema and text, and exits with 1 if there is any. Ctrl+C ends a run with what was found so far.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, NamedTuple

import jsonschema_rs

from scripts.support.counts import positive
from scripts.support.machine_line import machine_line
from scripts.support.schema_corpora import CALLS, FunctionCall, fetch, function_calls
from scripts.support.tiny_gguf import write_with_head
from specchat.engine import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.errors import InvalidOption, SpecchatError
from specchat.structured.structure import Structure

WAYS: dict[str, dict[str, Any]] = {
    "temperature 0": {"temperature": 0.0},
    "0.8, seed 1": {"temperature": 0.8, "seed": 1},
    "0.8, seed 2": {"temperature": 0.8, "seed": 2},
}
DRAFTERS = ("none", "suffix", "model")
DRAFT_LENGTH = 4
"""Paced drafters might not draft at all on a busy machine."""
TOKENS_OF_HEADS = 400
"""Tokens of an answer of the tiny model, which have a byte each."""
CONTEXT = 4096
REPORT_SECONDS = 60


class Answer(NamedTuple):
    """What was written: whether by its grammar it is whole, and how much was drafted."""

    tokens: list[int]
    text: str
    is_whole: bool
    accepted: int


class Report:
    """Counts what became of the answers, for each way and drafter, and prints faults."""

    def __init__(self, *, is_exact: bool) -> None:
        """Count nothing yet; tokens that differ are faults if the passes are exact."""
        self._is_exact = is_exact
        self._counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        self._plain: dict[str, Answer] = {}
        self.num_faults = 0

    def add(self, call: FunctionCall, way: str, drafter: str, answer: Answer) -> None:
        """Check an answer; those of other drafters follow that without one."""
        counts = self._counts[way, drafter]
        counts.update(answers=1, finished=answer.is_whole, accepted=answer.accepted)
        if drafter == "none":
            self._plain[way] = answer
        is_same = answer.tokens == self._plain[way].tokens
        counts["same"] += is_same
        if not is_same and self._is_exact:
            self.fault(f"{way}, {drafter}: differs from {self._plain[way].text!r}", call, answer)
        if answer.is_whole:
            reason = why_unfit(call.schema, answer.text)
            counts["valid"] += not reason
            if reason:
                self.fault(f"{way}, {drafter}: {reason}", call, answer)

    def fault(self, reason: str, call: FunctionCall, answer: Answer | None = None) -> None:
        """Print a fault."""
        self.num_faults += 1
        text = f"\n  text: {answer.text}" if answer else ""
        print(f"FAULT: {reason}\n  schema: {json.dumps(call.schema)}{text}", flush=True)

    def table(self) -> str:
        """Return a line for each way and drafter."""
        lines = [
            "| sampling | drafter | answers | finished | of these valid | same tokens | accepted |",
            "|---|---|---:|---:|---:|---:|---:|",
        ]
        for (way, drafter), counts in self._counts.items():
            shown = [counts[name] for name in ("answers", "finished", "valid", "same", "accepted")]
            lines.append(f"| {way} | {drafter} | {' | '.join(map(str, shown))} |")
        return "\n".join(lines)


def main() -> int:
    """Check one target, and heads if asked for; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("target", type=Path)
    parser.add_argument("--draft", type=Path, help="the draft model (default: the target)")
    parser.add_argument("--calls", type=Path, help="the wheel of bfcl-eval (default: fetch it)")
    parser.add_argument("--schemas", type=positive, default=200)
    parser.add_argument("--heads", type=int, default=0, help="schemas for a model with a head")
    parser.add_argument("--tokens", type=positive, default=120, help="of an answer, at most")
    parser.add_argument("--exact", choices=("on", "auto", "off"), default="on")
    parser.add_argument("--threads", type=positive, default=1)
    options = parser.parse_args()
    calls = function_calls(options.calls.read_bytes() if options.calls else fetch(CALLS))
    print(f"{machine_line()}; exact {options.exact}, {options.threads} threads")
    loaded = (options.target, options.draft or options.target)
    num_faults = check(loaded, spread(calls, options.schemas), DRAFTERS, options)
    if options.heads:
        options.tokens = TOKENS_OF_HEADS
        with TemporaryDirectory() as folder:
            target = write_with_head(Path(folder, "head.gguf"), can_end=True)
            some = spread(calls, options.heads)
            num_faults += check((target, None), some, ("none", "head"), options)
    return int(num_faults > 0)


def spread(calls: Sequence[FunctionCall], count: int) -> list[FunctionCall]:
    """Return so many of the functions, of all kinds from the first ones on."""
    return random.Random(1).sample(calls, min(count, len(calls)))


def check(
    loaded: tuple[Path, Path | None],
    calls: Sequence[FunctionCall],
    drafters: Sequence[str],
    options: argparse.Namespace,
) -> int:
    """Have a pair answer all questions, print the table, and return the number of faults."""
    loading = Loading(
        *loaded, ctx=CONTEXT, threads=options.threads, gpu_layers=0, exact=options.exact,
        learn=False,
    )  # fmt: skip
    with LocalEngine(loading) as engine:
        engine.prepare()
        if options.exact == "on" and not engine.facts.exact_draft:
            raise SystemExit("no draft seems to be exact here: try again when the machine is idle")
        report = Report(is_exact=options.exact == "on")
        num_asked = num_refused = 0
        next_report = monotonic() + REPORT_SECONDS
        with suppress(KeyboardInterrupt):
            for call in calls:
                num_refused += not answer_all(engine, call, drafters, options.tokens, report)
                num_asked += 1
                if monotonic() > next_report:
                    next_report += REPORT_SECONDS
                    print(f"{num_asked} of {len(calls)} schemas", file=sys.stderr, flush=True)
        print(
            f"\n{loaded[0].name}: {num_asked} schemas, {num_refused} refused, up to"
            f" {options.tokens} tokens; drafts of {engine.facts.exact_draft} are exact;"
            f" {report.num_faults} faults\n\n{report.table()}\n",
            flush=True,
        )
    return report.num_faults


def answer_all(
    engine: LocalEngine,
    call: FunctionCall,
    drafters: Sequence[str],
    count: int,
    report: Report,
) -> bool:
    """Answer one question in all ways; return False if its schema is refused."""
    structure = Structure("json_schema", json.dumps(call.schema))
    usual = {"structure": structure, "max_tokens": count, "draft_length": DRAFT_LENGTH}
    for way, sampling in WAYS.items():
        for drafter in drafters:
            options = {**usual, "drafter": drafter, **sampling}
            try:
                report.add(call, way, drafter, answered(engine, call.question, options))
            except InvalidOption as error:
                print(f"refused: {error}", flush=True)
                return False
            except SpecchatError as error:
                report.fault(f"{way}, {drafter}: {type(error).__name__}: {error}", call)
    return True


def answered(engine: LocalEngine, question: str, options: dict[str, Any]) -> Answer:
    """Return the answer to a question."""
    chunks = list(engine.chat([{"role": "user", "content": question}], **options))
    text = "".join(chunk.text for chunk in chunks)
    tokens = [token for chunk in chunks for token in chunk.tokens]
    is_whole = chunks[-1].finish == "stop" and engine.stats.is_valid is True
    return Answer(tokens, text, is_whole, engine.stats.accepted)


def why_unfit(schema: dict[str, Any], text: str) -> str:
    """Return why a text does not fit a schema; empty if it does."""
    try:
        jsonschema_rs.validate(schema, json.loads(text, parse_float=_finite))
    except ValueError as error:  # of json and of jsonschema_rs
        return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return ""


def _finite(text: str) -> float:
    """Return a number; 1e999 fits a schema of numbers, but is no finite one in Python."""
    return max(-sys.float_info.max, min(sys.float_info.max, float(text)))


if __name__ == "__main__":
    sys.exit(main())
