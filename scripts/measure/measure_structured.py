"""Measure structured answers: forced runs, masks alone, no grammar, and llama-server's grammar.

The answers are arguments of functions by their JSON Schemas, without a drafter unless one is named.
All take turns question by question, with the same prompt, which has the schema; seconds are those
of decoding, without the prompt.

    python scripts/measure/measure_structured.py TARGET [--server PATH] [--drafter auto]
"""

from __future__ import annotations

import argparse
import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from unittest import mock

from scripts.support.counts import positive
from scripts.support.llama_server import ask, running_server
from scripts.support.machine_line import machine_line
from scripts.support.schema_corpora import CALLS, FunctionCall, fetch, function_calls
from specchat.decoding.constraint import Walk
from specchat.engine import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.structured.structure import Structure
from specchat.structured.structure_prompt import description_of

CONTEXT = 4096


class Answer(NamedTuple):
    """What one answer took; `passes` is 0 if that is unknown."""

    tokens: int
    seconds: float
    passes: int = 0
    is_whole: bool = True


Contestant = Callable[[FunctionCall, int], Answer]
"""Answers a question in at most so many tokens."""


@contextmanager
def masks_alone() -> Iterator[None]:
    """Let the target write forced tokens, too."""
    with mock.patch.object(Walk, "forced", return_value=()):
        yield


def structure_of(call: FunctionCall) -> Structure:
    """Return what the arguments of a function must look like; `messages` shows it."""
    return Structure("json_schema", json.dumps(call.schema), "relaxed", is_shown=False)


def messages(call: FunctionCall) -> list[dict[str, str]]:
    """Return the question with its schema, as all are asked it: attention costs the same."""
    description = description_of(structure_of(call))
    return [
        {"role": "system", "content": description},
        {"role": "user", "content": call.question},
    ]


def answered(engine: LocalEngine, call: FunctionCall, count: int, **options: Any) -> Answer:
    """Answer with an engine, greedily unless said otherwise."""
    engine.forget()
    asked: list[Any] = messages(call)
    chosen = {"temperature": 0.0, "max_tokens": count, **options}
    for _ in engine.chat(asked, **chosen):
        pass
    stats = engine.stats
    return Answer(stats.generated_tokens, stats.decode_s, stats.steps, stats.is_valid is not False)


def specchat(engine: LocalEngine, drafter: str, temperature: float) -> dict[str, Contestant]:
    """Return the ways to answer with specchat."""

    def forced(call: FunctionCall, count: int, drafter: str = "none") -> Answer:
        options: dict[str, Any] = {"temperature": temperature, "seed": 1, "drafter": drafter}
        return answered(engine, call, count, structure=structure_of(call), **options)

    def masked(call: FunctionCall, count: int) -> Answer:
        with masks_alone():
            return forced(call, count)

    def free(call: FunctionCall, count: int) -> Answer:
        options: dict[str, Any] = {"temperature": temperature, "seed": 1, "ignore_end": True}
        return answered(engine, call, count, drafter="none", **options)

    found: dict[str, Contestant] = {
        "forced runs": forced,
        "masks alone": masked,
        "no grammar": free,
    }
    if drafter != "none":
        found[f"forced runs, {drafter}"] = lambda call, count: forced(call, count, drafter)
    return found


def llama_server(address: str, temperature: float) -> Contestant:
    """Return llama-server with its own grammar of the same schema."""

    def answer(call: FunctionCall, count: int) -> Answer:
        asked = {
            "messages": messages(call),
            "response_format": {"type": "json_schema", "json_schema": {"schema": call.schema}},
            "temperature": temperature, "seed": 1, "max_tokens": count, "cache_prompt": False,
        }  # fmt: skip
        reply = ask(address, "v1/chat/completions", **asked)
        timings = reply["timings"]
        is_whole = reply["choices"][0]["finish_reason"] == "stop"
        return Answer(timings["predicted_n"], timings["predicted_ms"] / 1000, 0, is_whole)

    return answer


def main() -> None:
    """Measure one target and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path)
    parser.add_argument("--draft", type=Path)
    parser.add_argument("--drafter", default="none", help="one more way: forced runs and drafts")
    parser.add_argument("--server", type=Path, help="llama-server, to compare with")
    parser.add_argument("--wheel", type=Path, help="of bfcl-eval (default: fetch it)")
    parser.add_argument("--schemas", type=positive, default=30)
    parser.add_argument("--tokens", type=positive, default=120)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--threads", type=positive, default=os.cpu_count())
    given = parser.parse_args()
    wheel = given.wheel.read_bytes() if given.wheel else fetch(CALLS)
    found_calls = function_calls(wheel, given.schemas)  # of each kind
    calls = found_calls[:: len(found_calls) // given.schemas][: given.schemas]
    found: dict[str, list[Answer]] = defaultdict(list)
    with ExitStack() as stack:
        loading = Loading(given.target, given.draft, ctx=CONTEXT, threads=given.threads)
        engine = stack.enter_context(LocalEngine(loading))
        engine.prepare()
        running = specchat(engine, given.drafter, given.temperature)
        if given.server:
            options = ("-t", str(given.threads), "-c", str(CONTEXT), "--no-webui", "--jinja")
            address = stack.enter_context(running_server(given.server, given.target, *options))
            running["llama-server"] = llama_server(address, given.temperature)
        running["forced runs"](calls[0], 8)  # arranges the vocabulary
        for number, call in enumerate(calls):
            names = sorted(running, reverse=bool(number % 2))
            count = running["masks alone"](call, given.tokens).tokens
            for name in names:
                limit = count if name == "no grammar" else given.tokens
                found[name].append(running[name](call, limit))
    print(machine_line())
    print(f"{given.target.name}, {len(calls)} schemas, temperature {given.temperature:g}")
    print(table(found))


def table(found: dict[str, list[Answer]]) -> str:
    """Return a line for each way: medians of tokens/s, of ratios to masks alone, and sums."""
    lines = [f"{'':24} {'tokens/s':>8} {'of masks':>8} {'a pass':>7} {'tokens':>7} {'whole':>6}"]
    base = [each.tokens / each.seconds for each in found["masks alone"]]
    for name, answers in found.items():
        rates = [each.tokens / each.seconds for each in answers]
        ratio = median(rate / plain for rate, plain in zip(rates, base, strict=True))
        tokens, passes = (
            sum(column) for column in zip(*[each[:3:2] for each in answers], strict=True)
        )
        per_pass = f"{tokens / passes:.2f}" if passes else ""
        whole = sum(each.is_whole for each in answers)
        lines.append(
            f"{name:24} {median(rates):8.1f} {ratio:7.2f}x {per_pass:>7} {tokens:7} {whole:6}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
