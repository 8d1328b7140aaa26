"""Count what each way of calling `specchat serve` drafts, forces and accepts.

    python scripts/measure/measure_ways.py [--target FILE | --pair smollm2-135m] [--tokens 120]

Prints the table of docs/server.md: each way's tokens, and the passes of the target that they took,
at temperature 0. Exits with 1 if speculation is off in one.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from scripts.support.counts import positive
from scripts.support.server_process import ServerProcess

QUESTION = "Write two short sentences about a fox, then repeat them."
TEXT = "for (int i = 0; i < n; i++) {\n    sum += a[i];\n}\nfor (int j = 0; j < n; j++) {\n"
GRAMMAR = 'root ::= "- " [a-z ]{4,20} "\\n- " [a-z ]{4,20} "\\n- " [a-z ]{4,20}'
STRING: dict[str, Any] = {"type": "string", "maxLength": 24}
INTEGER: dict[str, Any] = {"type": "integer", "minimum": 0, "maximum": 99999}
WHEN: dict[str, Any] = {"type": "string", "format": "date"}
SCHEMAS: dict[str, dict[str, Any]] = {
    "an address": {"street": STRING, "number": INTEGER, "city": STRING, "country": STRING},
    "a person": {"first_name": STRING, "last_name": STRING, "age": INTEGER, "email": STRING},
    "an invoice": {
        "invoice_number": INTEGER,
        "issued_on": WHEN,
        "lines": {
            "type": "array",
            "minItems": 1,
            "maxItems": 3,
            "items": {"description": STRING, "quantity": INTEGER, "unit_price": INTEGER},
        },
        "currency": {"enum": ["EUR", "USD", "CHF"]},
    },
    "a ticket": {
        "title": STRING,
        "priority": {"enum": ["low", "medium", "high"]},
        "labels": {"type": "array", "maxItems": 3, "items": {"enum": ["bug", "question", "docs"]}},
    },
    "a review": {"rating": INTEGER, "summary": STRING, "recommended": {"type": "boolean"}},
    "an event": {"name": STRING, "starts_on": WHEN, "ends_on": WHEN, "location": STRING},
    "a recipe": {"name": STRING, "servings": INTEGER, "vegetarian": {"type": "boolean"}},
    "a product": {"sku": STRING, "price_in_cents": INTEGER, "in_stock": {"type": "boolean"}},
    "a flight": {"airline": STRING, "from_airport": STRING, "to_airport": STRING, "day": WHEN},
    "a verdict": {
        "sentiment": {"enum": ["positive", "neutral", "negative"]},
        "confidence": {"enum": ["low", "high"]},
        "explanation": STRING,
    },
}
"""What applications ask for: the properties of objects, all of them required."""


class Counted(NamedTuple):
    """What was counted of an answer, or of several."""

    tokens: int
    passes: int
    drafted: int
    forced: int
    accepted: int


def main() -> int:
    """Print a row for each way; return 1 if one is not drafted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pair", default="smollm2-135m")
    parser.add_argument("--target", help="a GGUF file instead")
    parser.add_argument("--tokens", type=positive, default=120)
    options = parser.parse_args()
    words = ("--target", options.target) if options.target else ("--pair", options.pair)
    is_off = False
    print("| way | tokens | passes | drafted | forced | accepted | tokens per pass |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |", flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="specchat-ways-") as folder,
        ServerProcess(Path(folder), (*words, "--no-learn")) as server,
    ):
        for way, asked in ways(options.tokens):
            counted = list[Counted]()
            for path, body in asked:
                reply = posted(server.address + path, {**body, "temperature": 0})
                if reason := reply["specchat"]["speculation_off_reason"]:
                    print(f"{way}: {reason}", file=sys.stderr)
                    is_off = True
                counted.append(counted_of(reply))
            total = Counted(*map(sum, zip(*counted, strict=True)))
            rate = total.tokens / max(1, total.passes)
            print(f"| {way} | {' | '.join(map(str, total))} | {rate:.1f} |", flush=True)
    return int(is_off)


def ways(tokens: int) -> Iterator[tuple[str, list[tuple[str, dict[str, Any]]]]]:
    """Yield the ways of calling: the name, and the requests of each, as paths with bodies."""
    chat = "/v1/chat/completions"
    asked = {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": tokens}
    question = [{"role": "user", "content": "How is the weather in Oslo and Graz?"}]
    weather: dict[str, Any] = {"messages": question, "max_tokens": tokens}
    schema = {"type": "object", "properties": {"city": STRING, "day": WHEN}, "required": ["city"]}
    function = {"name": "get_weather", "description": "The weather", "parameters": schema}
    tools: dict[str, Any] = {**weather, "tools": [{"type": "function", "function": function}]}
    named = {"type": "function", "function": {"name": "get_weather"}}
    anthropic = {"name": "get_weather", "description": "The weather", "input_schema": schema}
    yield "chat", [(chat, asked)]
    yield "responses", [("/v1/responses", {"input": QUESTION, "max_output_tokens": tokens})]
    yield "messages", [("/v1/messages", asked)]
    yield "completions", [("/v1/completions", {"prompt": TEXT, "max_tokens": tokens})]
    yield "tools, auto", [(chat, tools)]
    yield "tools, required", [(chat, {**tools, "tool_choice": "required"})]
    yield "a tool by its name", [(chat, {**tools, "tool_choice": named})]
    yield (
        "tools, one call",
        [(chat, {**tools, "tool_choice": "required", "parallel_tool_calls": False})],
    )
    yield (
        "messages, tools",
        [("/v1/messages", {**weather, "tools": [anthropic], "tool_choice": {"type": "any"}})],
    )
    yield "grammar", [(chat, {**asked, "grammar": GRAMMAR})]
    yield (
        "ten schemas",
        [
            (
                chat,
                {**_about(name), "max_tokens": 2 * tokens, "response_format": _format(properties)},
            )
            for name, properties in SCHEMAS.items()
        ],
    )


def _about(name: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": f"Make up {name}."}]}


def _format(properties: dict[str, Any]) -> dict[str, Any]:
    """Return the response format for an object with these properties."""
    return {"type": "json_schema", "json_schema": {"name": "it", "schema": _object(properties)}}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object that has all properties; items are objects, too."""
    whole = dict(properties)
    for name, each in properties.items():
        items = each.get("items")
        if items and not {"enum", "type"} & items.keys():
            whole[name] = {**each, "items": _object(items)}
    return {"type": "object", "properties": whole, "required": [*whole]}


def posted(address: str, body: dict[str, Any]) -> dict[str, Any]:
    """Return the reply to a request. Raises OSError for an error."""
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(address, json.dumps(body).encode(), headers)  # noqa: S310
    with urllib.request.urlopen(request, timeout=600) as reply:  # noqa: S310
        found: dict[str, Any] = json.load(reply)
        return found


def counted_of(reply: dict[str, Any]) -> Counted:
    """Return what a reply says of its answer."""
    timings = reply["timings"]
    return Counted(
        timings["predicted_n"],
        reply["metrics"]["speculative_decoding"]["num_spec_steps"],
        timings["draft_n"],
        reply["specchat"]["forced"],
        timings["draft_n_accepted"],
    )


if __name__ == "__main__":
    sys.exit(main())
