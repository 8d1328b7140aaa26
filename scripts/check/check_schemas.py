"""Check that only values that fit a JSON Schema can be written, with what others have published.

    python scripts/check/check_schemas.py [--model MODEL.gguf] [--suite FILE] [--calls FILE]
        [--schemas 200]

The JSON-Schema-Test-Suite says of values whether they fit: of schemas that are enforced, none that
does not may be written, and of relaxed ones none may pass that is checked afterwards. Formats, and
what the suite calls optional, are counted by name. For the
schemas of 200 functions of BFCL, random texts that the grammar allows are checked by jsonschema-rs,
with the vocabulary of a model.
pip fetches both unless they are given: the source distribution of jsonschema, the wheel bfcl-eval.
Prints tables, and exits with 1 if a value that does not fit can be written.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import jsonschema_rs

from scripts.support.byte_grammar import BYTES, accepts, compiled, random_text
from scripts.support.schema_corpora import (
    CALLS,
    DRAFTS,
    SUITE,
    Group,
    fetch,
    function_calls,
    suite_of,
)
from specchat.errors import InvalidOption
from specchat.llama.model import Model
from specchat.planning.context_shape import ModelOptions
from specchat.structured.grammar_constraint import GrammarConstraint
from specchat.structured.grammar_source import grammar_of
from specchat.structured.grammar_vocabulary import GrammarVocabulary
from specchat.structured.schema_validation import AnswerCheck
from specchat.structured.structure import Check, Structure

TEXTS_EACH = 5
"""Random texts of each schema of a function."""


def main() -> int:
    """Print the tables; return 1 if a value that does not fit can be written."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", type=Path, help="whose vocabulary to use (default: bytes)")
    parser.add_argument("--suite", type=Path, help="the source distribution of jsonschema")
    parser.add_argument("--calls", type=Path, help="the wheel of bfcl-eval")
    parser.add_argument("--schemas", type=int, default=200, help="how many functions")
    options = parser.parse_args()
    suite = options.suite.read_bytes() if options.suite else fetch(SUITE, "--no-binary", ":all:")
    num_wrong = check_suite(suite)
    calls = options.calls.read_bytes() if options.calls else fetch(CALLS)
    schemas = [call.schema for call in function_calls(calls)]
    schemas = random.Random(1).sample(schemas, options.schemas)
    num_wrong += check_calls(schemas, vocabulary_of(options.model) if options.model else BYTES)
    return int(num_wrong > 0)


def vocabulary_of(path: Path) -> GrammarVocabulary:
    """Return the vocabulary of a model."""
    words = Model(path, ModelOptions()).vocabulary

    def tokenize(text: str) -> list[int]:
        return words.tokenize_more(text, parse_special=False)

    return GrammarVocabulary(
        words.size, words.named_piece, words.is_control, words.end_tokens, tokenize
    )


def check_suite(archive: bytes) -> int:
    """Print the table of the suite; return how many values were wrongly accepted."""
    print("| draft | check | groups enforced | tests | invalid accepted | valid refused |")
    print("|---|---|---:|---:|---:|---:|")
    named: Counter[str] = Counter()
    accepted: list[str] = []
    for draft in DRAFTS:
        groups = list(suite_of(archive, draft))
        plain = [group for group in groups if not _is_optional(group)]
        for check in ("strict", "relaxed"):
            wrong = _print_row(draft, plain, check)
            accepted += wrong
        for group in groups:
            if _is_optional(group):
                found = _examined(draft, group, "strict")
                named[Path(group.file).stem] += found["invalid"]
    listed = ", ".join(f"{name} {count}" for name, count in named.most_common() if count)
    print(f"\nInvalid values of formats and optional parts accepted: {listed or 'none'}.")
    for each in accepted:
        print(f"WRONG: {each}")
    return len(accepted)


def _is_optional(group: Group) -> bool:
    return group.file.startswith("optional/") or group.file == "format.json"


def _print_row(draft: str, groups: Sequence[Group], check: Check) -> list[str]:
    """Print a row; return the groups in which a value was wrongly accepted."""
    found = [(group, counts) for group in groups if (counts := _examined(draft, group, check))]
    total = sum((counts for _, counts in found), Counter[str]())
    print(
        f"| {draft} | {check} | {len(found)} of {len(groups)} | {total['tests']} |"
        f" {total['invalid']} | {total['valid']} |"
    )
    return [
        f"{draft}/{group.file}: {group.name}: {json.dumps(group.schema)}"
        for group, counts in found
        if counts["invalid"]
    ]


def _examined(draft: str, group: Group, check: Check) -> Counter[str]:
    """Return the number of tests and of wrong answers; empty for a schema that is refused."""
    schema = group.schema
    if isinstance(schema, dict):
        schema = {"$schema": DRAFTS[draft], **schema}
    structure = Structure("json_schema", json.dumps(schema), check)
    try:
        constraint = compiled(schema, check)
        afterwards = AnswerCheck(structure.source) if grammar_of(structure).notices else None
    except InvalidOption:
        return Counter()
    counts = Counter({"tests": len(group.tests)})
    for value, is_fit in group.tests:
        is_accepted = accepts(constraint, value)
        if is_accepted and afterwards:
            is_accepted = not afterwards.why_invalid(json.dumps(value))
        if is_accepted != is_fit:
            counts["valid" if is_fit else "invalid"] += 1
    return counts


def check_calls(schemas: Sequence[Any], vocabulary: GrammarVocabulary) -> int:
    """Print what became of random texts for functions; return how many did not fit."""
    counts: Counter[str] = Counter()
    seconds: list[float] = []
    chance = random.Random(2)
    GrammarConstraint(grammar_of(Structure("regex", "a")), vocabulary)  # arranges the vocabulary
    for schema in schemas:
        began = perf_counter()
        try:
            grammar = grammar_of(Structure("json_schema", json.dumps(schema)))
            constraint = GrammarConstraint(grammar, vocabulary)
        except InvalidOption as error:
            counts["refused"] += 1
            print(f"refused: {error}")
            continue
        seconds.append(perf_counter() - began)
        is_fit = jsonschema_rs.validator_for(schema).is_valid
        for _ in range(TEXTS_EACH):
            text, num_forced, num_tokens = random_text(constraint.restarted(), vocabulary, chance)
            counts.update(forced=num_forced, tokens=num_tokens, texts=1)
            counts["finished"] += text is not None
            if text is not None and not is_fit(json.loads(text, parse_float=_finite)):
                counts["wrong"] += 1
                print(f"WRONG: {text} for {json.dumps(schema)}")
    print(
        f"\n{len(schemas)} functions: {counts['refused']} refused; {counts['finished']} of"
        f" {counts['texts']} random texts finished, {counts['wrong']} of them wrong;"
        f" {counts['forced'] / max(1, counts['tokens']):.0%} of {counts['tokens']} tokens forced;"
        f" compiled in {sorted(seconds)[len(seconds) // 2] * 1000:.1f} ms (median),"
        f" {max(seconds) * 1000:.1f} ms at most."
    )
    return counts["wrong"]


def _finite(text: str) -> float:
    """Return a number; 1e999 fits a schema of numbers, but is no finite one in Python."""
    return max(-sys.float_info.max, min(sys.float_info.max, float(text)))


if __name__ == "__main__":
    sys.exit(main())
